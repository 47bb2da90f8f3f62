/* SPDX-License-Identifier: Apache-2.0 */
/* Repeat-filter stage: a frame takes effect at most once (NetRPC 5.1; crates/program, repeat_filter.rs).
 *
 * An entry keeps the last full sequence number, so that repeats of any age are recognised. With PC_FLIP_BIT it keeps
 * one bit, as in the paper: correct as long as no repeat is a window late. */

control RepeatFilter(inout headers hdr, inout metadata md) {
    register<bit<32>>(PC_PLACES) seqs;
    register<bit<32>>(PC_PLACES) generations;
#ifdef PC_FLIP_BIT
    /* Inverted flip bit of the last frame, as the flip bit starts as 1 (NetRPC 5.1). */
    register<bit<1>>(PC_PLACES) flips;
    bit<1> flip = 0;
    bit<1> clear_flip = 0;
#endif
    bit<32> last = 0;
    bit<32> generation = 0;
    bool admissible = false;

    apply {
        if (md.way == WAY_PAIRS || md.way == WAY_LOCK || md.way == WAY_VOTE || md.way == WAY_BALLOT_QUERY
            || (md.way == WAY_PART && md.part == PART_NONE)) {
            md.place = (hdr.base.slot << 8) | (hdr.base.seq & 255);
            admissible = true;
            if (md.way == WAY_PAIRS) {
                admissible = hdr.base.round == md.version;
                generation = md.open;
            }
#ifdef PC_FLIP_BIT
            flips.read(clear_flip, md.place);
            flip = (hdr.base.seq - 1)[8:8];
            if (flip != clear_flip) {
                md.repeat_status = STATUS_REPEAT;
            } else if (!admissible) {
                md.repeat_status = STATUS_REFUSED;
            } else {
                md.repeat_status = STATUS_NEW;
                flips.write(md.place, ~clear_flip);
            }
            if (md.repeat_status == STATUS_NEW) {
                seqs.write(md.place, hdr.base.seq);
            }
#else
            seqs.read(last, md.place);
            if (hdr.base.seq < last) {
                md.repeat_status = STATUS_STALE;
            } else if (hdr.base.seq == last) {
                md.repeat_status = STATUS_REPEAT;
            } else if (!admissible) {
                md.repeat_status = STATUS_REFUSED;
            } else {
                md.repeat_status = STATUS_NEW;
                seqs.write(md.place, hdr.base.seq);
            }
#endif
            if (md.repeat_status == STATUS_NEW) {
                md.applied_in = generation;
                generations.write(md.place, generation);
            } else {
                generations.read(md.applied_in, md.place);
            }
            /* Values that are only read are those of the open generation, on a repeat, too. */
            if (md.way == WAY_PAIRS && (md.map_flags & PC_MAP_ADD) == 0) {
                md.applied_in = md.open;
            }
        }
    }
}
