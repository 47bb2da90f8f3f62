/* SPDX-License-Identifier: Apache-2.0 */
/* Mutants of the program: planted mistakes, one at a time. The comparison with the reference has to find each of them
 * (crates/xdp, planted.rs, in the same order). Only builds with -DPLANTED contain them. */
#pragma once

#ifdef PLANTED

enum mistake {
	NO_MISTAKE,
	/* admit.h */
	ELEMENT_EPOCH,
	ELEMENT_INCARNATION,
	ELEMENT_APPLICATION,
	ELEMENT_SLOT,
	/* context.h */
	SENDER_BELIEVED,
	/* generation.h */
	WIPE_OLD_GENERATION,
	VERSION_KEPT,
	/* repeat_filter.h */
	ELEMENT_REPEATS,
	ELEMENT_LATE_REPEATS,
	REFUSED_APPLIED,
	/* round.h */
	ELEMENT_WORKERS,
	ELEMENT_TAG,
	MARK_FORGOTTEN,
	CLEAR_ON_OLD_RESULT,
	/* linear.h */
	LAST_ROUND_ADDED,
	/* count.h */
	CLEAR_BEFORE_BACKUP,
	COUNT_REPEATS,
	REACHED_TWICE,
	/* lock.h */
	RELEASE_OF_ANY_OWNER,
	WANTED_FORGOTTEN,
	GRANTS_NOT_RAISED,
	/* ballot.h */
	VOTE_REPEATS,
	VOTE_FOR_ANOTHER,
	DECIDED_UNRECORDED,
	DECIDED_FORGOTTEN,
	DECISION_SAID_ONCE,
	CLEARS_UNCOUNTED,
	/* lanes.h */
	LANES_WRAP,
	SHIFT_MODULO,
	FIRST_LANE_KEPT,
	/* map.h */
	CLAMP_OVERFLOW,
	PAIRS_REPEATS,
	UNMARKED_MODIFIED,
	/* keyed.h */
	HARVEST_UNFROZEN,
	OVERFLOW_SAID_ONCE,
	READ_NAMES_FIRST_GENERATION,
	WIPE_FORGOTTEN,
	/* emit.h */
	STRIP_FORGOTTEN,
	INCARNATION_KEPT,
	MARKS_SHIFTED,
	/* number.h */
	ID_UNCHECKED,
	/* group.h */
	STALE_CLAMPED,
	CANCEL_STALE,
	/* load.h */
	SHADOW_KEPT,
	OLD_REPORT_TAKEN,
	CLONE_UNASKED,
	CLONE_WHILE_BUSY,
	TIE_TO_SECOND,
	/* request.h */
	PARTS_FORGOTTEN,
	/* address.h */
	DIRECT_TO_ANYBODY,
	/* filter.h */
	UNFILTERED,
	ANSWERS_MIXED,
	FILTER_KEPT,
	/* clone.h */
	SID_UNCHECKED,
	HOST_BELIEVED,
	DIRECT_STEERED,
	SWITCH_IGNORED,
	/* egress.h */
	TAIL_KEPT,
	SUM_OF_BEFORE,
	MARK_PASSED_ON,
	/* tables.h; frames one after the other do not show it */
	UNLOCKED,
};

/* Selected mistake, a constant for the verifier. */
const volatile __u32 planted SEC(".rodata.planted") = NO_MISTAKE;

#undef PLANTED
#define PLANTED(mistake) (planted == (mistake))

#else

#define PLANTED(mistake) 0

#endif
