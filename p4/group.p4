/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: ordered pairs of servers that a request may go to (NetClone 3.3; crates/program, clone/group.rs). The
 * controller fills the table with all pairs of a pool's servers. */

control Group(inout headers hdr, inout metadata md) {
    bool current = false;
    bool here = false;

    action pair(bit<16> first, bit<16> second) {
        md.first = first;
        md.second = second;
    }

    table groups {
        key = { hdr.base.gaid: exact; md.group: exact; }
        actions = { pair; NoAction; }
        default_action = NoAction();
        size = PC_PAIRS;
    }

    apply {
        if (md.way == WAY_REQUEST || md.way == WAY_CANCEL) {
            current = hdr.base.epoch == md.epoch;
            md.drawn = current && hdr.call.grp < md.groups;
            /* A request of another version is mapped to some pair, as any is valid. */
            hash(md.group, HashAlgorithm.identity, 32w0, { hdr.call.grp }, md.groups);
            if (groups.apply().hit) {
                here = true;
            }
            if (md.way == WAY_REQUEST) {
                if (!here) {
                    md.fate = FATE_UNKNOWN_ENDPOINT;
                }
            } else if (!here || !md.drawn || md.first == md.second
                       || (hdr.call.sid != md.first && hdr.call.sid != md.second)) {
                /* The other server that has the call is unknown, or there is none. */
                md.counted_call.stale_groups = true;
                md.fate = FATE_STALE;
            } else {
                md.counted_call.cancels = true;
                if (hdr.call.sid == md.first) {
                    md.first = md.second;
                }
                md.decision = TO_FIRST;
            }
        }
    }
}
