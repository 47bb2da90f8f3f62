/* SPDX-License-Identifier: Apache-2.0 */
/* Frames as they travel. Made from crates/wire by its test c_header; not to be edited. */
#pragma once

#include <linux/types.h>

#define PC_MAGIC 0x5043
#define PC_VERSION 0x1
#define PC_TOKEN_LEN 0x8
#define PC_W_MAX 0x100
#define PC_LINEAR_LANES 0x100
#define PC_KEYED_LANES 0x20
#define PC_KEYED_WIDTH 0x40
#define PC_RECORD_PLACES 0x40
#define PC_MAX_FRAME 0x55c
#define PC_MAX_WORKERS 0x40
#define PC_MAX_BALLOT_KEY 0x20
#define PC_LOCK_TAG 0x3fffffff
#define PC_LOCK_WANTED 0x80000000
#define PC_LOCK_PARKED 0x40000000
#define PC_MAX_SERVERS 0x40
#define PC_MAX_PARTS 0x40
#define PC_CLO_ORIGINAL 0x1
#define PC_CLO_CLONE 0x2
#define PC_CALLER_ID 0x8000000000000000ULL
/* Bit n: kind n has this ability's header. */
#define PC_KINDS_MAP 0x7dfffffeULL
#define PC_KINDS_CLONE 0xf00000000ULL
#define PC_OPS 0xb
#define PC_TARGETS 0x3

struct pc_base {
	__be16 magic;
	__u8 version;
	__u8 kind;
	__be16 flags;
	__be16 length;
	__be32 gaid;
	__be32 epoch;
	__be32 src;
	__be32 src_incarnation;
	__be32 dst;
	__be32 dst_incarnation;
	__be32 slot;
	__be32 seq;
	__be32 round;
} __attribute__((packed));

struct pc_map {
	__u8 op;
	__u8 to;
	__be16 flags;
	__be16 lanes;
	__be16 first_lane;
	__be32 para;
	__be32 index;
	__be32 threshold;
	__be16 worker;
	__be16 payload_len;
	__be32 tag;
} __attribute__((packed));

struct pc_clone {
	__be64 req_id;
	__be32 grp;
	__be16 sid;
	__be16 state;
	__u8 clo;
	__u8 idx;
	__be16 switch_id;
	__u8 attempt;
	__u8 flags;
	__be16 part;
	__be16 parts;
	__be16 payload_len;
	__be32 patience;
} __attribute__((packed));

enum {
	PC_KIND_MAP_DATA = 0x1,
	PC_KIND_MAP_ACK = 0x2,
	PC_KIND_MAP_RESULT = 0x3,
	PC_KIND_MAP_HELD = 0x4,
	PC_KIND_MAP_SOFT = 0x5,
	PC_KIND_MAP_READ = 0x6,
	PC_KIND_MAP_VALUES = 0x7,
	PC_KIND_MAP_ERROR = 0x8,
	PC_KIND_MAP_PAIRS = 0x9,
	PC_KIND_MAP_PAIRS_ACK = 0xa,
	PC_KIND_MAP_CLOSE = 0xb,
	PC_KIND_MAP_CLOSED = 0xc,
	PC_KIND_MAP_PLACES = 0xd,
	PC_KIND_MAP_RECORD = 0xe,
	PC_KIND_MAP_WIPE = 0xf,
	PC_KIND_MAP_WIPED = 0x10,
	PC_KIND_MAP_COMMIT = 0x11,
	PC_KIND_MAP_FLUSH = 0x12,
	PC_KIND_MAP_SETTLED = 0x13,
	PC_KIND_MAP_REFUSED = 0x14,
	PC_KIND_MAP_SILENT = 0x15,
	PC_KIND_MAP_FREE = 0x16,
	PC_KIND_MAP_FREED = 0x17,
	PC_KIND_MAP_WITHDRAW = 0x18,
	PC_KIND_MAP_MOVE = 0x1a,
	PC_KIND_MAP_MOVED = 0x1b,
	PC_KIND_MAP_LEASE = 0x1c,
	PC_KIND_MAP_LENT = 0x1d,
	PC_KIND_MAP_HELLO = 0x1e,
	PC_KIND_CLONE_REQUEST = 0x20,
	PC_KIND_CLONE_REPLY = 0x21,
	PC_KIND_CLONE_CANCEL = 0x22,
	PC_KIND_CLONE_WORKING = 0x23,
};

enum {
	PC_FLAG_FLIP = 0x1,
	PC_FLAG_ECN = 0x2,
	PC_FLAG_FROM_SERVER = 0x4,
	PC_FLAG_MCAST = 0x8,
	PC_FLAG_CROSS = 0x10,
	PC_FLAG_TOKEN = 0x20,
	PC_FLAG_NOT_ADMITTED = 0x40,
};

enum {
	PC_MAP_OVERFLOW = 0x1,
	PC_MAP_COUNT = 0x2,
	PC_MAP_CLEAR = 0x4,
	PC_MAP_ADD = 0x8,
	PC_MAP_GET = 0x10,
	PC_MAP_LINEAR = 0x20,
	PC_MAP_WIDE = 0x40,
	PC_MAP_BARE = 0x80,
	PC_MAP_ROUND = 0x100,
	PC_MAP_REACHED = 0x200,
	PC_MAP_OLD = 0x400,
	PC_MAP_DIVERTED = 0x800,
	PC_MAP_LOGICAL = 0x1000,
	PC_MAP_DENIED = 0x2000,
	PC_MAP_CLAIM = 0x4000,
	PC_MAP_WAIT = 0x8000,
	PC_MAP_ELEMENT_ONLY = 0x2e00,
};

enum {
	PC_CLONE_CLONE = 0x1,
	PC_CLONE_SHORTEST = 0x2,
	PC_CLONE_DIRECT = 0x4,
	PC_CLONE_FAILED = 0x8,
	PC_CLONE_ALL = 0xf,
};

enum {
	PC_OP_NOP = 0x0,
	PC_OP_MAX = 0x1,
	PC_OP_MIN = 0x2,
	PC_OP_ADD = 0x3,
	PC_OP_ASSIGN = 0x4,
	PC_OP_SHIFT_L = 0x5,
	PC_OP_SHIFT_R = 0x6,
	PC_OP_BAND = 0x7,
	PC_OP_BOR = 0x8,
	PC_OP_BNOT = 0x9,
	PC_OP_BXOR = 0xa,
};

enum {
	PC_TO_SRC = 0x0,
	PC_TO_ALL = 0x1,
	PC_TO_SERVER = 0x2,
};
