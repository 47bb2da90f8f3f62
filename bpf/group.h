/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: the ordered pair of servers that a request may go to, and the version of the table
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

/* Of a pool that has servers, and a group that it has. */
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

/* Whether it is the pair that the caller drew; one of another version, or of none, becomes some pair. */
static __always_inline int pair_drawn(struct context *c, struct pair_of *pair)
{
	__u32 groups = groups_of(c->pool.count);
	int drawn = c->epoch == c->pool.version && c->grp < groups;

	*pair = pair_of(PLANTED(STALE_CLAMPED) && !drawn ? 0 : c->grp % groups, c->pool.count);
	return drawn;
}

/* Who has the call that a cancel is about, beside the server that it names; none: ~0. */
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
