/* SPDX-License-Identifier: Apache-2.0 */
/* Parser of bytes to headers. A packet that is not a frame keeps the headers found so far; check.p4 decides by lengths
 * whether a frame is complete. */

parser SwitchParser(packet_in packet, out headers hdr, inout metadata md, inout standard_metadata_t sm) {
    state start {
#ifdef PC_TWO_PASSES
        transition select(sm.instance_type) {
            INSTANCE_RECIRCULATED: pass;
            default: ethernet;
        }
    }

    state pass {
        packet.extract(hdr.pass);
        md.half = 1;
        transition ethernet;
    }

    state ethernet {
#endif
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            TYPE_IPV4: ipv4;
            default: accept;
        }
    }

    /* Options and fragments: not a frame. */
    state ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.more_fragments, hdr.ipv4.fragment_offset,
                          hdr.ipv4.protocol) {
            (4, 5, 0, 0, PROTOCOL_UDP): udp;
            default: accept;
        }
    }

    state udp {
        packet.extract(hdr.udp);
        transition base;
    }

    state base {
        packet.extract(hdr.base);
        transition select(hdr.base.magic, hdr.base.version, hdr.base.flags[5:5]) {
            (PC_MAGIC, PC_VERSION, 0): ability;
            (PC_MAGIC, PC_VERSION, 1): token;
            default: accept;
        }
    }

    state token {
        packet.extract(hdr.token);
        transition ability;
    }

    state ability {
        transition select(hdr.base.kind) {
#ifndef PC_NO_MAP
            PC_KIND_MAP_DATA .. PC_KIND_MAP_WITHDRAW: map;
            PC_KIND_MAP_MOVE .. PC_KIND_MAP_HELLO: map;
#endif
#ifndef PC_NO_CALLS
            PC_KIND_CLONE_REQUEST .. PC_KIND_CLONE_WORKING: call;
#endif
            default: accept;
        }
    }

#ifndef PC_NO_CALLS
    state call {
        packet.extract(hdr.call);
        transition accept;
    }
#endif

#ifndef PC_NO_MAP
    state map {
        packet.extract(hdr.map);
        transition select(hdr.map.lanes) {
            0: payload;
            1 .. PC_LANES: bitmap;
            default: accept;
        }
    }

    /* BARE, WIDE, LINEAR. */
    state bitmap {
        packet.extract(hdr.bitmap);
        md.lanes_left = hdr.map.lanes;
#ifdef PC_TWO_PASSES
        md.half_left = PC_ARRAYS;
        transition select(md.half, hdr.map.flags[7:7], hdr.map.flags[6:6], hdr.map.flags[5:5]) {
            (_, 1, _, _): payload;
            (0, 0, 0, 1): lane;
            (0, _, _, _): pair;
            (1, 0, 0, 1): lower_lanes;
            default: lower_pairs;
        }
#else
        transition select(hdr.map.flags[7:7], hdr.map.flags[6:6], hdr.map.flags[5:5]) {
            (1, _, _): payload;
            (0, 0, 1): lane;
            default: pair;
        }
#endif
    }

#ifdef PC_TWO_PASSES
    /* Second pass: without a second half, lanes are left in the payload. */
    state lower_lanes {
        transition select(hdr.map.lanes) {
            17 .. PC_LANES: skip_lanes;
            default: accept;
        }
    }

    state skip_lanes {
        packet.extract(hdr.lower_16);
        md.lanes_left = md.lanes_left - PC_ARRAYS;
        transition lane;
    }

    state lower_pairs {
        transition select(hdr.map.lanes) {
            17 .. PC_LANES: skip_pairs;
            default: accept;
        }
    }

    state skip_pairs {
        packet.extract(hdr.lower_32);
        md.lanes_left = md.lanes_left - PC_ARRAYS;
        transition pair;
    }

    state lane {
        packet.extract(hdr.lanes.next);
        md.lanes_left = md.lanes_left - 1;
        md.half_left = md.half_left - 1;
        transition select(md.lanes_left, md.half_left) {
            (0, _): payload;
            (_, 0): later_lanes;
            default: lane;
        }
    }

    state pair {
        packet.extract(hdr.pairs.next);
        md.lanes_left = md.lanes_left - 1;
        md.half_left = md.half_left - 1;
        transition select(md.lanes_left, md.half_left) {
            (0, _): payload;
            (_, 0): later_pairs;
            default: pair;
        }
    }

    state later_lanes {
        md.words_left = md.lanes_left;
        transition words_32;
    }

    state later_pairs {
        md.words_left = md.lanes_left << 1;
        transition words_32;
    }

    state words_32 {
        transition select(md.words_left[5:5]) {
            1: extract_32;
            default: words_16;
        }
    }

    state extract_32 {
        packet.extract(hdr.later_32);
        transition words_16;
    }

    state words_16 {
        transition select(md.words_left[4:4]) {
            1: extract_16;
            default: words_8;
        }
    }

    state extract_16 {
        packet.extract(hdr.later_16);
        transition words_8;
    }

    state words_8 {
        transition select(md.words_left[3:3]) {
            1: extract_8;
            default: words_4;
        }
    }

    state extract_8 {
        packet.extract(hdr.later_8);
        transition words_4;
    }

    state words_4 {
        transition select(md.words_left[2:2]) {
            1: extract_4;
            default: words_2;
        }
    }

    state extract_4 {
        packet.extract(hdr.later_4);
        transition words_2;
    }

    state words_2 {
        transition select(md.words_left[1:1]) {
            1: extract_2;
            default: words_1;
        }
    }

    state extract_2 {
        packet.extract(hdr.later_2);
        transition words_1;
    }

    state words_1 {
        transition select(md.words_left[0:0]) {
            1: extract_1;
            default: payload;
        }
    }

    state extract_1 {
        packet.extract(hdr.later_1);
        transition payload;
    }
#else
    state lane {
        packet.extract(hdr.lanes.next);
        md.lanes_left = md.lanes_left - 1;
        transition select(md.lanes_left) {
            0: payload;
            default: lane;
        }
    }

    state pair {
        packet.extract(hdr.pairs.next);
        md.lanes_left = md.lanes_left - 1;
        transition select(md.lanes_left) {
            0: payload;
            default: pair;
        }
    }
#endif

    /* Frame of a ballot: CLEAR or COUNT. */
    state payload {
        transition select(hdr.base.kind, hdr.map.flags[2:1]) {
            (PC_KIND_MAP_PAIRS, 1 .. 3): entry;
            default: accept;
        }
    }

    state entry {
        packet.extract(hdr.entry);
        md.key_left = hdr.entry.key_len;
        transition select(hdr.entry.key_len) {
            1 .. PC_MAX_BALLOT_KEY: key;
            default: accept;
        }
    }

    state key {
        transition select(md.key_left) {
            0: value;
            1: key_tail1;
            2: key_tail2;
            3: key_tail3;
            default: key_word;
        }
    }

    state key_word {
        packet.extract(hdr.key_words.next);
        md.key_left = md.key_left - 4;
        transition key;
    }

    state key_tail1 {
        packet.extract(hdr.key_tail1);
        transition value;
    }

    state key_tail2 {
        packet.extract(hdr.key_tail2);
        transition value;
    }

    state key_tail3 {
        packet.extract(hdr.key_tail3);
        transition value;
    }

    state value {
        packet.extract(hdr.entry_value);
        transition accept;
    }
#endif
}

control SwitchDeparser(packet_out packet, in headers hdr) {
    apply {
#ifdef PC_TWO_PASSES
        packet.emit(hdr.pass);
#endif
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.base);
        packet.emit(hdr.token);
        packet.emit(hdr.call);
        packet.emit(hdr.map);
        packet.emit(hdr.bitmap);
#ifdef PC_TWO_PASSES
        packet.emit(hdr.lower_16);
        packet.emit(hdr.lower_32);
#endif
        packet.emit(hdr.lanes);
        packet.emit(hdr.pairs);
#ifdef PC_TWO_PASSES
        packet.emit(hdr.later_32);
        packet.emit(hdr.later_16);
        packet.emit(hdr.later_8);
        packet.emit(hdr.later_4);
        packet.emit(hdr.later_2);
        packet.emit(hdr.later_1);
#endif
        packet.emit(hdr.entry);
        packet.emit(hdr.key_words);
        packet.emit(hdr.key_tail1);
        packet.emit(hdr.key_tail2);
        packet.emit(hdr.key_tail3);
        packet.emit(hdr.entry_value);
    }
}
