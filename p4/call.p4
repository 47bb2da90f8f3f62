/* SPDX-License-Identifier: Apache-2.0 */
/* Calls to a pool of servers: the element steers each call, may clone it, and filters the slower answer (NetClone;
 * crates/program, clone/mod.rs).
 *
 *   request -> admit -> number -> group -> load, shadow -> request -> address -> forward | twice
 *   reply ---> admit --------------------> load, shadow -----------------------> filter -> forward | drop
 *   cancel --> admit -----------> group -----------------------------> address -> forward
 *   second pass of a request ------------------------------------------> address -> forward
 */

control CallStages(inout headers hdr, inout metadata md) {
    AdmitCall() admit;
    Number() number;
    Group() group;
    Load() load;
    Request() requests;
    Address() address;
    Filter() filter;

    /* Id of this element among those on a call's path (NetClone 3.7). */
    action switch_id(bit<16> id) {
        md.switch_id = id;
    }

    table identity {
        actions = { switch_id; }
        default_action = switch_id(1);
    }

    apply {
        if (md.second_pass) {
            md.way = WAY_CLONE;
        } else {
            identity.apply();
            admit.apply(hdr, md);
        }
        if (md.fate == FATE_NONE && !md.second_pass) {
            if ((md.flags & PC_FLAG_CROSS) != 0
                || (hdr.call.switch_id != 0 && hdr.call.switch_id != md.switch_id)) {
                /* Only the first element on the path processes a call. */
                md.counted_call.passed = true;
                md.fate = FATE_FORWARD;
            } else if (hdr.base.kind == PC_KIND_CLONE_REQUEST) {
                md.way = WAY_REQUEST;
            } else if (hdr.base.kind == PC_KIND_CLONE_REPLY) {
                md.way = WAY_REPLY;
                md.counted_call.replies = true;
            } else if (hdr.base.kind == PC_KIND_CLONE_CANCEL) {
                md.way = WAY_CANCEL;
            } else {
                md.way = WAY_WORKING;
                md.counted_call.replies = true;
            }
        }
        if (md.fate == FATE_NONE) {
            number.apply(hdr, md);
        }
        if (md.fate == FATE_NONE && md.way == WAY_REQUEST) {
            hdr.call.switch_id = md.switch_id;
            hdr.call.clo = 0;
            hdr.call.sid = 0;
            if ((hdr.call.flags & PC_CLONE_DIRECT) != 0) {
                /* The request goes to the server that it is addressed to. */
                md.counted_call.direct = true;
                md.fate = md.addressee_server != 0 ? FATE_FORWARD : FATE_UNKNOWN_ENDPOINT;
            }
        }
        if (md.fate == FATE_NONE) {
            group.apply(hdr, md);
        }
        if (md.fate == FATE_NONE) {
            load.apply(hdr, md);
            requests.apply(hdr, md);
            if (md.way == WAY_REQUEST) {
                md.counted_call.requests = true;
                md.counted_call.stale_groups = !md.drawn;
                md.counted_call.clones = md.decision == TO_BOTH;
                md.counted_call.shorter = md.decision == TO_SECOND;
            }
            if (md.way == WAY_REQUEST || md.way == WAY_CANCEL || md.way == WAY_CLONE) {
                address.apply(hdr, md);
            } else {
                filter.apply(hdr, md);
                if (md.fate == FATE_NONE) {
                    md.fate = FATE_FORWARD;
                }
            }
        }
    }
}
