/* SPDX-License-Identifier: Apache-2.0 */
/* Request numbers: each request of one part gets the element's next number (NetClone Algorithm 1, lines 2 and 3;
 * crates/program, clone/number.rs). A request with an id of its caller keeps it, if the id has 23 bits of the caller's
 * endpoint. */

control Number(inout headers hdr, inout metadata md) {
    /* One register: the last number that was assigned. */
    register<bit<64>>(1) numbers;
    bit<64> last = 0;

    apply {
        if (md.way == WAY_REQUEST) {
            if ((hdr.call.req_id & PC_CALLER_ID) != 0) {
                if (hdr.call.req_id[62:40] != hdr.base.src[22:0]) {
                    md.fate = FATE_FORGED;
                }
            } else if (hdr.call.parts > 1) {
                md.fate = FATE_MALFORMED;
            } else {
                numbers.read(last, 0);
                /* From 1, in 63 bits; 0 means no id. */
                last = last >= PC_CALLER_ID - 1 ? 64w1 : last + 1;
                numbers.write(0, last);
                hdr.call.req_id = last;
            }
        }
    }
}
