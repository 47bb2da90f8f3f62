/* SPDX-License-Identifier: Apache-2.0 */
/* Stream.modify: operators of NetRPC Table 8 (crates/wire, OpType::apply). */

control Modify(inout bit<32> value, in bit<8> op, in bit<32> para) {
    apply {
        if (op == PC_OP_MAX) {
            value = (int<32>) value > (int<32>) para ? value : para;
        } else if (op == PC_OP_MIN) {
            value = (int<32>) value < (int<32>) para ? value : para;
        } else if (op == PC_OP_ADD) {
            value = (bit<32>) ((int<32>) value |+| (int<32>) para);
        } else if (op == PC_OP_ASSIGN) {
            value = para;
        } else if (op == PC_OP_SHIFT_L) {
            value = para >= 32 ? 0 : value << para[7:0];
        } else if (op == PC_OP_SHIFT_R) {
            value = (bit<32>) ((int<32>) value >> (para >= 32 ? 8w31 : para[7:0]));
        } else if (op == PC_OP_BAND) {
            value = value & para;
        } else if (op == PC_OP_BOR) {
            value = value | para;
        } else if (op == PC_OP_BNOT) {
            value = ~value;
        } else if (op == PC_OP_BXOR) {
            value = value ^ para;
        }
    }
}
