// SPDX-License-Identifier: Apache-2.0
/* Generator and receiver of packets through the middle of two namespaces. BPF_PROG_TEST_RUN runs `generate` with live
 * frames: it writes the headers of the next packet of `packets` into a frame and sends the frame, repeatedly.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>

/* Ethernet, IPv4, UDP. */
#define HEADERS 42
#define PACKETS 65536

struct headers {
	__u8 bytes[HEADERS];
	__u8 zero[6];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PACKETS);
	__type(key, __u32);
	__type(value, struct headers);
} packets SEC(".maps");

/* Number of packets, a power of two; outgoing interface. */
struct sending {
	__u32 count;
	__u32 interface;
	__u32 next;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sending);
} sending SEC(".maps");

SEC("xdp")
int generate(struct xdp_md *xdp)
{
	void *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	__u32 zero = 0, place;
	struct sending *how = bpf_map_lookup_elem(&sending, &zero);
	struct headers *headers;

	if (!how || data + HEADERS > end)
		return XDP_ABORTED;
	place = how->next++ & (how->count - 1);
	headers = bpf_map_lookup_elem(&packets, &place);
	if (!headers)
		return XDP_ABORTED;
	__builtin_memcpy(data, headers->bytes, HEADERS);
	return bpf_redirect(how->interface, 0);
}

SEC("xdp")
int discard(struct xdp_md *xdp)
{
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
