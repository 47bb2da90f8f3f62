/* SPDX-License-Identifier: Apache-2.0 */
/* Admission stage: only frames of what the controller has installed take effect (NetRPC 5.2.2, App. C; crates/program,
 * admit.rs and clone/admit.rs). Applications with tokens are not installed in a pipeline. */

/* Forwards a frame that is not admitted, if its addressee is known. */
control Refuse(inout headers hdr, inout metadata md) {
    apply {
        if (!md.known) {
            md.fate = FATE_NOT_ADMITTED;
        } else {
            md.fate = FATE_FORWARD;
            /* An element without the key cannot sign a changed frame, so the frame is left unchanged. */
            if ((md.flags & PC_FLAG_TOKEN) == 0) {
                hdr.base.flags = md.flags | PC_FLAG_NOT_ADMITTED;
                hdr.map.flags = md.map_flags;
            }
        }
    }
}

control Admit(inout headers hdr, inout metadata md) {
    Refuse() refuse;
    bool from_server = false;
    bool numbered = false;

    apply {
        from_server = (md.flags & PC_FLAG_FROM_SERVER) != 0;
        numbered = (hdr.base.kind == PC_KIND_MAP_DATA || hdr.base.kind == PC_KIND_MAP_PAIRS)
            && (md.flags & (PC_FLAG_FROM_SERVER | PC_FLAG_CROSS)) == 0;
        if (!md.installed) {
            refuse.apply(hdr, md);
        } else if ((md.flags & PC_FLAG_TOKEN) != 0) {
            md.counted.unauthentic = true;
            md.fate = FATE_UNAUTHENTIC;
        } else if (!md.sender_known || md.incarnation != hdr.base.src_incarnation || md.epoch != hdr.base.epoch) {
            md.counted.not_admitted = true;
            refuse.apply(hdr, md);
        } else if (from_server != (hdr.base.src == md.owner)) {
            md.fate = FATE_FORGED;
        } else if (numbered && hdr.base.slot - md.slot_base >= md.slots) {
            md.counted.not_admitted = true;
            refuse.apply(hdr, md);
        } else {
            md.counted.admitted = true;
            md.counted.ecn_marked = md.congested;
            hdr.base.flags = md.flags;
            hdr.map.flags = md.map_flags;
        }
    }
}

/* A caller sends requests, a server answers, each under its own id. */
control AdmitCall(inout headers hdr, inout metadata md) {
    Refuse() refuse;
    bool answers = false;

    apply {
        answers = hdr.base.kind == PC_KIND_CLONE_REPLY || hdr.base.kind == PC_KIND_CLONE_WORKING;
        if (!md.installed) {
            refuse.apply(hdr, md);
        } else if ((md.flags & PC_FLAG_TOKEN) != 0) {
            md.counted_call.unauthentic = true;
            md.fate = FATE_UNAUTHENTIC;
        } else if (!md.sender_known || md.incarnation != hdr.base.src_incarnation) {
            md.counted_call.not_admitted = true;
            refuse.apply(hdr, md);
        } else if (answers != ((md.flags & PC_FLAG_FROM_SERVER) != 0)) {
            md.fate = FATE_FORGED;
        } else if (md.sender_server != (answers ? (bit<32>) hdr.call.sid + 1 : 0)) {
            /* A server may report only its own state. */
            md.fate = FATE_FORGED;
        } else {
            md.counted_call.admitted = true;
            md.counted_call.ecn_marked = md.congested;
            hdr.base.flags = md.flags;
        }
    }
}
