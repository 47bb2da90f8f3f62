/* SPDX-License-Identifier: Apache-2.0 */
/* Map stage: Stream.modify, Map.addTo and Map.get on keyed pairs, and the record of a slot (crates/program, map.rs and
 * repeat_filter.rs). Runs under the application's lock. */
#pragma once

#include "lanes.h"
#include "repeat_filter.h"

/* Pair in a frame. */
struct pair {
	__be32 row;
	__be32 value;
} __attribute__((packed));

/* Whether the element processes the i-th pair: the pair is marked, and names a register. */
static __always_inline int works_on(struct context *c, struct pair *pair, __u32 i)
{
	return (now(c->marked) >> i & 1 || PLANTED(UNMARKED_MODIFIED)) && bpf_ntohl(pair->row) < now(c->app.rows);
}

/* Stream.modify of the pairs that the element processes. */
static __always_inline void pairs_modify_by(struct frame *frame, struct context *c, __u32 op)
{
	struct pair *pairs = bytes_at(frame, c->lanes_at);

#pragma unroll 1
	for (__u32 i = 0; i < PC_KEYED_LANES; i++) {
		struct pair *pair = held(pairs + i);

		if (i >= now(c->lanes) || (void *)(pair + 1) > frame->end)
			break;
		if (works_on(c, pair, i))
			pair->value = bpf_htonl(modify(op, bpf_ntohl(pair->value), now(c->para)));
	}
}

static __always_inline void pairs_modify(struct frame *frame, struct context *c)
{
	switch (c->op) {
	case PC_OP_MAX:
		return pairs_modify_by(frame, c, PC_OP_MAX);
	case PC_OP_MIN:
		return pairs_modify_by(frame, c, PC_OP_MIN);
	case PC_OP_ADD:
		return pairs_modify_by(frame, c, PC_OP_ADD);
	case PC_OP_ASSIGN:
		return pairs_modify_by(frame, c, PC_OP_ASSIGN);
	case PC_OP_SHIFT_L:
		return pairs_modify_by(frame, c, PC_OP_SHIFT_L);
	case PC_OP_SHIFT_R:
		return pairs_modify_by(frame, c, PC_OP_SHIFT_R);
	case PC_OP_BAND:
		return pairs_modify_by(frame, c, PC_OP_BAND);
	case PC_OP_BOR:
		return pairs_modify_by(frame, c, PC_OP_BOR);
	case PC_OP_BNOT:
		return pairs_modify_by(frame, c, PC_OP_BNOT);
	case PC_OP_BXOR:
		return pairs_modify_by(frame, c, PC_OP_BXOR);
	}
}

/* Map.addTo and Map.get: the i-th pair uses the i-th position of its row's bank, which starts at `bank`. */
static __always_inline void pairs_add(struct frame *frame, struct context *c, __u32 bank)
{
	struct pair *pairs = bytes_at(frame, c->lanes_at);

#pragma unroll 1
	for (__u32 i = 0; i < PC_KEYED_LANES; i++) {
		struct pair *pair = held(pairs + i);
		__s32 *cell;
		__s64 sum;

		if (i >= now(c->lanes) || (void *)(pair + 1) > frame->end)
			break;
		if (!(now(c->marked) >> i & 1))
			continue;
		cell = bpf_ntohl(pair->row) < now(c->app.rows) ?
			       lanes_at(c->app.lane_base + bpf_ntohl(pair->row) * PC_KEYED_WIDTH) :
			       0;
		if (!cell) {
			c->overflow |= 1U << i;
			continue;
		}
		cell += (bank & PC_KEYED_LANES) + i;
		sum = held((__s64)*cell + (__s32)bpf_ntohl(pair->value));
		if (now(c->adds) && sum == (__s32)sum) {
			*cell = sum;
			c->added++;
		} else if (now(c->adds) && PLANTED(CLAMP_OVERFLOW)) {
			*cell = saturated(sum);
		} else if (now(c->adds)) {
			c->overflow |= 1U << i;
		}
		if (now(c->map_flags) & PC_MAP_GET)
			pair->value = bpf_htonl(*cell);
	}
}

/* Processes keyed pairs. */
static __always_inline void pairs_work(struct frame *frame, struct context *c, __u32 bank)
{
	__be32 *bits = (void *)frame->base + HEADERS;

	c->overflow = 0;
	c->added = 0;
	c->adds = (c->repeat_status == STATUS_NEW || PLANTED(PAIRS_REPEATS)) && c->map_flags & PC_MAP_ADD;

	if (c->map_flags & (PC_MAP_LINEAR | PC_MAP_BARE) || !c->lanes || (void *)(bits + 1) > frame->end)
		return;
	c->marked = bpf_ntohl(*bits);
	pairs_modify(frame, c);
	forget();
	pairs_add(frame, c, bank);
}

/* Writes the repeat-filter entries of a slot into the frame: numbers, generations and masks. */
static __always_inline void places_record(struct frame *frame, struct context *c, struct place *place)
{
	__be32 *words = bytes_at(frame, c->lanes_at);

	if ((void *)(words + 3 * PC_RECORD_PLACES) > frame->end)
		return;
	for (__u32 i = 0; i < PC_RECORD_PLACES; i++) {
		words[i] = bpf_htonl(place[i].last >> 32);
		words[PC_RECORD_PLACES + i] = bpf_htonl(place[i].last);
		words[2 * PC_RECORD_PLACES + i] = bpf_htonl(place[i].overflow);
	}
}
