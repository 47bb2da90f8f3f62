/* SPDX-License-Identifier: Apache-2.0 */
/* Response filter: one answer of a cloned call passes (crates/program, clone/filter.rs). */
#pragma once

#include "context.h"

/* Whether an answer is filtered; records it if it is the first. */
static __always_inline int filter_stops(struct context *c)
{
	__u32 at, sid = c->sid, gaid = c->gaid, stops = 0;
	struct fingerprint *slot;
	__u64 req_id = c->req_id;

	if (!c->clo || !req_id || PLANTED(UNFILTERED))
		return 0;
	at = c->idx % config.filters * config.fingerprints + slot_of(req_id, config.fingerprints);
	slot = bpf_map_lookup_elem(&filters, &at);
	if (!slot)
		return 0;
	bpf_spin_lock(&slot->lock);
	if (slot->req_id != req_id || slot->gaid != gaid) {
		slot->req_id = req_id;
		slot->gaid = gaid;
		slot->sid = sid;
	} else if (c->call_parts > 1) {
		stops = slot->sid != sid && !PLANTED(ANSWERS_MIXED);
	} else {
		stops = 1;
		if (slot->sid != sid && !PLANTED(FILTER_KEPT)) {
			slot->req_id = 0;
			slot->gaid = 0;
			slot->sid = 0;
		}
	}
	bpf_spin_unlock(&slot->lock);
	return stops;
}
