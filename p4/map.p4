/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes of a frame, each with a register array of its own (crates/program, map.rs), and a record of the lanes left out,
 * so that a repeat gets the same answer. */

control Map(inout headers hdr, inout metadata md) {
    Lane() lane_0;
    Lane() lane_1;
    Lane() lane_2;
    Lane() lane_3;
    Lane() lane_4;
    Lane() lane_5;
    Lane() lane_6;
    Lane() lane_7;
    Lane() lane_8;
    Lane() lane_9;
    Lane() lane_10;
    Lane() lane_11;
    Lane() lane_12;
    Lane() lane_13;
    Lane() lane_14;
    Lane() lane_15;
#if PC_ARRAYS > 16
    Lane() lane_16;
    Lane() lane_17;
    Lane() lane_18;
    Lane() lane_19;
    Lane() lane_20;
    Lane() lane_21;
    Lane() lane_22;
    Lane() lane_23;
    Lane() lane_24;
    Lane() lane_25;
    Lane() lane_26;
    Lane() lane_27;
    Lane() lane_28;
    Lane() lane_29;
    Lane() lane_30;
    Lane() lane_31;
#endif

    apply {
        if (md.way == WAY_READ) {
            md.work = WORK_ROW;
            md.gets = true;
            md.bank = (bit<32>) (hdr.map.first_lane >> 5);
        } else if (md.way == WAY_PAIRS && (md.repeat_status == STATUS_NEW || md.repeat_status == STATUS_REPEAT)) {
            md.work = WORK_PAIRS;
            md.adds = md.repeat_status == STATUS_NEW && (md.map_flags & PC_MAP_ADD) != 0;
            md.gets = (md.map_flags & PC_MAP_GET) != 0;
        }
        if (md.work != WORK_NONE) {
            md.marked = hdr.bitmap.lanes;
#ifdef PC_TWO_PASSES
            md.bank = (md.bank << 1) | (bit<32>) md.half;
            if (md.half == 1) {
                md.marked = md.marked >> PC_ARRAYS;
            }
#endif
            lane_0.apply(hdr.lanes[0], hdr.pairs[0], 32w1 << 0, md);
            lane_1.apply(hdr.lanes[1], hdr.pairs[1], 32w1 << 1, md);
            lane_2.apply(hdr.lanes[2], hdr.pairs[2], 32w1 << 2, md);
            lane_3.apply(hdr.lanes[3], hdr.pairs[3], 32w1 << 3, md);
            lane_4.apply(hdr.lanes[4], hdr.pairs[4], 32w1 << 4, md);
            lane_5.apply(hdr.lanes[5], hdr.pairs[5], 32w1 << 5, md);
            lane_6.apply(hdr.lanes[6], hdr.pairs[6], 32w1 << 6, md);
            lane_7.apply(hdr.lanes[7], hdr.pairs[7], 32w1 << 7, md);
            lane_8.apply(hdr.lanes[8], hdr.pairs[8], 32w1 << 8, md);
            lane_9.apply(hdr.lanes[9], hdr.pairs[9], 32w1 << 9, md);
            lane_10.apply(hdr.lanes[10], hdr.pairs[10], 32w1 << 10, md);
            lane_11.apply(hdr.lanes[11], hdr.pairs[11], 32w1 << 11, md);
            lane_12.apply(hdr.lanes[12], hdr.pairs[12], 32w1 << 12, md);
            lane_13.apply(hdr.lanes[13], hdr.pairs[13], 32w1 << 13, md);
            lane_14.apply(hdr.lanes[14], hdr.pairs[14], 32w1 << 14, md);
            lane_15.apply(hdr.lanes[15], hdr.pairs[15], 32w1 << 15, md);
#if PC_ARRAYS > 16
            lane_16.apply(hdr.lanes[16], hdr.pairs[16], 32w1 << 16, md);
            lane_17.apply(hdr.lanes[17], hdr.pairs[17], 32w1 << 17, md);
            lane_18.apply(hdr.lanes[18], hdr.pairs[18], 32w1 << 18, md);
            lane_19.apply(hdr.lanes[19], hdr.pairs[19], 32w1 << 19, md);
            lane_20.apply(hdr.lanes[20], hdr.pairs[20], 32w1 << 20, md);
            lane_21.apply(hdr.lanes[21], hdr.pairs[21], 32w1 << 21, md);
            lane_22.apply(hdr.lanes[22], hdr.pairs[22], 32w1 << 22, md);
            lane_23.apply(hdr.lanes[23], hdr.pairs[23], 32w1 << 23, md);
            lane_24.apply(hdr.lanes[24], hdr.pairs[24], 32w1 << 24, md);
            lane_25.apply(hdr.lanes[25], hdr.pairs[25], 32w1 << 25, md);
            lane_26.apply(hdr.lanes[26], hdr.pairs[26], 32w1 << 26, md);
            lane_27.apply(hdr.lanes[27], hdr.pairs[27], 32w1 << 27, md);
            lane_28.apply(hdr.lanes[28], hdr.pairs[28], 32w1 << 28, md);
            lane_29.apply(hdr.lanes[29], hdr.pairs[29], 32w1 << 29, md);
            lane_30.apply(hdr.lanes[30], hdr.pairs[30], 32w1 << 30, md);
            lane_31.apply(hdr.lanes[31], hdr.pairs[31], 32w1 << 31, md);
#endif
#ifdef PC_TWO_PASSES
            if (md.half == 1) {
                md.overflow = (md.overflow << PC_ARRAYS) | md.left_out;
            }
#endif
        }
    }
}

/* Record beside the repeat filter: lanes that the last frame left out; or the round of a vote, and whether it reached
 * the threshold. */
control Overflow(inout headers hdr, inout metadata md) {
    register<bit<32>>(PC_PLACES) marks;

    apply {
        if ((md.way == WAY_PAIRS || md.way == WAY_VOTE)
            && (md.repeat_status == STATUS_NEW || md.repeat_status == STATUS_REPEAT)) {
            if (md.repeat_status == STATUS_REPEAT) {
                marks.read(md.mark, md.place);
            } else {
                md.mark = md.way == WAY_PAIRS ? md.overflow : md.ballot_round ++ (bit<1>) md.decides;
                marks.write(md.place, md.mark);
            }
        }
    }
}
