/* SPDX-License-Identifier: Apache-2.0 */
/* Destination of a frame: its last headers, and its egress port (crates/program, emit.rs). */

control Leave(inout headers hdr, inout metadata md, inout standard_metadata_t sm) {
    Strip() strip;

    action hop(bit<9> port, bit<48> dst, bit<48> src) {
        sm.egress_spec = port;
        hdr.ethernet.dst = dst;
        hdr.ethernet.src = src;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
    }

    action punt() {
        md.fate = FATE_PUNT;
    }

    /* Packets that are not frames. Packets to the element itself go to its processor. */
    table routes {
        key = { hdr.ipv4.dst: lpm; }
        actions = { hop; punt; }
        default_action = punt();
        size = 1024;
    }

    apply {
        if (md.fate == FATE_ROUTE) {
            if (hdr.ipv4.isValid() && sm.checksum_error == 1) {
                md.fate = FATE_UNROUTED;
            } else if (hdr.ipv4.isValid() && hdr.ipv4.version == 4 && hdr.ipv4.ihl == 5 && hdr.ipv4.ttl > 1) {
                routes.apply();
            } else {
                md.fate = FATE_PUNT;
            }
        } else if (md.fate == FATE_FORWARD && !md.known) {
            md.fate = FATE_UNKNOWN_ENDPOINT;
        } else if (md.fate == FATE_REFLECT) {
            hdr.base.kind = md.answer;
            md.to = hdr.base.src;
            md.incarnation = hdr.base.src_incarnation;
            hdr.base.src = hdr.base.dst;
            hdr.base.src_incarnation = hdr.base.dst_incarnation;
            hdr.base.dst = md.to;
            hdr.base.dst_incarnation = md.incarnation;
            md.passing = false;
        } else {
            md.to = hdr.base.dst;
        }
        if (md.bare) {
            strip.apply(hdr, md);
        }
        /* The look-ups at the beginning returned the ports, so that none depends on the decision. */
        if (md.fate == FATE_FORWARD || md.fate == FATE_ADDRESSED || md.fate == FATE_TWICE) {
            sm.egress_spec = md.addressee_egress;
        } else if (md.fate == FATE_REFLECT) {
            sm.egress_spec = md.sender_egress;
        }
        if (md.fate == FATE_TWICE) {
            /* By the port of the first server; and recirculated. */
            sm.mcast_grp = GROUP_TWICE | (bit<16>) sm.egress_spec;
        } else if (md.fate == FATE_MULTICAST) {
            sm.mcast_grp = (bit<16>) md.index + 1;
        } else if (md.fate == FATE_PUNT) {
            sm.egress_spec = PC_CPU_PORT;
        } else if (md.fate >= FATE_DROP) {
            mark_to_drop(sm);
        }
    }
}
