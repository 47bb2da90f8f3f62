/* SPDX-License-Identifier: Apache-2.0 */
/* Strips the lanes of a frame: headers and bitmap remain (crates/wire, MapFrame::strip). A payload after the lanes was
 * not parsed and cannot be removed: it remains after the datagram's end, as a trailer that receivers ignore. */

control Strip(inout headers hdr, inout metadata md) {
    apply {
        md.map_flags = md.map_flags | PC_MAP_BARE;
        hdr.map.flags = md.map_flags;
        hdr.map.payload_len = 0;
        hdr.base.length = md.lanes_at;
        hdr.lanes[0].setInvalid();
        hdr.lanes[1].setInvalid();
        hdr.lanes[2].setInvalid();
        hdr.lanes[3].setInvalid();
        hdr.lanes[4].setInvalid();
        hdr.lanes[5].setInvalid();
        hdr.lanes[6].setInvalid();
        hdr.lanes[7].setInvalid();
        hdr.lanes[8].setInvalid();
        hdr.lanes[9].setInvalid();
        hdr.lanes[10].setInvalid();
        hdr.lanes[11].setInvalid();
        hdr.lanes[12].setInvalid();
        hdr.lanes[13].setInvalid();
        hdr.lanes[14].setInvalid();
        hdr.lanes[15].setInvalid();
#if PC_ARRAYS > 16
        hdr.lanes[16].setInvalid();
        hdr.lanes[17].setInvalid();
        hdr.lanes[18].setInvalid();
        hdr.lanes[19].setInvalid();
        hdr.lanes[20].setInvalid();
        hdr.lanes[21].setInvalid();
        hdr.lanes[22].setInvalid();
        hdr.lanes[23].setInvalid();
        hdr.lanes[24].setInvalid();
        hdr.lanes[25].setInvalid();
        hdr.lanes[26].setInvalid();
        hdr.lanes[27].setInvalid();
        hdr.lanes[28].setInvalid();
        hdr.lanes[29].setInvalid();
        hdr.lanes[30].setInvalid();
        hdr.lanes[31].setInvalid();
#endif
        hdr.pairs[0].setInvalid();
        hdr.pairs[1].setInvalid();
        hdr.pairs[2].setInvalid();
        hdr.pairs[3].setInvalid();
        hdr.pairs[4].setInvalid();
        hdr.pairs[5].setInvalid();
        hdr.pairs[6].setInvalid();
        hdr.pairs[7].setInvalid();
        hdr.pairs[8].setInvalid();
        hdr.pairs[9].setInvalid();
        hdr.pairs[10].setInvalid();
        hdr.pairs[11].setInvalid();
        hdr.pairs[12].setInvalid();
        hdr.pairs[13].setInvalid();
        hdr.pairs[14].setInvalid();
        hdr.pairs[15].setInvalid();
#if PC_ARRAYS > 16
        hdr.pairs[16].setInvalid();
        hdr.pairs[17].setInvalid();
        hdr.pairs[18].setInvalid();
        hdr.pairs[19].setInvalid();
        hdr.pairs[20].setInvalid();
        hdr.pairs[21].setInvalid();
        hdr.pairs[22].setInvalid();
        hdr.pairs[23].setInvalid();
        hdr.pairs[24].setInvalid();
        hdr.pairs[25].setInvalid();
        hdr.pairs[26].setInvalid();
        hdr.pairs[27].setInvalid();
        hdr.pairs[28].setInvalid();
        hdr.pairs[29].setInvalid();
        hdr.pairs[30].setInvalid();
        hdr.pairs[31].setInvalid();
#endif
#ifdef PC_TWO_PASSES
        hdr.lower_16.setInvalid();
        hdr.lower_32.setInvalid();
        hdr.later_32.setInvalid();
        hdr.later_16.setInvalid();
        hdr.later_8.setInvalid();
        hdr.later_4.setInvalid();
        hdr.later_2.setInvalid();
        hdr.later_1.setInvalid();
#endif
        hdr.entry.setInvalid();
        hdr.key_words[0].setInvalid();
        hdr.key_words[1].setInvalid();
        hdr.key_words[2].setInvalid();
        hdr.key_words[3].setInvalid();
        hdr.key_words[4].setInvalid();
        hdr.key_words[5].setInvalid();
        hdr.key_words[6].setInvalid();
        hdr.key_words[7].setInvalid();
        hdr.key_tail1.setInvalid();
        hdr.key_tail2.setInvalid();
        hdr.key_tail3.setInvalid();
        hdr.entry_value.setInvalid();
    }
}
