/* SPDX-License-Identifier: Apache-2.0 */
/* Round stage of a sum (SyncAgtr): decides which worker's part counts, before anything is added (crates/program,
 * round.rs). */

/* Half of the workers of a row's round, in a register with its copy of the tag that the parts share. A tag is never 0:
 * with 0, the half has no parts. Both halves see the same frames, so their tags are equal. */
control RoundParts(in bit<32> worker, in bool enters, inout headers hdr, inout metadata md) {
    register<bit<64>>(PC_ROWS) parts;
    bit<64> held = 0;
    bit<32> tag = 0;
    bit<32> workers = 0;

    apply {
        parts.read(held, md.row);
        if (!md.opens && !md.cleared) {
            tag = held[63:32];
            workers = held[31:0];
        }
        if (enters) {
            if (tag != 0 && tag != hdr.map.tag) {
                md.differs = true;
            } else if ((workers & worker) != 0) {
                md.contributed = true;
            } else if (md.repeat_status == STATUS_NEW) {
                tag = hdr.map.tag;
                workers = workers | worker;
            }
        }
        parts.write(md.row, tag ++ workers);
    }
}

control Round(inout headers hdr, inout metadata md) {
    /* Open round. */
    register<bit<32>>(PC_ROWS) numbers;
    /* Workers 0 to 31, and 32 to 63. */
    RoundParts() low;
    RoundParts() high;
    /* Sticky congestion mark. */
    register<bit<1>>(PC_ROWS) marks;
    bit<32> open = 0;
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

            if (enters || md.cleared) {
                worker = 64w1 << (bit<8>) hdr.map.worker;
                low.apply(worker[31:0], enters, hdr, md);
                high.apply(worker[63:32], enters, hdr, md);
            }
            if (enters) {
                if (md.differs) {
                    md.part = PART_DIVERTED;
                    enters = false;
                } else if (md.contributed) {
                    md.part = PART_AGAIN;
                } else if (md.repeat_status == STATUS_NEW) {
                    md.part = PART_FIRST;
                } else {
                    /* The original went to the server as well. */
                    md.part = PART_DIVERTED;
                }
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
