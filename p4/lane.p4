/* SPDX-License-Identifier: Apache-2.0 */
/* One lane: Stream.modify, Map.addTo, Map.get and Map.clear on its register array (crates/program, map.rs and
 * lanes.rs). A lane is a word of a row, or a pair that names its row; `mask` is its bit in bitmaps. */

control Lane(inout lane_t lane, inout pair_t pair, in bit<32> mask, inout metadata md) {
    /* By row; then bank, and half of the lanes. */
    register<bit<32>>(PC_CELLS) cells;
    counter(PC_APPLICATIONS, CounterType.packets) added;
    counter(PC_APPLICATIONS, CounterType.packets) overflowed;
    Modify() modify;
    bool touches = false;
    bool overflows = false;
    bool beyond = false;
    bit<32> row = 0;
    bit<32> cell = 0;
    bit<32> value = 0;
    bit<32> held = 0;
    bit<32> sum = 0;
    bit<32> left = 0;

    apply {
        row = md.row;
        value = lane.value;
        touches = md.work == WORK_ZERO || (md.work == WORK_ROW && lane.isValid());
        if (md.work == WORK_PAIRS && pair.isValid() && (md.marked & mask) != 0) {
            row = md.row_base + pair.row;
            value = pair.value;
            touches = pair.row < md.rows;
            overflows = !touches;
        }
        if (touches) {
            modify.apply(value, md.op, md.para);
            cell = (row << PC_CELL_BITS) | md.bank;
            cells.read(held, cell);
            if (md.opens) {
                held = 0;
            }
            left = held;
            sum = held + value;
            if (md.work == WORK_ZERO) {
                left = 0;
            } else if (md.adds) {
                /* The terms have the same sign, and the sum has the other. */
                beyond = (((held ^ sum) & (value ^ sum)) & 0x80000000) != 0;
                if (md.work == WORK_PAIRS) {
                    overflows = beyond;
                    left = beyond ? held : sum;
                } else if (held != 0x80000000 && held != 0x7fffffff) {
                    /* NetRPC 5.2.1: a row's register at the end of its range stays there until it is cleared. */
                    left = !beyond ? sum : held[31:31] == 1 ? 32w0x80000000 : 32w0x7fffffff;
                }
                if (!overflows) {
                    added.count(md.index);
                }
            }
            cells.write(cell, left);
            if (md.gets) {
                value = left;
                lane.value = left;
            }
            if (md.work == WORK_PAIRS) {
                pair.value = value;
            }
        }
        if (overflows) {
            md.overflow = md.overflow | mask;
            overflowed.count(md.index);
        }
    }
}
