/* SPDX-License-Identifier: Apache-2.0 */
/* Lane arithmetic of whole rows: native registers and big-endian lanes, in place in the frame (crates/program,
 * lanes.rs). Eight lanes at a time are compared with the end of the frame. */
#pragma once

#include "context.h"

#define CHUNK 8

/* `sum`, saturated to the 32-bit range. */
static __always_inline __s32 saturated(__s64 sum)
{
	/* In 64 bits: with two 32-bit terms the compiler would generate flags instead. */
	sum = held(sum);
	if (PLANTED(LANES_WRAP))
		return sum;
	if (sum > 0x7fffffff)
		return 0x7fffffff;
	return sum < -0x80000000LL ? (__s32)0x80000000 : (__s32)sum;
}

/* Stream.modify: crates/wire, OpType::apply, for the operations that `plainer` leaves. */
static __always_inline __s32 modify(__u32 op, __s32 value, __s32 para)
{
	switch (op) {
	case PC_OP_MAX:
		return value > para ? value : para;
	case PC_OP_MIN:
		return value < para ? value : para;
	case PC_OP_ADD:
		return saturated((__s64)value + para);
	case PC_OP_ASSIGN:
		return para;
	case PC_OP_SHIFT_L:
		return (__u32)value << (para & 31);
	case PC_OP_SHIFT_R:
		return value >> (para & 31);
	case PC_OP_BAND:
		return value & para;
	case PC_OP_BOR:
		return value | para;
	case PC_OP_BNOT:
		return ~value;
	case PC_OP_BXOR:
		return value ^ para;
	default:
		return value;
	}
}

/* Replaces an operation that shifts by 32 or more. */
static __always_inline void plainer(struct context *c)
{
	if ((__u32)c->para < 32 || PLANTED(SHIFT_MODULO))
		return;
	if (c->op == PC_OP_SHIFT_L) {
		c->op = PC_OP_ASSIGN;
		c->para = 0;
	} else if (c->op == PC_OP_SHIFT_R) {
		c->para = 31;
	}
}

/* `register += value`, saturating; a register at the end of its range stays there (NetRPC §5.2.1). */
static __always_inline void lane_add(__s32 *cell, __s32 value)
{
	__s64 before = *cell;

	if ((__u64)(before + 0x7fffffff) < 0xfffffffeULL)
		*cell = saturated(before + value);
}

/* Bound far from both ends of the range, below which two values cannot overflow; the upper bit shows a violation. */
static __always_inline __u32 far(__u32 value)
{
	return value + 0x40000000;
}

/* Adds CHUNK lanes. */
static __always_inline void chunk_add(__s32 *cells, __be32 *lane)
{
	__u32 near = 0;

#pragma unroll
	for (int j = 0; j < CHUNK; j++)
		near |= far(cells[j]) | far(bpf_ntohl(lane[j]));
	if (near >> 31) {
#pragma unroll 1
		for (int j = 0; j < CHUNK; j++)
			lane_add(cells + j, bpf_ntohl(lane[j]));
	} else {
#pragma unroll
		for (int j = 0; j < CHUNK; j++)
			cells[j] += bpf_ntohl(lane[j]);
	}
}

/* Adds the frame's lanes unmodified to the registers from `cells` on. */
static __always_inline void lanes_add_plain(struct frame *frame, struct context *c, __s32 *cells)
{
	__be32 *first = bytes_at(frame, c->lanes_at);
	__u32 count = c->lanes, i;

	for (i = 0; i + CHUNK <= PC_LINEAR_LANES; i += CHUNK) {
		__be32 *lane = held(first + i);

		if (i + CHUNK > count || (void *)(lane + CHUNK) > frame->end)
			break;
		chunk_add(cells + i, lane);
	}
	for (__u32 j = 0; j < CHUNK - 1; j++, i++) {
		__be32 *lane = held(first + i);

		if (i >= count || i >= PC_LINEAR_LANES || (void *)(lane + 1) > frame->end)
			break;
		lane_add(cells + i, bpf_ntohl(*lane));
	}
}

/* Adds the frame's lanes, each modified by `op`, to the registers from `cells` on. */
static __always_inline void lanes_add_by(struct frame *frame, struct context *c, __s32 *cells, __u32 op)
{
	__be32 *first = bytes_at(frame, c->lanes_at);

#pragma unroll 1
	for (__u32 i = 0; i < PC_LINEAR_LANES; i++) {
		__be32 *lane = held(first + i);

		if (i >= now(c->lanes) || (void *)(lane + 1) > frame->end)
			break;
		lane_add(cells + i, modify(op, bpf_ntohl(*lane), now(c->para)));
	}
}

static __always_inline void lanes_add(struct frame *frame, struct context *c, __s32 *cells)
{
	switch (c->op) {
	case PC_OP_NOP:
		return lanes_add_plain(frame, c, cells);
	case PC_OP_MAX:
		return lanes_add_by(frame, c, cells, PC_OP_MAX);
	case PC_OP_MIN:
		return lanes_add_by(frame, c, cells, PC_OP_MIN);
	case PC_OP_ADD:
		return lanes_add_by(frame, c, cells, PC_OP_ADD);
	case PC_OP_ASSIGN:
		return lanes_add_by(frame, c, cells, PC_OP_ASSIGN);
	case PC_OP_SHIFT_L:
		return lanes_add_by(frame, c, cells, PC_OP_SHIFT_L);
	case PC_OP_SHIFT_R:
		return lanes_add_by(frame, c, cells, PC_OP_SHIFT_R);
	case PC_OP_BAND:
		return lanes_add_by(frame, c, cells, PC_OP_BAND);
	case PC_OP_BOR:
		return lanes_add_by(frame, c, cells, PC_OP_BOR);
	case PC_OP_BNOT:
		return lanes_add_by(frame, c, cells, PC_OP_BNOT);
	case PC_OP_BXOR:
		return lanes_add_by(frame, c, cells, PC_OP_BXOR);
	}
}

/* Writes the registers from `cells` on into the frame's lanes. */
static __always_inline void lanes_get(struct frame *frame, struct context *c, __s32 *cells)
{
	__be32 *first = bytes_at(frame, c->lanes_at);
	__u32 count = c->lanes, i;

	for (i = 0; i + CHUNK <= PC_LINEAR_LANES; i += CHUNK) {
		__be32 *lane = held(first + i);

		if (i + CHUNK > count || (void *)(lane + CHUNK) > frame->end)
			break;
#pragma unroll
		for (int j = 0; j < CHUNK; j++)
			lane[j] = bpf_htonl(cells[i + j]);
	}
	for (__u32 j = 0; j < CHUNK - 1; j++, i++) {
		__be32 *lane = held(first + i);

		if (i >= count || i >= PC_LINEAR_LANES || (void *)(lane + 1) > frame->end)
			break;
		*lane = bpf_htonl(cells[i]);
	}
}

/* Zeroes `count` registers, CHUNK at a time. */
static __always_inline void lanes_zero(__s32 *cells, __u32 count)
{
	__u32 i = PLANTED(FIRST_LANE_KEPT);

	for (; i + CHUNK <= PC_LINEAR_LANES; i += CHUNK) {
		if (i + CHUNK > count)
			break;
#pragma unroll
		for (int j = 0; j < CHUNK; j++)
			cells[i + j] = 0;
	}
	for (; i < PC_LINEAR_LANES; i++) {
		if (i >= count)
			break;
		cells[i] = 0;
	}
}
