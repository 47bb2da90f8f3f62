/* SPDX-License-Identifier: Apache-2.0 */
/* Table of cloned requests: all parts of a request go to the same servers as its first part (NetClone 3.7;
 * crates/program, clone/request.rs). */

control Request(inout headers hdr, inout metadata md) {
    /* Id of the request. A first part writes it in any case, so that this array does not depend on the next. */
    register<bit<64>>(PC_REQUESTS) ids;
    /* Its pool, and the decision. */
    register<bit<34>>(PC_REQUESTS) decisions;
    SlotOf() slot_of;
    bit<32> at = 0;
    bit<64> id = 0;
    bit<34> slot = 0;

    apply {
        if (md.way == WAY_REQUEST && hdr.call.parts > 1) {
            slot_of.apply(hdr.call.req_id, PC_REQUESTS, at);
            ids.read(id, at);
            if (hdr.call.part == 0) {
                ids.write(at, hdr.call.req_id);
            }
            decisions.read(slot, at);
            if (id == hdr.call.req_id && slot[33:2] == hdr.base.gaid) {
                /* Also for a repeated first part, because the other parts went there. */
                md.decision = slot[1:0];
            } else if (hdr.call.part == 0) {
                decisions.write(at, hdr.base.gaid ++ md.decision);
            }
        }
    }
}
