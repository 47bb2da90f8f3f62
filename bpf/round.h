/* SPDX-License-Identifier: Apache-2.0 */
/* Round stage of a sum (SyncAgtr): decides which worker's part counts, before anything is added (crates/program,
 * round.rs). */
#pragma once

#include "context.h"

/* Relation of a worker's frame to the round of its row. */
enum part {
	/* Refused by the repeat filter. */
	PART_NONE,
	PART_FIRST,
	/* First frame of a new round, whose row still holds an earlier round. */
	PART_OPENING,
	PART_AGAIN,
	/* Part of a round that is over. */
	PART_OLD,
	/* Part that the row cannot take, so that the server has to. */
	PART_DIVERTED,
};

/* Whether the row is cleared by its next round, and the element returns the result: policy shadow (NetRPC §5.2.2). */
static __always_inline int clears_itself(struct context *c)
{
	return c->map_flags & PC_MAP_CLEAR;
}

/* Records a worker's frame in its round; marks the frame if its round is marked. */
static __always_inline enum part round_enter(struct row *row, struct context *c, int new)
{
	__u64 bit = 1ULL << (c->worker & 63);
	int opens = c->round > row->round;

	if (c->round < row->round)
		return PART_OLD;
	/* A worker that sends the next round has the result of the round in the row, and so have all others. */
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
	/* NetRPC §5.1: the mark stays with the round until it is cleared, so that a lost frame does not lose the mark. */
	row->ecn = c->congested | (PLANTED(MARK_FORGOTTEN) ? 0 : row->ecn);
	if (row->ecn)
		c->flags |= PC_FLAG_ECN;
	if (row->workers & bit)
		return PLANTED(ELEMENT_WORKERS) ? PART_FIRST : PART_AGAIN;
	/* The original went to the server as well. */
	if (!new)
		return PART_DIVERTED;
	row->workers |= bit;
	return opens ? PART_OPENING : PART_FIRST;
}

/* Closes the round of a result, and all earlier rounds; false if it is closed already. A late result must not clear a
 * later round. */
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
