/* SPDX-License-Identifier: Apache-2.0 */
/* Admission stage: only frames of what the controller has installed take effect (crates/program, admit.rs).
 * Applications with tokens are processed in user space: none of them is in the table. */
#pragma once

#include "emit.h"

/* Action for a frame that is not admitted: forward, or drop if forged; `otherwise` if the addressee is unknown. */
static __always_inline int refuse(struct frame *frame, struct context *c, enum action otherwise)
{
	if (forward(c) != FORWARD)
		return otherwise;
	/* An element without the key cannot sign a changed frame, so the frame is left unchanged. */
	if (!(c->flags & PC_FLAG_TOKEN)) {
		c->flags |= PC_FLAG_NOT_ADMITTED;
		note_flags(frame, c);
	}
	return FORWARD;
}

/* Returns 0 if the frame is admitted, with its application in `c->app`; otherwise the action. */
static __always_inline int admit(struct frame *frame, struct context *c)
{
	__u32 numbered = c->kind == PC_KIND_MAP_DATA || c->kind == PC_KIND_MAP_PAIRS;
	__u32 from_server = !!(c->flags & PC_FLAG_FROM_SERVER);
	struct application_counters *counters;
	struct application *application;
	struct endpoint *sender;

	application = bpf_map_lookup_elem(&applications, &c->gaid);
	if (!application)
		return refuse(frame, c, PASS);
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
		return refuse(frame, c, DROP_NOT_ADMITTED);
	}
	if (from_server != (c->src == c->app.owner))
		return DROP_FORGED;
	if (numbered && !from_server && !(c->flags & PC_FLAG_CROSS) && c->slot - sender->slot_base >= sender->slots &&
	    !PLANTED(ELEMENT_SLOT)) {
		counters->not_admitted++;
		return refuse(frame, c, DROP_NOT_ADMITTED);
	}
	c->sender = sender->at;
	/* A precision of some milliseconds is enough to detect idle applications. */
	counters->last_seen = bpf_ktime_get_coarse_ns();
	counters->admitted++;
	counters->ecn_marked += c->congested;
	note_flags(frame, c);
	return 0;
}
