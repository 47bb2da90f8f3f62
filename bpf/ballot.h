/* SPDX-License-Identifier: Apache-2.0 */
/* Ballot stage: CntFwd on keys with a threshold above one (NetRPC §4, Table 2; crates/program, ballot.rs).
 * Runs under the row's lock. */
#pragma once

#include "context.h"

/* Key as stored in a register, padded with zeros. */
struct ballot_key {
	__u64 words[PC_MAX_BALLOT_KEY / 8];
	__u32 len;
};

/* State of a ballot as a vote finds it, with the vote counted. */
struct standing {
	/* Whether the row belongs to this key. */
	int ours;
	int reached;
	/* Whether the votes are more than the threshold, so that an earlier vote reached it. */
	int passed;
	int decided;
	/* Whether this vote decided the ballot here. */
	int decides;
	__u32 round;
};

/* Party that decides at the threshold, as a vote says. */
enum decider {
	DECIDER_ELEMENT = 1,
	/* The server, which runs the handler for the deciding vote. */
	DECIDER_HANDLER,
	/* The server, which records the decision before callers get it. */
	DECIDER_SERVER,
};

/* Route of a vote. */
enum way {
	/* Forwarded: the server counts the vote. */
	WAY_DIVERT = 1,
	/* Forwarded: the threshold is reached, and the server decides or has decided. */
	WAY_REACHED,
	/* Decided here by this vote. */
	WAY_DECIDED,
	/* Forwarded: the server has the answer. */
	WAY_ASK,
	/* Counted here. */
	WAY_DONE,
};

/* Round of a ballot: 31 bits, beside the bit of votes that reached the threshold. */
#define BALLOT_ROUND 0x7fffffffU

static __always_inline enum decider decider_of(struct context *c)
{
	if (c->target == PC_TO_SERVER)
		return DECIDER_HANDLER;
	return c->map_flags & PC_MAP_WAIT ? DECIDER_SERVER : DECIDER_ELEMENT;
}

/* Whether a frame asks for the decision of a ballot. */
static __always_inline int is_ballot_query(struct context *c)
{
	return (c->map_flags & (PC_MAP_COUNT | PC_MAP_GET | PC_MAP_CLEAR)) == (PC_MAP_COUNT | PC_MAP_GET);
}

/* Reads the key of the only entry; false if the payload has another form. */
static __always_inline int ballot_key(struct frame *frame, struct context *c, struct ballot_key *key)
{
	__be16 *len = bytes_at(frame, c->payload_at);
	__u8 *bytes = (void *)(len + 1), *to = (void *)key->words;

	key->len = c->payload_len - (2 + 8);
	if (key->len - 1 >= PC_MAX_BALLOT_KEY || (void *)(len + 1) > frame->end || bpf_ntohs(*len) != key->len)
		return 0;
	for (__u32 i = 0; i < PC_MAX_BALLOT_KEY / 8; i++)
		key->words[i] = 0;
	for (__u32 i = 0; i < PC_MAX_BALLOT_KEY; i++) {
		__u8 *byte = held(bytes + i);

		if (i >= key->len || (void *)(byte + 1) > frame->end)
			break;
		to[i] = *byte;
	}
	return 1;
}

static __always_inline int ballot_is(struct row *row, struct ballot_key *key)
{
	__u64 differ = row->key_len ^ key->len;

	for (__u32 i = 0; i < PC_MAX_BALLOT_KEY / 8; i++)
		differ |= row->key[i] ^ key->words[i];
	return !differ;
}

/* Records a frame in the row that it names. */
static __always_inline struct standing ballot_enter(struct row *row, struct context *c, struct ballot_key *key, int new,
						     enum decider decider)
{
	int clears = !!(c->map_flags & PC_MAP_CLEAR);
	struct standing standing;

	if (!row->key_len && !row->moved && new) {
		row->key_len = key->len;
		for (__u32 i = 0; i < PC_MAX_BALLOT_KEY / 8; i++)
			row->key[i] = key->words[i];
	}
	standing.ours = !row->moved && (ballot_is(row, key) || PLANTED(VOTE_FOR_ANOTHER));
	if (standing.ours && new && clears) {
		row->votes = 0;
		row->decided = 0;
		row->ballot_round = PLANTED(CLEARS_UNCOUNTED) ? 0 : (row->ballot_round + 1) & BALLOT_ROUND;
	} else if (standing.ours && (new || (PLANTED(VOTE_REPEATS) && !clears)) && row->votes != ~0U) {
		row->votes++;
	}
	standing.reached = row->votes >= c->threshold;
	standing.passed = row->votes > c->threshold;
	standing.decides = standing.ours && !clears && new && row->votes == c->threshold && !row->decided &&
			   decider == DECIDER_ELEMENT;
	if (standing.decides && !PLANTED(DECIDED_FORGOTTEN))
		row->decided = 1;
	if (standing.reached && !clears && PLANTED(DECIDED_UNRECORDED))
		row->decided = 1;
	standing.decided = row->decided;
	standing.round = row->ballot_round;
	return standing;
}

/* Route of a new frame. */
static __always_inline enum way first_way(struct standing *standing, int clears, enum decider decider)
{
	if (!standing->ours)
		return WAY_DIVERT;
	if (clears)
		return WAY_ASK;
	if (standing->decides)
		return WAY_DECIDED;
	/* If the server lost the vote that reached the threshold, with its caller, this vote takes its place. */
	if (standing->reached && !standing->decided && (!standing->passed || decider == DECIDER_SERVER))
		return WAY_REACHED;
	/* NetRPC Table 2: frames below the threshold end here. */
	return WAY_DONE;
}

/* Route of a repeat; `mark`: record in its repeat-filter entry. */
static __always_inline enum way way_again(struct standing *standing, __u32 mark, int clears, enum decider decider)
{
	if (!standing->ours)
		return WAY_DIVERT;
	if (clears)
		return WAY_ASK;
	if (!(mark & 1) || (PLANTED(DECISION_SAID_ONCE) && decider == DECIDER_ELEMENT))
		return WAY_DONE;
	/* Also if the ballot was cleared meanwhile: the server may not have this vote yet. */
	return decider == DECIDER_ELEMENT ? WAY_DECIDED : WAY_REACHED;
}
