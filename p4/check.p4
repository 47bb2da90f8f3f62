/* SPDX-License-Identifier: Apache-2.0 */
/* Check of a packet: whether it is a complete frame for this element (crates/wire, MapFrame and
 * CloneFrame::new_checked). Frames are addressed to the element (overlay), or to an endpoint (inline). */

control Check(inout headers hdr, inout metadata md, in standard_metadata_t sm) {
    bool ours = false;
    bool whole = false;
    bit<32> frame_len = 0;
    bit<32> headers_len = 0;
    bit<32> lanes = 0;
    bit<32> lanes_len = 0;

    /* Addresses of the element; packets to these addresses are frames. */
    table own {
        key = { hdr.ipv4.dst: exact; hdr.udp.dst: exact; }
        actions = { NoAction; }
        default_action = NoAction();
        size = 16;
    }

    apply {
        if (hdr.udp.isValid()) {
            if (own.apply().hit) {
                ours = true;
                md.passing = false;
            } else if (md.second_pass) {
                /* The packet is addressed to a server already. */
                md.passing = true;
            }
        }
        frame_len = (bit<32>) hdr.udp.len - 8;
        whole = hdr.base.isValid() && sm.checksum_error == 0 && hdr.base.length == hdr.udp.len - UDP_LEN
            && hdr.ipv4.total_len == hdr.udp.len + 20 && sm.packet_length >= frame_len + FRAME_AT;
        headers_len = PC_BASE_LEN;
        if (hdr.token.isValid()) {
            headers_len = headers_len + PC_TOKEN_LEN;
        }
        if (hdr.call.isValid()) {
            whole = whole && frame_len == headers_len + PC_CLONE_LEN + (bit<32>) hdr.call.payload_len
                && hdr.call.clo <= PC_CLO_CLONE && (hdr.call.flags & ~PC_CLONE_ALL) == 0
                && hdr.call.parts >= 1 && hdr.call.parts <= PC_MAX_PARTS && hdr.call.part < hdr.call.parts;
        } else {
            lanes = (bit<32>) hdr.map.lanes;
            headers_len = headers_len + PC_MAP_LEN + ((lanes + 31) >> 5 << 2);
            if ((hdr.map.flags & PC_MAP_BARE) != 0) {
                lanes_len = 0;
            } else if ((hdr.map.flags & (PC_MAP_LINEAR | PC_MAP_WIDE)) == PC_MAP_LINEAR) {
                lanes_len = lanes << 2;
            } else {
                lanes_len = lanes << 3;
            }
            whole = whole && hdr.map.isValid() && hdr.map.op < PC_OPS && hdr.map.to < PC_TARGETS
                && frame_len == headers_len + lanes_len + (bit<32>) hdr.map.payload_len;
            md.lanes_at = (bit<16>) headers_len;
        }
        md.congested = hdr.ipv4.ecn == ECN_CE;
        md.flags = hdr.base.flags & ~PC_FLAG_NOT_ADMITTED;
        if (md.congested) {
            md.flags = md.flags | PC_FLAG_ECN;
        }
        md.map_flags = hdr.map.flags & ~PC_MAP_ELEMENT_ONLY;
        if (!ours && !(md.passing && whole)) {
            md.fate = FATE_ROUTE;
        } else if (!whole) {
            md.fate = FATE_MALFORMED;
        }
    }
}
