/* SPDX-License-Identifier: Apache-2.0 */
/* Slot of an id: consecutive ids are far apart. The reference uses a 64-bit product (2^64 / golden ratio). On targets
 * without multiplication, PC_SLOT_BY_CRC uses a hash instead, with other collisions. */

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
