/* SPDX-License-Identifier: Apache-2.0 */
/* Parser of bytes to headers. A packet that is not a frame keeps the headers found so far; check.p4 decides by lengths
 * whether a frame is complete. */

parser SwitchParser(packet_in packet, out headers hdr, inout metadata md, inout standard_metadata_t sm) {
    state start {
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
            PC_KIND_MAP_DATA .. PC_KIND_MAP_WITHDRAW: map;
            PC_KIND_MAP_MOVE .. PC_KIND_MAP_HELLO: map;
            PC_KIND_CLONE_REQUEST .. PC_KIND_CLONE_WORKING: call;
            default: accept;
        }
    }

    state call {
        packet.extract(hdr.call);
        transition accept;
    }

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
        transition select(hdr.map.flags[7:7], hdr.map.flags[6:6], hdr.map.flags[5:5]) {
            (1, _, _): payload;
            (0, 0, 1): lane;
            default: pair;
        }
    }

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
}

control SwitchDeparser(packet_out packet, in headers hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.base);
        packet.emit(hdr.token);
        packet.emit(hdr.call);
        packet.emit(hdr.map);
        packet.emit(hdr.bitmap);
        packet.emit(hdr.lanes);
        packet.emit(hdr.pairs);
        packet.emit(hdr.entry);
        packet.emit(hdr.key_words);
        packet.emit(hdr.key_tail1);
        packet.emit(hdr.key_tail2);
        packet.emit(hdr.key_tail3);
        packet.emit(hdr.entry_value);
    }
}
