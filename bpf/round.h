/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds of SyncAgtr: which worker's part counts, before anything is added (crates/program, round.rs). */
#pragma once

#include "context.h"

/* What a worker's frame is to its row. */
enum part {
	/* Of a frame that its place has refused. */
	PART_NONE,
	PART_FIRST,
	/* The same, and the first of all of a round that it opens: what the row holds is of an earlier one. */
	PART_OPENING,
	PART_AGAIN,
	/* Part of a round that is over. */
	PART_OLD,
	/* Nothing that this row can take: the server must. */
	PART_DIVERTED,
};

/* Whether a part's row is cleared by its next round, and the element says the result: policy shadow (NetRPC §5.2.2). */
static __always_inline int clears_itself(struct context *c)
{
	return c->map_flags & PC_MAP_CLEAR;
}

/* Enters a worker's frame in its round; marks it where its round is marked. */
static __always_inline enum part round_enter(struct row *row, struct context *c, int new)
{
	__u64 bit = 1ULL << (c->worker & 63);
	int opens = c->round > row->round;

	if (c->round < row->round)
		return PART_OLD;
	/* Whoever sends this has the result of what the row holds, and so has everybody else. */
	if (opens && !(new && clears_itself(c)))
		return PART_DIVERTED;
	if (opens) {
		row->round = c->round;
		row->workers = 0;
		row->ecn = 0;
	}
	if (!row->workers)
		row->tag = c->tag;
	if (row->tag != c->tag && !PLANTED(ELEMENT_TAG))
		return PART_DIVERTED;
	/* NetRPC §5.1: the mark stays with the round until it is cleared, so that its loss loses nothing. */
	row->ecn = c->congested | (PLANTED(MARK_FORGOTTEN) ? 0 : row->ecn);
	if (row->ecn)
		c->flags |= PC_FLAG_ECN;
	if (row->workers & bit)
		return PLANTED(ELEMENT_WORKERS) ? PART_FIRST : PART_AGAIN;
	/* It went to the server the first time. */
	if (!new)
		return PART_DIVERTED;
	row->workers |= bit;
	return opens ? PART_OPENING : PART_FIRST;
}

/* Closes the round that a result is of, and any before it; false when it is closed already. A late
 * result must not wipe a later round. */
static __always_inline int round_close(struct row *row, struct context *c)
{
	if (c->round < row->round)
		return PLANTED(CLEAR_ON_OLD_RESULT);
	if (row->ecn)
		c->flags |= PC_FLAG_ECN;
	row->round = c->round == ~0U ? ~0U : c->round + 1;
	row->workers = 0;
	row->tag = 0;
	row->ecn = 0;
	return 1;
}
