/* SPDX-License-Identifier: Apache-2.0 */
/* Calls to a pool of servers: the element steers each call, may clone it, and filters the slower answer
 * (crates/program, clone/mod.rs and clone/admit.rs).
 *
 *	request ─► admit ─► number ─► group ─► load, shadow ─► request ─► address ─► forward │ twice
 *	reply ───► admit ─────────────────────► load, shadow ───────────────────────► filter ─► forward │ drop
 *
 * The second pass of a request is in egress.h, where its copies leave, or in user space.
 */
#pragma once

#include "address.h"
#include "emit.h"
#include "filter.h"
#include "number.h"
#include "request.h"

#define CALL_HEADERS (sizeof(struct pc_base) + sizeof(struct pc_clone))

/* Parses the headers of `len` bytes; null if they are not a frame (crates/wire, CloneFrame::new_checked). */
static __always_inline struct pc_clone *parse_call(struct frame *frame, __u32 len, struct context *c)
{
	struct pc_base *base = frame->base;
	__u32 token = base->flags & bpf_htons(PC_FLAG_TOKEN) ? PC_TOKEN_LEN : 0;
	struct pc_clone *head = held((void *)(base + 1) + token);

	if (base->magic != bpf_htons(PC_MAGIC) || base->version != PC_VERSION || bpf_ntohs(base->length) != len ||
	    len > PC_MAX_FRAME || (void *)(head + 1) > frame->end)
		return 0;
	c->len = len;
	c->kind = base->kind;
	c->flags = bpf_ntohs(base->flags) & ~PC_FLAG_NOT_ADMITTED;
	c->flags |= c->congested ? PC_FLAG_ECN : 0;
	c->gaid = bpf_ntohl(base->gaid);
	c->epoch = bpf_ntohl(base->epoch);
	c->src = bpf_ntohl(base->src);
	c->src_incarnation = bpf_ntohl(base->src_incarnation);
	c->dst = bpf_ntohl(base->dst);
	c->round = bpf_ntohl(base->round);
	c->req_id = bpf_be64_to_cpu(head->req_id);
	c->grp = bpf_ntohl(head->grp);
	c->sid = bpf_ntohs(head->sid);
	c->state = bpf_ntohs(head->state);
	c->clo = head->clo;
	c->idx = head->idx;
	c->switch_id = bpf_ntohs(head->switch_id);
	c->asks = head->flags;
	c->call_part = bpf_ntohs(head->part);
	c->call_parts = bpf_ntohs(head->parts);
	if (CALL_HEADERS + token + bpf_ntohs(head->payload_len) != len || c->clo > PC_CLO_CLONE ||
	    c->asks & ~PC_CLONE_ALL || !c->call_parts || c->call_parts > PC_MAX_PARTS ||
	    c->call_part >= c->call_parts)
		return 0;
	return head;
}

/* Action for a frame of a call that is not admitted: forward, or drop if it is forged; `otherwise` if the addressee is
 * unknown. */
static __always_inline int refuse_call(struct pc_base *base, struct context *c, enum action otherwise)
{
	if (forward(c) != FORWARD)
		return otherwise;
	if (!(c->flags & PC_FLAG_TOKEN))
		base->flags = bpf_htons(c->flags | PC_FLAG_NOT_ADMITTED);
	return FORWARD;
}

/* Returns 0 if the frame is admitted, with its pool in `c->pool`; otherwise the action. */
static __always_inline int admit_call(struct pc_base *base, struct context *c)
{
	__u32 answers = c->kind == PC_KIND_CLONE_REPLY || c->kind == PC_KIND_CLONE_WORKING;
	__u32 from_server = !!(c->flags & PC_FLAG_FROM_SERVER);
	struct pool_counters *counters;
	struct endpoint *sender;
	struct pool *pool;

	pool = bpf_map_lookup_elem(&pools, &c->gaid);
	if (!pool)
		return refuse_call(base, c, PASS);
	c->pool = *pool;
	counters = counters_of_pool(c->pool.place);
	if (!counters)
		return PASS;
	if (c->flags & PC_FLAG_TOKEN) {
		counters->unauthentic++;
		return DROP_UNAUTHENTIC;
	}
	sender = endpoint_of(c->src, c->gaid);
	if (!sender || sender->incarnation != c->src_incarnation) {
		counters->not_admitted++;
		return refuse_call(base, c, DROP_NOT_ADMITTED);
	}
	/* A server may report only its own state. */
	if (from_server != answers ||
	    (sender->server != (answers ? c->sid + 1 : 0) && !PLANTED(SID_UNCHECKED)))
		return DROP_FORGED;
	counters->last_seen = bpf_ktime_get_coarse_ns();
	counters->admitted++;
	counters->ecn_marked += c->congested;
	base->flags = bpf_htons(c->flags);
	return 0;
}

/* Processes a request (Algorithm 1, lines 1 to 10). */
static __always_inline int request(struct frame *frame, struct pc_clone *head, struct context *c,
				   struct pool_counters *counters)
{
	enum decision decision = TO_FIRST;
	struct pair_of pair;
	int wrong, action;

	wrong = number_request(c);
	if (wrong)
		return wrong;
	head->req_id = bpf_cpu_to_be64(c->req_id);
	head->switch_id = bpf_htons(switch_id);
	head->clo = PLANTED(HOST_BELIEVED) ? head->clo : 0;
	head->sid = 0;
	if (c->asks & PC_CLONE_DIRECT && !PLANTED(DIRECT_STEERED)) {
		counters->direct++;
		return as_addressed(c);
	}
	if (!c->pool.count)
		return DROP_UNKNOWN_ENDPOINT;
	counters->requests++;
	counters->stale_groups += !pair_drawn(c, &pair);
	if (!c->call_part)
		decision = load_decide(c, &pair);
	if (c->call_parts > 1)
		decision = request_meet(c, decision);
	counters->clones += decision == TO_BOTH;
	counters->shorter += decision == TO_SECOND;
	if (decision == TO_BOTH) {
		head->clo = PC_CLO_ORIGINAL;
		head->sid = bpf_htons(pair.second);
		/* Input of the code that makes the copy. */
		c->sid = pair.second;
		c->grp = pair.first;
	}
	action = to_server(frame->base, c, decision == TO_SECOND ? pair.second : pair.first);
	return action == FORWARD && decision == TO_BOTH ? TWICE : action;
}

/* Runs a frame of a call through its stages. */
__noinline int steer(struct xdp_md *xdp, struct context *c, __u32 len)
{
	struct frame frame = frame_of(xdp);
	struct pool_counters *counters;
	struct pc_clone *head;
	__u32 sid;
	int refused;

	if (!c || !frame.base)
		return DROP_MALFORMED;
	head = parse_call(&frame, len, c);
	if (!head)
		return DROP_MALFORMED;
	refused = admit_call(frame.base, c);
	if (refused)
		return refused;
	counters = counters_of_pool(c->pool.place);
	if (!counters)
		return DROP_MALFORMED;
	/* NetClone §3.7: only the first element on the path processes a call. */
	if (c->flags & PC_FLAG_CROSS || (c->switch_id && c->switch_id != switch_id && !PLANTED(SWITCH_IGNORED))) {
		counters->passed++;
		return forward(c);
	}
	switch (c->kind) {
	case PC_KIND_CLONE_REQUEST:
		return request(&frame, head, c, counters);
	case PC_KIND_CLONE_CANCEL:
		sid = pair_other(c);
		if (sid == ~0U) {
			counters->stale_groups++;
			return DROP_STALE;
		}
		counters->cancels++;
		return to_server(frame.base, c, sid);
	default:
		counters->replies++;
		load_note(c);
		if (c->kind == PC_KIND_CLONE_REPLY && filter_stops(c)) {
			counters->filtered++;
			return DROP_FILTERED;
		}
		return forward(c);
	}
}
