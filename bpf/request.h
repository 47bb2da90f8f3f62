/* SPDX-License-Identifier: Apache-2.0 */
/* Table of cloned requests: all parts of a request go to the same servers as its first part (crates/program,
 * clone/request.rs). */
#pragma once

#include "load.h"

/* Decision for a part of a multi-part request. */
static __always_inline enum decision request_meet(struct context *c, enum decision decided)
{
	__u32 at = slot_of(c->req_id, config.requests);
	struct cloned *slot = bpf_map_lookup_elem(&requests, &at);
	__u64 req_id = c->req_id;
	__u32 gaid = c->gaid, first = !c->call_part;

	if (!slot)
		return decided;
	bpf_spin_lock(&slot->lock);
	if (slot->req_id == req_id && slot->gaid == gaid && !PLANTED(PARTS_FORGOTTEN)) {
		decided = slot->to;
	} else if (first) {
		slot->req_id = req_id;
		slot->gaid = gaid;
		slot->to = decided;
	}
	bpf_spin_unlock(&slot->lock);
	return decided;
}
