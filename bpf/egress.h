/* SPDX-License-Identifier: Apache-2.0 */
/* Egress: the headers below the frame, and the route of the packet. The kernel's routes and neighbours give the
 * next hop (bpf_fib_lookup); a multicast is copied to the interfaces of its group, if no two members are behind the
 * same one. All other frames are sent by user space: the packet goes up to the element's slow port, with an enum slow
 * as its source port.
 *
 * The source of a frame is the address that its cause was sent to: the element, or in inline mode the peer. A frame
 * that is forwarded to the endpoint it was addressed to, or a server's frame that is copied in inline mode, keeps its
 * source, and its TTL is decremented, so that a routing loop ends. */
#pragma once

#include "address.h"

#define L4_AT (sizeof(struct ethhdr) + sizeof(struct iphdr))
#define ECN_MASK 3
#define ECN_ECT0 2
#define ECN_CE 3
#define TTL 64
#define IP_DF 0x4000

/* Action for user space with a processed frame. */
enum slow {
	SLOW_FORWARD = 1,
	SLOW_MULTICAST = 2,
	SLOW_CLONE = 3,
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

/* Sum of the pseudo header. */
static __always_inline __u64 pseudo_sum(struct iphdr *ip, struct udphdr *udp)
{
	return (__u64)ip->saddr + ip->daddr + bpf_htons(IPPROTO_UDP) + udp->len;
}

/* Sum from the UDP header to the end of the packet, folded. */
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

/* Whether the checksums of a packet are correct. A sender on this machine may have left the UDP checksum to the device:
 * the field then holds the sum of the pseudo header, and the packet cannot have been damaged. */
static __always_inline int sums_hold(struct xdp_md *xdp, struct iphdr *ip, struct udphdr *udp)
{
	__u64 pseudo = pseudo_sum(ip, udp);

	if (ip_sum(ip) != 0xffff)
		return 0;
	if (!udp->check || udp->check == fold(pseudo))
		return 1;
	return fold(pseudo + l4_sum(xdp)) == 0xffff;
}

/* Truncates the packet to the length of its frame. */
static __always_inline int shorten(struct xdp_md *xdp, __u32 len)
{
	int shorter = FRAME_AT + len - (int)((long)xdp->data_end - (long)xdp->data);

	return shorter && !PLANTED(TAIL_KEPT) ? bpf_xdp_adjust_tail(xdp, shorter) : 0;
}

/* Writes lengths and checksums of the packet; the last change to it. */
static __always_inline void seal(struct xdp_md *xdp, struct iphdr *ip, struct udphdr *udp, __u32 len)
{
	if ((ip->tos & ECN_MASK) == ECN_CE && !PLANTED(MARK_PASSED_ON))
		ip->tos = (ip->tos & ~ECN_MASK) | ECN_ECT0;
	ip->id = 0;
	ip->frag_off = bpf_htons(IP_DF);
	ip->tot_len = bpf_htons(sizeof(*ip) + sizeof(*udp) + len);
	udp->len = bpf_htons(sizeof(*udp) + len);
	ip->check = 0;
	ip->check = ~ip_sum(ip);
	udp->check = PLANTED(SUM_OF_BEFORE) ? udp->check : 0;
	udp->check = ~fold(pseudo_sum(ip, udp) + l4_sum(xdp));
	if (!udp->check)
		udp->check = 0xffff;
}

/* Whether a packet is addressed to the element, and not to an endpoint. */
static __always_inline int is_to_own(struct xdp_md *xdp)
{
	struct iphdr *ip = (void *)(long)xdp->data + sizeof(struct ethhdr);

	return (void *)(ip + 1) <= (void *)(long)xdp->data_end && ip->daddr == own;
}

/* Addresses a packet to an endpoint, with the source described above. Returns the egress interface, or 0, with the
 * packet unchanged, if the kernel knows no route. */
static __always_inline __u32 address(struct xdp_md *xdp, struct whereabouts *to, __u32 len, __u32 passing)
{
	struct bpf_fib_lookup way = {.family = 2 /* AF_INET */, .ifindex = xdp->ingress_ifindex};
	void *data = (void *)(long)xdp->data;
	struct ethhdr *eth = data;
	struct iphdr *ip = (void *)(eth + 1);
	struct udphdr *udp = (void *)(ip + 1);

	if (data + FRAME_AT + HEADERS > (void *)(long)xdp->data_end)
		return 0;
	way.l4_protocol = IPPROTO_UDP;
	way.sport = passing ? udp->source : udp->dest;
	way.dport = to->port;
	way.tot_len = sizeof(*ip) + sizeof(*udp) + len;
	way.ipv4_src = passing ? ip->saddr : ip->daddr;
	way.ipv4_dst = to->ip;
	if (config.routed) {
		if (bpf_fib_lookup(xdp, &way, sizeof(way), 0) != BPF_FIB_LKUP_RET_SUCCESS)
			return 0;
		__builtin_memcpy(eth->h_dest, way.dmac, ETH_ALEN);
		__builtin_memcpy(eth->h_source, way.smac, ETH_ALEN);
	}
	ip->saddr = way.ipv4_src;
	ip->daddr = to->ip;
	ip->ttl = passing ? ip->ttl - 1 : TTL;
	udp->source = way.sport;
	udp->dest = to->port;
	seal(xdp, ip, udp, len);
	return way.ifindex;
}

/* Sets the source of an answer to all members in inline mode to the address that the packet was sent to: with the
 * original source it would return to its sender with the sender's own address, which hosts drop. The checksums are
 * written for each copy. */
static __always_inline void turn(struct xdp_md *xdp)
{
	void *data = (void *)(long)xdp->data;
	struct iphdr *ip = data + sizeof(struct ethhdr);
	struct udphdr *udp = (void *)(ip + 1);

	if (data + FRAME_AT + HEADERS > (void *)(long)xdp->data_end)
		return;
	ip->saddr = ip->daddr;
	ip->ttl = TTL;
	udp->source = udp->dest;
}

/* Passes a processed frame to user space, which sends it. */
static __always_inline int hand_up(struct xdp_md *xdp, __u32 len, enum slow slow)
{
	void *data = (void *)(long)xdp->data;
	struct iphdr *ip = data + sizeof(struct ethhdr);
	struct udphdr *udp = (void *)(ip + 1);

	if (data + FRAME_AT + HEADERS > (void *)(long)xdp->data_end)
		return XDP_ABORTED;
	count_element(slow, 1);
	ip->daddr = own;
	udp->source = bpf_htons(slow);
	udp->dest = config.slow_port;
	seal(xdp, ip, udp, len);
	return XDP_PASS;
}

/* Sends a request to the two servers of its pair, if each is behind an interface of its own; otherwise user space makes
 * the second pass. */
static __always_inline int leave_twice(struct xdp_md *xdp, struct context *c)
{
	/* The decision stage has stored both SIDs. */
	__u32 first = c->grp < c->sid ? c->grp : c->sid, second = c->grp < c->sid ? c->sid : c->grp;
	__u32 place = c->pool.place, pair = (place * PAIRED_MAX + first) * PAIRED_MAX + second;
	__u32 *here = bpf_map_lookup_elem(&cloned_here, &place);
	void *both = here && *here && second < PAIRED_MAX ? bpf_map_lookup_elem(&pairs, &pair) : 0;

	return both ? bpf_redirect_map(both, 0, BPF_F_BROADCAST) : hand_up(xdp, c->len, SLOW_CLONE);
}

/* Sends a processed frame to its endpoint, to the group of its application, or to two servers. */
static __always_inline int leave(struct xdp_md *xdp, struct context *c, int action)
{
	__u32 ifindex, *copied;
	void *members;

	if (action == TWICE)
		return leave_twice(xdp, c);
	if (shorten(xdp, c->len))
		return XDP_ABORTED;
	if (action == FORWARD) {
		ifindex = address(xdp, &c->to, c->len, c->passing);
		if (ifindex)
			return ifindex == xdp->ingress_ifindex ? XDP_TX : bpf_redirect(ifindex, 0);
		return hand_up(xdp, c->len, SLOW_FORWARD);
	}
	copied = bpf_map_lookup_elem(&copied_here, &c->app.index);
	members = bpf_map_lookup_elem(&groups, &c->app.index);
	if (copied && *copied && members) {
		if (c->passing && !(c->flags & PC_FLAG_FROM_SERVER))
			turn(xdp);
		return bpf_redirect_map(members, 0, BPF_F_BROADCAST);
	}
	return hand_up(xdp, c->len, SLOW_MULTICAST);
}

/* Addressee of a copy of a multicast frame that is about to leave: the member behind its interface. `index`: index of
 * the application's counters. */
static __always_inline struct endpoint *copy_for(struct xdp_md *xdp, struct frame *frame, __u32 *index)
{
	__u32 gaid = bpf_ntohl(frame->base->gaid), *id;
	struct application *application = bpf_map_lookup_elem(&applications, &gaid);
	struct member member = {.ifindex = xdp->egress_ifindex};

	if (!application)
		return 0;
	*index = member.index = application->index;
	id = bpf_map_lookup_elem(&group_members, &member);
	return id ? addressed(frame->base, *id, gaid) : 0;
}

/* Second pass of a request: addressee of a copy by its interface, for the clone (Algorithm 1, lines 11 to 13) or the
 * original. `index`: index of the pool. */
static __always_inline struct endpoint *pass_again(struct xdp_md *xdp, struct frame *frame, __u32 *index)
{
	struct pc_base *base = frame->base;
	struct pc_clone *head = (void *)(base + 1);
	__u32 gaid = bpf_ntohl(base->gaid), id = bpf_ntohl(base->dst);
	struct pool *pool = bpf_map_lookup_elem(&pools, &gaid);
	struct server *server;

	if (!pool || (void *)(head + 1) > frame->end)
		return 0;
	*index = pool->place;
	server = server_of(pool, bpf_ntohs(head->sid));
	if (!server)
		return 0;
	if (server->ifindex == xdp->egress_ifindex) {
		head->clo = PC_CLO_CLONE;
		id = server->endpoint;
		count_element(frames_out, 1);
	}
	return addressed(base, id, gaid);
}

/* Processes a copy of a multicast frame or of a request, about to leave by the interface of its addressee. */
SEC("xdp/devmap")
int copy(struct xdp_md *xdp)
{
	struct frame frame = frame_of(xdp);
	__u32 index = 0, never = 0, call;
	struct endpoint *to;

	if (!frame.base)
		return XDP_DROP;
	call = is_call(&frame);
	to = call ? pass_again(xdp, &frame, &index) : copy_for(xdp, &frame, &index);
	if (!to)
		return XDP_DROP;
	if (address(xdp, &to->at, bpf_ntohs(frame.base->length), !is_to_own(xdp)) == xdp->egress_ifindex)
		return XDP_PASS;
	/* The route has changed: user space makes the copies from the next frame on. */
	if (call)
		bpf_map_update_elem(&cloned_here, &index, &never, BPF_EXIST);
	else
		bpf_map_update_elem(&copied_here, &index, &never, BPF_EXIST);
	return XDP_DROP;
}

/* Egress interface of a packet to `daddr`, for the loader; 0 if the kernel knows no route. */
SEC("xdp")
int way_of(struct xdp_md *xdp)
{
	struct bpf_fib_lookup way = {.family = 2 /* AF_INET */, .ifindex = xdp->ingress_ifindex};
	struct iphdr *ip = (void *)(long)xdp->data + sizeof(struct ethhdr);

	if ((void *)(ip + 1) > (void *)(long)xdp->data_end)
		return 0;
	way.l4_protocol = IPPROTO_UDP;
	way.ipv4_src = ip->saddr;
	way.ipv4_dst = ip->daddr;
	return bpf_fib_lookup(xdp, &way, sizeof(way), 0) == BPF_FIB_LKUP_RET_SUCCESS ? way.ifindex : 0;
}
