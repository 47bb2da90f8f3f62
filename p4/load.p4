/* SPDX-License-Identifier: Apache-2.0 */
/* Loads: queue length of each server (StateT; RackSched's load table), with a shadow copy, because a frame visits an
 * array once (NetClone 3.4; crates/program, clone/load.rs). By pool and SID. */

control Load(inout headers hdr, inout metadata md) {
    register<bit<16>>(PC_LOADS) loads;
    register<bit<16>>(PC_LOADS) shadows;
    bit<32> base = 0;
    bit<16> first = 0;
    bit<16> second = 0;
    bool may_clone = false;
    bool may_choose = false;

    apply {
        base = md.index << 9;
        if (md.way == WAY_REPLY || md.way == WAY_WORKING) {
            /* State that a server reports (lines 15 and 16). */
            loads.write(base | (bit<32>) hdr.call.sid, hdr.call.state);
            shadows.write(base | (bit<32>) hdr.call.sid, hdr.call.state);
        } else if (md.way == WAY_REQUEST) {
            md.decision = TO_FIRST;
            /* The first part of a request decides for all (3.7). */
            if (hdr.call.part == 0 && md.first != md.second) {
                may_clone = (hdr.call.flags & PC_CLONE_CLONE) != 0;
                may_choose = (hdr.call.flags & PC_CLONE_SHORTEST) != 0;
                loads.read(first, base | (bit<32>) md.first);
                shadows.read(second, base | (bit<32>) md.second);
                /* Both servers if both are idle and a clone is allowed (line 6), else the shorter queue if wanted. */
                if (may_clone && (first | second) == 0) {
                    md.decision = TO_BOTH;
                } else if (may_choose && second < first) {
                    md.decision = TO_SECOND;
                }
            }
        }
    }
}
