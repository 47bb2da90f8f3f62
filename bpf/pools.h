/* SPDX-License-Identifier: Apache-2.0 */
/* Pools of servers, and the registers of calls (crates/program, clone/pools.rs and clone/registers.rs). Frames read
 * the tables; the loader changes them.
 *
 * Loads are single words, which need no lock: of two concurrent reports either is valid. A slot of the table of cloned
 * requests or of the filter tables has a lock of its own, so that one of two answers passes that arrive on two
 * processors at the same time.
 */
#pragma once

#include "tables.h"

/* Maximum number of servers of a pool whose clones this program makes: each server has an interface of its own, and
 * each pair a table. */
#define PAIRED_MAX 16

/* Pools by id. */
struct pool {
	__u32 version;
	/* Number of servers. */
	__u32 count;
	/* Index of the pool, for its servers, loads and counters. */
	__u32 place;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, POOLS_MAX);
	__type(key, __u32);
	__type(value, struct pool);
} pools SEC(".maps");

/* Server of a pool: its endpoint, and the interface that it is behind if its clones are made here. */
struct server {
	__u32 endpoint;
	__u32 ifindex;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, POOLS_MAX *PC_MAX_SERVERS);
	__type(key, __u32);
	__type(value, struct server);
} servers SEC(".maps");

/* Last request number that was assigned. */
__u64 number SEC(".data.number");
/* Id of this element among those on a call's path. */
volatile __u32 switch_id SEC(".data.switch_id") = 1;
/* Queue lengths by pool index and SID; and a shadow copy, as in a pipeline. */
__u64 loads[POOLS_MAX * PC_MAX_SERVERS] SEC(".data.loads");
__u64 shadows[POOLS_MAX * PC_MAX_SERVERS] SEC(".data.shadows");

/* Decision for the first part of a request. */
struct cloned {
	struct bpf_spin_lock lock;
	__u32 gaid;
	__u64 req_id;
	/* enum decision; 0: the slot is free. */
	__u32 to;
	__u32 pad;
};

/* Fingerprint of an answer that has passed. */
struct fingerprint {
	struct bpf_spin_lock lock;
	__u32 gaid;
	__u64 req_id;
	__u32 sid;
	__u32 pad;
};

/* Both are resized before loading. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cloned);
} requests SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fingerprint);
} filters SEC(".maps");

/* Interfaces of a pair by pool index and SIDs; and whether a pool's clones are made here. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, POOLS_MAX *PAIRED_MAX *PAIRED_MAX);
	__type(key, __u32);
	__array(values, struct interfaces);
} pairs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, POOLS_MAX);
	__type(key, __u32);
	__type(value, __u32);
} cloned_here SEC(".maps");

/* Index of a server's load, always within the arrays. */
static __always_inline __u32 load_at(__u32 place, __u32 sid)
{
	return (place & (POOLS_MAX - 1)) * PC_MAX_SERVERS + (sid & (PC_MAX_SERVERS - 1));
}

static __always_inline struct server *server_of(struct pool *pool, __u32 sid)
{
	__u32 at = load_at(pool->place, sid);

	return sid < pool->count ? bpf_map_lookup_elem(&servers, &at) : 0;
}

/* Slot of an id: consecutive ids are far apart. */
static __always_inline __u32 slot_of(__u64 req_id, __u32 slots)
{
	return (req_id * 0x9e3779b97f4a7c15ULL >> 32) * slots >> 32;
}
