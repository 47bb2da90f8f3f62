/* SPDX-License-Identifier: Apache-2.0 */
/* Profiles and sizes, set by a target with -D, and constants of the metadata between stages. */

/* Profiles for a pipeline of 12 stages (crates/program, profile.rs): the same text without what the profile leaves out.
 *
 *   PC_PROFILE_MAP    map alone: 16 register arrays of lanes, and a second pass for frames of more than 16 lanes
 *   PC_PROFILE_CLONE  clone alone: slots by CRC
 *
 * Without a profile, the program is whole. */
#ifdef PC_PROFILE_MAP
#define PC_NO_CALLS
#define PC_TWO_PASSES
#ifndef PC_ROWS
#define PC_ROWS 10240
#endif
#ifndef PC_SLOTS
#define PC_SLOTS 128
#endif
#endif
#ifdef PC_PROFILE_CLONE
#define PC_NO_MAP
#ifndef PC_SLOT_BY_PRODUCT
#define PC_SLOT_BY_CRC
#endif
#ifndef PC_FINGERPRINTS
#define PC_FINGERPRINTS 32768
#endif
#endif

/* Rows of registers (round, count, ballot, lock); each lane array has PC_ROW_CELLS cells per row. */
#ifndef PC_ROWS
#define PC_ROWS 40960
#endif
/* Flow slots of the repeat filter, PC_W_MAX entries each. */
#ifndef PC_SLOTS
#define PC_SLOTS 4096
#endif
#ifndef PC_APPLICATIONS
#define PC_APPLICATIONS 1024
#endif
#ifndef PC_ENDPOINTS
#define PC_ENDPOINTS 65536
#endif
/* Pools of servers; slots of the table of cloned requests; filter tables, and slots of each. */
#ifndef PC_POOLS
#define PC_POOLS 64
#endif
#ifndef PC_REQUESTS
#define PC_REQUESTS 4096
#endif
#ifndef PC_FILTERS
#define PC_FILTERS 2
#endif
#ifndef PC_FINGERPRINTS
#define PC_FINGERPRINTS 65536
#endif
/* Port of the switch's processor. */
#ifndef PC_CPU_PORT
#define PC_CPU_PORT 510
#endif

/* Derived sizes. */
#define PC_PLACES (256 * PC_SLOTS)
#define PC_LOADS (512 * PC_POOLS)
/* Pairs of all pools together: of one pool of 512 servers, or of 64 pools of 64. */
#define PC_PAIRS (512 * 511)
#define PC_PRINTS (PC_FILTERS * PC_FINGERPRINTS)
/* Lanes of a frame that a pipeline processes. */
#define PC_LANES 32
/* Register arrays of lanes: a pass accesses each once (NetRPC 5.2.2). A row has a cell in each array for each bank; with
 * two passes also for each half of the lanes. PC_CELL_BITS: bits of a cell's number in its row. */
#ifdef PC_TWO_PASSES
#define PC_ARRAYS 16
#define PC_ROW_CELLS 4
#define PC_CELL_BITS 2
#else
#define PC_ARRAYS 32
#define PC_ROW_CELLS 2
#define PC_CELL_BITS 1
#endif
#define PC_CELLS (PC_ROW_CELLS * PC_ROWS)

const bit<16> TYPE_IPV4 = 0x0800;
const bit<8> PROTOCOL_UDP = 17;
/* Bytes of the headers below a frame. */
const bit<16> UDP_LEN = 8;
const bit<16> IP_UDP_LEN = 28;
const bit<32> FRAME_AT = 42;
const bit<8> TTL = 64;
const bit<2> ECN_ECT0 = 2;
const bit<2> ECN_CE = 3;

/* Instance type of a packet (v1model's instance_type): received, or recirculated. */
const bit<32> INSTANCE_NORMAL = 0;
const bit<32> INSTANCE_RECIRCULATED = 4;
/* Multicast copy that is recirculated as the clone of a request. */
const bit<16> RID_SECOND_PASS = 0xffff;
/* Multicast groups of cloned requests, one for each port; lower ones are of applications. */
const bit<16> GROUP_TWICE = 0x8000;

/* Operation of a frame: its way through the stages. */
const bit<8> WAY_NONE = 0;
const bit<8> WAY_PART = 1;
const bit<8> WAY_RESULT = 2;
const bit<8> WAY_READ = 3;
const bit<8> WAY_PAIRS = 4;
const bit<8> WAY_CLOSE = 5;
const bit<8> WAY_WIPE = 6;
const bit<8> WAY_LOCK = 7;
const bit<8> WAY_FREE = 8;
const bit<8> WAY_VOTE = 9;
const bit<8> WAY_DECIDED = 10;
const bit<8> WAY_MOVE = 11;
const bit<8> WAY_REQUEST = 12;
const bit<8> WAY_REPLY = 13;
const bit<8> WAY_WORKING = 14;
const bit<8> WAY_CANCEL = 15;
/* Second pass of a request: its clone. */
const bit<8> WAY_CLONE = 16;
/* Query for the decision of a ballot. */
const bit<8> WAY_BALLOT_QUERY = 17;

/* Action for a packet; 0: not decided yet. From FATE_DROP on the packet is dropped. */
const bit<8> FATE_NONE = 0;
/* Not a frame for this element: routed unchanged. */
const bit<8> FATE_ROUTE = 1;
/* To the addressed endpoint, if it belongs to the application. */
const bit<8> FATE_FORWARD = 2;
/* To the server that stages have addressed it to. */
const bit<8> FATE_ADDRESSED = 3;
/* To that server, and recirculated to make the clone for the other server. */
const bit<8> FATE_TWICE = 4;
/* Returned to its sender, as an answer of kind `answer`. */
const bit<8> FATE_REFLECT = 5;
/* To each member of the application's group. */
const bit<8> FATE_MULTICAST = 6;
/* To the switch's processor, unchanged. */
const bit<8> FATE_PUNT = 7;
/* Recirculated, for the second half of its lanes. */
const bit<8> FATE_AGAIN = 8;
const bit<8> FATE_DROP = 16;
const bit<8> FATE_MALFORMED = 16;
const bit<8> FATE_FORGED = 17;
const bit<8> FATE_STALE = 18;
const bit<8> FATE_COUNTED = 19;
const bit<8> FATE_NOT_ADMITTED = 20;
const bit<8> FATE_UNKNOWN_ENDPOINT = 21;
const bit<8> FATE_UNAUTHENTIC = 22;
const bit<8> FATE_FILTERED = 23;
/* Dropped for its TTL or its checksum, not as a frame. */
const bit<8> FATE_UNROUTED = 24;

/* Relation of a frame to its repeat-filter entry. */
const bit<8> STATUS_NONE = 0;
const bit<8> STATUS_NEW = 1;
const bit<8> STATUS_REPEAT = 2;
const bit<8> STATUS_REFUSED = 3;
const bit<8> STATUS_STALE = 4;

/* Relation of a worker's frame to its round. */
const bit<8> PART_NONE = 0;
const bit<8> PART_FIRST = 1;
const bit<8> PART_AGAIN = 2;
const bit<8> PART_OLD = 3;
const bit<8> PART_DIVERTED = 4;

/* Result of a lock frame. */
const bit<8> LOCK_GRANTED = 1;
const bit<8> LOCK_HELD = 2;
const bit<8> LOCK_BUSY = 3;
const bit<8> LOCK_UNHELD = 4;
const bit<8> LOCK_RELEASED = 5;
const bit<8> LOCK_IS_PARKED = 6;

/* Operation of the lanes. */
const bit<8> WORK_NONE = 0;
const bit<8> WORK_PAIRS = 1;
const bit<8> WORK_ROW = 2;
const bit<8> WORK_ZERO = 3;

/* Servers of a pair that get a request: bit 0 the first, bit 1 the second. */
const bit<2> TO_FIRST = 1;
const bit<2> TO_SECOND = 2;
const bit<2> TO_BOTH = 3;

/* Party that decides a ballot at the threshold: the element; the server, which runs the handler for the deciding vote;
 * the server, which records the decision before callers get it. */
const bit<2> DECIDER_ELEMENT = 1;
const bit<2> DECIDER_HANDLER = 2;
const bit<2> DECIDER_SERVER = 3;

/* Bit above the length of a ballot's key: the server counts the votes of this row. */
const bit<9> BALLOT_MOVED = 0x100;
