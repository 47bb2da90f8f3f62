// SPDX-License-Identifier: Apache-2.0
/* Source NAT written by hand for XDP: the fast path of functions/snat.p4c. One look-up, rewrite of addresses, ports and
 * checksums (RFC 1624). Packets without an entry, and packets for a server, go up to the host.
 *
 * With ACCOUNTED it also maintains the counters of a function's element for placement: a sketch of flows with two rows,
 * flows and packets of the window, packets of a flow at a server, and uses of entries.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ENTRIES 65536
#define INSIDE 0x0a000000
#define INSIDE_MASK 0xff000000
#define POOL 0xc0000200
#define POOL_BITS 4
/* Ports of the element: entries of `ports`. */
#define PORT_INSIDE 0
#define PORT_OUTSIDE 1

/* linux/icmp.h includes many headers of libc. */
#define ICMP_ECHOREPLY 0
#define ICMP_ECHO 8

struct icmphdr {
	__u8 type;
	__u8 code;
	__sum16 checksum;
	__be16 id;
	__be16 sequence;
};

struct vlan {
	__be16 tag;
	__be16 type;
};

struct key {
	__be32 addr;
	__be16 port;
	__u8 protocol;
	__u8 zero;
};

struct to {
	__be32 addr;
	__be16 port;
	__u16 zero;
#ifdef ACCOUNTED
	__u32 number;
	__u32 mode;
#else
	/* Set by each hit, so that unused entries expire. */
	__u32 used;
#endif
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ENTRIES);
	__type(key, struct key);
	__type(value, struct to);
} nat_out SEC(".maps"), nat_in SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 2);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} ports SEC(".maps");

enum verdict {
	UNTOUCHED,
	MAPPED,
	UP,
	VERDICTS,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, VERDICTS);
	__type(key, __u32);
	__type(value, __u64);
} verdicts SEC(".maps");

static __always_inline void count(__u32 verdict)
{
	__u64 *cell = bpf_map_lookup_elem(&verdicts, &verdict);

	if (cell)
		*cell += 1;
}

/* Updates a checksum after a change of its data by `change`, a one's complement sum of old and new words. */
static __always_inline __u16 changed(__u16 sum, __u64 change)
{
	change += (__u16)~sum;
	change = (change & 0xffffffff) + (change >> 32);
	change = (change & 0xffff) + (change >> 16);
	change = (change & 0xffff) + (change >> 16);
	change = (change & 0xffff) + (change >> 16);
	return ~change;
}

#ifdef ACCOUNTED
#define CELLS 65536
#define COLUMNS 1024
#define PERIOD_NS_LOG2 26
#define WINDOW_NS_LOG2 30

#define ARRAY(name, of, count)                       \
	struct {                                     \
		__uint(type, BPF_MAP_TYPE_ARRAY);    \
		__uint(max_entries, count);          \
		__type(key, __u32);                  \
		__type(value, of);                   \
	} name SEC(".maps")

struct flying {
	__u16 count[2];
	__u16 period[2];
};

ARRAY(flying, struct flying, CELLS);
ARRAY(row0, __u32, 2 * COLUMNS);
ARRAY(row1, __u32, 2 * COLUMNS);
ARRAY(met, __u16, CELLS);
/* Packets and flows of windows. */
ARRAY(totals, __u64, 2);
ARRAY(threshold, __u32, 1);
ARRAY(gone, __u8, 4 * ENTRIES);
ARRAY(used, __u32, 4 * ENTRIES);

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} heavy SEC(".maps");

static __always_inline void *at(void *map, __u32 index)
{
	return bpf_map_lookup_elem(map, &index);
}

static __always_inline __u32 hash_of(const struct key *key)
{
	__u64 word = (__u64)key->addr << 32 | (__u64)key->port << 16 | key->protocol;

	word *= 0x9e3779b97f4a7c15ULL;
	word ^= word >> 32;
	word *= 0xd6e8feb86659fd93ULL;
	return word >> 32;
}

/* Counts a packet in its column; returns the count in this window. */
static __always_inline __u32 one_more(void *row, __u32 column, __u32 window)
{
	__u32 *cell = at(row, (window & 1) * COLUMNS + (column & (COLUMNS - 1)));
	__u32 stamp = (window & 0xff) << 24;

	if (!cell)
		return 0;
	*cell = (*cell & 0xff000000) == stamp ? *cell + 1 : stamp | 1;
	return *cell & 0xffffff;
}

/* Counts a flow; returns whether one of its packets is at a server. */
static __always_inline int account(const struct key *key)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 hash = hash_of(key), window = now >> WINDOW_NS_LOG2, least, other;
	__u16 period = now >> PERIOD_NS_LOG2, stamp = window << 1, *seen;
	struct flying *cell = at(&flying, hash >> 16);
	__u32 *from = at(&threshold, 0), even, odd;
	__u64 *total;

	least = one_more(&row0, hash, window);
	other = one_more(&row1, hash >> 16, window);
	least = other < least ? other : least;
	total = at(&totals, 0);
	if (total)
		__sync_fetch_and_add(total, 1);
	seen = at(&met, hash & (CELLS - 1));
	if (seen && (*seen & ~1) != stamp) {
		*seen = stamp;
		total = at(&totals, 1);
		if (total)
			__sync_fetch_and_add(total, 1);
	}
	if (from && *from && least >= *from && seen && !(*seen & 1)) {
		*seen |= 1;
		bpf_ringbuf_output(&heavy, (void *)key, sizeof(*key), 0);
	}
	if (!cell)
		return 1;
	even = cell->count[0] && (__u16)(period - cell->period[0]) < 2;
	odd = cell->count[1] && (__u16)(period - cell->period[1]) < 2;
	return even || odd;
}

static __always_inline int usable(const struct to *to, int away)
{
	__u8 *left = at(&gone, to->number);
	__u32 *times = at(&used, to->number);

	if (to->mode != 2 && (to->mode != 1 || away))
		return 0;
	if (!left || *left || !times)
		return 0;
	__sync_fetch_and_add(times, 1);
	return 1;
}
#endif

SEC("xdp")
int snat(struct xdp_md *xdp)
{
	void *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end, *l4;
	struct ethhdr *eth = data;
	struct iphdr *ip = (void *)(eth + 1);
	__be16 type, *port, old_port;
	__be32 *addr, old_addr;
	__u16 *sum = 0;
	struct key key = {};
	struct to *to;
	__u64 change;
	int outward, up = 0, is_udp = 0;

	if ((void *)(eth + 1) > end)
		return XDP_PASS;
	type = eth->h_proto;
	if (type == bpf_htons(ETH_P_8021Q)) {
		struct vlan *vlan = (void *)(eth + 1);

		if ((void *)(vlan + 1) > end)
			return XDP_PASS;
		type = vlan->type;
		ip = (void *)(vlan + 1);
	}
	if (type != bpf_htons(ETH_P_IP) || (void *)(ip + 1) > end || ip->ihl < 5)
		return XDP_PASS;
	outward = (ip->saddr & bpf_htonl(INSIDE_MASK)) == bpf_htonl(INSIDE);
	if (!outward && bpf_ntohl(ip->daddr) >> POOL_BITS != POOL >> POOL_BITS) {
		count(UNTOUCHED);
		return bpf_redirect_map(&ports, PORT_OUTSIDE, XDP_DROP);
	}
	/* Fragments, and the start and end of connections, go to a server. */
	if (ip->frag_off & bpf_htons(0x3fff))
		goto upwards;
	l4 = (void *)ip + ip->ihl * 4;
	if (ip->protocol == IPPROTO_TCP) {
		struct tcphdr *tcp = l4;

		if ((void *)(tcp + 1) > end)
			goto upwards;
		up = tcp->syn || tcp->fin || tcp->rst;
		port = outward ? &tcp->source : &tcp->dest;
		sum = &tcp->check;
	} else if (ip->protocol == IPPROTO_UDP) {
		struct udphdr *udp = l4;

		if ((void *)(udp + 1) > end)
			goto upwards;
		port = outward ? &udp->source : &udp->dest;
		if (udp->check)
			sum = &udp->check;
		is_udp = 1;
	} else if (ip->protocol == IPPROTO_ICMP) {
		struct icmphdr *icmp = l4;

		if ((void *)(icmp + 1) > end || (icmp->type != ICMP_ECHO && icmp->type != ICMP_ECHOREPLY))
			goto upwards;
		port = &icmp->id;
		sum = &icmp->checksum;
	} else {
		goto upwards;
	}
	addr = outward ? &ip->saddr : &ip->daddr;
	key.addr = old_addr = *addr;
	key.port = old_port = *port;
	key.protocol = ip->protocol;
#ifdef ACCOUNTED
	int away = account(&key);
#endif
	to = outward ? bpf_map_lookup_elem(&nat_out, &key) : bpf_map_lookup_elem(&nat_in, &key);
	if (!to || up)
		goto upwards;
#ifdef ACCOUNTED
	if (!usable(to, away))
		goto upwards;
#else
	if (!to->used)
		to->used = 1;
#endif
	change = (__u64)(__u32)~old_addr + to->addr;
	ip->check = changed(ip->check, change);
	*addr = to->addr;
	/* The checksum of an echo does not cover addresses. */
	if (ip->protocol == IPPROTO_ICMP)
		change = 0;
	change += (__u16)~old_port + to->port;
	*port = to->port;
	if (sum) {
		__u16 new = changed(*sum, change);

		*sum = is_udp && !new ? 0xffff : new;
	}
	count(MAPPED);
	return bpf_redirect_map(&ports, outward ? PORT_OUTSIDE : PORT_INSIDE, XDP_DROP);

upwards:
	count(UP);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
