/* SPDX-License-Identifier: Apache-2.0 */
/* CntFwd stage: counters and thresholds (NetRPC §5.2.3; crates/program, count.rs). */
#pragma once

#include "context.h"
#include "round.h"

/* Whether a frame of pairs has a counter. */
static __always_inline int counts(struct context *c)
{
	return c->map_flags & PC_MAP_COUNT && c->threshold;
}

/* Counts a frame of pairs; true if the frame is forwarded. */
static __always_inline int count_pairs(struct row *row, struct context *c, int new)
{
	if ((new || PLANTED(COUNT_REPEATS)) && row->count != ~0U)
		row->count++;
	return new && !PLANTED(REACHED_TWICE) ? row->count == c->threshold : row->count >= c->threshold;
}

/* Counts a worker's part of a round; true if the round is complete. */
static __always_inline int count_round(struct row *row, struct context *c)
{
	int reached;

	if (c->part == PART_OPENING)
		row->count = 1;
	else
		row->count += c->part == PART_FIRST;
	reached = row->count >= c->threshold;
	if (reached && PLANTED(CLEAR_BEFORE_BACKUP))
		row->count = 0;
	return reached;
}
