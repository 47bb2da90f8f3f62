/* SPDX-License-Identifier: Apache-2.0 */
/* Frames as they travel. Made from crates/wire by its test p4_header; not to be edited. */

const bit<16> PC_MAGIC = 0x5043;
const bit<8> PC_VERSION = 0x1;
const bit<32> PC_BASE_LEN = 0x2c;
const bit<32> PC_TOKEN_LEN = 0x8;
const bit<32> PC_MAP_LEN = 0x1c;
const bit<32> PC_CLONE_LEN = 0x20;
const bit<16> PC_KEYED_LANES = 0x20;
const bit<32> PC_KEYED_WIDTH = 0x40;
const bit<16> PC_MAX_WORKERS = 0x40;
const bit<16> PC_MAX_BALLOT_KEY = 0x20;
const bit<32> PC_LOCK_TAG = 0x3fffffff;
const bit<32> PC_LOCK_WANTED = 0x80000000;
const bit<32> PC_LOCK_PARKED = 0x40000000;
const bit<16> PC_MAX_PARTS = 0x40;
const bit<8> PC_CLO_ORIGINAL = 0x1;
const bit<8> PC_CLO_CLONE = 0x2;
const bit<64> PC_CALLER_ID = 0x8000000000000000;
const bit<8> PC_OPS = 0xb;
const bit<8> PC_TARGETS = 0x3;

header base_t {
    bit<16> magic;
    bit<8> version;
    bit<8> kind;
    bit<16> flags;
    bit<16> length;
    bit<32> gaid;
    bit<32> epoch;
    bit<32> src;
    bit<32> src_incarnation;
    bit<32> dst;
    bit<32> dst_incarnation;
    bit<32> slot;
    bit<32> seq;
    bit<32> round;
}

header map_t {
    bit<8> op;
    bit<8> to;
    bit<16> flags;
    bit<16> lanes;
    bit<16> first_lane;
    bit<32> para;
    bit<32> index;
    bit<32> threshold;
    bit<16> worker;
    bit<16> payload_len;
    bit<32> tag;
}

header call_t {
    bit<64> req_id;
    bit<32> grp;
    bit<16> sid;
    bit<16> state;
    bit<8> clo;
    bit<8> idx;
    bit<16> switch_id;
    bit<8> attempt;
    bit<8> flags;
    bit<16> part;
    bit<16> parts;
    bit<16> payload_len;
    bit<32> patience;
}

const bit<8> PC_KIND_MAP_DATA = 0x1;
const bit<8> PC_KIND_MAP_ACK = 0x2;
const bit<8> PC_KIND_MAP_RESULT = 0x3;
const bit<8> PC_KIND_MAP_HELD = 0x4;
const bit<8> PC_KIND_MAP_SOFT = 0x5;
const bit<8> PC_KIND_MAP_READ = 0x6;
const bit<8> PC_KIND_MAP_VALUES = 0x7;
const bit<8> PC_KIND_MAP_ERROR = 0x8;
const bit<8> PC_KIND_MAP_PAIRS = 0x9;
const bit<8> PC_KIND_MAP_PAIRS_ACK = 0xa;
const bit<8> PC_KIND_MAP_CLOSE = 0xb;
const bit<8> PC_KIND_MAP_CLOSED = 0xc;
const bit<8> PC_KIND_MAP_PLACES = 0xd;
const bit<8> PC_KIND_MAP_RECORD = 0xe;
const bit<8> PC_KIND_MAP_WIPE = 0xf;
const bit<8> PC_KIND_MAP_WIPED = 0x10;
const bit<8> PC_KIND_MAP_COMMIT = 0x11;
const bit<8> PC_KIND_MAP_FLUSH = 0x12;
const bit<8> PC_KIND_MAP_SETTLED = 0x13;
const bit<8> PC_KIND_MAP_REFUSED = 0x14;
const bit<8> PC_KIND_MAP_SILENT = 0x15;
const bit<8> PC_KIND_MAP_FREE = 0x16;
const bit<8> PC_KIND_MAP_FREED = 0x17;
const bit<8> PC_KIND_MAP_WITHDRAW = 0x18;
const bit<8> PC_KIND_MAP_MOVE = 0x1a;
const bit<8> PC_KIND_MAP_MOVED = 0x1b;
const bit<8> PC_KIND_MAP_LEASE = 0x1c;
const bit<8> PC_KIND_MAP_LENT = 0x1d;
const bit<8> PC_KIND_MAP_HELLO = 0x1e;
const bit<8> PC_KIND_CLONE_REQUEST = 0x20;
const bit<8> PC_KIND_CLONE_REPLY = 0x21;
const bit<8> PC_KIND_CLONE_CANCEL = 0x22;
const bit<8> PC_KIND_CLONE_WORKING = 0x23;

const bit<16> PC_FLAG_FLIP = 0x1;
const bit<16> PC_FLAG_ECN = 0x2;
const bit<16> PC_FLAG_FROM_SERVER = 0x4;
const bit<16> PC_FLAG_MCAST = 0x8;
const bit<16> PC_FLAG_CROSS = 0x10;
const bit<16> PC_FLAG_TOKEN = 0x20;
const bit<16> PC_FLAG_NOT_ADMITTED = 0x40;

const bit<16> PC_MAP_OVERFLOW = 0x1;
const bit<16> PC_MAP_COUNT = 0x2;
const bit<16> PC_MAP_CLEAR = 0x4;
const bit<16> PC_MAP_ADD = 0x8;
const bit<16> PC_MAP_GET = 0x10;
const bit<16> PC_MAP_LINEAR = 0x20;
const bit<16> PC_MAP_WIDE = 0x40;
const bit<16> PC_MAP_BARE = 0x80;
const bit<16> PC_MAP_ROUND = 0x100;
const bit<16> PC_MAP_REACHED = 0x200;
const bit<16> PC_MAP_OLD = 0x400;
const bit<16> PC_MAP_DIVERTED = 0x800;
const bit<16> PC_MAP_LOGICAL = 0x1000;
const bit<16> PC_MAP_DENIED = 0x2000;
const bit<16> PC_MAP_CLAIM = 0x4000;
const bit<16> PC_MAP_WAIT = 0x8000;
const bit<16> PC_MAP_ELEMENT_ONLY = 0x2e00;

const bit<8> PC_CLONE_CLONE = 0x1;
const bit<8> PC_CLONE_SHORTEST = 0x2;
const bit<8> PC_CLONE_DIRECT = 0x4;
const bit<8> PC_CLONE_ALL = 0xf;

const bit<8> PC_OP_NOP = 0x0;
const bit<8> PC_OP_MAX = 0x1;
const bit<8> PC_OP_MIN = 0x2;
const bit<8> PC_OP_ADD = 0x3;
const bit<8> PC_OP_ASSIGN = 0x4;
const bit<8> PC_OP_SHIFT_L = 0x5;
const bit<8> PC_OP_SHIFT_R = 0x6;
const bit<8> PC_OP_BAND = 0x7;
const bit<8> PC_OP_BOR = 0x8;
const bit<8> PC_OP_BNOT = 0x9;
const bit<8> PC_OP_BXOR = 0xa;

const bit<8> PC_TO_SRC = 0x0;
const bit<8> PC_TO_ALL = 0x1;
const bit<8> PC_TO_SERVER = 0x2;
