// SPDX-License-Identifier: Apache-2.0
/* Switch program in the kernel: processing of a frame as in crates/program, in the driver's receive path (XDP).
 *
 *	packet ─► ours? ─► admit ─► generation ─► once ─► round ─► count ─► lock, grant ─► map ─► emit ─► egress
 *	             └────► the kernel                                                 └─► user space (copies)
 *
 * Frames of calls to pools of servers take the stages of clone.h.
 *
 * One file per stage, with the names of crates/program, which is the reference. Frames may arrive on several
 * processors at the same time: all changes of a frame are made under one lock (tables.h). Packets that are not frames
 * for this element pass unchanged.
 *
 * Frames are addressed to the element (overlay), or to an endpoint of one of its applications (inline, if the loader
 * sets it); the processing is the same.
 */
#include "clone.h"
#include "context.h"
#include "control.h"
#include "egress.h"
#include "keyed.h"
#include "linear.h"

static __always_inline int pipeline(struct xdp_md *xdp, struct frame *frame, struct context *c)
{
	if (c->flags & PC_FLAG_CROSS) {
		struct application_counters *counters = counters_of(c->app.index);

		if (counters)
			counters->cross++;
		return forward(c);
	}
	if (c->flags & PC_FLAG_FROM_SERVER) {
		switch (c->kind) {
		case PC_KIND_MAP_PAIRS_ACK:
			return c->map_flags & PC_MAP_COUNT ? ballot_word(xdp, c) : deliver(c);
		case PC_KIND_MAP_MOVE:
			return ballot_word(xdp, c);
		case PC_KIND_MAP_RESULT:
			return result(xdp, c);
		case PC_KIND_MAP_READ:
			return read(xdp, c);
		case PC_KIND_MAP_CLOSE:
		case PC_KIND_MAP_PLACES:
		case PC_KIND_MAP_WIPE:
			return harvest(xdp, c);
		case PC_KIND_MAP_FREE:
			return free_lock(xdp, c);
		default:
			return deliver(c);
		}
	}
	if (c->kind == PC_KIND_MAP_PAIRS && c->map_flags & (PC_MAP_COUNT | PC_MAP_CLEAR))
		return ballot(xdp, c);
	if (c->kind != PC_KIND_MAP_DATA || c->map_flags & (PC_MAP_LOGICAL | PC_MAP_BARE))
		return forward(c);
	if (c->map_flags & PC_MAP_LINEAR)
		return linear(xdp, c);
	return is_of_lock(c) ? lock(xdp, c) : keyed(xdp, c);
}

/* Counts the action for a frame; true if the frame is dropped. */
static __always_inline int dropped(int action)
{
	switch (action) {
	case FORWARD:
	case MULTICAST:
	case TWICE:
		count_element(frames_out, 1);
		return 0;
	case DROP_FORGED:
		count_element(drop_forged, 1);
		return 1;
	case DROP_STALE:
		count_element(drop_stale, 1);
		return 1;
	case DROP_COUNTED:
		count_element(drop_counted, 1);
		return 1;
	case DROP_NOT_ADMITTED:
		count_element(drop_not_admitted, 1);
		return 1;
	case DROP_UNKNOWN_ENDPOINT:
		count_element(drop_unknown_endpoint, 1);
		return 1;
	case DROP_UNAUTHENTIC:
		count_element(drop_unauthentic, 1);
		return 1;
	case DROP_FILTERED:
		count_element(drop_filtered, 1);
		return 1;
	default:
		count_element(drop_malformed, 1);
		return 1;
	}
}

SEC("xdp")
int element(struct xdp_md *xdp)
{
	void *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = (void *)(eth + 1);
	struct udphdr *udp = (void *)(ip + 1);
	struct context c = {};
	struct frame frame;
	__u32 len;
	int action;

	if ((void *)(udp + 1) > end || eth->h_proto != bpf_htons(ETH_P_IP))
		return XDP_PASS;
	/* Options and fragments: the kernel reassembles them, and user space processes them. But packets to the slow port
	 * come from this program only, so others are dropped in any form. */
	if (!is_plain(ip)) {
		udp = udp_of(ip, end);
		return udp && ip->daddr == own && udp->dest == config.slow_port ? XDP_DROP : XDP_PASS;
	}
	if (ip->daddr != own || (udp->dest != config.data_port && udp->dest != config.slow_port)) {
		c.passing = config.inlined && passes(&endpoints, eth, ip, udp, end);
		if (!c.passing)
			return XDP_PASS;
	} else if (udp->dest == config.slow_port) {
		return XDP_DROP;
	}
	len = bpf_ntohs(udp->len) - sizeof(*udp);
	if (end - data != (long)(FRAME_AT + len) ||
	    bpf_ntohs(ip->tot_len) != sizeof(*ip) + sizeof(*udp) + len)
		return XDP_PASS;

	count_element(frames_in, 1);
	count_element(passing, c.passing);
	if (!sums_hold(xdp, ip, udp)) {
		count_element(drop_checksum, 1);
		return XDP_DROP;
	}
	frame = frame_of(xdp);
	c.congested = (ip->tos & ECN_MASK) == ECN_CE;
	if (frame.base && is_call(&frame)) {
		action = steer(xdp, &c, len);
	} else if (frame.base && parse(&frame, len, &c)) {
		action = admit(&frame, &c);
	} else {
		action = DROP_MALFORMED;
	}
	if (action == PASS) {
		count_element(frames_in, -1);
		count_element(passed, 1);
		return XDP_PASS;
	}
	if (!action)
		action = pipeline(xdp, &frame, &c);
	if (dropped(action))
		return XDP_DROP;
	return leave(xdp, &c, action);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
