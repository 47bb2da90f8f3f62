/* SPDX-License-Identifier: Apache-2.0 */
/* Operation of an admitted frame, and check of its fields against its application (crates/program, lib.rs: `pipeline`,
 * and the first checks of each way). */

control Way(inout headers hdr, inout metadata md) {
    bool cross = false;
    bool from_server = false;
    bool in_rows = false;
    bool is_keyed = false;
    bool is_of_lock = false;

    action wrong_unless(in bool fits) {
        if (!fits) {
            md.fate = FATE_MALFORMED;
        }
    }

    apply {
        cross = (md.flags & PC_FLAG_CROSS) != 0;
        from_server = (md.flags & PC_FLAG_FROM_SERVER) != 0;
        in_rows = hdr.map.index < md.rows;
        is_keyed = md.width == PC_KEYED_WIDTH && md.rows != 0;
        md.row = md.row_base + hdr.map.index;
        md.op = hdr.map.op;
        md.para = hdr.map.para;
        is_of_lock = hdr.map.lanes == 0 && hdr.map.to == PC_TO_SRC
            && (((md.map_flags & PC_MAP_COUNT) != 0 && hdr.map.threshold == 1)
                || (md.map_flags & (PC_MAP_COUNT | PC_MAP_CLEAR | PC_MAP_ADD)) == PC_MAP_CLEAR);
        if (cross) {
            md.counted.cross = true;
            md.fate = FATE_FORWARD;
        } else if (from_server) {
            if (hdr.base.kind == PC_KIND_MAP_PAIRS_ACK && (md.map_flags & PC_MAP_COUNT) != 0) {
                md.way = WAY_DECIDED;
                wrong_unless(in_rows);
            } else if (hdr.base.kind == PC_KIND_MAP_RESULT) {
                md.way = WAY_RESULT;
                wrong_unless(in_rows);
            } else if (hdr.base.kind == PC_KIND_MAP_READ) {
                /* A lane of the frame uses one of the register arrays: whole banks, or the beginning of one. */
                md.way = WAY_READ;
                wrong_unless(in_rows && hdr.map.lanes <= PC_LANES && (hdr.map.first_lane & 31) == 0
                    && (bit<32>) hdr.map.first_lane + (bit<32>) hdr.map.lanes <= md.width
                    && (md.map_flags & (PC_MAP_LINEAR | PC_MAP_GET | PC_MAP_WIDE | PC_MAP_BARE))
                        == (PC_MAP_LINEAR | PC_MAP_GET));
            } else if (hdr.base.kind == PC_KIND_MAP_CLOSE) {
                md.way = WAY_CLOSE;
                wrong_unless(is_keyed);
            } else if (hdr.base.kind == PC_KIND_MAP_WIPE) {
                md.way = WAY_WIPE;
                wrong_unless(is_keyed && in_rows);
            } else if (hdr.base.kind == PC_KIND_MAP_PLACES) {
                /* 64 registers of one array: the switch's processor reads them. */
                md.fate = FATE_PUNT;
            } else if (hdr.base.kind == PC_KIND_MAP_MOVE) {
                md.way = WAY_MOVE;
                wrong_unless(in_rows);
            } else if (hdr.base.kind == PC_KIND_MAP_FREE) {
                md.way = WAY_FREE;
                wrong_unless(in_rows);
            } else if ((md.flags & PC_FLAG_MCAST) != 0) {
                md.fate = FATE_MULTICAST;
            } else {
                md.fate = FATE_FORWARD;
            }
        } else if (hdr.base.kind == PC_KIND_MAP_DATA && (md.map_flags & (PC_MAP_LOGICAL | PC_MAP_BARE)) == 0) {
            if ((md.map_flags & PC_MAP_LINEAR) != 0) {
                md.way = WAY_PART;
                if ((md.map_flags & (PC_MAP_WIDE | PC_MAP_ROUND)) != PC_MAP_ROUND) {
                    md.part = PART_DIVERTED;
                } else {
                    wrong_unless(in_rows && hdr.map.lanes <= PC_LANES && (bit<32>) hdr.map.lanes <= md.width
                        && hdr.map.worker < PC_MAX_WORKERS && hdr.map.first_lane == 0 && hdr.map.threshold >= 1
                        && hdr.map.tag != 0);
                }
            } else if (is_of_lock) {
                md.way = WAY_LOCK;
                wrong_unless(in_rows && (hdr.map.tag & ~PC_LOCK_TAG) == 0);
            } else {
                md.way = WAY_PAIRS;
                wrong_unless(is_keyed && hdr.map.lanes <= PC_KEYED_LANES);
            }
        } else if (hdr.base.kind == PC_KIND_MAP_PAIRS && (md.map_flags & (PC_MAP_COUNT | PC_MAP_CLEAR)) != 0) {
            if ((md.map_flags & (PC_MAP_COUNT | PC_MAP_GET | PC_MAP_CLEAR)) == (PC_MAP_COUNT | PC_MAP_GET)) {
                md.way = WAY_BALLOT_QUERY;
            } else {
                md.way = WAY_VOTE;
            }
            /* One entry, with a key that fits a register. */
            wrong_unless(in_rows && hdr.entry_value.isValid() && hdr.map.payload_len == hdr.entry.key_len + 10);
        } else {
            md.fate = FATE_FORWARD;
        }
    }
}
