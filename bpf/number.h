/* SPDX-License-Identifier: Apache-2.0 */
/* Request numbers: each request of one part gets the element's next number (crates/program, clone/number.rs). */
#pragma once

#include "context.h"

/* Whether the id of a request belongs to its caller: it has 23 bits of the caller's endpoint. */
static __always_inline int is_id_of(__u64 req_id, __u32 endpoint)
{
	return (req_id >> 40 & 0x7fffff) == (endpoint & 0x7fffff);
}

/* Numbers a request, unless it has an id of its caller; returns 0, or another action. */
static __always_inline int number_request(struct context *c)
{
	if (c->req_id & PC_CALLER_ID)
		return is_id_of(c->req_id, c->src) || PLANTED(ID_UNCHECKED) ? 0 : DROP_FORGED;
	if (c->call_parts > 1)
		return DROP_MALFORMED;
	c->req_id = __sync_fetch_and_add(&number, 1) + 1;
	if (c->req_id & PC_CALLER_ID) {
		/* Wraps to 1. Concurrent requests on several processors may get the same number then: once in 2^63. */
		__sync_val_compare_and_swap(&number, c->req_id, 1);
		c->req_id = 1;
	}
	return 0;
}
