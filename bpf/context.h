/* SPDX-License-Identifier: Apache-2.0 */
/* Frame in the stages: its parsed headers in host order, results of admission, and its action. Stages are separate
 * functions for the verifier; each one locates the frame's bytes itself (`frame_of`). */
#pragma once

#include "counters.h"
#include "pools.h"

/* Offset of a frame: after Ethernet, IPv4 without options, and UDP. */
#define FRAME_AT (sizeof(struct ethhdr) + sizeof(struct iphdr) + sizeof(struct udphdr))
/* Bound for the verifier that covers PC_MAX_FRAME. */
#define FRAME_BITS 0x7ff
#define HEADERS (sizeof(struct pc_base) + sizeof(struct pc_map))

/* Action for a frame. */
enum action {
	FORWARD = 1,
	MULTICAST,
	/* Forwarded, and cloned to another server after a second pass. */
	TWICE,
	/* Passed unchanged to the kernel's stack: not for this program. */
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
	/* Length of the frame on input and on output, bytes. */
	__u32 len;
	/* Offset from the start of the frame, bytes. */
	__u32 lanes_at;
	__u32 payload_at;
	/* Addresses of the admitted sender and of the destination of a forwarded frame, looked up once. */
	struct whereabouts sender;
	struct whereabouts to;
	__u32 congested;
	/* Whether the frame keeps its source: it was received in inline mode, and goes on to its endpoint. */
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
		/* Fields of the map header. */
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
		/* Fields of the clone header. */
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

	/* Results of stages for later stages: enum repeat_status, enum part, and whether the threshold is reached. In
	 * memory, not in registers, so that the verifier does not follow each value separately. */
	__u32 repeat_status;
	__u32 part;
	__u32 reached;
	/* Bitmaps of keyed pairs: pairs that the element processes, and pairs that would have overflowed or that name no
	 * register (unchanged, and flagged). */
	__u32 marked;
	__u32 overflow;
	/* Whether pairs are added, and the number of added pairs. */
	__u32 adds;
	__u32 added;
};

/* Headers of the frame; never null after `parse`, but the verifier requires the check. */
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

/* Whether the frame has a clone header and no map header. */
static __always_inline int is_call(struct frame *frame)
{
	__u32 kind = frame->base->kind;

	return kind < 64 && PC_KINDS_CLONE >> kind & 1;
}

/* Makes the compiler use the same pointer for the comparison with the frame's end and for the access, and not a
 * recomputed copy that the verifier cannot relate to the comparison. */
#define held(pointer)                               \
	({                                          \
		__typeof__(pointer) held_ = (pointer); \
		asm volatile("" : "+r"(held_));     \
		held_;                              \
	})

/* Reads a field from memory now, so that the verifier does not follow its value in a register. */
#define now(field) (*(volatile __typeof__(field) *)&(field))

/* Makes the compiler reload earlier results from memory. */
#define forget() asm volatile("" ::: "memory")

/* Bytes at offset `at` of the frame, possibly beyond its end: compare with the end before an access. */
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

/* Parses the headers of `len` bytes; false if they are not a frame (crates/wire, new_checked). A frame longer than
 * PC_MAX_FRAME is rejected here. Flags that only an element may set are masked, and the congestion mark is that of
 * the frame or of this element. */
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

	/* A token shifts the map header. */
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

/* Writes the masked flags into the frame. */
static __always_inline void note_flags(struct frame *frame, struct context *c)
{
	frame->base->flags = bpf_htons(c->flags);
	frame->map->flags = bpf_htons(c->map_flags);
}
