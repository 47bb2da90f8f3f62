// SPDX-License-Identifier: Apache-2.0
/* Root program of an element with both the switch program and functions: it runs first at an interface, and calls the
 * program that processes the packet.
 *
 *	packet ─► frame for the switch program? ─► it
 *	      └─► function for its UDP port, EtherType, or for all others ─► it
 *	      └─► the kernel
 */
#include "packet.h"

#define PROGRAMS_MAX 64
#define RULES_MAX 256
/* Index of the switch program. */
#define SWITCH 0

/* Kind of a rule (crates/xdp, function/root.rs). */
enum looks_at {
	UDP_PORT,
	ETHER_TYPE,
	ALL,
};

struct rule {
	__u32 looks_at;
	/* Port or type in host order. */
	__u32 value;
};

/* Frames of the switch program: their destination address and port (port 0: no switch program), and whether inline mode
 * is on. */
struct switch_frames {
	__be16 data_port;
	__be16 slow_port;
	__be32 own;
	__u32 inlined;
};

volatile struct switch_frames switch_frames SEC(".data.switch") = {};

/* Table of endpoints of the switch program. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct endpoint_table);
} endpoints SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, PROGRAMS_MAX);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} programs SEC(".maps");

/* Index of the program for a packet. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, RULES_MAX);
	__type(key, struct rule);
	__type(value, __u32);
} rules SEC(".maps");

/* Whether a packet is for the switch program. */
static __always_inline int is_frame(struct ethhdr *eth, struct iphdr *ip, void *end)
{
	struct udphdr *udp = udp_of(ip, end);
	__u32 zero = 0;
	void *table;

	if (!udp || !switch_frames.data_port)
		return 0;
	if (ip->daddr == switch_frames.own &&
	    (udp->dest == switch_frames.data_port || udp->dest == switch_frames.slow_port))
		return 1;
	if (!switch_frames.inlined || !is_plain(ip))
		return 0;
	table = bpf_map_lookup_elem(&endpoints, &zero);
	return table && passes(table, eth, ip, udp, end);
}

static __always_inline void call(struct xdp_md *xdp, __u32 looks_at, __u32 value)
{
	struct rule rule = {.looks_at = looks_at, .value = value};
	__u32 *program = bpf_map_lookup_elem(&rules, &rule);

	/* Returns only if there is no such program. */
	if (program)
		bpf_tail_call(xdp, &programs, *program);
}

SEC("xdp")
int root(struct xdp_md *xdp)
{
	void *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = (void *)(eth + 1);
	struct udphdr *udp = (void *)(ip + 1);

	if ((void *)(eth + 1) > end)
		return XDP_PASS;
	if ((void *)(udp + 1) <= end && eth->h_proto == bpf_htons(ETH_P_IP)) {
		if (is_frame(eth, ip, end))
			bpf_tail_call(xdp, &programs, SWITCH);
		else if (is_plain(ip))
			call(xdp, UDP_PORT, bpf_ntohs(udp->dest));
	}
	call(xdp, ETHER_TYPE, bpf_ntohs(eth->h_proto));
	call(xdp, ALL, 0);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
