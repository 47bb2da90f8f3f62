/* What every emitted program begins with. Values of up to 64 bits are u64, wider ones u128; bits above a value's width
 * are 0. */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

typedef __u64 u64;
/* As the kernel aligns what maps hold. */
typedef unsigned __int128 u128 __attribute__((aligned(8)));

/* A header that is not valid begins here, behind the end of every packet: two bytes that are alike. */
#define NOWHERE 0x3f3f
/* And here one that did not come with the packet. */
#define FRESH 0x3f3e
/* Bounds what lies in a packet, for the verifier. */
#define WITHIN(at) ((at) & 0x3fff)
/* Longest packet whose payload is summed. */
#define LENGTH_MAX 4096
/* Whose port it is not. */
#define NO_PORT 0xffffffffU

/* A pointer as it is: what is compared with the packet's end is what is used after. */
#define held(pointer)                                  \
	({                                             \
		__typeof__(pointer) held_ = (pointer); \
		asm volatile("" : "+r"(held_));        \
		held_;                                 \
	})

/* What is in a map, or null. Of two look-ups in different maps the compiler would make one, with the map in a register:
 * the kernel writes out those alone whose map it knows. */
#define look_up(map, key) held(bpf_map_lookup_elem(map, key))

/* A pointer to a place in the packet; of one place the compiler may keep it. Where all values are in a map it may not: the
 * verifier goes on apart with what it knows of each pointer that is kept. */
#ifdef KEEP_NO_PLACE
#define PLACE(off) held((void *)(data + WITHIN(off)))
#else
#define PLACE(off)                                 \
	({                                         \
		void *place_ = data + WITHIN(off); \
		asm("" : "+r"(place_));            \
		place_;                            \
	})
#endif

/* The lowest byte, masked where the verifier sees it: the compiler may know that there is no other. */
#define LOW_BYTE(x) (held((u64)(x)) & 0xff)

/* A value of so many bytes in a word, as if it were written from byte `at` of it on; and half of one of two words. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define PART(value, at, bytes, word) ((u64)(value) << 8 * (at))
#define HALF(value, second) ((u64)((value) >> ((second) ? 64 : 0)))
#else
#define PART(value, at, bytes, word) ((u64)(value) << 8 * ((word) - (at) - (bytes)))
#define HALF(value, second) ((u64)((value) >> ((second) ? 0 : 64)))
#endif

/* What the loader says before the program is checked. */
struct config {
	/* Whether packets come by BPF_PROG_TEST_RUN: ports and time are in `tested`, then. */
	__u32 testing;
	/* The port that is this machine itself, or NO_PORT. */
	__u32 local_port;
	/* When the element started, ns of CLOCK_MONOTONIC. */
	u64 began_ns;
};

const volatile struct config config SEC(".rodata.config") = {.local_port = NO_PORT};

/* Of the packet that is tested. */
struct tested {
	u64 now_us;
	__u32 ingress_port;
	/* Where it left; written by the program. */
	__u32 egress_port;
	/* Why it was lost: enum lost, from 1 on; written by the program. */
	__u32 lost;
	__u32 pad;
};

volatile struct tested tested SEC(".data.tested");

/* Ways out: interfaces by port. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 512);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} ports SEC(".maps");

/* Ways in: ports by interface, plus 1; 0: it is none. An array, as each packet asks; interfaces of higher numbers are
 * in a hash table. */
#define WAYS 4096

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WAYS);
	__type(key, __u32);
	__type(value, __u32);
} ways SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 512);
	__type(key, __u32);
	__type(value, __u32);
} far_ways SEC(".maps");

/* Why a packet went no further, or was not told of. */
enum lost {
	/* The program said so. */
	DROPPED,
	/* There was no room before it for longer headers, or too little would be left. */
	NO_ROOM,
	/* It came by an interface that is no port. */
	NO_WAY_IN,
	/* A digest found the buffer full; the packet goes on. */
	DIGEST_LOST,
	/* Its parser moved by parts of a byte. */
	ODD_BITS,
	/* It came in once more too often. */
	RECIRCULATED,
	LOST_KINDS,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LOST_KINDS);
	__type(key, __u32);
	__type(value, u64);
} lost SEC(".maps");

static __always_inline void count_lost(__u32 why)
{
	u64 *count = look_up(&lost, &why);

	if (count)
		*count += 1;
}

static __always_inline int lose(__u32 why)
{
	count_lost(why);
	if (config.testing)
		tested.lost = why + 1;
	return XDP_DROP;
}

/* The port that a packet came in by, or NO_PORT. */
static __always_inline __u32 came_by(struct xdp_md *xdp)
{
	__u32 interface, *port;

	if (config.testing)
		return tested.ingress_port;
	interface = xdp->ingress_ifindex;
	port = look_up(&ways, &interface);
	if (!port)
		port = look_up(&far_ways, &interface);
	return port ? *port - 1 : NO_PORT;
}

static __always_inline u64 now_us(void)
{
	u64 eighths, low;

	if (config.testing)
		return tested.now_us;
	/* A thousandth without a division, for the first 36 years: 2^31 is 125 * 17179869 + 23, and 549755814 / 2^36 is
	 * 1 / 125 for less than 2^32. */
	eighths = (bpf_ktime_get_ns() - config.began_ns) >> 3;
	low = (eighths >> 31) * 23 + (eighths & 0x7fffffff);
	return (eighths >> 31) * 17179869 + (low * 549755814 >> 36);
}

/* Out by a port. */
static __always_inline int leave(struct xdp_md *xdp, __u32 port, __u32 came)
{
	if (config.testing) {
		tested.egress_port = port;
		return XDP_TX;
	}
	if (port == config.local_port)
		return XDP_PASS;
	if (port == came)
		return XDP_TX;
	return bpf_redirect_map(&ports, port, XDP_DROP);
}

static __always_inline u64 mask_of(int width)
{
	return width >= 64 ? ~0ULL : (1ULL << width) - 1;
}

static __always_inline u128 mask_of128(int width)
{
	return width >= 128 ? ~(u128)0 : ((u128)1 << width) - 1;
}

/* Sums in halves: of one of 128 bits the compiler makes products where a number is added to itself often enough, and
 * those it can't have here. */
static __always_inline u128 add128(u128 a, u128 b)
{
	u64 low = (u64)a + (u64)b;
	u64 high = (u64)(a >> 64) + (u64)(b >> 64) + (low < (u64)a);

	return (u128)high << 64 | low;
}

static __always_inline u128 sub128(u128 a, u128 b)
{
	u64 low = (u64)a - (u64)b;
	u64 high = (u64)(a >> 64) - (u64)(b >> 64) - ((u64)a < (u64)b);

	return (u128)high << 64 | low;
}

/* With the sign in all higher bits. */
static __always_inline u64 sext(u64 x, int width)
{
	return (u64)((__s64)(x << (64 - width)) >> (64 - width));
}

static __always_inline u128 sext128(u128 x, int width)
{
	u128 sign = (u128)1 << (width - 1);

	return sub128(x ^ sign, sign);
}

static __always_inline u64 uadd_sat(u64 a, u64 b, int width)
{
	u64 sum = a + b, most = mask_of(width);

	return sum < a || sum > most ? most : sum;
}

static __always_inline u64 usub_sat(u64 a, u64 b, int width)
{
	return a > b ? a - b : 0;
}

/* The greatest number where a negative one would come out of two others, and the other way round. */
static __always_inline u64 clamp(u64 result, u64 a, u64 sign, int over)
{
	return !over ? result : a & sign ? sign : sign - 1;
}

static __always_inline u64 sadd_sat(u64 a, u64 b, int width)
{
	u64 sign = 1ULL << (width - 1), sum = (a + b) & mask_of(width);

	return clamp(sum, a, sign, !!(~(a ^ b) & (a ^ sum) & sign));
}

static __always_inline u64 ssub_sat(u64 a, u64 b, int width)
{
	u64 sign = 1ULL << (width - 1), rest = (a - b) & mask_of(width);

	return clamp(rest, a, sign, !!((a ^ b) & (a ^ rest) & sign));
}

static __always_inline u128 uadd_sat128(u128 a, u128 b, int width)
{
	u128 sum = add128(a, b), most = mask_of128(width);

	return sum < a || sum > most ? most : sum;
}

static __always_inline u128 usub_sat128(u128 a, u128 b, int width)
{
	return a > b ? sub128(a, b) : 0;
}

static __always_inline u128 sadd_sat128(u128 a, u128 b, int width)
{
	u128 sign = (u128)1 << (width - 1), sum = add128(a, b) & mask_of128(width);

	return !(~(a ^ b) & (a ^ sum) & sign) ? sum : a & sign ? sign : sign - 1;
}

static __always_inline u128 ssub_sat128(u128 a, u128 b, int width)
{
	u128 sign = (u128)1 << (width - 1), rest = sub128(a, b) & mask_of128(width);

	return !((a ^ b) & (a ^ rest) & sign) ? rest : a & sign ? sign : sign - 1;
}

/* The lower half of a product: the compiler has no such instruction here. */
static __always_inline u128 mul128(u128 a, u128 b)
{
	u64 al = a, ah = a >> 64, bl = b, bh = b >> 64;
	u64 a0 = (__u32)al, a1 = al >> 32, b0 = (__u32)bl, b1 = bl >> 32;
	u64 low = a0 * b0, middle = a1 * b0 + (low >> 32), other = a0 * b1 + (__u32)middle;
	u64 high = a1 * b1 + (middle >> 32) + (other >> 32) + al * bh + ah * bl;

	return (u128)high << 64 | (other << 32 | (__u32)low);
}

static __always_inline u64 shl(u64 x, u64 by, int width)
{
	return by >= width ? 0 : x << by;
}

static __always_inline u64 shr(u64 x, u64 by, int width)
{
	return by >= width ? 0 : x >> by;
}

static __always_inline u64 sar(u64 x, u64 by, int width)
{
	return (u64)((__s64)sext(x, width) >> (by >= width ? 63 : by));
}

static __always_inline u128 shl128(u128 x, u64 by, int width)
{
	u64 low = x, high = x >> 64;

	if (by >= width)
		return 0;
	if (by >= 64)
		return (u128)(low << (by - 64)) << 64;
	return !by ? x : (u128)(high << by | low >> (64 - by)) << 64 | low << by;
}

static __always_inline u128 shr128(u128 x, u64 by, int width)
{
	u64 low = x, high = x >> 64;

	if (by >= width)
		return 0;
	if (by >= 64)
		return high >> (by - 64);
	return !by ? x : (u128)(high >> by) << 64 | (low >> by | high << (64 - by));
}

static __always_inline u128 sar128(u128 x, u64 by, int width)
{
	u128 sign = (u128)1 << (width - 1);

	/* What a negative number lacks is what a positive one has. */
	return x & sign ? ~shr128(~sext128(x, width), by >= width ? 127 : by, 128) : shr128(x, by, width);
}

/* A ones' complement sum in 16 bits (RFC 1071). */
static __always_inline u64 fold(u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}
