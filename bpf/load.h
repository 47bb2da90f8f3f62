/* SPDX-License-Identifier: Apache-2.0 */
/* Loads: queue length of each server, with a shadow copy (crates/program, clone/load.rs). */
#pragma once

#include "group.h"

/* Decides which servers of its pair a request goes to. */
enum decision {
	TO_FIRST = 1,
	TO_SECOND,
	TO_BOTH,
};

static __always_inline enum decision load_decide(struct context *c, struct pair_of *pair)
{
	int may_clone = c->asks & PC_CLONE_CLONE || PLANTED(CLONE_UNASKED);
	int may_choose = c->asks & PC_CLONE_SHORTEST;
	__u32 first, second;

	if (pair->first == pair->second || !(may_clone || may_choose))
		return TO_FIRST;
	first = now(loads[load_at(c->pool.place, pair->first)]);
	second = now(shadows[load_at(c->pool.place, pair->second)]);
	if (may_clone && (!(first | second) || PLANTED(CLONE_WHILE_BUSY)))
		return TO_BOTH;
	return may_choose && (PLANTED(TIE_TO_SECOND) ? second <= first : second < first) ? TO_SECOND : TO_FIRST;
}

/* Records the state that a server reports. */
static __always_inline void load_note(struct context *c)
{
	__u32 at = load_at(c->pool.place, c->sid);

	now(loads[at]) = c->state;
	if (!PLANTED(SHADOW_KEPT))
		now(shadows[at]) = c->state;
}
