/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of crates/program, counters.rs, in the same order. One set for each processor; readers add them up. */
#pragma once

#include "tables.h"

struct element_counters {
	__u64 frames_in;
	__u64 frames_out;
	__u64 drop_malformed;
	__u64 drop_forged;
	__u64 drop_stale;
	__u64 drop_counted;
	__u64 drop_not_admitted;
	__u64 drop_unknown_endpoint;
	__u64 drop_unauthentic;
	__u64 drop_filtered;
	/* Frames with a wrong checksum. */
	__u64 drop_checksum;
	/* Frames left to user space. */
	__u64 passed;
	/* Frames sent by user space: copies, and frames without a known route. */
	__u64 slow;
	/* Received frames that were addressed to an endpoint (inline mode). */
	__u64 passing;
};

struct application_counters {
	__u64 admitted;
	__u64 not_admitted;
	__u64 unauthentic;
	__u64 applied;
	__u64 lanes_added;
	__u64 repeats;
	__u64 stale;
	__u64 refused;
	__u64 old;
	__u64 diverted;
	__u64 held;
	__u64 denied;
	__u64 reached;
	__u64 overflow_lanes;
	__u64 results;
	__u64 clears;
	__u64 reads;
	__u64 harvests;
	__u64 ecn_marked;
	__u64 cross;
	/* Time of the last admitted frame, ns of CLOCK_MONOTONIC. */
	__u64 last_seen;
};

struct pool_counters {
	__u64 admitted;
	__u64 not_admitted;
	__u64 unauthentic;
	__u64 passed;
	__u64 requests;
	__u64 clones;
	__u64 shorter;
	__u64 direct;
	__u64 stale_groups;
	__u64 replies;
	__u64 filtered;
	__u64 cancels;
	__u64 ecn_marked;
	/* Time of the last admitted frame, ns of CLOCK_MONOTONIC. */
	__u64 last_seen;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, POOLS_MAX);
	__type(key, __u32);
	__type(value, struct pool_counters);
} pool_counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct element_counters);
} element_counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, APPLICATIONS_MAX);
	__type(key, __u32);
	__type(value, struct application_counters);
} application_counters SEC(".maps");

#define count_element(counter, by)                                                       \
	do {                                                                             \
		__u32 zero_ = 0;                                                         \
		struct element_counters *all_ = bpf_map_lookup_elem(&element_counters, &zero_); \
		if (all_)                                                                \
			all_->counter += (by);                                           \
	} while (0)

/* Counters of an application on this processor; never null for an installed application. */
static __always_inline struct application_counters *counters_of(__u32 index)
{
	return bpf_map_lookup_elem(&application_counters, &index);
}

/* Counters of a pool on this processor, by its index. */
static __always_inline struct pool_counters *counters_of_pool(__u32 place)
{
	return bpf_map_lookup_elem(&pool_counters, &place);
}
