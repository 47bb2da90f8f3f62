// SPDX-License-Identifier: Apache-2.0
/* The program that an interface runs first where one element carries both the switch program and functions: says by
 * a packet's headers whose it is, and calls that.
 *
 *	packet ─► frame for the switch program? ─► it
 *	      └─► function for its UDP port, EtherType, or for all others ─► it
 *	      └─► the kernel
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "wire.h"

#define PROGRAMS_MAX 64
#define RULES_MAX 256
/* Of the switch program. */
#define SWITCH 0

/* What a rule looks at (crates/xdp, function/root.rs). */
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

/* Of the switch program: UDP ports of its frames (0: it is not here), and whether those are its own, too, that pass
 * by on their way to an endpoint. */
struct switch_frames {
	__be16 data_port;
	__be16 slow_port;
	__u32 inlined;
};

volatile struct switch_frames switch_frames SEC(".data.switch") = {};

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, PROGRAMS_MAX);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} programs SEC(".maps");

/* Which program a packet is for. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, RULES_MAX);
	__type(key, struct rule);
	__type(value, __u32);
} rules SEC(".maps");

/* The UDP header of a packet that the switch program may look at: IPv4 without options. */
static __always_inline struct udphdr *udp_of(void *data, void *end)
{
	struct ethhdr *eth = data;
	struct iphdr *ip = (void *)(eth + 1);
	struct udphdr *udp = (void *)(ip + 1);

	if ((void *)(udp + 1) > end || eth->h_proto != bpf_htons(ETH_P_IP))
		return 0;
	if (ip->version != 4 || ip->ihl != 5 || ip->protocol != IPPROTO_UDP || ip->frag_off & bpf_htons(0x3fff))
		return 0;
	return udp;
}

static __always_inline int is_frame(struct udphdr *udp, void *end)
{
	struct pc_base *base = (void *)(udp + 1);

	if (!switch_frames.data_port)
		return 0;
	if (udp->dest == switch_frames.data_port || udp->dest == switch_frames.slow_port)
		return 1;
	return switch_frames.inlined && (void *)(base + 1) <= end && base->magic == bpf_htons(PC_MAGIC);
}

static __always_inline void call(struct xdp_md *xdp, __u32 looks_at, __u32 value)
{
	struct rule rule = {.looks_at = looks_at, .value = value};
	__u32 *program = bpf_map_lookup_elem(&rules, &rule);

	/* Comes back only if there is no such program. */
	if (program)
		bpf_tail_call(xdp, &programs, *program);
}

SEC("xdp")
int root(struct xdp_md *xdp)
{
	void *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	struct ethhdr *eth = data;
	struct udphdr *udp = udp_of(data, end);

	if ((void *)(eth + 1) > end)
		return XDP_PASS;
	if (udp && is_frame(udp, end))
		bpf_tail_call(xdp, &programs, SWITCH);
	else if (udp)
		call(xdp, UDP_PORT, bpf_ntohs(udp->dest));
	call(xdp, ETHER_TYPE, bpf_ntohs(eth->h_proto));
	call(xdp, ALL, 0);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
