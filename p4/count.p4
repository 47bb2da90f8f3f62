/* SPDX-License-Identifier: Apache-2.0 */
/* CntFwd stage: counters and thresholds (NetRPC 5.2.3; crates/program, count.rs). */

control Count(inout headers hdr, inout metadata md) {
    register<bit<32>>(PC_ROWS) counts;
    bit<32> count = 0;
    bool of_part = false;
    bool of_pairs = false;
    bool adds = false;

    apply {
        of_part = md.way == WAY_PART && (md.part == PART_FIRST || md.part == PART_AGAIN);
        if (md.way == WAY_PAIRS && (md.repeat_status == STATUS_NEW || md.repeat_status == STATUS_REPEAT)
            && (md.map_flags & PC_MAP_COUNT) != 0 && hdr.map.threshold != 0) {
            md.countless = hdr.map.index >= md.rows;
            of_pairs = !md.countless;
        }
        adds = of_pairs ? md.repeat_status == STATUS_NEW : md.part == PART_FIRST;
        if (md.cleared) {
            counts.write(md.row, 0);
        } else if (of_part || of_pairs) {
            counts.read(count, md.row);
            if (md.opens) {
                count = 0;
            }
            if (adds) {
                count = count |+| 1;
            }
            counts.write(md.row, count);
            if (of_part) {
                md.reached = count >= hdr.map.threshold;
            } else {
                /* The frame that reaches the threshold is forwarded, and so are its repeats. */
                md.waits = adds ? count != hdr.map.threshold : count < hdr.map.threshold;
            }
        }
        if (of_part && md.reached) {
            md.gets = true;
        }
    }
}
