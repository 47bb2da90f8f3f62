/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of rounds in the stages: a worker's part, the server's result, the server's read (crates/program, lib.rs). */
#pragma once

#include "admit.h"
#include "count.h"
#include "lanes.h"
#include "repeat_filter.h"
#include "round.h"

/* Forwards the sums of a round to the server; or, if the row clears itself, returns the result: to all members the
 * first time, to the sender of a repeat. */
static __always_inline int reached(struct frame *frame, struct context *c)
{
	mark_all(frame, c);
	say(frame, c, PC_MAP_REACHED);
	if (!clears_itself(c))
		return forward(c);
	if (c->part == PART_AGAIN)
		return reflect(frame, c, PC_KIND_MAP_RESULT, 0);
	frame->base->kind = PC_KIND_MAP_RESULT;
	return MULTICAST;
}

/* Processes a worker's part of a round. */
__noinline int linear(struct xdp_md *xdp, struct context *c)
{
	struct frame frame = frame_of(xdp);
	struct application_counters *counters;
	struct place *place;
	struct row *row;
	__s32 *cells;

	if (!c || !frame.base)
		return DROP_MALFORMED;
	counters = counters_of(c->app.index);
	if (!counters)
		return DROP_MALFORMED;
	if (c->map_flags & PC_MAP_WIDE || !(c->map_flags & PC_MAP_ROUND)) {
		counters->diverted++;
		return divert(&frame, c);
	}
	if (c->lanes > c->app.width || c->index >= c->app.rows || c->worker >= PC_MAX_WORKERS || c->first_lane ||
	    !c->threshold)
		return DROP_MALFORMED;
	plainer(c);
	place = place_of(c);
	row = row_at(c->app.row_base + c->index);
	cells = lanes_at(c->app.lane_base + c->index * c->app.width);
	if (!place || !row || !cells)
		return DROP_MALFORMED;

	row_lock(row);
	c->repeat_status = classify(place, c->seq, 0, 1);
	c->part = c->repeat_status == STATUS_STALE ? PART_NONE : round_enter(row, c, c->repeat_status == STATUS_NEW);
	c->reached = 0;
	forget();
	if (c->part == PART_FIRST || c->part == PART_OPENING || c->part == PART_AGAIN)
		c->reached = count_round(row, c);
	forget();
	if (c->part == PART_OPENING && !PLANTED(LAST_ROUND_ADDED))
		lanes_zero(cells, c->lanes);
	forget();
	if (c->part == PART_FIRST || c->part == PART_OPENING)
		lanes_add(&frame, c, cells);
	forget();
	if (c->reached)
		lanes_get(&frame, c, cells);
	forget();
	row_unlock(row);

	frame.base->flags = bpf_htons(c->flags);
	switch (c->part) {
	case PART_NONE:
		counters->stale++;
		return DROP_STALE;
	case PART_OLD:
		counters->old++;
		/* Forwarded without lanes: the server answers from its backup. */
		say(&frame, c, PC_MAP_OLD);
		strip(&frame, c);
		return forward(c);
	case PART_DIVERTED:
		counters->diverted++;
		return divert(&frame, c);
	case PART_FIRST:
	case PART_OPENING:
		counters->applied++;
		counters->lanes_added += c->lanes;
		break;
	default:
		counters->repeats++;
		counters->held += !c->reached;
	}
	if (!c->reached)
		return c->part == PART_AGAIN ? reflect(&frame, c, PC_KIND_MAP_HELD, 1) : DROP_COUNTED;
	counters->reached++;
	return reached(&frame, c);
}

/* Processes the server's result of a round, which clears the round once. */
__noinline int result(struct xdp_md *xdp, struct context *c)
{
	struct frame frame = frame_of(xdp);
	struct application_counters *counters;
	int cleared = 0;
	struct row *row;
	__s32 *cells;

	if (!c || !frame.base || c->index >= c->app.rows)
		return DROP_MALFORMED;
	counters = counters_of(c->app.index);
	row = row_at(c->app.row_base + c->index);
	cells = lanes_at(c->app.lane_base + c->index * c->app.width);
	if (!counters || !row || !cells)
		return DROP_MALFORMED;
	if ((c->map_flags & (PC_MAP_CLEAR | PC_MAP_ROUND)) == (PC_MAP_CLEAR | PC_MAP_ROUND)) {
		row_lock(row);
		cleared = round_close(row, c);
		if (cleared) {
			row->count = 0;
			lanes_zero(cells, c->app.width);
		}
		row_unlock(row);
		frame.base->flags = bpf_htons(c->flags);
	}
	counters->results++;
	counters->clears += cleared;
	return deliver(c);
}

/* Reads a row of registers for the server. */
__noinline int read(struct xdp_md *xdp, struct context *c)
{
	struct frame frame = frame_of(xdp);
	struct application_counters *counters;
	const __u32 form = PC_MAP_LINEAR | PC_MAP_GET;
	struct row *row;
	__s32 *cells;

	if (!c || !frame.base || c->index >= c->app.rows || c->first_lane + c->lanes > c->app.width ||
	    (c->map_flags & (form | PC_MAP_WIDE | PC_MAP_BARE)) != form)
		return DROP_MALFORMED;
	counters = counters_of(c->app.index);
	row = row_at(c->app.row_base + c->index);
	cells = lanes_at(c->app.lane_base + c->index * c->app.width + c->first_lane);
	if (!counters || !row || !cells)
		return DROP_MALFORMED;
	row_lock(row);
	lanes_get(&frame, c, cells);
	row_unlock(row);
	mark_all(&frame, c);
	counters->reads++;
	return reflect(&frame, c, PC_KIND_MAP_VALUES, 0);
}
