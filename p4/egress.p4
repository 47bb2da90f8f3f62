/* SPDX-License-Identifier: Apache-2.0 */
/* Egress: a copy is addressed to its member of the group, and the headers below the frame are written.
 *
 * The source of a frame is the address that its cause was sent to: the element, or in inline mode the peer. A frame
 * that is forwarded to an endpoint in inline mode keeps its source, and its TTL is decremented. */

control SwitchEgress(inout headers hdr, inout metadata md, inout standard_metadata_t sm) {
    action member(bit<32> endpoint, bit<32> incarnation) {
        hdr.base.dst = endpoint;
        hdr.base.dst_incarnation = incarnation;
        md.to = endpoint;
    }

    /* Members of an application's group. */
    table members {
        key = { md.index: exact; sm.egress_rid: exact; }
        actions = { member; NoAction; }
        default_action = NoAction();
        size = PC_ENDPOINTS;
    }

    action at(bit<48> dst, bit<48> src, bit<32> ip, bit<16> port) {
        hdr.ethernet.dst = dst;
        hdr.ethernet.src = src;
        if (md.passing) {
            hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        } else {
            hdr.ipv4.src = hdr.ipv4.dst;
            hdr.udp.src = hdr.udp.dst;
            hdr.ipv4.ttl = TTL;
        }
        hdr.ipv4.dst = ip;
        hdr.udp.dst = port;
    }

    /* Address of an endpoint. */
    table whereabouts {
        key = { md.to: exact; }
        actions = { at; NoAction; }
        default_action = NoAction();
        size = PC_ENDPOINTS;
    }

    apply {
        if (md.fate == FATE_AGAIN || (md.fate == FATE_TWICE && sm.egress_rid == RID_SECOND_PASS)) {
            recirculate_preserving_field_list(0);
        } else if (md.fate >= FATE_FORWARD && md.fate <= FATE_MULTICAST) {
            if (md.fate == FATE_MULTICAST) {
                members.apply();
            }
            whereabouts.apply();
            /* The congestion mark is in the frame now. */
            if (hdr.ipv4.ecn == ECN_CE) {
                hdr.ipv4.ecn = ECN_ECT0;
            }
            hdr.ipv4.identification = 0;
            hdr.ipv4.dont_fragment = 1;
            hdr.udp.len = hdr.base.length + UDP_LEN;
            hdr.ipv4.total_len = hdr.base.length + IP_UDP_LEN;
            /* No UDP checksum: a pipeline does not see the whole payload. */
            hdr.udp.checksum = 0;
        }
    }
}
