/* SPDX-License-Identifier: Apache-2.0 */
/* Round stage of a sum (SyncAgtr): decides which worker's part counts, before anything is added (crates/program,
 * round.rs). */

control Round(inout headers hdr, inout metadata md) {
    /* Open round. */
    register<bit<32>>(PC_ROWS) numbers;
    /* Tag that its parts share, and the workers that have contributed. */
    register<bit<96>>(PC_ROWS) parts;
    /* Sticky congestion mark. */
    register<bit<1>>(PC_ROWS) marks;
    bit<32> open = 0;
    bit<96> held = 0;
    bit<32> tag = 0;
    bit<64> workers = 0;
    bit<64> worker = 0;
    bit<1> mark = 0;
    bool enters = false;

    apply {
        if ((md.way == WAY_PART && (md.repeat_status == STATUS_NEW || md.repeat_status == STATUS_REPEAT))
            || (md.way == WAY_RESULT
                && (md.map_flags & (PC_MAP_CLEAR | PC_MAP_ROUND)) == (PC_MAP_CLEAR | PC_MAP_ROUND))) {
            numbers.read(open, md.row);
            enters = md.way == WAY_PART && hdr.base.round == open;
            if (md.way == WAY_RESULT) {
                /* A late result must not clear a later round. */
                md.cleared = hdr.base.round >= open;
                if (md.cleared) {
                    numbers.write(md.row, hdr.base.round |+| 1);
                }
            } else if (hdr.base.round < open) {
                md.part = PART_OLD;
            } else if (hdr.base.round > open) {
                /* Policy shadow (NetRPC 5.2.2): a worker that sends the next round has the result of the round in the
                 * row, and so have all others. */
                md.opens = md.repeat_status == STATUS_NEW && (md.map_flags & PC_MAP_CLEAR) != 0;
                enters = md.opens;
                if (md.opens) {
                    numbers.write(md.row, hdr.base.round);
                } else {
                    md.part = PART_DIVERTED;
                }
            }

            if (enters) {
                parts.read(held, md.row);
                tag = held[95:64];
                workers = md.opens ? 0 : held[63:0];
                worker = 64w1 << (bit<8>) hdr.map.worker;
                if (workers == 0) {
                    tag = hdr.map.tag;
                }
                if (tag != hdr.map.tag) {
                    md.part = PART_DIVERTED;
                    enters = false;
                } else if ((workers & worker) != 0) {
                    md.part = PART_AGAIN;
                } else if (md.repeat_status == STATUS_NEW) {
                    md.part = PART_FIRST;
                    workers = workers | worker;
                } else {
                    /* The original went to the server as well. */
                    md.part = PART_DIVERTED;
                }
                parts.write(md.row, tag ++ workers);
            } else if (md.cleared) {
                parts.write(md.row, 0);
            }

            /* NetRPC 5.1: the mark stays with the round until it is cleared, so that a lost frame does not lose it. */
            if (enters || md.cleared) {
                marks.read(mark, md.row);
                if (md.opens) {
                    mark = 0;
                }
                if (enters && md.congested) {
                    mark = 1;
                }
                if (mark == 1) {
                    md.flags = md.flags | PC_FLAG_ECN;
                    hdr.base.flags = md.flags;
                }
                marks.write(md.row, md.cleared ? 1w0 : mark);
            }
        }
        if (md.way == WAY_PART) {
            if (md.part == PART_FIRST || md.part == PART_AGAIN) {
                md.work = WORK_ROW;
                md.adds = md.part == PART_FIRST;
            }
        } else if (md.cleared) {
            md.work = WORK_ZERO;
        }
    }
}
