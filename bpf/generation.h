/* SPDX-License-Identifier: Apache-2.0 */
/* Generation stage of keyed values: the server harvests one closed generation after the other
 * (crates/program, generation.rs). Runs under the application's lock. */
#pragma once

#include "context.h"

/* First lane of a generation's bank in a row. */
static __always_inline __u32 bank_of(__u32 generation)
{
	return generation % 2 * PC_KEYED_LANES;
}

/* Closes the generation that the frame names, if it is open. */
static __always_inline void generation_close(struct row *first, struct context *c)
{
	if (c->round != first->open)
		return;
	/* The server closes a generation only after the harvest of all earlier ones. */
	first->committed = first->open - 1;
	first->open = first->open + 1 ? first->open + 1 : 1;
	first->version = PLANTED(VERSION_KEPT) ? first->version : c->index;
}

/* Records that a closed generation was harvested; false if its bank may be in use again or was never closed, because a
 * late wipe must not touch newer values. */
static __always_inline int generation_commit(struct row *first, struct context *c)
{
	if (first->open != c->round + 1 && !PLANTED(WIPE_OLD_GENERATION))
		return 0;
	first->committed = c->round;
	return 1;
}
