/* SPDX-License-Identifier: Apache-2.0 */
/* Pools: whose calls are steered, and to whom, and the registers that calls leave something in
 * (crates/program, clone/pools.rs and clone/registers.rs). Frames read the tables; the loader changes them.
 *
 * Loads are single words, which need no lock: whichever of two servers' words comes last is right. A slot of
 * the tables of cloned requests and of fingerprints has a lock of its own, so that of two answers which come
 * on two processors at once one passes.
 */
#pragma once

#include "tables.h"

/* Servers of a pool with interfaces of their own, whose clones are made here: a table for each pair. */
#define PAIRED_MAX 16

/* A pool, by its id. */
struct pool {
	__u32 version;
	/* How many servers it has. */
	__u32 count;
	/* Which of all pools it is: of its servers, loads and counters. */
	__u32 place;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, POOLS_MAX);
	__type(key, __u32);
	__type(value, struct pool);
} pools SEC(".maps");

/* A server of a pool: its endpoint, and the interface that it is behind if its clones are made here. */
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

/* The last number that was given to a request. */
__u64 number SEC(".data.number");
/* By which id this element is known among others on a call's path. */
volatile __u32 switch_id SEC(".data.switch_id") = 1;
/* By place and SID: requests that wait there; and the same again, as in a pipeline. */
__u16 loads[POOLS_MAX * PC_MAX_SERVERS] SEC(".data.loads");
__u16 shadows[POOLS_MAX * PC_MAX_SERVERS] SEC(".data.shadows");

/* What the first part of a request was found to be. */
struct cloned {
	struct bpf_spin_lock lock;
	__u32 gaid;
	__u64 req_id;
	/* enum decision; 0: the slot is free. */
	__u32 to;
	__u32 pad;
};

/* Which answer has passed. */
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

/* The two interfaces of a pair, by place and SIDs; and whether a pool's clones are made here. */
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

/* Where a server's load is; within the arrays, whatever a frame says. */
static __always_inline __u32 load_at(__u32 place, __u32 sid)
{
	return (place & (POOLS_MAX - 1)) * PC_MAX_SERVERS + (sid & (PC_MAX_SERVERS - 1));
}

static __always_inline struct server *server_of(struct pool *pool, __u32 sid)
{
	__u32 at = load_at(pool->place, sid);

	return sid < pool->count ? bpf_map_lookup_elem(&servers, &at) : 0;
}

/* Where an id belongs among so many slots: ids that follow each other are far apart. */
static __always_inline __u32 slot_of(__u64 req_id, __u32 slots)
{
	return (req_id * 0x9e3779b97f4a7c15ULL >> 32) * slots >> 32;
}
