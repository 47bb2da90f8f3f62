/* SPDX-License-Identifier: Apache-2.0 */
/* Admission: only what the controller has installed changes anything (crates/program, admit.rs).
 * Applications whose frames carry tokens are worked on in user space: none of them is in the table. */
#pragma once

#include "emit.h"

/* A frame that is not admitted goes on, unless it is not what it says. */
static __always_inline int refuse(struct frame *frame, struct context *c)
{
	if (!c->known)
		return DROP_NOT_ADMITTED;
	/* Who can't sign it again leaves it as it came. */
	if (!(c->flags & PC_FLAG_TOKEN)) {
		c->flags |= PC_FLAG_NOT_ADMITTED;
		note_flags(frame, c);
	}
	return forward(c);
}

/* 0: admitted, and `c->app` says where. Otherwise what becomes of the frame. */
static __always_inline int admit(struct frame *frame, struct context *c)
{
	__u32 numbered = c->kind == PC_KIND_MAP_DATA || c->kind == PC_KIND_MAP_PAIRS;
	__u32 from_server = !!(c->flags & PC_FLAG_FROM_SERVER);
	struct application_counters *counters;
	struct application *application;
	struct endpoint *sender;

	c->known = !!endpoint_of(c->dst, c->gaid);
	application = bpf_map_lookup_elem(&applications, &c->gaid);
	if (!application)
		return c->known ? refuse(frame, c) : PASS;
	c->app = *application;
	counters = counters_of(c->app.index);
	if (!counters)
		return PASS;
	if (c->flags & PC_FLAG_TOKEN) {
		counters->unauthentic++;
		return DROP_UNAUTHENTIC;
	}
	sender = PLANTED(ELEMENT_APPLICATION) ? bpf_map_lookup_elem(&endpoints, &c->src) : endpoint_of(c->src, c->gaid);
	if (!sender || (sender->incarnation != c->src_incarnation && !PLANTED(ELEMENT_INCARNATION)) ||
	    (c->app.epoch != c->epoch && !PLANTED(ELEMENT_EPOCH))) {
		counters->not_admitted++;
		return refuse(frame, c);
	}
	if (from_server != (c->src == c->app.owner))
		return DROP_FORGED;
	if (numbered && !from_server && !(c->flags & PC_FLAG_CROSS) && c->slot - sender->slot_base >= sender->slots &&
	    !PLANTED(ELEMENT_SLOT)) {
		counters->not_admitted++;
		return refuse(frame, c);
	}
	counters->last_seen = bpf_ktime_get_boot_ns();
	counters->admitted++;
	counters->ecn_marked += c->congested;
	note_flags(frame, c);
	return 0;
}
