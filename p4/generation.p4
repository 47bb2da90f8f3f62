/* SPDX-License-Identifier: Apache-2.0 */
/* Generation stage of keyed values: the server harvests one closed generation after the other (crates/program,
 * generation.rs). Indexed by the application's first row. */

control GenerationStage(inout headers hdr, inout metadata md) {
    /* Open generation, and the last one whose values the server has. */
    register<bit<64>>(PC_ROWS) opens;
    /* Copy of the open generation, so that the two arrays do not depend on each other; version of the mapping. */
    register<bit<64>>(PC_ROWS) versions;
    bit<64> state = 0;
    bit<64> mapping = 0;
    bit<32> following = 0;
    bool commits_now = false;

    apply {
        if (md.way == WAY_PAIRS || md.way == WAY_CLOSE || md.way == WAY_WIPE) {
            opens.read(state, md.row_base);
            md.open = state[63:32];
            md.committed = state[31:0];
            /* Otherwise the bank may be in use again, or was never closed: a late wipe must not touch newer
             * values. */
            commits_now = md.way == WAY_WIPE && md.open == hdr.base.round + 1;
            if (md.way == WAY_CLOSE && hdr.base.round == md.open) {
                following = md.open + 1 == 0 ? 32w1 : md.open + 1;
                /* The server closes a generation only after the harvest of all earlier ones. */
                opens.write(md.row_base, following ++ (md.open - 1));
            } else if (commits_now) {
                opens.write(md.row_base, md.open ++ hdr.base.round);
            }

            versions.read(mapping, md.row_base);
            md.open = mapping[63:32];
            md.version = mapping[31:0];
            if (md.way == WAY_CLOSE && hdr.base.round == md.open) {
                following = md.open + 1 == 0 ? 32w1 : md.open + 1;
                versions.write(md.row_base, following ++ hdr.map.index);
                md.open = following;
                md.version = hdr.map.index;
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
