/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of a packet in their order, and metadata between stages. */

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> ether_type;
}

header ipv4_t {
    bit<4> version;
    bit<4> ihl;
    bit<6> dscp;
    bit<2> ecn;
    bit<16> total_len;
    bit<16> identification;
    bit<1> reserved;
    bit<1> dont_fragment;
    bit<1> more_fragments;
    bit<13> fragment_offset;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> src;
    bit<32> dst;
}

header udp_t {
    bit<16> src;
    bit<16> dst;
    bit<16> len;
    bit<16> checksum;
}

header token_t {
    bit<64> token;
}

/* One word: hardware frames have at most 32 lanes. */
header bitmap_t {
    bit<32> lanes;
}

/* Lane of a row. */
header lane_t {
    bit<32> value;
}

/* Keyed lane: a row, and a value. */
header pair_t {
    bit<32> row;
    bit<32> value;
}

/* Entry of a ballot's payload: the length of its key, the key in words and remaining bytes, a value. */
header entry_t {
    bit<16> key_len;
}

header key_word_t {
    bit<32> bytes;
}

header key_tail1_t {
    bit<8> bytes;
}

header key_tail2_t {
    bit<16> bytes;
}

header key_tail3_t {
    bit<24> bytes;
}

header entry_value_t {
    bit<64> value;
}

#ifdef PC_TWO_PASSES
/* In front of a recirculated packet: results of the first pass. */
header pass_t {
    bit<8> repeat_status;
    bit<8> part;
    bit<8> work;
    bit<8> bank;
    bit<1> opens;
    bit<1> cleared;
    bit<1> reached;
    bit<1> waits;
    bit<1> countless;
    bit<1> adds;
    bit<1> gets;
    bit<1> unused;
    bit<32> committed;
    bit<32> applied_in;
    bit<32> place;
    bit<32> overflow;
}

/* Words of lanes or pairs that belong to the other pass. */
header words_1_t {
    bit<32> words;
}

header words_2_t {
    bit<64> words;
}

header words_4_t {
    bit<128> words;
}

header words_8_t {
    bit<128> first;
    bit<128> second;
}

header words_16_t {
    bit<128> first;
    bit<128> second;
    bit<128> third;
    bit<128> fourth;
}

header words_32_t {
    bit<128> first;
    bit<128> second;
    bit<128> third;
    bit<128> fourth;
    bit<128> fifth;
    bit<128> sixth;
    bit<128> seventh;
    bit<128> eighth;
}
#endif

struct headers {
#ifdef PC_TWO_PASSES
    pass_t pass;
#endif
    ethernet_t ethernet;
    ipv4_t ipv4;
    udp_t udp;
    base_t base;
    token_t token;
    call_t call;
    map_t map;
    bitmap_t bitmap;
#ifdef PC_TWO_PASSES
    /* Second pass: the first half of the lanes or pairs. */
    words_16_t lower_16;
    words_32_t lower_32;
#endif
    /* Lanes or pairs of this pass. */
    lane_t[PC_ARRAYS] lanes;
    pair_t[PC_ARRAYS] pairs;
#ifdef PC_TWO_PASSES
    /* First pass: the other lanes or pairs, in headers of so many words. */
    words_32_t later_32;
    words_16_t later_16;
    words_8_t later_8;
    words_4_t later_4;
    words_2_t later_2;
    words_1_t later_1;
#endif
    entry_t entry;
    key_word_t[8] key_words;
    key_tail1_t key_tail1;
    key_tail2_t key_tail2;
    key_tail3_t key_tail3;
    entry_value_t entry_value;
}

/* Event of a frame for its application's counters. */
struct counted_t {
    bool admitted;
    bool not_admitted;
    bool unauthentic;
    bool applied;
    bool repeats;
    bool stale;
    bool refused;
    bool old;
    bool diverted;
    bool held;
    bool denied;
    bool reached;
    bool results;
    bool clears;
    bool reads;
    bool harvests;
    bool ecn_marked;
    bool cross;
}

/* Event of a frame for its pool's counters. */
struct counted_call_t {
    bool admitted;
    bool not_admitted;
    bool unauthentic;
    bool passed;
    bool requests;
    bool clones;
    bool shorter;
    bool direct;
    bool stale_groups;
    bool replies;
    bool filtered;
    bool cancels;
    bool ecn_marked;
}

struct metadata {
    /* Parser: remaining lanes and bytes of a key. */
    bit<16> lanes_left;
    bit<16> key_left;
#ifdef PC_TWO_PASSES
    /* Pass of the packet: the half of the lanes that it processes; lanes left out in the first pass. Parser: remaining
     * lanes of the half, and words of the other half. */
    bit<1> half;
    bit<32> left_out;
    bit<16> half_left;
    bit<16> words_left;
#endif

    bit<8> way;
    bit<8> fate;
    /* Frame that is returned: its kind, and whether lanes and payload are stripped. */
    bit<8> answer;
    bool bare;
    /* Endpoint that the frame goes to. */
    bit<32> to;
    /* Inline mode: whether the frame keeps its source. */
    bool passing;
    bool congested;
    /* Flags: without those that only an element may set, with the congestion mark. */
    bit<16> flags;
    bit<16> map_flags;
    /* Bytes of base header, token, map header and bitmap. */
    bit<16> lanes_at;

    /* Table entry of the application, or of the pool. */
    bool installed;
    bit<32> index;
    bit<32> epoch;
    bit<32> owner;
    bit<32> row_base;
    bit<32> rows;
    bit<32> width;
    bit<32> groups;
    /* Table entry of the sender. `sender_server`: its SID, counted from 1; 0 if it is not a server. */
    bool sender_known;
    bit<32> incarnation;
    bit<32> slot_base;
    bit<32> slots;
    bit<32> sender_server;
    bit<9> sender_egress;
    /* Table entry of the addressee. `addressee_server`: as `sender_server`. */
    bool known;
    bit<32> addressee_server;
    bit<9> addressee_egress;

    /* Row that a frame names, counted from the element's first. */
    bit<32> row;
    /* Generations. */
    bit<32> open;
    bit<32> committed;
    bit<32> version;
    /* Repeat filter: index of the frame's entry, its relation to the frame, and the generation of its application. */
    bit<32> place;
    bit<8> repeat_status;
    bit<32> applied_in;
    /* Rounds, and CntFwd. */
    bit<8> part;
    /* First part of a new round, whose row still holds an earlier round. */
    bool opens;
    bool cleared;
    /* The row has parts with another tag; it has this worker's part. */
    bool differs;
    bool contributed;
    bool reached;
    bool waits;
    bool countless;
    /* Ballots: whether the row belongs to this key, its number of votes, and its state. */
    bit<32> key_tail;
    bool taken;
    bool ours;
    bool decided;
    bit<31> ballot_round;
    /* Whether the vote's record has the bit for the threshold; whether the vote decided the ballot here. */
    bool decides;
    bool settles;
    bit<2> decider;
    /* Locks. */
    bit<8> outcome;
    bit<32> grants;
    /* Lanes: their operation; for a keyed frame the marked lanes, the operator and the bank; whether they are added and
     * read; lanes that would have overflowed or that name no register. */
    bit<8> work;
    bit<32> marked;
    bit<8> op;
    bit<32> para;
    bit<32> bank;
    bool adds;
    bool gets;
    bit<32> overflow;
    /* Record beside the repeat filter: lanes that a frame left out; or the round of a vote, and whether it reached the
     * threshold. */
    bit<32> mark;

    /* Calls: id of this element, whether a clone is recirculated; the pair of servers, whether the caller drew it, and
     * the decision. */
    bit<16> switch_id;
    bool second_pass;
    bit<32> group;
    bit<16> first;
    bit<16> second;
    bool drawn;
    bit<2> decision;

    counted_t counted;
    counted_call_t counted_call;
}
