/* SPDX-License-Identifier: Apache-2.0 */
/* What leaves: forwarded, turned round, marked (crates/program, emit.rs). */
#pragma once

#include "context.h"

/* On to the addressed endpoint, if it is one of the application's. Answers, which are most of what leaves,
 * do without this look-up. */
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

/* From the server: to the group, or on. */
static __always_inline int deliver(struct context *c)
{
	return c->flags & PC_FLAG_MCAST ? MULTICAST : forward(c);
}

/* Sets flags beside those that came. */
static __always_inline void say(struct frame *frame, struct context *c, __u32 map_flags)
{
	c->map_flags |= map_flags;
	frame->map->flags = bpf_htons(c->map_flags);
}

/* Makes the frame bare: headers and bitmap stay. */
static __always_inline void strip(struct frame *frame, struct context *c)
{
	say(frame, c, PC_MAP_BARE);
	frame->map->payload_len = 0;
	c->len = c->lanes_at;
	frame->base->length = bpf_htons(c->len);
}

/* On to the server, as it came: the row can't take it. */
static __always_inline int divert(struct frame *frame, struct context *c)
{
	say(frame, c, PC_MAP_DIVERTED);
	return forward(c);
}

/* Back to where it came from. */
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

/* Says in the bitmap that all lanes are valid. */
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

/* Says in the bitmap which lanes of a keyed frame overflowed. */
static __always_inline void mark_overflow(struct frame *frame, struct context *c, __u32 overflow)
{
	__be32 *bits = (void *)frame->base + HEADERS;

	if (c->lanes && (void *)(bits + 1) <= frame->end)
		*bits = bpf_htonl(overflow);
	if (overflow)
		say(frame, c, PC_MAP_OVERFLOW);
}
