/* SPDX-License-Identifier: Apache-2.0 */
/* Packets of the switch program: packets to the element's ports, and in inline mode frames on their way to an endpoint.
 * Used by the switch program and by the root program, which has functions for all other packets. */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "wire.h"

#define ENDPOINTS_MAX 65536

/* Address of an endpoint. */
struct whereabouts {
	__be32 ip;
	__be16 port;
	__u16 pad;
};

/* Endpoint whose frames are admitted, with its address. */
struct endpoint {
	__u32 incarnation;
	__u32 gaid;
	__u32 slot_base;
	__u32 slots;
	struct whereabouts at;
	/* SID in its pool, counted from 1; 0: the endpoint is not a server. */
	__u32 server;
};

/* Endpoints by id. */
struct endpoint_table {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ENDPOINTS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct endpoint));
};

/* Whether a packet may carry a frame: UDP over IPv4, complete and without options. */
static __always_inline int is_plain(struct iphdr *ip)
{
	return ip->version == 4 && ip->ihl == 5 && ip->protocol == IPPROTO_UDP && !(ip->frag_off & bpf_htons(0x3fff));
}

/* UDP header of any IPv4 packet that has one, also after options or in a first fragment. */
static __always_inline struct udphdr *udp_of(struct iphdr *ip, void *end)
{
	struct udphdr *udp = (void *)ip + ip->ihl * 4;

	if (ip->version != 4 || ip->protocol != IPPROTO_UDP || ip->frag_off & bpf_htons(0x1fff))
		return 0;
	return (void *)(udp + 1) <= end ? udp : 0;
}

/* Whether a plain packet is a frame on its way to an endpoint at the endpoint's known address. Multicast packets, and
 * packets whose TTL ends here, are excluded. `table`: table of endpoints. */
static __always_inline int passes(void *table, struct ethhdr *eth, struct iphdr *ip, struct udphdr *udp, void *end)
{
	struct pc_base *base = (void *)(udp + 1);
	struct endpoint *to;
	__u32 id;

	if ((void *)(base + 1) > end || base->magic != bpf_htons(PC_MAGIC) || eth->h_dest[0] & 1 || ip->ttl <= 1)
		return 0;
	id = bpf_ntohl(base->dst);
	to = bpf_map_lookup_elem(table, &id);
	return to && to->gaid == bpf_ntohl(base->gaid) && to->at.ip == ip->daddr && to->at.port == udp->dest;
}
