/* SPDX-License-Identifier: Apache-2.0 */
/* Lock stage: CntFwd with threshold 1 is test-and-set, and its register holds the owner, so that the owner's repeat is
 * granted again (NetRPC Table 2; crates/program, lock.rs, which describes wanted locks). */

control Lock(inout headers hdr, inout metadata md) {
    /* Owner; tag of its acquisition, with the bits PC_LOCK_WANTED and PC_LOCK_PARKED. */
    register<bit<64>>(PC_ROWS) locks;
    bit<64> held = 0;
    bit<32> owner = 0;
    bit<32> tag = 0;
    bool fresh = false;
    bool exactly = false;

    apply {
        if (md.way == WAY_FREE
            || (md.way == WAY_LOCK && (md.repeat_status == STATUS_NEW || md.repeat_status == STATUS_REPEAT))) {
            locks.read(held, md.row);
            owner = held[63:32];
            tag = held[31:0];
            fresh = md.repeat_status == STATUS_NEW;
            if (md.way == WAY_FREE) {
                exactly = owner == hdr.map.threshold && (tag & ~PC_LOCK_WANTED) == hdr.map.tag;
                /* The answer contains the former owner. */
                hdr.base.slot = owner;
                hdr.map.para = tag & ~PC_LOCK_WANTED;
                /* Raised to the server's count of grants. */
                md.grants = exactly ? hdr.base.round : 0;
                if (exactly) {
                    owner = 0;
                    tag = 0;
                }
            } else if ((md.map_flags & PC_MAP_COUNT) != 0) {
                if (owner == 0) {
                    md.outcome = fresh ? LOCK_GRANTED : LOCK_UNHELD;
                    if (fresh) {
                        owner = hdr.base.src;
                        tag = hdr.map.tag;
                    }
                } else if (owner == hdr.base.src && (tag & ~PC_LOCK_WANTED) == hdr.map.tag) {
                    md.outcome = LOCK_HELD;
                } else {
                    md.outcome = LOCK_BUSY;
                    tag = tag | PC_LOCK_WANTED;
                }
            } else if (owner != hdr.base.src || (tag & PC_LOCK_TAG) != hdr.map.tag) {
                md.outcome = LOCK_RELEASED;
            } else if ((tag & PC_LOCK_PARKED) != 0) {
                /* A repeat: the server may not have received the first frame, or its answer was lost. */
                md.outcome = LOCK_IS_PARKED;
            } else if (!fresh) {
                md.outcome = LOCK_RELEASED;
            } else if ((tag & PC_LOCK_WANTED) == 0) {
                md.outcome = LOCK_RELEASED;
                owner = 0;
                tag = 0;
            } else {
                md.outcome = LOCK_IS_PARKED;
                tag = hdr.map.tag | PC_LOCK_PARKED;
            }
            locks.write(md.row, owner ++ tag);
        }
    }
}

/* Number of grants of each lock, the lower half of its fencing token. */
control Grant(inout headers hdr, inout metadata md) {
    register<bit<32>>(PC_ROWS) grants;
    bit<32> count = 0;

    apply {
        if (md.way == WAY_FREE || md.outcome != 0) {
            grants.read(count, md.row);
            if (md.outcome == LOCK_GRANTED) {
                count = count |+| 1;
            } else if (md.grants > count) {
                count = md.grants;
            }
            grants.write(md.row, count);
            hdr.base.round = md.outcome == LOCK_UNHELD ? 0 : count;
        }
    }
}
