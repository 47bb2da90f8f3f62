/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: ordered pairs of servers that a request may go to, and the version of the table
 * (crates/program, clone/group.rs; crates/wire, clone.rs). */
#pragma once

#include "context.h"

/* Two servers by SID. */
struct pair_of {
	__u32 first;
	__u32 second;
};

static __always_inline __u32 groups_of(__u32 count)
{
	return count == 1 ? 1 : count * (count - 1);
}

/* Pair of a group, for a pool that has servers and a valid group. */
static __always_inline struct pair_of pair_of(__u32 grp, __u32 count)
{
	struct pair_of pair = {};
	__u32 other;

	if (count < 2)
		return pair;
	pair.first = grp / (count - 1);
	other = grp % (count - 1);
	pair.second = other < pair.first ? other : other + 1;
	return pair;
}

/* Whether the pair is the one that the caller drew; a group of another version, or none, is mapped to some pair. */
static __always_inline int pair_drawn(struct context *c, struct pair_of *pair)
{
	__u32 groups = groups_of(c->pool.count);
	int drawn = c->epoch == c->pool.version && c->grp < groups;

	*pair = pair_of(PLANTED(STALE_CLAMPED) && !drawn ? 0 : c->grp % groups, c->pool.count);
	return drawn;
}

/* Other server that has the call of a cancel, besides the one that the cancel names; ~0 if none. */
static __always_inline __u32 pair_other(struct context *c)
{
	int current = c->epoch == c->pool.version || PLANTED(CANCEL_STALE);
	struct pair_of pair;

	if (!current || c->grp >= groups_of(c->pool.count))
		return ~0U;
	pair = pair_of(c->grp, c->pool.count);
	if (pair.first == pair.second || (c->sid != pair.first && c->sid != pair.second))
		return ~0U;
	return c->sid == pair.first ? pair.second : pair.first;
}
