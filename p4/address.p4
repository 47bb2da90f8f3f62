/* SPDX-License-Identifier: Apache-2.0 */
/* Address stage: endpoint of a server of the pool (AddrT), after the comparison of queues (NetClone 3.7;
 * crates/program, clone/address.rs). */

control Address(inout headers hdr, inout metadata md) {
    bit<16> sid = 0;

    action server(bit<32> endpoint, bit<32> incarnation, bit<9> egress) {
        hdr.base.dst = endpoint;
        hdr.base.dst_incarnation = incarnation;
        md.addressee_egress = egress;
    }

    table servers {
        key = { hdr.base.gaid: exact; sid: exact; }
        actions = { server; NoAction; }
        default_action = NoAction();
        size = PC_LOADS;
    }

    apply {
        md.fate = FATE_ADDRESSED;
        if (md.way == WAY_CLONE) {
            /* The clone goes to the other server of the pair (lines 11 to 13). */
            sid = hdr.call.sid;
            hdr.call.clo = PC_CLO_CLONE;
        } else if (md.decision == TO_SECOND) {
            sid = md.second;
        } else {
            sid = md.first;
        }
        if (md.decision == TO_BOTH) {
            hdr.call.clo = PC_CLO_ORIGINAL;
            hdr.call.sid = md.second;
            md.fate = FATE_TWICE;
        }
        if (!servers.apply().hit) {
            md.fate = FATE_UNKNOWN_ENDPOINT;
        }
    }
}
