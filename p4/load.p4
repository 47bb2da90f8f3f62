/* SPDX-License-Identifier: Apache-2.0 */
/* Loads: the latest report of each server (StateT; RackSched's load table), with a shadow copy, because a frame visits an
 * array once (NetClone 3.4; crates/program, clone/load.rs). By pool and SID: number of the report, queue length. */

control Load(inout headers hdr, inout metadata md) {
    register<bit<48>>(PC_LOADS) loads;
    register<bit<48>>(PC_LOADS) shadows;
    bit<32> base = 0;
    bit<48> known = 0;
    bit<32> ahead = 0;
    bit<48> first = 0;
    bit<48> second = 0;
    bool may_clone = false;
    bool may_choose = false;

    apply {
        base = md.index << 9;
        if (md.way == WAY_REPLY || md.way == WAY_WORKING) {
            /* State that a server reports (lines 15 and 16), unless a newer report is recorded. */
            loads.read(known, base | (bit<32>) hdr.call.sid);
            ahead = hdr.base.round - known[47:16];
            if (known[47:16] == 0 || ahead[31:31] == 0) {
                loads.write(base | (bit<32>) hdr.call.sid, hdr.base.round ++ hdr.call.state);
            }
            shadows.read(known, base | (bit<32>) hdr.call.sid);
            ahead = hdr.base.round - known[47:16];
            if (known[47:16] == 0 || ahead[31:31] == 0) {
                shadows.write(base | (bit<32>) hdr.call.sid, hdr.base.round ++ hdr.call.state);
            }
        } else if (md.way == WAY_REQUEST) {
            md.decision = TO_FIRST;
            /* The first part of a request decides for all (3.7). */
            if (hdr.call.part == 0 && md.first != md.second) {
                may_clone = (hdr.call.flags & PC_CLONE_CLONE) != 0;
                may_choose = (hdr.call.flags & PC_CLONE_SHORTEST) != 0;
                loads.read(first, base | (bit<32>) md.first);
                shadows.read(second, base | (bit<32>) md.second);
                /* Both servers if both are idle and a clone is allowed (line 6), else the shorter queue if wanted. */
                if (may_clone && (first[15:0] | second[15:0]) == 0) {
                    md.decision = TO_BOTH;
                } else if (may_choose && second[15:0] < first[15:0]) {
                    md.decision = TO_SECOND;
                }
            }
        }
    }
}
