/* SPDX-License-Identifier: Apache-2.0 */
/* Control programs of the loader, run in the kernel by BPF_PROG_RUN: reset and read registers. Before a reset the
 * loader removes the owner of the registers, and waits until no frame admitted earlier is in flight: a row's lock
 * does not exclude keyed frames, which change rows under the lock of their application's first row. A read does not
 * block frames, and may see a partial update. */
#pragma once

#include "pools.h"

/* Registers returned by one read. */
#define WINDOW 4096

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __s32[WINDOW]);
} window SEC(".maps");

/* Rows of an application: from `row_base` on, with `width` lanes each from `lane_base` on. */
struct rows_request {
	__u32 row_base;
	__u32 rows;
	__u32 lane_base;
	__u32 width;
	/* Whether generations are reset as well. */
	__u32 generations;
};

/* Registers of one kind, `count` from `at` on: lanes to read, or slots to reset. */
struct range_request {
	__u32 at;
	__u32 count;
};

static long row_reset(__u32 i, struct rows_request *request)
{
	__s32 *cells = lanes_at(request->lane_base + i * request->width);
	struct row *row = row_at(request->row_base + i);

	if (!row)
		return 1;
	bpf_spin_lock(&row->lock);
	if (request->generations) {
		row->open = 1;
		row->committed = 0;
		row->version = 0;
	}
	row->round = 1;
	row->tag = 0;
	row->workers = 0;
	row->ecn = 0;
	row->count = 0;
	row->owner = 0;
	row->owner_tag = 0;
	row->grants = 0;
	row->key_len = 0;
	for (int word = 0; word < PC_MAX_BALLOT_KEY / 8; word++)
		row->key[word] = 0;
	row->moved = 0;
	row->decided = 0;
	row->votes = 0;
	row->ballot_round = 0;
	for (__u32 lane = 0; cells && lane < PC_LINEAR_LANES; lane++) {
		if (lane >= request->width)
			break;
		cells[lane] = 0;
	}
	bpf_spin_unlock(&row->lock);
	return 0;
}

SEC("syscall")
int reset_rows(struct rows_request *request)
{
	struct rows_request own = *request;

	return bpf_loop(own.rows, row_reset, &own, 0) < 0;
}

static long place_reset(__u32 i, struct range_request *request)
{
	struct place *place = places_at((__u64)request->at * PC_W_MAX + i, 1);

	if (!place)
		return 1;
	place->last = 0;
	place->overflow = 0;
	return 0;
}

SEC("syscall")
int reset_slots(struct range_request *request)
{
	struct range_request own = *request;

	return bpf_loop(own.count * PC_W_MAX, place_reset, &own, 0) < 0;
}

static long lane_read(__u32 i, struct range_request *request)
{
	__s32 *cell = lanes_at(request->at + i);
	__u32 zero = 0;
	__s32(*to)[WINDOW] = bpf_map_lookup_elem(&window, &zero);

	if (!cell || !to || i >= WINDOW)
		return 1;
	(*to)[i] = *cell;
	return 0;
}

/* Copies lane registers to the window. */
SEC("syscall")
int read_lanes(struct range_request *request)
{
	struct range_request own = *request;

	return bpf_loop(own.count, lane_read, &own, 0) < 0;
}

static long place_read(__u32 i, struct range_request *request)
{
	struct place *place = places_at((__u64)request->at + i, 1);
	__u32 zero = 0;
	__s32(*to)[WINDOW] = bpf_map_lookup_elem(&window, &zero);

	if (!place || !to || i >= WINDOW / 3)
		return 1;
	(*to)[3 * i] = place->last >> 32;
	(*to)[3 * i + 1] = place->last;
	(*to)[3 * i + 2] = place->overflow;
	return 0;
}

/* Copies repeat-filter entries to the window: number, generation, mask of each. */
SEC("syscall")
int read_places(struct range_request *request)
{
	struct range_request own = *request;

	return bpf_loop(own.count, place_read, &own, 0) < 0;
}

static long request_reset(__u32 i, void *unused)
{
	struct cloned *slot = bpf_map_lookup_elem(&requests, &i);

	if (!slot)
		return 1;
	bpf_spin_lock(&slot->lock);
	slot->req_id = 0;
	slot->gaid = 0;
	slot->to = 0;
	bpf_spin_unlock(&slot->lock);
	return 0;
}

static long fingerprint_reset(__u32 i, void *unused)
{
	struct fingerprint *slot = bpf_map_lookup_elem(&filters, &i);

	if (!slot)
		return 1;
	bpf_spin_lock(&slot->lock);
	slot->req_id = 0;
	slot->gaid = 0;
	slot->sid = 0;
	bpf_spin_unlock(&slot->lock);
	return 0;
}

/* Clears the tables of cloned requests and fingerprints; there is no pool. */
SEC("syscall")
int reset_calls(struct range_request *request)
{
	return bpf_loop(config.requests, request_reset, 0, 0) < 0 ||
	       bpf_loop(config.filters * config.fingerprints, fingerprint_reset, 0, 0) < 0;
}
