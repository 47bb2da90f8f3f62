/* SPDX-License-Identifier: Apache-2.0 */
/* Out of the element: the headers below the frame, and the way that it takes. The kernel's routes and
 * neighbours say where to (bpf_fib_lookup). What they can't say, and the copies of a multicast, leave
 * by user space: the frame goes up to the element's second port, its source port an enum slow. */
#pragma once

#include "context.h"

#define L4_AT (sizeof(struct ethhdr) + sizeof(struct iphdr))
#define ECN_MASK 3
#define ECN_ECT0 2
#define ECN_CE 3
#define TTL 64

/* What user space is to do with a frame that is worked on already. */
enum slow {
	SLOW_FORWARD = 1,
	SLOW_MULTICAST = 2,
};

static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static __always_inline __u16 ip_sum(struct iphdr *ip)
{
	__u16 *words = (void *)ip;
	__u64 sum = 0;

#pragma unroll
	for (int i = 0; i < (int)sizeof(*ip) / 2; i++)
		sum += words[i];
	return fold(sum);
}

/* Of the pseudo header. */
static __always_inline __u64 pseudo_sum(struct iphdr *ip, struct udphdr *udp)
{
	return (__u64)ip->saddr + ip->daddr + bpf_htons(IPPROTO_UDP) + udp->len;
}

/* Of all from the UDP header to the end of the packet, folded. */
__noinline int l4_sum(struct xdp_md *xdp)
{
	void *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	__u32 at = L4_AT;
	__s64 sum = 0;

	for (int i = 0; i < PC_MAX_FRAME / 256 + 1; i++) {
		if (data + at + 256 > end)
			break;
		sum = bpf_csum_diff(0, 0, data + at, 256, sum);
		at += 256;
	}
	for (int i = 0; i < 8; i++) {
		if (data + at + 32 > end)
			break;
		sum = bpf_csum_diff(0, 0, data + at, 32, sum);
		at += 32;
	}
	sum = (__u32)sum;
	for (int i = 0; i < 8; i++) {
		if (data + at + 4 > end)
			break;
		sum += *(__u32 *)(data + at);
		at += 4;
	}
	if (data + at + 2 <= end) {
		sum += *(__u16 *)(data + at);
		at += 2;
	}
	if (data + at + 1 <= end)
		sum += *(__u8 *)(data + at);
	return fold(sum);
}

/* Whether the checksums of a packet hold. A sender on this machine may have left the rest of its UDP
 * checksum to the device: it has filled in the sum of the pseudo header, then, and nothing was damaged. */
static __always_inline int sums_hold(struct xdp_md *xdp, struct iphdr *ip, struct udphdr *udp)
{
	__u64 pseudo = pseudo_sum(ip, udp);

	if (ip_sum(ip) != 0xffff)
		return 0;
	if (!udp->check || udp->check == fold(pseudo))
		return 1;
	return fold(pseudo + l4_sum(xdp)) == 0xffff;
}

/* Sends a worked-on frame to `to`, or hands it to user space where that is null. */
static __always_inline int leave(struct xdp_md *xdp, struct context *c, struct endpoint *to)
{
	struct bpf_fib_lookup way = {.family = 2 /* AF_INET */, .ifindex = xdp->ingress_ifindex};
	int shorter = FRAME_AT + c->len - (int)((long)xdp->data_end - (long)xdp->data);
	int action = XDP_PASS;
	struct udphdr *udp;
	struct ethhdr *eth;
	struct iphdr *ip;
	void *data;

	if (shorter && bpf_xdp_adjust_tail(xdp, shorter))
		return XDP_ABORTED;
	data = (void *)(long)xdp->data;
	if (data + FRAME_AT + HEADERS > (void *)(long)xdp->data_end)
		return XDP_ABORTED;
	eth = data;
	ip = (void *)(eth + 1);
	udp = (void *)(ip + 1);

	ip->tos = (ip->tos & ECN_MASK) == ECN_CE ? (ip->tos & ~ECN_MASK) | ECN_ECT0 : ip->tos;
	ip->ttl = TTL;
	ip->id = 0;
	ip->frag_off = bpf_htons(0x4000);
	ip->tot_len = bpf_htons(sizeof(*ip) + sizeof(*udp) + c->len);
	udp->len = bpf_htons(sizeof(*udp) + c->len);
	if (to) {
		way.l4_protocol = IPPROTO_UDP;
		way.sport = udp->dest;
		way.dport = to->port;
		way.tot_len = bpf_ntohs(ip->tot_len);
		way.tos = ip->tos & ~ECN_MASK;
		way.ipv4_src = ip->daddr;
		way.ipv4_dst = to->ip;
		if (!config.routed) {
			action = XDP_TX;
		} else if (bpf_fib_lookup(xdp, &way, sizeof(way), 0) == BPF_FIB_LKUP_RET_SUCCESS) {
			action = way.ifindex == xdp->ingress_ifindex ? XDP_TX : bpf_redirect(way.ifindex, 0);
			__builtin_memcpy(eth->h_dest, way.dmac, ETH_ALEN);
			__builtin_memcpy(eth->h_source, way.smac, ETH_ALEN);
		}
	}
	if (action == XDP_PASS) {
		count_element(slow, 1);
		udp->source = bpf_htons(to ? SLOW_FORWARD : SLOW_MULTICAST);
		udp->dest = config.slow_port;
	} else {
		ip->saddr = ip->daddr;
		ip->daddr = to->ip;
		udp->source = udp->dest;
		udp->dest = to->port;
	}
	ip->check = 0;
	ip->check = ~ip_sum(ip);
	udp->check = 0;
	udp->check = ~fold(pseudo_sum(ip, udp) + l4_sum(xdp));
	if (!udp->check)
		udp->check = 0xffff;
	return action;
}
