//! Hashes and checksums in C. Inputs are concatenated, most significant bit first, and padded with zero bits to whole
//! bytes.

use std::fmt::Write;

use super::bits::{computed, masked};
use super::{Emitter, Unsupported};
use crate::ir::{Expr, HashAlgorithm, SlotId, Stmt, StmtKind};

/// Number of bytes that one CRC step takes.
const STEP: u32 = 8;

/// Hash input: C name, width and bit offset.
struct Input {
    name: String,
    width: u16,
    first: u32,
}

impl Emitter<'_> {
    /// Emits `to = base + hash % max`.
    pub(super) fn emit_hash(&mut self, to: SlotId, algorithm: HashAlgorithm, base: &Expr, inputs: &[Expr], max: &Expr) {
        self.write_braced("", |this| {
            let inputs = this.declare_inputs(inputs);
            this.emit_mix(algorithm, &inputs, false);
            let width = this.plan.program.width(to);
            this.emit_variable("base", base);
            this.emit_variable("max", max);
            let within = if max.ty.width() > 64 {
                "(!max || max >> 64 ? (max ? hash : 0) : hash % (u64)max)"
            } else {
                "(max ? hash % max : 0)"
            };
            let sum = format!("(({})base + {within})", computed(width));
            this.emit_assign(to, &masked(&sum, width));
        });
    }

    /// Computes `hash`, the checksum of the inputs and, if requested, the payload.
    pub(super) fn emit_checksum(
        &mut self,
        algorithm: HashAlgorithm,
        inputs: &[Expr],
        payload: bool,
        stmt: &Stmt,
    ) -> Result<(), Unsupported> {
        if payload && algorithm != HashAlgorithm::Csum16 {
            let construct = format!("{algorithm:?} over a payload");
            return Err(Unsupported { construct, why: "only csum16 goes over payloads", at: stmt.at });
        }
        let inputs = self.declare_inputs(inputs);
        self.emit_mix(algorithm, &inputs, payload);
        Ok(())
    }

    fn declare_inputs(&mut self, exprs: &[Expr]) -> Vec<Input> {
        let mut first = 0;
        let mut inputs = Vec::new();
        for (i, expr) in exprs.iter().enumerate() {
            let (name, width) = (format!("in_{i}"), expr.ty.width());
            self.emit_variable(&name, expr);
            inputs.push(Input { name, width, first });
            first += u32::from(width);
        }
        inputs
    }

    fn emit_mix(&mut self, algorithm: HashAlgorithm, inputs: &[Input], payload: bool) {
        let bits = inputs.iter().map(|input| u32::from(input.width)).sum::<u32>();
        let bytes = bits.div_ceil(8);
        match algorithm {
            HashAlgorithm::Csum16 => {
                self.write_line("u64 hash = 0;");
                self.write_line("");
                // Modulo 2^16 - 1 the position of a 16-bit word within a longer word makes no difference.
                for (piece, up) in pieces(inputs, bytes.next_multiple_of(2) * 8) {
                    self.write_line(&format!("hash += {piece} << {up};"));
                }
                if payload {
                    let odd = bytes % 2;
                    let cur = self.plan.packet_variable("cur");
                    self.write_line(&format!("hash += payload_sum(xdp, {cur}, {odd});"));
                }
                self.write_line("hash = ~fold(hash) & 0xffff;");
            }
            HashAlgorithm::Xor16 => {
                self.write_line("u64 hash = 0;");
                self.write_line("");
                for (piece, up) in pieces(inputs, bytes.next_multiple_of(2) * 8) {
                    self.write_line(&format!("hash ^= {piece} << {up};"));
                }
                self.write_line("hash = (hash ^ hash >> 16 ^ hash >> 32) & 0xffff;");
            }
            HashAlgorithm::Identity => {
                let mut value = String::from("0ULL");
                for i in 0..bytes.min(8) {
                    value = format!("({value} << 8 | {})", byte(inputs, i));
                }
                self.write_line(&format!("u64 hash = {value};"));
            }
            HashAlgorithm::Crc32 | HashAlgorithm::Crc16 => {
                let (holder, start) = match algorithm {
                    HashAlgorithm::Crc32 => ("__u32", "0xffffffff"),
                    _ => ("__u16", "0"),
                };
                self.write_line(&format!("{holder} crc = {start};"));
                self.write_line("");
                if algorithm == HashAlgorithm::Crc32 {
                    self.emit_crc32(inputs, bytes);
                } else {
                    for i in 0..bytes {
                        self.write_line(&format!("crc = crc16[LOW_BYTE(crc ^ {})] ^ crc >> 8;", byte(inputs, i)));
                    }
                }
                let turned = if algorithm == HashAlgorithm::Crc32 { "(__u32)~crc" } else { "crc" };
                self.write_line(&format!("u64 hash = {turned};"));
            }
        }
    }

    /// Up to eight bytes at a time, with independent table lookups.
    fn emit_crc32(&mut self, inputs: &[Input], bytes: u32) {
        self.write_line("const __u32 *sums = held(&crc32_8[0][0]);");
        self.write_line("");
        for first in (0..bytes).step_by(STEP as usize) {
            let count = STEP.min(bytes - first);
            let four: Vec<_> = (0..count.min(4)).map(|i| format!("{} << {}", byte(inputs, first + i), i * 8)).collect();
            self.write_line(&format!("crc ^= {};", four.join(" | ")));
            let mut parts: Vec<String> = (0..count)
                .map(|i| {
                    let of = match i {
                        0 => "crc".to_owned(),
                        1..4 => format!("crc >> {}", i * 8),
                        _ => byte(inputs, first + i),
                    };
                    format!("sums[{} + LOW_BYTE({of})]", (count - 1 - i) * 256)
                })
                .collect();
            // Bytes of the state that a step shorter than four bytes leaves.
            if count < 4 {
                parts.push(format!("crc >> {}", count * 8));
            }
            self.write_line(&format!("crc = {};", parts.join(" ^ ")));
        }
    }

    /// Emits the tables and functions of the algorithms that the program uses.
    pub(super) fn emit_hash_tables(&mut self) {
        let (mut used, mut payloads) = (Vec::new(), false);
        crate::emit::visit::statements(self.plan.program, &mut |stmt| match &stmt.kind {
            StmtKind::Hash { algorithm, .. } => used.push(*algorithm),
            StmtKind::Checksum { algorithm, payload, .. } | StmtKind::Verify { algorithm, payload, .. } => {
                used.push(*algorithm);
                payloads |= payload;
            }
            _ => {}
        });
        if used.contains(&HashAlgorithm::Crc32) {
            let table = crc_table(0xedb8_8320);
            self.write_line("/* What a byte adds, and what it adds that one, two, ... more come behind. */");
            self.write_line("static const __u32 crc32_8[8][256] = {{");
            let mut longer = table;
            for i in 0..STEP {
                self.emit_numbers(&longer);
                longer = longer.map(|crc| crc >> 8 ^ table[(crc & 0xff) as usize]);
                self.write_line(if i + 1 < STEP { "}, {" } else { "}};" });
            }
            self.write_line("");
        }
        if used.contains(&HashAlgorithm::Crc16) {
            self.write_line("static const __u16 crc16[256] = {");
            self.emit_number_table(&crc_table(0xa001));
        }
        if payloads {
            for line in include_str!("payload.h").lines() {
                self.write_line(line);
            }
            self.write_line("");
        }
    }

    fn emit_number_table(&mut self, numbers: &[u32; 256]) {
        self.emit_numbers(numbers);
        self.write_line("};");
        self.write_line("");
    }

    fn emit_numbers(&mut self, numbers: &[u32; 256]) {
        for row in numbers.chunks(8) {
            let mut line = String::from("\t");
            for number in row {
                let _ = write!(line, "{number:#x}, ");
            }
            self.write_line(line.trim_end());
        }
    }
}

/// Lookup table of a reflected CRC polynomial.
fn crc_table(polynomial: u32) -> [u32; 256] {
    std::array::from_fn(|byte| (0..8).fold(byte as u32, |crc, _| crc >> 1 ^ if crc & 1 == 1 { polynomial } else { 0 }))
}

/// Splits the inputs into pieces of at most 32 bits, each with the left shift of its lowest bit within a 16-bit word,
/// when zero bits pad the inputs to `end`.
fn pieces(inputs: &[Input], end: u32) -> Vec<(String, u32)> {
    let mut pieces = Vec::new();
    for Input { name, width, first } in inputs {
        let up = (end - first - u32::from(*width)) % 16;
        for low in (0..*width).step_by(32) {
            let piece = match (low, *width) {
                (0, ..=32) => name.clone(),
                (_, ..=64) => format!("({name} >> {low} & 0xffffffffULL)"),
                _ => format!("((u64)({name} >> {low}) & 0xffffffffULL)"),
            };
            pieces.push((piece, up));
        }
    }
    pieces
}

/// Byte `i` of the inputs.
fn byte(inputs: &[Input], i: u32) -> String {
    let (from, to) = (i * 8, i * 8 + 8);
    let mut parts = Vec::new();
    for Input { name, width, first } in inputs {
        let end = first + u32::from(*width);
        let (start, stop) = (from.max(*first), to.min(end));
        if start >= stop {
            continue;
        }
        let (down, up) = (end - stop, to - stop);
        let mut part = if down == 0 { name.clone() } else { format!("({name} >> {down})") };
        part = format!("((__u32){part} & {:#x})", (1_u32 << (stop - start)) - 1);
        parts.push(if up == 0 { part } else { format!("({part} << {up})") });
    }
    if parts.len() == 1 { parts.remove(0) } else { format!("({})", parts.join(" | ")) }
}
