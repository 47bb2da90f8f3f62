/* SPDX-License-Identifier: Apache-2.0 */
/* Keyed frames in the stages: pairs, locks, ballots, and harvests of the server (crates/program, keyed.rs and
 * ballot.rs). */
#pragma once

#include "admit.h"
#include "ballot.h"
#include "count.h"
#include "generation.h"
#include "lock.h"
#include "map.h"
#include "repeat_filter.h"

/* Whether the application has keyed rows. */
static __always_inline int is_keyed(struct context *c)
{
	return c->app.width == PC_KEYED_WIDTH && c->app.rows;
}

/* Processes pairs for the server (NetRPC App. C, "for packets to the server"). */
__noinline int keyed(struct xdp_md *xdp, struct context *c)
{
	__u32 open, committed, version, applied_in, overflow;
	struct frame frame = frame_of(xdp);
	struct application_counters *counters;
	struct row *first, *counted;
	struct place *place;
	int counting, new;

	if (!c || !frame.base || c->lanes > PC_KEYED_LANES || !is_keyed(c))
		return DROP_MALFORMED;
	counters = counters_of(c->app.index);
	plainer(c);
	place = place_of(c);
	first = row_at(c->app.row_base);
	counting = counts(c);
	counted = row_at(c->app.row_base + c->index);
	if (!counters || !place || !first)
		return DROP_MALFORMED;
	if (c->index >= c->app.rows)
		counted = 0;

	row_lock(first);
	open = first->open;
	committed = first->committed;
	version = first->version;
	c->repeat_status = classify(place, c->seq, open, c->round == version);
	c->reached = 1;
	forget();
	if (c->repeat_status == STATUS_NEW || c->repeat_status == STATUS_REPEAT) {
		if (counting && counted)
			c->reached = count_pairs(counted, c, c->repeat_status == STATUS_NEW);
		forget();
		pairs_work(&frame, c, bank_of(PLANTED(HARVEST_UNFROZEN) ? committed + 1 : open));
		forget();
		if (c->repeat_status == STATUS_NEW)
			place->overflow = c->overflow;
	}
	applied_in = place->last;
	overflow = place->overflow;
	row_unlock(first);
	new = c->repeat_status == STATUS_NEW;

	if (c->repeat_status == STATUS_REFUSED) {
		counters->refused++;
		frame.base->round = bpf_htonl(version);
		return reflect(&frame, c, PC_KIND_MAP_REFUSED, 1);
	}
	if (c->repeat_status == STATUS_STALE) {
		counters->stale++;
		return DROP_STALE;
	}
	counters->applied += new;
	counters->repeats += !new;
	counters->lanes_added += c->added;
	counters->overflow_lanes += __builtin_popcount(c->overflow);
	/* The sender keeps added pairs until this generation is harvested. Values that are only read are those of the open
	 * generation, on a repeat, too. */
	if (!(c->map_flags & PC_MAP_ADD) && !PLANTED(READ_NAMES_FIRST_GENERATION))
		applied_in = open;
	frame.base->round = bpf_htonl(applied_in);
	frame.map->index = bpf_htonl(committed);
	if (counting && !counted)
		return DROP_MALFORMED;
	if (!c->reached) {
		if (new)
			return DROP_COUNTED;
		counters->held++;
		return reflect(&frame, c, PC_KIND_MAP_HELD, 1);
	}
	mark_overflow(&frame, c, PLANTED(OVERFLOW_SAID_ONCE) && !new ? 0 : overflow);
	if (c->target == PC_TO_SRC)
		return reflect(&frame, c, PC_KIND_MAP_ACK, !(c->map_flags & PC_MAP_GET));
	if (c->target == PC_TO_SERVER) {
		say(&frame, c, PC_MAP_REACHED);
		return forward(c);
	}
	frame.base->kind = PC_KIND_MAP_ACK;
	return MULTICAST;
}

/* Acquires or releases a lock. */
__noinline int lock(struct xdp_md *xdp, struct context *c)
{
	struct frame frame = frame_of(xdp);
	struct application_counters *counters;
	enum outcome outcome = LOCK_BUSY;
	struct place *place;
	__u32 grants = 0;
	struct row *row;
	enum repeat_status status;
	int denied;

	if (!c || !frame.base || c->index >= c->app.rows || c->tag & ~PC_LOCK_TAG)
		return DROP_MALFORMED;
	counters = counters_of(c->app.index);
	place = place_of(c);
	row = row_at(c->app.row_base + c->index);
	if (!counters || !place || !row)
		return DROP_MALFORMED;

	row_lock(row);
	status = classify(place, c->seq, 0, 1);
	if (status != STATUS_STALE) {
		int new = status == STATUS_NEW;

		outcome = c->map_flags & PC_MAP_COUNT ? lock_take(row, c, new) : lock_give_back(row, c, new);
		if (outcome == LOCK_GRANTED && row->grants != ~0U)
			row->grants++;
		grants = outcome == LOCK_FREE ? 0 : row->grants;
	}
	row_unlock(row);

	if (status == STATUS_STALE) {
		counters->stale++;
		return DROP_STALE;
	}
	denied = outcome == LOCK_BUSY || outcome == LOCK_FREE;
	counters->applied += status == STATUS_NEW;
	counters->repeats += status != STATUS_NEW;
	counters->denied += denied;
	frame.base->round = bpf_htonl(grants);
	if (outcome == LOCK_IS_PARKED)
		return divert(&frame, c);
	if (denied)
		say(&frame, c, PC_MAP_DENIED);
	return reflect(&frame, c, PC_KIND_MAP_ACK, 1);
}

/* Frees a lock for the server, or returns its owner. */
__noinline int free_lock(struct xdp_md *xdp, struct context *c)
{
	struct frame frame = frame_of(xdp);
	__u32 owner, tag, grants;
	struct row *row;

	if (!c || !frame.base || c->index >= c->app.rows)
		return DROP_MALFORMED;
	row = row_at(c->app.row_base + c->index);
	if (!row)
		return DROP_MALFORMED;
	row_lock(row);
	owner = row->owner;
	tag = row->owner_tag & ~PC_LOCK_WANTED;
	lock_free(row, c);
	grants = row->grants;
	row_unlock(row);
	frame.base->slot = bpf_htonl(owner);
	frame.base->round = bpf_htonl(grants);
	frame.map->para = bpf_htonl(tag);
	return reflect(&frame, c, PC_KIND_MAP_FREED, 0);
}

/* Turns the vote that decided a ballot in this round into the announcement of the decision: to all members the first
 * time, to the voter on a repeat. Like the server's announcement, it names the next round. */
static __always_inline int announce_decision(struct frame *frame, struct context *c, __u32 round, int first)
{
	frame->base->round = bpf_htonl(round + 1);
	say(frame, c, PC_MAP_REACHED);
	if (!first)
		return reflect(frame, c, PC_KIND_MAP_SOFT, 0);
	frame->base->kind = PC_KIND_MAP_SOFT;
	return MULTICAST;
}

/* Processes a vote, the clear of a ballot, or a query: answered if the ballot is decided, otherwise forwarded. */
__noinline int ballot(struct xdp_md *xdp, struct context *c)
{
	struct frame frame = frame_of(xdp);
	struct application_counters *counters;
	struct standing standing = {};
	struct ballot_key key;
	enum way way = WAY_ASK;
	enum decider decider;
	struct place *place;
	__u32 mark = 0;
	struct row *row;
	enum repeat_status status;
	int clears, asks;

	if (!c || !frame.base || c->index >= c->app.rows || !ballot_key(&frame, c, &key))
		return DROP_MALFORMED;
	counters = counters_of(c->app.index);
	place = place_of(c);
	row = row_at(c->app.row_base + c->index);
	if (!counters || !place || !row)
		return DROP_MALFORMED;
	clears = !!(c->map_flags & PC_MAP_CLEAR);
	decider = decider_of(c);
	asks = is_ballot_query(c);

	row_lock(row);
	status = classify(place, c->seq, 0, 1);
	if (status != STATUS_STALE && asks) {
		standing.decided = !row->moved && row->decided && ballot_is(row, &key);
		standing.round = row->ballot_round;
	} else if (status != STATUS_STALE) {
		int new = status == STATUS_NEW;

		standing = ballot_enter(row, c, &key, new, decider);
		if (new) {
			way = first_way(&standing, clears, decider);
			place->overflow = standing.round << 1 | (way != WAY_DONE);
		}
		mark = place->overflow;
		if (!new)
			way = way_again(&standing, mark, clears, decider);
	}
	row_unlock(row);

	if (status == STATUS_STALE) {
		counters->stale++;
		return DROP_STALE;
	}
	if (asks) {
		if (!standing.decided)
			return forward(c);
		counters->reads++;
		frame.base->round = bpf_htonl(standing.round);
		say(&frame, c, PC_MAP_REACHED);
		return reflect(&frame, c, PC_KIND_MAP_ACK, 1);
	}
	counters->applied += status == STATUS_NEW && standing.ours;
	counters->repeats += status != STATUS_NEW;
	counters->diverted += way == WAY_DIVERT;
	counters->reached += way == WAY_REACHED || way == WAY_DECIDED;
	if (way == WAY_DECIDED)
		return announce_decision(&frame, c, mark >> 1, status == STATUS_NEW);
	/* The round in which the frame took effect. */
	frame.base->round = bpf_htonl(mark >> 1);
	if (way == WAY_DIVERT)
		return divert(&frame, c);
	if (way == WAY_ASK)
		return forward(c);
	if (way == WAY_REACHED) {
		say(&frame, c, PC_MAP_REACHED);
		return forward(c);
	}
	if (standing.decided && standing.round == mark >> 1)
		say(&frame, c, PC_MAP_REACHED);
	return reflect(&frame, c, PC_KIND_MAP_ACK, 1);
}

/* Processes a message of the server about a ballot: that the ballot is decided, or that the server counts the votes of
 * this row from now on. */
__noinline int ballot_word(struct xdp_md *xdp, struct context *c)
{
	struct frame frame = frame_of(xdp);
	struct application_counters *counters;
	struct row *row;
	int moves;

	if (!c || !frame.base || c->index >= c->app.rows)
		return DROP_MALFORMED;
	counters = counters_of(c->app.index);
	row = row_at(c->app.row_base + c->index);
	if (!counters || !row)
		return DROP_MALFORMED;
	moves = c->kind == PC_KIND_MAP_MOVE;
	row_lock(row);
	if (moves)
		row->moved = 1;
	else if (row->key_len && row->ballot_round == c->round)
		/* A late message about a ballot that was cleared does not apply to the current round. */
		row->decided = 1;
	row_unlock(row);
	if (moves)
		return reflect(&frame, c, PC_KIND_MAP_MOVED, 0);
	counters->results++;
	return deliver(c);
}

/* Whether a flow slot belongs to an endpoint of the application. */
static __always_inline int is_slot_of(__u32 slot, __u32 id, __u32 gaid)
{
	struct endpoint *endpoint = endpoint_of(id, gaid);

	return endpoint && slot - endpoint->slot_base < endpoint->slots;
}

/* Processes a harvest frame of the server. */
__noinline int harvest(struct xdp_md *xdp, struct context *c)
{
	struct frame frame = frame_of(xdp);
	struct application_counters *counters;
	struct place *place = 0;
	__s32 *cells = 0;
	struct row *first;
	__u32 kind;

	if (!c || !frame.base || !is_keyed(c))
		return DROP_MALFORMED;
	kind = c->kind;
	counters = counters_of(c->app.index);
	first = row_at(c->app.row_base);
	if (!counters || !first)
		return DROP_MALFORMED;
	if (kind == PC_KIND_MAP_PLACES) {
		if (!is_slot_of(c->index, c->threshold, c->gaid) || c->first_lane % PC_RECORD_PLACES ||
		    c->first_lane >= PC_W_MAX || c->payload_at - c->lanes_at != PC_RECORD_PLACES * 12)
			return DROP_MALFORMED;
		place = places_at((__u64)c->index * PC_W_MAX + c->first_lane, PC_RECORD_PLACES);
		if (!place)
			return DROP_MALFORMED;
	} else if (kind == PC_KIND_MAP_WIPE) {
		if (c->index >= c->app.rows)
			return DROP_MALFORMED;
		cells = lanes_at(c->app.lane_base + c->index * PC_KEYED_WIDTH + bank_of(c->round));
		if (!cells)
			return DROP_MALFORMED;
	}

	row_lock(first);
	if (place)
		places_record(&frame, c, place);
	else if (!cells)
		generation_close(first, c);
	else if (generation_commit(first, c) && !PLANTED(WIPE_FORGOTTEN))
		lanes_zero(cells, PC_KEYED_LANES);
	if (kind == PC_KIND_MAP_CLOSE) {
		frame.base->round = bpf_htonl(first->open);
		frame.map->index = bpf_htonl(first->version);
	}
	row_unlock(first);

	counters->harvests += kind == PC_KIND_MAP_CLOSE;
	if (place)
		return reflect(&frame, c, PC_KIND_MAP_RECORD, 0);
	return reflect(&frame, c, cells ? PC_KIND_MAP_WIPED : PC_KIND_MAP_CLOSED, 0);
}
