/* SPDX-License-Identifier: Apache-2.0 */
/* Response filter: one answer of a cloned call passes (NetClone 3.5, Algorithm 1, lines 16 to 24; crates/program,
 * clone/filter.rs). */

control Filter(inout headers hdr, inout metadata md) {
    /* Id of a request; every answer writes it, so that this array does not depend on the next. The tables are stored one
     * after the other. */
    register<bit<64>>(PC_PRINTS) ids;
    /* Pool of the request, and the server that answered first; 0: the slot is free. */
    register<bit<48>>(PC_PRINTS) winners;
    SlotOf() slot_of;
    bit<64> id = 0;
    bit<32> filter = 0;
    bit<32> at = 0;
    bit<48> slot = 0;
    bool stops = false;

    apply {
        if (md.way == WAY_REPLY && hdr.call.clo != 0 && hdr.call.req_id != 0) {
            slot_of.apply(hdr.call.req_id, PC_FINGERPRINTS, at);
            hash(filter, HashAlgorithm.identity, 32w0, { hdr.call.idx }, 32w0 + PC_FILTERS);
            at = filter * PC_FINGERPRINTS + at;
            ids.read(id, at);
            ids.write(at, hdr.call.req_id);
            winners.read(slot, at);
            if (id != hdr.call.req_id || slot[47:16] != hdr.base.gaid) {
                slot = hdr.base.gaid ++ hdr.call.sid;
            } else if (hdr.call.parts > 1) {
                /* The server whose part came first has won, with all its parts. */
                stops = slot[15:0] != hdr.call.sid;
            } else {
                stops = true;
                if (slot[15:0] != hdr.call.sid) {
                    slot = 0;
                }
            }
            winners.write(at, slot);
            if (stops) {
                md.counted_call.filtered = true;
                md.fate = FATE_FILTERED;
            }
        }
    }
}
