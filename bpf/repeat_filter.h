/* SPDX-License-Identifier: Apache-2.0 */
/* Repeat-filter stage: a frame takes effect at most once (NetRPC §5.1; crates/program, repeat_filter.rs). */
#pragma once

#include "context.h"

/* Relation of a frame to its repeat-filter entry. */
enum repeat_status {
	STATUS_NEW = 1,
	/* Repeat of a frame that was applied in the generation of the entry. */
	STATUS_REPEAT,
	/* New sequence number of a frame that is refused; the entry is unchanged. */
	STATUS_REFUSED,
	/* Acknowledged long ago. */
	STATUS_STALE,
};

/* Index of the entry of a frame whose slot was admitted. */
static __always_inline struct place *place_of(struct context *c)
{
	return places_at((__u64)c->slot * PC_W_MAX + c->seq % PC_W_MAX, 1);
}

/* Classifies a frame, and records a new one as applied in `generation`, if it is `admissible`. */
static __always_inline enum repeat_status classify(struct place *place, __u32 seq, __u32 generation, int admissible)
{
	__u64 last = *(volatile __u64 *)&place->last;
	__u32 last_seq = last >> 32;

	if (seq < last_seq && !PLANTED(ELEMENT_LATE_REPEATS))
		return STATUS_STALE;
	if (seq == last_seq && !PLANTED(ELEMENT_REPEATS))
		return STATUS_REPEAT;
	if (!admissible && !PLANTED(REFUSED_APPLIED))
		return STATUS_REFUSED;
	/* Two numbers of one entry at the same time, under the locks of two rows: a sender within its window never does
	 * that. One of them is dropped. */
	if (__sync_val_compare_and_swap(&place->last, last, (__u64)seq << 32 | generation) != last)
		return STATUS_STALE;
	return STATUS_NEW;
}
