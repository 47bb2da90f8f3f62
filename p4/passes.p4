/* SPDX-License-Identifier: Apache-2.0 */
/* Second pass of a frame with more lanes than a pass has register arrays, and of a frame that clears a row. The first
 * pass decides what the frame does, and processes the first half of its lanes; the second pass repeats the look-ups,
 * processes the other half, and sends the frame. Recirculated packets stay in their order, so a row's halves see the
 * same frames in the same order. */

#ifdef PC_TWO_PASSES
/* End of the first pass. */
control Suspend(inout headers hdr, inout metadata md) {
    apply {
        hdr.pass.setValid();
        hdr.pass.repeat_status = md.repeat_status;
        hdr.pass.part = md.part;
        hdr.pass.work = md.work;
        hdr.pass.bank = (bit<8>) (md.bank >> 1);
        hdr.pass.opens = (bit<1>) md.opens;
        hdr.pass.cleared = (bit<1>) md.cleared;
        hdr.pass.reached = (bit<1>) md.reached;
        hdr.pass.waits = (bit<1>) md.waits;
        hdr.pass.countless = (bit<1>) md.countless;
        hdr.pass.adds = (bit<1>) md.adds;
        hdr.pass.gets = (bit<1>) md.gets;
        hdr.pass.committed = md.committed;
        hdr.pass.applied_in = md.applied_in;
        hdr.pass.place = md.place;
        hdr.pass.overflow = md.overflow;
        md.fate = FATE_AGAIN;
    }
}

/* Beginning of the second pass. */
control Resume(inout headers hdr, inout metadata md) {
    apply {
        if (hdr.pass.isValid()) {
            md.repeat_status = hdr.pass.repeat_status;
            md.part = hdr.pass.part;
            md.work = hdr.pass.work;
            md.bank = (bit<32>) hdr.pass.bank;
            md.opens = hdr.pass.opens == 1;
            md.cleared = hdr.pass.cleared == 1;
            md.reached = hdr.pass.reached == 1;
            md.waits = hdr.pass.waits == 1;
            md.countless = hdr.pass.countless == 1;
            md.adds = hdr.pass.adds == 1;
            md.gets = hdr.pass.gets == 1;
            md.committed = hdr.pass.committed;
            md.applied_in = hdr.pass.applied_in;
            md.place = hdr.pass.place;
            md.left_out = hdr.pass.overflow;
            hdr.pass.setInvalid();
        }
    }
}
#endif
