/* SPDX-License-Identifier: Apache-2.0 */
/* Emit stage: forwards a frame, returns it to its sender, sets flags (crates/program, emit.rs and the callers). */

control Emit(inout headers hdr, inout metadata md) {
    bit<32> all_lanes = 0;
    bool is_new = false;

    /* Returned to its sender. */
    action answer(in bit<8> kind, in bool bare) {
        md.fate = FATE_REFLECT;
        md.answer = kind;
        md.bare = bare;
    }

    action say(in bit<16> flags) {
        md.map_flags = md.map_flags | flags;
        hdr.map.flags = md.map_flags;
    }

    apply {
        is_new = md.repeat_status == STATUS_NEW;
        if (hdr.map.lanes < 32) {
            all_lanes = (32w1 << (bit<8>) hdr.map.lanes) - 1;
        } else {
            all_lanes = 0xffffffff;
        }
        if (md.repeat_status == STATUS_STALE) {
            md.counted.stale = true;
            md.fate = FATE_STALE;
        } else if (md.repeat_status == STATUS_REFUSED) {
            md.counted.refused = true;
            hdr.base.round = md.version;
            answer(PC_KIND_MAP_REFUSED, true);
        } else if (md.way == WAY_PART) {
            if (md.part == PART_OLD) {
                /* Forwarded without lanes: the server answers from its backup. */
                md.counted.old = true;
                say(PC_MAP_OLD);
                md.bare = true;
                md.fate = FATE_FORWARD;
            } else if (md.part == PART_DIVERTED) {
                md.counted.diverted = true;
                say(PC_MAP_DIVERTED);
                md.fate = FATE_FORWARD;
            } else {
                md.counted.applied = md.part == PART_FIRST;
                md.counted.repeats = md.part != PART_FIRST;
                if (md.reached) {
                    md.counted.reached = true;
                    say(PC_MAP_REACHED);
                    hdr.bitmap.lanes = all_lanes;
                    if ((md.map_flags & PC_MAP_CLEAR) == 0) {
                        md.fate = FATE_FORWARD;
                    } else if (md.part == PART_FIRST) {
                        /* The row clears itself: the sums are the result, sent from the part's destination. */
                        hdr.base.kind = PC_KIND_MAP_RESULT;
                        md.fate = FATE_MULTICAST;
                        md.passing = false;
                    } else {
                        answer(PC_KIND_MAP_RESULT, false);
                    }
                } else if (md.part == PART_FIRST) {
                    md.fate = FATE_COUNTED;
                } else {
                    md.counted.held = true;
                    answer(PC_KIND_MAP_HELD, true);
                }
            }
        } else if (md.way == WAY_PAIRS) {
            md.counted.applied = is_new;
            md.counted.repeats = !is_new;
            /* The sender keeps added pairs until this generation is harvested. */
            hdr.base.round = md.applied_in;
            hdr.map.index = md.committed;
            if (md.countless) {
                md.fate = FATE_MALFORMED;
            } else if (md.waits) {
                if (is_new) {
                    md.fate = FATE_COUNTED;
                } else {
                    md.counted.held = true;
                    answer(PC_KIND_MAP_HELD, true);
                }
            } else {
                hdr.bitmap.lanes = md.mark;
                if (md.mark != 0) {
                    say(PC_MAP_OVERFLOW);
                }
                if (hdr.map.to == PC_TO_SRC) {
                    answer(PC_KIND_MAP_ACK, (md.map_flags & PC_MAP_GET) == 0);
                } else if (hdr.map.to == PC_TO_SERVER) {
                    say(PC_MAP_REACHED);
                    md.fate = FATE_FORWARD;
                } else {
                    hdr.base.kind = PC_KIND_MAP_ACK;
                    md.fate = FATE_MULTICAST;
                    md.passing = false;
                }
            }
        } else if (md.way == WAY_LOCK) {
            md.counted.applied = is_new;
            md.counted.repeats = !is_new;
            if (md.outcome == LOCK_IS_PARKED) {
                say(PC_MAP_DIVERTED);
                md.fate = FATE_FORWARD;
            } else {
                if (md.outcome == LOCK_BUSY || md.outcome == LOCK_UNHELD) {
                    md.counted.denied = true;
                    say(PC_MAP_DENIED);
                }
                answer(PC_KIND_MAP_ACK, true);
            }
        } else if (md.way == WAY_VOTE) {
            md.counted.applied = is_new && md.ours;
            md.counted.repeats = !is_new;
            /* The round in which the frame took effect. */
            hdr.base.round = 1w0 ++ md.mark[31:1];
            if (!md.ours) {
                md.counted.diverted = true;
                say(PC_MAP_DIVERTED);
                md.fate = FATE_FORWARD;
            } else if ((md.map_flags & PC_MAP_CLEAR) != 0) {
                md.fate = FATE_FORWARD;
            } else if (md.mark[0:0] == 0) {
                if (md.decided && md.ballot_round == md.mark[31:1]) {
                    say(PC_MAP_REACHED);
                }
                answer(PC_KIND_MAP_ACK, true);
            } else if (md.decider == DECIDER_ELEMENT) {
                /* The vote that decided: the decision for all members, and for the voter on a repeat. */
                hdr.base.round = hdr.base.round + 1;
                md.counted.reached = true;
                say(PC_MAP_REACHED);
                if (is_new) {
                    hdr.base.kind = PC_KIND_MAP_SOFT;
                    md.fate = FATE_MULTICAST;
                    md.passing = false;
                } else {
                    answer(PC_KIND_MAP_SOFT, false);
                }
            } else {
                /* Also if the ballot was cleared meanwhile: the server may not have this vote yet. */
                md.counted.reached = true;
                say(PC_MAP_REACHED);
                md.fate = FATE_FORWARD;
            }
        } else if (md.way == WAY_BALLOT_QUERY) {
            if (md.ours && md.decided) {
                md.counted.reads = true;
                hdr.base.round = 1w0 ++ md.ballot_round;
                say(PC_MAP_REACHED);
                answer(PC_KIND_MAP_ACK, true);
            } else {
                md.fate = FATE_FORWARD;
            }
        } else if (md.way == WAY_RESULT) {
            md.counted.results = true;
            md.counted.clears = md.cleared;
            md.fate = (md.flags & PC_FLAG_MCAST) != 0 ? FATE_MULTICAST : FATE_FORWARD;
        } else if (md.way == WAY_DECIDED) {
            md.counted.results = true;
            md.fate = (md.flags & PC_FLAG_MCAST) != 0 ? FATE_MULTICAST : FATE_FORWARD;
        } else if (md.way == WAY_READ) {
            md.counted.reads = true;
            hdr.bitmap.lanes = all_lanes;
            answer(PC_KIND_MAP_VALUES, false);
        } else if (md.way == WAY_CLOSE) {
            md.counted.harvests = true;
            hdr.base.round = md.open;
            hdr.map.index = md.version;
            answer(PC_KIND_MAP_CLOSED, false);
        } else if (md.way == WAY_WIPE) {
            answer(PC_KIND_MAP_WIPED, false);
        } else if (md.way == WAY_MOVE) {
            answer(PC_KIND_MAP_MOVED, false);
        } else if (md.way == WAY_FREE) {
            answer(PC_KIND_MAP_FREED, false);
        }
    }
}
