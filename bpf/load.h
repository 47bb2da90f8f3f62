/* SPDX-License-Identifier: Apache-2.0 */
/* Loads: the latest report of each server, with a shadow copy (crates/program, clone/load.rs). */
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
	__u16 first, second;

	if (pair->first == pair->second || !(may_clone || may_choose))
		return TO_FIRST;
	first = now(loads[load_at(c->pool.place, pair->first)]);
	second = now(shadows[load_at(c->pool.place, pair->second)]);
	if (may_clone && (!(first | second) || PLANTED(CLONE_WHILE_BUSY)))
		return TO_BOTH;
	return may_choose && (PLANTED(TIE_TO_SECOND) ? second <= first : second < first) ? TO_SECOND : TO_FIRST;
}

/* Records a report, unless it is older than the recorded one. Of two reports that two processors record at the same
 * time, one is kept. */
static __always_inline void record_report(__u64 *cell, struct context *c)
{
	__u64 known = now(*cell);
	__u32 number = known >> 16;

	if (number && (__s32)(c->round - number) < 0 && !PLANTED(OLD_REPORT_TAKEN))
		return;
	__sync_val_compare_and_swap(cell, known, (__u64)c->round << 16 | (__u16)c->state);
}

/* Records the state that a server reports. */
static __always_inline void load_note(struct context *c)
{
	__u32 at = load_at(c->pool.place, c->sid);

	record_report(&loads[at], c);
	if (!PLANTED(SHADOW_KEPT))
		record_report(&shadows[at], c);
}
