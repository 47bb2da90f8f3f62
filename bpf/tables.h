/* SPDX-License-Identifier: Apache-2.0 */
/* Admission tables, and the register arrays that they assign (crates/program, tables.rs and registers.rs). Frames read
 * the tables; the loader changes them.
 *
 * Registers that a frame accesses together are under one lock. A frame of a round, a lock or a ballot takes the lock
 * of its row. Keyed frames and the server's harvests take the lock of their application's first row, which so
 * serialises the frames of the application: admission to a generation, repeat filter, additions and count take effect
 * as one step. (Compare-and-swap word by word would cost more than the lock: 32 atomic operations per frame instead
 * of two.)
 */
#pragma once

#include "packet.h"
#include "planted.h"

#define APPLICATIONS_MAX 1024
/* Maximum number of members of a group whose multicast frames this program copies. */
#define GROUP_MAX 64
/* Maximum number of pools of servers. */
#define POOLS_MAX 64

/* Constants set by the loader before verification: sizes of the register arrays, the UDP port of frames and that of
 * processed frames for user space, whether frames are routed (otherwise they leave as addressed, for tests), and
 * whether frames addressed to endpoints are processed (inline mode). */
struct config {
	__u32 rows;
	__u32 lanes;
	__u32 slots;
	__be16 data_port;
	__be16 slow_port;
	__u32 routed;
	__u32 inlined;
	/* For calls to pools: slots of the table of cloned requests, filter tables, slots of each. */
	__u32 requests;
	__u32 filters;
	__u32 fingerprints;
};

const volatile struct config config SEC(".rodata.config") = {
	.rows = 1, .lanes = 1, .slots = 1, .requests = 1, .filters = 1, .fingerprints = 1,
};

/* IPv4 address of this element, set by the loader; 0 before. */
volatile __be32 own SEC(".data.own") = 0;

/* Admission entry. */
struct application {
	__u32 epoch;
	__u32 owner;
	__u32 row_base;
	__u32 rows;
	__u32 lane_base;
	__u32 width;
	/* Index of its counters. */
	__u32 index;
};

/* All registers of a row except its lanes. */
struct row {
	struct bpf_spin_lock lock;
	/* Generation state of the application whose first row this is. */
	__u32 open;
	__u32 committed;
	__u32 version;
	/* Round. */
	__u32 round;
	__u32 tag;
	__u64 workers;
	__u32 ecn;
	__u32 count;
	/* Lock. */
	__u32 owner;
	__u32 owner_tag;
	__u32 grants;
	/* Ballot. */
	__u32 key_len;
	__u64 key[PC_MAX_BALLOT_KEY / 8];
	__u32 moved;
	__u32 decided;
	__u32 votes;
	__u32 ballot_round;
};

/* Entry of the repeat filter. */
struct place {
	/* Last sequence number (upper half) and generation of its application (lower half): compared and set as one. */
	__u64 last;
	/* Lanes that the last frame left out, or route of the last vote. */
	__u32 overflow;
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, APPLICATIONS_MAX);
	__type(key, __u32);
	__type(value, struct application);
} applications SEC(".maps");

struct endpoint_table endpoints SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct row);
} rows SEC(".maps");

/* Resized before loading; the lanes have room for a whole row after the last. */
__s32 lanes[PC_LINEAR_LANES + 1] SEC(".data.lanes");
struct place places[PC_W_MAX] SEC(".data.places");

/* Row with this number, counted from the element's first. */
static __always_inline struct row *row_at(__u32 row)
{
	return bpf_map_lookup_elem(&rows, &row);
}

/* With the planted mistake the lock is released at once. */
static __always_inline void row_lock(struct row *row)
{
	bpf_spin_lock(&row->lock);
	if (PLANTED(UNLOCKED))
		bpf_spin_unlock(&row->lock);
}

static __always_inline void row_unlock(struct row *row)
{
	if (PLANTED(UNLOCKED))
		bpf_spin_lock(&row->lock);
	bpf_spin_unlock(&row->lock);
}

/* Lane registers from `at` on: PC_LINEAR_LANES of them may be accessed, as rows without lanes may follow the last. */
static __always_inline __s32 *lanes_at(__u32 at)
{
	__s32 *first = lanes;

	if (at > config.lanes)
		return 0;
	/* The array is larger than the compiler knows. */
	asm volatile("" : "+r"(first));
	return first + at;
}

/* Repeat-filter entries from `at` on, which is a multiple of `count` or followed by enough entries of its slot. */
static __always_inline struct place *places_at(__u64 at, __u32 count)
{
	struct place *first = places;

	if (at > (__u64)config.slots * PC_W_MAX - count)
		return 0;
	asm volatile("" : "+r"(first));
	return first + at;
}

/* Interfaces of an application's group, by the index of its counters; each runs `copy`. */
struct interfaces {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, GROUP_MAX);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct bpf_devmap_val));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, APPLICATIONS_MAX);
	__type(key, __u32);
	__array(values, struct interfaces);
} groups SEC(".maps");

/* Member of a group behind an interface. */
struct member {
	/* Index of the application's counters. */
	__u32 index;
	__u32 ifindex;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct member);
	__type(value, __u32);
} group_members SEC(".maps");

/* Whether this program copies an application's multicast frames. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, APPLICATIONS_MAX);
	__type(key, __u32);
	__type(value, __u32);
} copied_here SEC(".maps");

/* Map of maps, whose update waits until no program runs that began earlier (guaranteed by the kernel), so that a change
 * of the tables is in force for all frames when the update returns. */
struct inner {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} nothing SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct inner);
} grace SEC(".maps") = {.values = {&nothing}};

static __always_inline struct endpoint *endpoint_of(__u32 id, __u32 gaid)
{
	struct endpoint *endpoint = bpf_map_lookup_elem(&endpoints, &id);

	return endpoint && endpoint->gaid == gaid ? endpoint : 0;
}
