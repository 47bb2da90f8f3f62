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
	int decided;
	__u32 round;
};

/* Route of a vote. */
enum way {
	/* Forwarded: the server counts the vote. */
	WAY_DIVERT = 1,
	/* Forwarded: the threshold is reached, and the server decides or has decided. */
	WAY_REACHED,
	/* Forwarded: the server has the answer. */
	WAY_ASK,
	/* Counted here. */
	WAY_DONE,
};

/* Round of a ballot: 31 bits, beside the bit of votes that went to the server. */
#define BALLOT_ROUND 0x7fffffffU

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
static __always_inline struct standing ballot_enter(struct row *row, struct context *c, struct ballot_key *key, int new)
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
	if (standing.reached && !clears && PLANTED(DECIDED_UNRECORDED))
		row->decided = 1;
	standing.decided = row->decided;
	standing.round = row->ballot_round;
	return standing;
}

/* Route of a new frame. */
static __always_inline enum way first_way(struct standing *standing, int clears)
{
	if (!standing->ours)
		return WAY_DIVERT;
	if (clears)
		return WAY_ASK;
	/* NetRPC Table 2: frames below the threshold end here. */
	return standing->reached && !standing->decided ? WAY_REACHED : WAY_DONE;
}

/* Route of a repeat; `mark`: record in its repeat-filter entry. */
static __always_inline enum way way_again(struct standing *standing, __u32 mark, int clears)
{
	if (!standing->ours)
		return WAY_DIVERT;
	if (clears)
		return WAY_ASK;
	if (!(mark & 1))
		return WAY_DONE;
	/* Otherwise the ballot was cleared after the frame went to the server. */
	return standing->reached && standing->round == mark >> 1 ? WAY_REACHED : WAY_ASK;
}
