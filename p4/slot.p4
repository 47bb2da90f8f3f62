/* SPDX-License-Identifier: Apache-2.0 */
/* Where an id belongs among so many slots: ids that follow each other are far apart. As the reference has it, by a
 * product of 64 bits (2^64 / golden ratio); where a target can't multiply, PC_SLOT_BY_CRC takes a hash instead,
 * and other ids meet in a slot. */

control SlotOf(in bit<64> id, in bit<32> slots, out bit<32> at) {
#ifndef PC_SLOT_BY_CRC
    bit<64> product = 0;
#endif

    apply {
#ifdef PC_SLOT_BY_CRC
        hash(at, HashAlgorithm.crc32, 32w0, { id }, slots);
#else
        product = id * 0x9e3779b97f4a7c15;
        product = (product >> 32) * (bit<64>) slots;
        at = product[63:32];
#endif
    }
}
