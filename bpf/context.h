/* SPDX-License-Identifier: Apache-2.0 */
/* A frame on its way through the stages: its headers as they came, in host order, what admission
 * found, and what becomes of it. Stages are functions of their own for the verifier; each finds the
 * frame's bytes by itself (`frame_of`). */
#pragma once

#include "counters.h"
#include "pools.h"

/* Where a frame begins: behind Ethernet, IPv4 without options, and UDP. */
#define FRAME_AT (sizeof(struct ethhdr) + sizeof(struct iphdr) + sizeof(struct udphdr))
/* Covers PC_MAX_FRAME: what the verifier takes for a bound. */
#define FRAME_BITS 0x7ff
#define HEADERS (sizeof(struct pc_base) + sizeof(struct pc_map))

/* Where a frame goes. */
enum action {
	FORWARD = 1,
	MULTICAST,
	/* Forwarded, and as a clone to another server after a second pass. */
	TWICE,
	/* To user space as it came: not this program's. */
	PASS,
	DROP_MALFORMED,
	DROP_FORGED,
	DROP_STALE,
	DROP_COUNTED,
	DROP_NOT_ADMITTED,
	DROP_UNKNOWN_ENDPOINT,
	DROP_UNAUTHENTIC,
	DROP_FILTERED,
};

struct context {
	/* Of the frame, in bytes: as it came, and as it leaves. */
	__u32 len;
	/* From the start of the frame, in bytes. */
	__u32 lanes_at;
	__u32 payload_at;
	/* Where the sender is that was admitted, and where a forwarded frame goes: looked up once. */
	struct whereabouts sender;
	struct whereabouts to;
	__u32 congested;
	/* Whether it leaves with the source that it has: it came by on its way to an endpoint, and goes there. */
	__u32 passing;

	__u32 kind;
	__u32 flags;
	__u32 gaid;
	__u32 epoch;
	__u32 src;
	__u32 src_incarnation;
	__u32 dst;
	__u32 dst_incarnation;
	__u32 slot;
	__u32 seq;
	__u32 round;

	union {
		/* The map header's fields. */
		struct {
			__u32 op;
			__u32 target;
			__u32 map_flags;
			__u32 lanes;
			__u32 first_lane;
			__s32 para;
			__u32 index;
			__u32 threshold;
			__u32 worker;
			__u32 payload_len;
			__u32 tag;
		};
		/* Those of a call's clone header. */
		struct {
			__u64 req_id;
			__u32 grp;
			__u32 sid;
			__u32 state;
			__u32 clo;
			__u32 idx;
			__u32 switch_id;
			__u32 asks;
			__u32 call_part;
			__u32 call_parts;
		};
	};

	union {
		struct application app;
		struct pool pool;
	};

	/* What stages have found, for those after them: enum met, enum part, and whether the threshold is
	 * reached. In memory, not in registers: the verifier does not follow each value on its own. */
	__u32 met;
	__u32 part;
	__u32 reached;
	/* Of keyed pairs, by bits: those that the element works on, and those that would have overflowed, or
	 * that name no register (unchanged, and flagged). */
	__u32 marked;
	__u32 overflow;
	/* Whether pairs are added, and how many were. */
	__u32 adds;
	__u32 added;
};

/* The frame's headers; null never happens after `parse`, but the verifier wants to see it asked. */
struct frame {
	struct pc_base *base;
	struct pc_map *map;
	void *end;
};

static __always_inline struct frame frame_of(struct xdp_md *xdp)
{
	void *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	struct frame frame = {.end = end};

	if (data + FRAME_AT + HEADERS > end)
		return frame;
	frame.base = data + FRAME_AT;
	frame.map = (void *)(frame.base + 1);
	return frame;
}

/* Whether the frame has a clone header, not a map header. */
static __always_inline int is_call(struct frame *frame)
{
	__u32 kind = frame->base->kind;

	return kind < 64 && PC_KINDS_CLONE >> kind & 1;
}

/* A pointer as it is: what is compared with the frame's end is what is used after, not a copy that the
 * compiler worked out again and the verifier can't tell to be the same. */
#define held(pointer)                               \
	({                                          \
		__typeof__(pointer) held_ = (pointer); \
		asm volatile("" : "+r"(held_));     \
		held_;                              \
	})

/* A field read from memory here and now: not kept in a register whose value the verifier follows. */
#define now(field) (*(volatile __typeof__(field) *)&(field))

/* What was found so far is in memory, and is read from there again. */
#define forget() asm volatile("" ::: "memory")

/* The bytes at `at` of the frame, which may lie behind its end: to be compared with it. */
static __always_inline void *bytes_at(struct frame *frame, __u32 at)
{
	return held((void *)frame->base + (at & FRAME_BITS));
}

static __always_inline __u32 lane_len(__u32 map_flags)
{
	if (map_flags & PC_MAP_BARE)
		return 0;
	return (map_flags & (PC_MAP_LINEAR | PC_MAP_WIDE)) == PC_MAP_LINEAR ? 4 : 8;
}

static __always_inline __u32 bitmap_words(__u32 lane_count)
{
	return (lane_count + 31) / 32;
}

/* Reads the headers of `len` bytes; false when they are no frame (crates/wire, new_checked). A frame
 * longer than PC_MAX_FRAME is none here. What only an element may say is not read, and the mark is
 * the frame's own or this element's. */
static __always_inline int parse(struct frame *frame, __u32 len, struct context *c)
{
	struct pc_base *base = frame->base;
	struct pc_map *map = frame->map;
	__u32 token, at;

	if (base->magic != bpf_htons(PC_MAGIC) || base->version != PC_VERSION)
		return 0;
	c->kind = base->kind;
	if (c->kind >= 64 || !(PC_KINDS_MAP >> c->kind & 1))
		return 0;
	if (bpf_ntohs(base->length) != len || len > PC_MAX_FRAME)
		return 0;
	c->len = len;
	c->flags = bpf_ntohs(base->flags) & ~PC_FLAG_NOT_ADMITTED;
	c->flags |= c->congested ? PC_FLAG_ECN : 0;
	c->gaid = bpf_ntohl(base->gaid);
	c->epoch = bpf_ntohl(base->epoch);
	c->src = bpf_ntohl(base->src);
	c->src_incarnation = bpf_ntohl(base->src_incarnation);
	c->dst = bpf_ntohl(base->dst);
	c->dst_incarnation = bpf_ntohl(base->dst_incarnation);
	c->slot = bpf_ntohl(base->slot);
	c->seq = bpf_ntohl(base->seq);
	c->round = bpf_ntohl(base->round);

	/* A token moves the map header. */
	token = c->flags & PC_FLAG_TOKEN ? PC_TOKEN_LEN : 0;
	if (token) {
		map = (void *)map + PC_TOKEN_LEN;
		if ((void *)(map + 1) > frame->end)
			return 0;
	}
	c->op = map->op;
	c->target = map->to;
	if (c->op >= PC_OPS || c->target >= PC_TARGETS)
		return 0;
	c->map_flags = bpf_ntohs(map->flags);
	c->lanes = bpf_ntohs(map->lanes);
	c->first_lane = bpf_ntohs(map->first_lane);
	c->para = bpf_ntohl(map->para);
	c->index = bpf_ntohl(map->index);
	c->threshold = bpf_ntohl(map->threshold);
	c->worker = bpf_ntohs(map->worker);
	c->payload_len = bpf_ntohs(map->payload_len);
	c->tag = bpf_ntohl(map->tag);
	c->lanes_at = HEADERS + token + bitmap_words(c->lanes) * 4;
	c->payload_at = c->lanes_at + c->lanes * lane_len(c->map_flags);
	at = c->payload_at + c->payload_len;
	if (!PLANTED(SENDER_BELIEVED))
		c->map_flags &= ~PC_MAP_ELEMENT_ONLY;
	return at == len;
}

/* Writes the flags as they were read into the frame. */
static __always_inline void note_flags(struct frame *frame, struct context *c)
{
	frame->base->flags = bpf_htons(c->flags);
	frame->map->flags = bpf_htons(c->map_flags);
}
