//! Hashes and checksums in C: the inputs one after another, the highest bit first, and zero bits to whole bytes.

use std::fmt::Write;

use super::bits::{computed, masked};
use super::{Emitter, Unsupported};
use crate::ir::{Expr, HashAlgorithm, SlotId, Stmt, StmtKind};

/// Bytes that a CRC takes at once.
const STEP: u32 = 8;

/// An input: its name in C, its width, and how many bits are before it.
struct Input {
    name: String,
    width: u16,
    first: u32,
}

impl Emitter<'_> {
    /// `to = base + hash % max`.
    pub(super) fn hash(&mut self, to: SlotId, algorithm: HashAlgorithm, base: &Expr, inputs: &[Expr], max: &Expr) {
        self.braced("", |this| {
            let inputs = this.inputs(inputs);
            this.mix(algorithm, &inputs, false);
            let width = this.plan.program.width(to);
            this.variable("base", base);
            this.variable("max", max);
            let within = if max.ty.width() > 64 {
                "(!max || max >> 64 ? (max ? hash : 0) : hash % (u64)max)"
            } else {
                "(max ? hash % max : 0)"
            };
            let sum = format!("(({})base + {within})", computed(width));
            this.assign(to, &masked(&sum, width));
        });
    }

    /// Makes `hash` the checksum of the inputs, and of the payload if said.
    pub(super) fn digest_of(
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
        let inputs = self.inputs(inputs);
        self.mix(algorithm, &inputs, payload);
        Ok(())
    }

    fn inputs(&mut self, exprs: &[Expr]) -> Vec<Input> {
        let mut first = 0;
        let mut inputs = Vec::new();
        for (i, expr) in exprs.iter().enumerate() {
            let (name, width) = (format!("in_{i}"), expr.ty.width());
            self.variable(&name, expr);
            inputs.push(Input { name, width, first });
            first += u32::from(width);
        }
        inputs
    }

    fn mix(&mut self, algorithm: HashAlgorithm, inputs: &[Input], payload: bool) {
        let bits = inputs.iter().map(|input| u32::from(input.width)).sum::<u32>();
        let bytes = bits.div_ceil(8);
        match algorithm {
            HashAlgorithm::Csum16 => {
                self.line("u64 hash = 0;");
                self.line("");
                // Modulo 2^16 - 1 it is the same where in a longer word a word of 16 bits stands.
                for (piece, up) in pieces(inputs, bytes.next_multiple_of(2) * 8) {
                    self.line(&format!("hash += {piece} << {up};"));
                }
                if payload {
                    let odd = bytes % 2;
                    let cur = self.plan.held("cur");
                    self.line(&format!("hash += payload_sum(xdp, {cur}, {odd});"));
                }
                self.line("hash = ~fold(hash) & 0xffff;");
            }
            HashAlgorithm::Xor16 => {
                self.line("u64 hash = 0;");
                self.line("");
                for (piece, up) in pieces(inputs, bytes.next_multiple_of(2) * 8) {
                    self.line(&format!("hash ^= {piece} << {up};"));
                }
                self.line("hash = (hash ^ hash >> 16 ^ hash >> 32) & 0xffff;");
            }
            HashAlgorithm::Identity => {
                let mut value = String::from("0ULL");
                for i in 0..bytes.min(8) {
                    value = format!("({value} << 8 | {})", byte(inputs, i));
                }
                self.line(&format!("u64 hash = {value};"));
            }
            HashAlgorithm::Crc32 | HashAlgorithm::Crc16 => {
                let (holder, start) = match algorithm {
                    HashAlgorithm::Crc32 => ("__u32", "0xffffffff"),
                    _ => ("__u16", "0"),
                };
                self.line(&format!("{holder} crc = {start};"));
                self.line("");
                if algorithm == HashAlgorithm::Crc32 {
                    self.crc32(inputs, bytes);
                } else {
                    for i in 0..bytes {
                        self.line(&format!("crc = crc16[LOW_BYTE(crc ^ {})] ^ crc >> 8;", byte(inputs, i)));
                    }
                }
                let turned = if algorithm == HashAlgorithm::Crc32 { "(__u32)~crc" } else { "crc" };
                self.line(&format!("u64 hash = {turned};"));
            }
        }
    }

    /// Up to eight bytes at a time: their look-ups do not wait for one another.
    fn crc32(&mut self, inputs: &[Input], bytes: u32) {
        self.line("const __u32 *sums = held(&crc32_8[0][0]);");
        self.line("");
        for first in (0..bytes).step_by(STEP as usize) {
            let count = STEP.min(bytes - first);
            let four: Vec<_> = (0..count.min(4)).map(|i| format!("{} << {}", byte(inputs, first + i), i * 8)).collect();
            self.line(&format!("crc ^= {};", four.join(" | ")));
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
            // What fewer bytes have not reached.
            if count < 4 {
                parts.push(format!("crc >> {}", count * 8));
            }
            self.line(&format!("crc = {};", parts.join(" ^ ")));
        }
    }

    /// Tables and functions of the algorithms that the program uses.
    pub(super) fn hash_tables(&mut self) {
        let (mut used, mut payloads) = (Vec::new(), false);
        crate::emit::walk::statements(self.plan.program, &mut |stmt| match &stmt.kind {
            StmtKind::Hash { algorithm, .. } => used.push(*algorithm),
            StmtKind::Checksum { algorithm, payload, .. } | StmtKind::Verify { algorithm, payload, .. } => {
                used.push(*algorithm);
                payloads |= payload;
            }
            _ => {}
        });
        if used.contains(&HashAlgorithm::Crc32) {
            let table = crc_table(0xedb8_8320);
            self.line("/* What a byte adds, and what it adds that one, two, ... more come behind. */");
            self.line("static const __u32 crc32_8[8][256] = {{");
            let mut longer = table;
            for i in 0..STEP {
                self.numbers_within(&longer);
                longer = longer.map(|crc| crc >> 8 ^ table[(crc & 0xff) as usize]);
                self.line(if i + 1 < STEP { "}, {" } else { "}};" });
            }
            self.line("");
        }
        if used.contains(&HashAlgorithm::Crc16) {
            self.line("static const __u16 crc16[256] = {");
            self.numbers(&crc_table(0xa001));
        }
        if payloads {
            for line in include_str!("payload.h").lines() {
                self.line(line);
            }
            self.line("");
        }
    }

    fn numbers(&mut self, numbers: &[u32; 256]) {
        self.numbers_within(numbers);
        self.line("};");
        self.line("");
    }

    fn numbers_within(&mut self, numbers: &[u32; 256]) {
        for row in numbers.chunks(8) {
            let mut line = String::from("\t");
            for number in row {
                let _ = write!(line, "{number:#x}, ");
            }
            self.line(line.trim_end());
        }
    }
}

/// What each byte adds to a sum of this polynomial, its bits the other way round.
fn crc_table(polynomial: u32) -> [u32; 256] {
    std::array::from_fn(|byte| (0..8).fold(byte as u32, |crc, _| crc >> 1 ^ if crc & 1 == 1 { polynomial } else { 0 }))
}

/// All inputs in pieces of at most 32 bits, each with how far left its lowest bit is within its word of 16 bits, when
/// zero bits fill them to `end`.
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
