// Calculator: packets with two numbers and an operator return with the result.
#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> dstAddr;
    bit<48> srcAddr;
    bit<16> etherType;
}

const bit<16> CALC_TYPE = 0x1234;
const bit<8> CALC_P = 0x50; // 'P'
const bit<8> CALC_4 = 0x34; // '4'
const bit<8> CALC_VERSION = 0x01;

header calc_t {
    bit<8> p;
    bit<8> four;
    bit<8> version;
    bit<8> op;
    bit<32> operand_a;
    bit<32> operand_b;
    bit<32> res;
}

struct headers {
    ethernet_t ethernet;
    calc_t calc;
}

struct metadata { }

parser MyParser(packet_in packet, out headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.etherType) {
            CALC_TYPE: check_calc;
            default: accept;
        }
    }
    state check_calc {
        transition select(packet.lookahead<calc_t>().p, packet.lookahead<calc_t>().four,
                          packet.lookahead<calc_t>().version) {
            (CALC_P, CALC_4, CALC_VERSION): parse_calc;
            default: accept;
        }
    }
    state parse_calc {
        packet.extract(hdr.calc);
        transition accept;
    }
}

control MyVerifyChecksum(inout headers hdr, inout metadata meta) { apply { } }

control MyIngress(inout headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) {
    action send_back(bit<32> result) {
        hdr.calc.res = result;
        bit<48> mac = hdr.ethernet.dstAddr;
        hdr.ethernet.dstAddr = hdr.ethernet.srcAddr;
        hdr.ethernet.srcAddr = mac;
        standard_metadata.egress_spec = standard_metadata.ingress_port;
    }
    action operation_add() { send_back(hdr.calc.operand_a + hdr.calc.operand_b); }
    action operation_sub() { send_back(hdr.calc.operand_a - hdr.calc.operand_b); }
    action operation_and() { send_back(hdr.calc.operand_a & hdr.calc.operand_b); }
    action operation_or() { send_back(hdr.calc.operand_a | hdr.calc.operand_b); }
    action operation_xor() { send_back(hdr.calc.operand_a ^ hdr.calc.operand_b); }
    action operation_drop() { mark_to_drop(standard_metadata); }

    table calculate {
        key = {
            hdr.calc.op: exact;
        }
        actions = {
            operation_add;
            operation_sub;
            operation_and;
            operation_or;
            operation_xor;
            operation_drop;
        }
        const default_action = operation_drop();
        const entries = {
            0x2b: operation_add();
            0x2d: operation_sub();
            0x26: operation_and();
            0x7c: operation_or();
            0x5e: operation_xor();
        }
    }

    apply {
        if (hdr.calc.isValid()) {
            calculate.apply();
        } else {
            operation_drop();
        }
    }
}

control MyEgress(inout headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) { apply { } }

control MyComputeChecksum(inout headers hdr, inout metadata meta) { apply { } }

control MyDeparser(packet_out packet, in headers hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.calc);
    }
}

V1Switch(
    MyParser(),
    MyVerifyChecksum(),
    MyIngress(),
    MyEgress(),
    MyComputeChecksum(),
    MyDeparser()
) main;
