/* SPDX-License-Identifier: Apache-2.0 */
/* Table of cloned requests: all parts of a request go to the same servers as its first part (NetClone 3.7;
 * crates/program, clone/request.rs). */

control Request(inout headers hdr, inout metadata md) {
    /* Id of the request, its pool, and the decision; one register, because all fields are compared before any is
     * written. */
    register<bit<98>>(PC_REQUESTS) requests;
    SlotOf() slot_of;
    bit<32> at = 0;
    bit<98> slot = 0;

    apply {
        if (md.way == WAY_REQUEST && hdr.call.parts > 1) {
            slot_of.apply(hdr.call.req_id, PC_REQUESTS, at);
            requests.read(slot, at);
            if (slot[97:2] == hdr.call.req_id ++ hdr.base.gaid) {
                /* Also for a repeated first part, because the other parts went there. */
                md.decision = slot[1:0];
            } else if (hdr.call.part == 0) {
                requests.write(at, hdr.call.req_id ++ hdr.base.gaid ++ md.decision);
            }
        }
    }
}
