/* SPDX-License-Identifier: Apache-2.0 */
/* Generation stage of keyed values: the server harvests one closed generation after the other (crates/program,
 * generation.rs). Indexed by the application's first row. */

control GenerationStage(inout headers hdr, inout metadata md) {
    register<bit<32>>(PC_ROWS) opens;
    register<bit<32>>(PC_ROWS) commits;
    register<bit<32>>(PC_ROWS) versions;
    bool closes = false;
    bool commits_now = false;

    apply {
        if (md.way == WAY_PAIRS || md.way == WAY_CLOSE || md.way == WAY_WIPE) {
            opens.read(md.open, md.row_base);
            closes = md.way == WAY_CLOSE && hdr.base.round == md.open;
            /* Otherwise the bank may be in use again, or was never closed: a late wipe must not touch newer
             * values. */
            commits_now = md.way == WAY_WIPE && md.open == hdr.base.round + 1;
            if (closes) {
                opens.write(md.row_base, md.open + 1 == 0 ? 32w1 : md.open + 1);
            }

            commits.read(md.committed, md.row_base);
            if (closes) {
                /* The server closes a generation only after the harvest of all earlier ones. */
                commits.write(md.row_base, md.open - 1);
            } else if (commits_now) {
                commits.write(md.row_base, hdr.base.round);
            }

            versions.read(md.version, md.row_base);
            if (closes) {
                versions.write(md.row_base, hdr.map.index);
                md.version = hdr.map.index;
                md.open = md.open + 1 == 0 ? 32w1 : md.open + 1;
            }
            /* Generation g is in bank g mod 2. */
            md.bank = md.open & 1;
            if (commits_now) {
                md.work = WORK_ZERO;
                md.bank = hdr.base.round & 1;
            }
        }
    }
}
