//! Runs [`Code`]: the values of one packet, and the memory that outlives it.

use super::arithmetic::{binary, cast, unary};
use super::bits::{self, mask};
use super::code::{Code, Op, Range, V};
use super::hash::hash;
use super::memory::{Call, Memory};
use super::{CLONES_MAX, Remote, Verdict};
use crate::exec::{Output, PARSER_ROUNDS_MAX};
use crate::ir::{HeaderId, SlotId};

/// Errors of a parser (P4_16 core).
const PACKET_TOO_SHORT: u16 = 1;
const HEADER_TOO_SHORT: u16 = 4;
const PARSER_TIMEOUT: u16 = 5;
const INVALID_ARGUMENT: u16 = 6;

/// How a block ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// At its end.
    Done,
    /// The parser refused the packet.
    Rejected(u16),
    /// The handler ended the packet.
    Dropped,
}

/// The values of one packet.
#[derive(Debug)]
pub struct Machine {
    pub values: Vec<u128>,
    /// Whether the packet comes in once more.
    pub recirculate: bool,
    /// Bits that the parser took.
    cursor: usize,
    /// Where inputs of a hash are laid out.
    scratch: Vec<u8>,
    /// Values of a digest.
    told: Vec<u128>,
    /// `Apply`s to go back to.
    stack: Vec<u32>,
    clones: Vec<Clone>,
    clones_waiting: usize,
    clones_left: usize,
    clones_lost: usize,
}

/// A packet that `clone` left: its values then, and its port.
#[derive(Debug)]
struct Clone {
    values: Vec<u128>,
    port: u16,
}

impl Machine {
    /// Room for what the code needs.
    pub fn new(code: &Code) -> Self {
        let clones = code.ops.iter().any(|op| matches!(op, Op::Clone { .. }));
        let clone = |_| Clone { values: vec![0; if clones { code.cleared } else { 0 }], port: 0 };
        Self {
            values: code.values.clone(),
            recirculate: false,
            cursor: 0,
            scratch: Vec::with_capacity(16 * code.operands.len() + 1),
            told: Vec::with_capacity(code.operands.len()),
            stack: Vec::with_capacity(code.depth + 1),
            clones: (0..CLONES_MAX).map(clone).collect(),
            clones_waiting: 0,
            clones_left: 0,
            clones_lost: 0,
        }
    }

    /// A new packet.
    pub fn start(&mut self, code: &Code) {
        self.values[..code.cleared].fill(0);
        self.cursor = 0;
        self.recirculate = false;
        self.clones_waiting = 0;
        self.clones_left = 0;
        self.clones_lost = 0;
    }

    /// The next clone's port, its values put in place; `Some(None)` for one there was no room for.
    pub fn take_clone(&mut self) -> Option<Option<u16>> {
        if let Some(lost) = self.clones_lost.checked_sub(1) {
            self.clones_lost = lost;
            return Some(None);
        }
        self.clones_waiting = self.clones_waiting.checked_sub(1)?;
        let clone = &self.clones[self.clones_waiting];
        self.values[..clone.values.len()].copy_from_slice(&clone.values);
        Some(Some(clone.port))
    }

    /// Runs from `at` to the end of the block.
    pub fn run(
        &mut self,
        code: &Code,
        memory: &mut Memory,
        mut at: u32,
        packet: &[u8],
        remote: &mut Remote<'_>,
        out: &mut dyn FnMut(Output<'_>),
    ) -> Ended {
        self.stack.clear();
        let mut backward = 0;
        loop {
            let op = code.ops[at as usize];
            at += 1;
            match op {
                Op::Copy { to, from } => self.set(to, self.get(from)),
                Op::CopyIf { to, from, valid } => {
                    if self.get(valid) != 0 {
                        self.set(to, self.get(from));
                    }
                }
                Op::Unary { op, to, of, width } => self.set(to, unary(op, self.get(of), width)),
                Op::Binary { op, to, left, right, width, signed } => {
                    self.set(to, binary(op, self.get(left), self.get(right), width, signed));
                }
                Op::Slice { to, of, low, width } => self.set(to, self.get(of) >> low & mask(width)),
                Op::Cast { to, of, from, width, signed } => self.set(to, cast(self.get(of), from, width, signed)),
                Op::Mux { to, condition, then, otherwise } => {
                    self.set(to, self.get(if self.get(condition) != 0 { then } else { otherwise }));
                }
                Op::Lookahead { to, skip, width } => {
                    let from = self.cursor + skip as usize;
                    if from + usize::from(width) > packet.len() * 8 {
                        return Ended::Rejected(PACKET_TOO_SHORT);
                    }
                    self.set(to, bits::read(packet, from, width));
                }
                Op::SetValid { header, valid } => self.set_valid(code, header, valid),
                Op::Jump { to } => {
                    backward += u32::from(to < at);
                    if backward > PARSER_ROUNDS_MAX {
                        return Ended::Rejected(PARSER_TIMEOUT);
                    }
                    at = to;
                }
                Op::JumpUnless { condition, to } => {
                    if self.get(condition) == 0 {
                        at = to;
                    }
                }
                Op::Apply { table, hit, action } => {
                    self.stack.push(at);
                    at = self.apply(code, memory, table, hit, action);
                }
                Op::Back => match self.stack.pop() {
                    Some(back) => at = back,
                    None => return Ended::Done,
                },
                Op::End => return Ended::Done,
                Op::Reject { error } => return Ended::Rejected(error),
                Op::Require { condition, error } => {
                    if self.get(condition) == 0 {
                        return Ended::Rejected(error);
                    }
                }
                Op::Extract { header, varbits } => {
                    if let Err(error) = self.extract(code, header, varbits, packet) {
                        return Ended::Rejected(error);
                    }
                }
                Op::Advance { bits } => {
                    let to = self.cursor as u128 + self.get(bits);
                    if to > packet.len() as u128 * 8 {
                        return Ended::Rejected(PACKET_TOO_SHORT);
                    }
                    self.cursor = to as usize;
                }
                Op::Digest { name, values } => {
                    self.told.clear();
                    for (value, _) in operands(code, values) {
                        self.told.push(self.values[*value as usize]);
                    }
                    out(Output::Digest { name: &code.names[name as usize], values: &self.told });
                }
                Op::Clone { session } => self.clone_now(session),
                Op::Recirculate => self.recirculate = true,
                Op::Truncate { bytes } => self.set(code.length_max, self.get(bytes)),
                Op::Remote => {
                    let (tables, registers) = (&mut memory.tables, &mut memory.registers);
                    let mut call = Call { packet, values: &mut self.values, tables, registers };
                    if remote(&mut call) == Verdict::Drop {
                        return Ended::Dropped;
                    }
                }
                _ => self.stateful(code, memory, op, packet),
            }
        }
    }

    /// Registers, counters, hashes.
    fn stateful(&mut self, code: &Code, memory: &mut Memory, op: Op, packet: &[u8]) {
        match op {
            Op::Read { register, index, to } => {
                let cells = &memory.registers[register as usize].cells;
                self.set(to, self.cell(index).and_then(|cell| cells.get(cell).copied()).unwrap_or(0));
            }
            Op::Write { register, index, value } => {
                let cells = &mut memory.registers[register as usize].cells;
                if let Some(cell) = self.cell(index).and_then(|cell| cells.get_mut(cell)) {
                    *cell = self.get(value);
                }
            }
            Op::Update { register, index, op, operand, to } => {
                let register = &mut memory.registers[register as usize];
                let after = self.cell(index).and_then(|cell| register.cells.get_mut(cell)).map(|cell| {
                    *cell = binary(op, *cell, self.get(operand), register.width, false);
                    *cell
                });
                self.set(to, after.unwrap_or(0));
            }
            Op::Count { counter, index } => {
                let cells = &mut memory.counters[counter as usize];
                if let Some(cell) = self.cell(index).and_then(|cell| cells.get_mut(cell)) {
                    cell.packets += 1;
                    cell.bytes += packet.len() as u64;
                }
            }
            Op::Hash { to, algorithm, inputs } => {
                self.lay_out(code, inputs);
                self.set(to, hash(algorithm, [self.scratch.as_slice()].into_iter()));
            }
            Op::HashRange { to, hash, base, max, width } => {
                let max = self.get(max);
                let within = if max == 0 { 0 } else { self.get(hash) % max };
                self.set(to, self.get(base).wrapping_add(within) & mask(width));
            }
            Op::Checksum { to, algorithm, inputs, payload } => {
                self.lay_out(code, inputs);
                let rest = if payload { &packet[self.cursor.div_ceil(8)..] } else { &[] };
                self.set(to, hash(algorithm, [self.scratch.as_slice(), rest].into_iter()));
            }
            other => unreachable!("{other:?} is run by its caller"),
        }
    }

    fn apply(
        &mut self,
        code: &Code,
        memory: &mut Memory,
        table: u32,
        hit: Option<SlotId>,
        action: Option<SlotId>,
    ) -> u32 {
        let at = table as usize;
        let table = &mut memory.tables[at];
        let probe = table.key();
        for key in &code.keys[at] {
            probe.push(self.values[*key as usize]);
        }
        let found = table.look_up();
        if let Some(hit) = hit {
            self.set(hit.0, u128::from(found.row.is_some()));
        }
        if let Some(action) = action {
            self.set(action.0, found.index.into());
        }
        for (param, arg) in code.params[found.action.0 as usize].iter().zip(table.args(found)) {
            self.set(*param, *arg);
        }
        code.actions[found.action.0 as usize]
    }

    fn set_valid(&mut self, code: &Code, header: HeaderId, valid: bool) {
        let layout = &code.headers[header.0 as usize];
        if valid && self.get(layout.valid) != 0 {
            return;
        }
        // A header that is not valid has all fields 0, so that reading one needs no look at its validity.
        for (field, _, _) in &layout.fields {
            self.set(*field, 0);
        }
        self.set(layout.varbits, 0);
        self.set(layout.valid, valid.into());
    }

    fn extract(&mut self, code: &Code, header: HeaderId, varbits: Option<V>, packet: &[u8]) -> Result<(), u16> {
        let layout = &code.headers[header.0 as usize];
        let varbits = varbits.map_or(0, |bits| self.get(bits));
        if varbits > u128::from(layout.varbits_max) {
            return Err(HEADER_TOO_SHORT);
        }
        if !varbits.is_multiple_of(8) {
            return Err(INVALID_ARGUMENT);
        }
        let fixed_end = self.cursor + layout.bits as usize;
        let end = fixed_end + varbits as usize;
        if end > packet.len() * 8 {
            return Err(PACKET_TOO_SHORT);
        }
        for (field, at, width) in &layout.fields {
            self.set(*field, bits::read(packet, self.cursor + *at as usize, *width));
        }
        self.set(layout.valid, 1);
        self.set(layout.varbits, (fixed_end as u128) << 32 | varbits);
        self.cursor = end;
        Ok(())
    }

    /// Puts the packet together that leaves.
    pub fn deparse(&mut self, code: &Code, packet: &[u8], buffer: &mut Vec<u8>) {
        buffer.clear();
        for header in &code.deparser {
            let layout = &code.headers[header.0 as usize];
            if self.get(layout.valid) == 0 {
                continue;
            }
            let start = buffer.len();
            buffer.resize(start + layout.bits.div_ceil(8) as usize, 0);
            for (field, at, width) in &layout.fields {
                bits::write(&mut buffer[start..], *at as usize, *width, self.get(*field));
            }
            let varbits = self.get(layout.varbits) as u64;
            let (from, length) = ((varbits >> 32) as usize, varbits as u32 as usize);
            for byte in 0..length / 8 {
                buffer.push(bits::read(packet, from + byte * 8, 8) as u8);
            }
        }
        buffer.extend_from_slice(&packet[self.cursor.div_ceil(8)..]);
        match self.get(code.length_max) {
            0 => {}
            most => buffer.truncate(usize::try_from(most).unwrap_or(usize::MAX)),
        }
    }

    fn clone_now(&mut self, session: V) {
        let port = self.get(session) as u16;
        if self.clones_left < CLONES_MAX {
            let clone = &mut self.clones[self.clones_waiting];
            clone.port = port;
            let cleared = clone.values.len();
            clone.values.copy_from_slice(&self.values[..cleared]);
            self.clones_left += 1;
            self.clones_waiting += 1;
        } else {
            self.clones_lost += 1;
        }
    }

    /// Lays values out one after another, filled with zero bits to whole bytes.
    fn lay_out(&mut self, code: &Code, inputs: Range) {
        let bits: usize = operands(code, inputs).iter().map(|(_, width)| usize::from(*width)).sum();
        self.scratch.clear();
        self.scratch.resize(bits.div_ceil(8), 0);
        let mut at = 0;
        for (value, width) in operands(code, inputs) {
            bits::write(&mut self.scratch, at, *width, self.values[*value as usize]);
            at += usize::from(*width);
        }
    }

    #[inline]
    fn get(&self, value: V) -> u128 {
        self.values[value as usize]
    }

    #[inline]
    fn set(&mut self, to: V, value: u128) {
        self.values[to as usize] = value;
    }

    fn cell(&self, index: V) -> Option<usize> {
        usize::try_from(self.get(index)).ok()
    }
}

fn operands(code: &Code, range: Range) -> &[(V, u16)] {
    &code.operands[range.start as usize..range.end as usize]
}
