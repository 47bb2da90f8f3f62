/* SPDX-License-Identifier: Apache-2.0 */
/* Lock stage: test-and-set with the owner in the register, and a queue at the server (NetRPC Table 2;
 * crates/program, lock.rs). Runs under the row's lock. */
#pragma once

#include "context.h"

/* Result of a lock frame. */
enum outcome {
	LOCK_GRANTED = 1,
	/* Held already by this acquisition. */
	LOCK_HELD,
	/* Held by another caller. */
	LOCK_BUSY,
	/* Not held, but this frame is a repeat that was answered before: another attempt is needed. */
	LOCK_FREE,
	/* Released, or never held by the sender. */
	LOCK_RELEASED,
	/* Released, and parked for the server. */
	LOCK_IS_PARKED,
};

/* Whether a frame of pairs acquires or releases a lock. */
static __always_inline int is_of_lock(struct context *c)
{
	int takes = c->map_flags & PC_MAP_COUNT && c->threshold == 1;
	int clears = (c->map_flags & (PC_MAP_COUNT | PC_MAP_CLEAR | PC_MAP_ADD)) == PC_MAP_CLEAR;

	return c->lanes == 0 && c->target == PC_TO_SRC && (takes || clears);
}

static __always_inline enum outcome lock_take(struct row *row, struct context *c, int new)
{
	if (!row->owner) {
		if (!new)
			return LOCK_FREE;
		row->owner = c->src;
		row->owner_tag = c->tag;
		return LOCK_GRANTED;
	}
	if (row->owner == c->src && (row->owner_tag & ~PC_LOCK_WANTED) == c->tag)
		return LOCK_HELD;
	if (!PLANTED(WANTED_FORGOTTEN))
		row->owner_tag |= PC_LOCK_WANTED;
	return LOCK_BUSY;
}

static __always_inline enum outcome lock_give_back(struct row *row, struct context *c, int new)
{
	if ((row->owner != c->src && !PLANTED(RELEASE_OF_ANY_OWNER)) ||
	    (row->owner_tag & ~(PC_LOCK_WANTED | PC_LOCK_PARKED)) != c->tag)
		return LOCK_RELEASED;
	/* A repeat: the server may not have received the first frame, or its answer was lost. */
	if (row->owner_tag & PC_LOCK_PARKED)
		return LOCK_IS_PARKED;
	if (!new)
		return LOCK_RELEASED;
	if (!(row->owner_tag & PC_LOCK_WANTED)) {
		row->owner = 0;
		row->owner_tag = 0;
		return LOCK_RELEASED;
	}
	row->owner_tag = c->tag | PC_LOCK_PARKED;
	return LOCK_IS_PARKED;
}

/* Frees a lock that exactly this acquisition has, and raises its count of grants to that of the server. */
static __always_inline void lock_free(struct row *row, struct context *c)
{
	if (row->owner != c->threshold || (row->owner_tag & ~PC_LOCK_WANTED) != c->tag)
		return;
	row->owner = 0;
	row->owner_tag = 0;
	if (row->grants < c->round && !PLANTED(GRANTS_NOT_RAISED))
		row->grants = c->round;
}
