/* SPDX-License-Identifier: Apache-2.0 */
/* Emit stage: forwards a frame, returns it to its sender, sets flags (crates/program, emit.rs). */
#pragma once

#include "context.h"

/* Forwards to the addressed endpoint, if it belongs to the application. Answers, which are most of the output, do not
 * need this lookup. */
__noinline int forward(struct context *c)
{
	struct endpoint *to;

	if (!c)
		return DROP_MALFORMED;
	to = endpoint_of(c->dst, c->gaid);
	if (!to)
		return DROP_UNKNOWN_ENDPOINT;
	c->to = to->at;
	return FORWARD;
}

/* Delivers a frame of the server: to the group, or to the addressed endpoint. */
static __always_inline int deliver(struct context *c)
{
	return c->flags & PC_FLAG_MCAST ? MULTICAST : forward(c);
}

/* Sets flags in addition to the received ones. */
static __always_inline void say(struct frame *frame, struct context *c, __u32 map_flags)
{
	c->map_flags |= map_flags;
	frame->map->flags = bpf_htons(c->map_flags);
}

/* Strips the lanes: headers and bitmap remain. */
static __always_inline void strip(struct frame *frame, struct context *c)
{
	say(frame, c, PC_MAP_BARE);
	frame->map->payload_len = 0;
	c->len = c->lanes_at;
	frame->base->length = bpf_htons(c->len);
}

/* Forwards the frame unchanged to the server, because the row cannot take it. */
static __always_inline int divert(struct frame *frame, struct context *c)
{
	say(frame, c, PC_MAP_DIVERTED);
	return forward(c);
}

/* Returns the frame to its sender. */
static __always_inline int reflect(struct frame *frame, struct context *c, __u32 kind, int bare)
{
	struct pc_base *base = frame->base;

	base->kind = kind;
	base->dst = bpf_htonl(c->src);
	base->dst_incarnation = bpf_htonl(c->src_incarnation);
	base->src = bpf_htonl(c->dst);
	base->src_incarnation = bpf_htonl(PLANTED(INCARNATION_KEPT) ? c->src_incarnation : c->dst_incarnation);
	if (bare && !PLANTED(STRIP_FORGOTTEN))
		strip(frame, c);
	c->to = c->sender;
	c->passing = 0;
	return FORWARD;
}

/* Marks all lanes as valid in the bitmap. */
static __always_inline void mark_all(struct frame *frame, struct context *c)
{
	for (__u32 word = 0; word < PC_LINEAR_LANES / 32; word++) {
		__be32 *bits = (void *)frame->base + HEADERS + word * 4;
		__u32 rest = c->lanes - word * 32;

		if (word >= bitmap_words(c->lanes) || (void *)(bits + 1) > frame->end)
			break;
		*bits = bpf_htonl(rest >= 32 ? ~0U : ~0U >> (32 - rest) << PLANTED(MARKS_SHIFTED));
	}
}

/* Marks the overflowed lanes of a keyed frame in the bitmap. */
static __always_inline void mark_overflow(struct frame *frame, struct context *c, __u32 overflow)
{
	__be32 *bits = (void *)frame->base + HEADERS;

	if (c->lanes && (void *)(bits + 1) <= frame->end)
		*bits = bpf_htonl(overflow);
	if (overflow)
		say(frame, c, PC_MAP_OVERFLOW);
}
