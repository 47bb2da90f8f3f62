/* SPDX-License-Identifier: Apache-2.0 */
/* Address stage: endpoint of a server of the pool (crates/program, clone/address.rs). */
#pragma once

#include "context.h"

/* Addresses a frame of a call to a server; returns null if the server is unknown. */
static __always_inline struct endpoint *addressed(struct pc_base *base, __u32 server, __u32 gaid)
{
	struct endpoint *to = endpoint_of(server, gaid);

	if (!to)
		return 0;
	base->dst = bpf_htonl(server);
	base->dst_incarnation = bpf_htonl(to->incarnation);
	return to;
}

static __always_inline int to_server(struct pc_base *base, struct context *c, __u32 sid)
{
	struct server *server = server_of(&c->pool, sid);
	struct endpoint *to = server ? addressed(base, server->endpoint, c->gaid) : 0;

	if (!to)
		return DROP_UNKNOWN_ENDPOINT;
	c->to = to->at;
	return FORWARD;
}

/* Forwards a request to the server that it is addressed to. */
static __always_inline int as_addressed(struct context *c)
{
	struct endpoint *to = endpoint_of(c->dst, c->gaid);

	if (!to || (!to->server && !PLANTED(DIRECT_TO_ANYBODY)))
		return DROP_UNKNOWN_ENDPOINT;
	c->to = to->at;
	return FORWARD;
}
