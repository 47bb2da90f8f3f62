//! Execution of [`Bytecode`] on the values of one packet and the persistent memory.

use super::arithmetic::{binary, cast, unary};
use super::bits::{self, mask};
use super::code::{Bytecode, Instruction, Range, ValueId};
use super::hash::hash;
use super::memory::{HandlerContext, PersistentMemory};
use super::{CLONES_MAX, HandlerVerdict, RemoteHandler};
use crate::exec::{Output, PARSER_ROUNDS_MAX};
use crate::ir::{HeaderId, SlotId};

/// Parser errors (P4_16 core).
const PACKET_TOO_SHORT: u16 = 1;
const HEADER_TOO_SHORT: u16 = 4;
const PARSER_TIMEOUT: u16 = 5;
const INVALID_ARGUMENT: u16 = 6;

/// Result of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockResult {
    /// End of the block.
    Done,
    /// Parser error.
    Rejected(u16),
    /// Packet dropped by the handler.
    Dropped,
}

/// State of one packet.
#[derive(Debug)]
pub struct Machine {
    pub values: Vec<u128>,
    /// True if the packet is recirculated.
    pub recirculate: bool,
    /// Cursor of the parser, bits.
    cursor: usize,
    /// Buffer for the inputs of a hash.
    scratch: Vec<u8>,
    /// Values of a digest.
    digest_values: Vec<u128>,
    /// Return addresses of nested `Apply`s.
    stack: Vec<u32>,
    clones: Vec<Clone>,
    clones_waiting: usize,
    clones_left: usize,
    clones_lost: usize,
}

/// Clone of the packet: values at the time of `clone`, and the port.
#[derive(Debug)]
struct Clone {
    values: Vec<u128>,
    port: u16,
}

impl Machine {
    /// State with the capacity that the code needs.
    pub fn new(code: &Bytecode) -> Self {
        let clones = code.ops.iter().any(|op| matches!(op, Instruction::Clone { .. }));
        let clone = |_| Clone { values: vec![0; if clones { code.cleared } else { 0 }], port: 0 };
        Self {
            values: code.values.clone(),
            recirculate: false,
            cursor: 0,
            scratch: Vec::with_capacity(16 * code.operands.len() + 1),
            digest_values: Vec::with_capacity(code.operands.len()),
            stack: Vec::with_capacity(code.depth + 1),
            clones: (0..CLONES_MAX).map(clone).collect(),
            clones_waiting: 0,
            clones_left: 0,
            clones_lost: 0,
        }
    }

    /// Resets the state for a new packet.
    pub fn start(&mut self, code: &Bytecode) {
        self.values[..code.cleared].fill(0);
        self.cursor = 0;
        self.recirculate = false;
        self.clones_waiting = 0;
        self.clones_left = 0;
        self.clones_lost = 0;
    }

    /// Restores the values of the next clone and returns its port; `Some(None)` for a clone lost to the capacity limit.
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
        code: &Bytecode,
        memory: &mut PersistentMemory,
        mut at: u32,
        packet: &[u8],
        remote: &mut RemoteHandler<'_>,
        out: &mut dyn FnMut(Output<'_>),
    ) -> BlockResult {
        self.stack.clear();
        let mut backward = 0;
        loop {
            let op = code.ops[at as usize];
            at += 1;
            match op {
                Instruction::Copy { to, from } => self.set(to, self.get(from)),
                Instruction::CopyIf { to, from, valid } => {
                    if self.get(valid) != 0 {
                        self.set(to, self.get(from));
                    }
                }
                Instruction::Unary { op, to, of, width } => self.set(to, unary(op, self.get(of), width)),
                Instruction::Binary { op, to, left, right, width, signed } => {
                    self.set(to, binary(op, self.get(left), self.get(right), width, signed));
                }
                Instruction::Slice { to, of, low, width } => self.set(to, self.get(of) >> low & mask(width)),
                Instruction::Cast { to, of, from, width, signed } => {
                    self.set(to, cast(self.get(of), from, width, signed))
                }
                Instruction::Mux { to, condition, then, otherwise } => {
                    self.set(to, self.get(if self.get(condition) != 0 { then } else { otherwise }));
                }
                Instruction::Lookahead { to, skip, width } => {
                    let from = self.cursor + skip as usize;
                    if from + usize::from(width) > packet.len() * 8 {
                        return BlockResult::Rejected(PACKET_TOO_SHORT);
                    }
                    self.set(to, bits::read(packet, from, width));
                }
                Instruction::SetValid { header, valid } => self.set_valid(code, header, valid),
                Instruction::Jump { to } => {
                    backward += u32::from(to < at);
                    if backward > PARSER_ROUNDS_MAX {
                        return BlockResult::Rejected(PARSER_TIMEOUT);
                    }
                    at = to;
                }
                Instruction::JumpUnless { condition, to } => {
                    if self.get(condition) == 0 {
                        at = to;
                    }
                }
                Instruction::Apply { table, hit, action } => {
                    self.stack.push(at);
                    at = self.apply(code, memory, table, hit, action);
                }
                Instruction::Back => match self.stack.pop() {
                    Some(back) => at = back,
                    None => return BlockResult::Done,
                },
                Instruction::End => return BlockResult::Done,
                Instruction::Reject { error } => return BlockResult::Rejected(error),
                Instruction::Require { condition, error } => {
                    if self.get(condition) == 0 {
                        return BlockResult::Rejected(error);
                    }
                }
                Instruction::Extract { header, varbits } => {
                    if let Err(error) = self.extract(code, header, varbits, packet) {
                        return BlockResult::Rejected(error);
                    }
                }
                Instruction::Advance { bits } => {
                    let to = self.cursor as u128 + self.get(bits);
                    if to > packet.len() as u128 * 8 {
                        return BlockResult::Rejected(PACKET_TOO_SHORT);
                    }
                    self.cursor = to as usize;
                }
                Instruction::Digest { name, values } => {
                    self.digest_values.clear();
                    for (value, _) in operands(code, values) {
                        self.digest_values.push(self.values[*value as usize]);
                    }
                    out(Output::Digest { name: &code.names[name as usize], values: &self.digest_values });
                }
                Instruction::Clone { session } => self.add_clone(session),
                Instruction::Recirculate => self.recirculate = true,
                Instruction::Truncate { bytes } => self.set(code.length_max, self.get(bytes)),
                Instruction::Remote => {
                    let (tables, registers) = (&mut memory.tables, &mut memory.registers);
                    let mut call = HandlerContext { packet, values: &mut self.values, tables, registers };
                    if remote(&mut call) == HandlerVerdict::Drop {
                        return BlockResult::Dropped;
                    }
                }
                _ => self.run_stateful(code, memory, op, packet),
            }
        }
    }

    /// Runs an operation on registers, counters or hashes.
    fn run_stateful(&mut self, code: &Bytecode, memory: &mut PersistentMemory, op: Instruction, packet: &[u8]) {
        match op {
            Instruction::Read { register, index, to } => {
                let cells = &memory.registers[register as usize].cells;
                self.set(to, self.cell(index).and_then(|cell| cells.get(cell).copied()).unwrap_or(0));
            }
            Instruction::Write { register, index, value } => {
                let cells = &mut memory.registers[register as usize].cells;
                if let Some(cell) = self.cell(index).and_then(|cell| cells.get_mut(cell)) {
                    *cell = self.get(value);
                }
            }
            Instruction::Update { register, index, op, operand, to } => {
                let register = &mut memory.registers[register as usize];
                let after = self.cell(index).and_then(|cell| register.cells.get_mut(cell)).map(|cell| {
                    *cell = binary(op, *cell, self.get(operand), register.width, false);
                    *cell
                });
                self.set(to, after.unwrap_or(0));
            }
            Instruction::Count { counter, index } => {
                let cells = &mut memory.counters[counter as usize];
                if let Some(cell) = self.cell(index).and_then(|cell| cells.get_mut(cell)) {
                    cell.packets += 1;
                    cell.bytes += packet.len() as u64;
                }
            }
            Instruction::Hash { to, algorithm, inputs } => {
                self.concat_inputs(code, inputs);
                self.set(to, hash(algorithm, [self.scratch.as_slice()].into_iter()));
            }
            Instruction::HashRange { to, hash, base, max, width } => {
                let max = self.get(max);
                let within = if max == 0 { 0 } else { self.get(hash) % max };
                self.set(to, self.get(base).wrapping_add(within) & mask(width));
            }
            Instruction::Checksum { to, algorithm, inputs, payload } => {
                self.concat_inputs(code, inputs);
                let rest = if payload { &packet[self.cursor.div_ceil(8)..] } else { &[] };
                self.set(to, hash(algorithm, [self.scratch.as_slice(), rest].into_iter()));
            }
            other => unreachable!("{other:?} is run by its caller"),
        }
    }

    fn apply(
        &mut self,
        code: &Bytecode,
        memory: &mut PersistentMemory,
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

    fn set_valid(&mut self, code: &Bytecode, header: HeaderId, valid: bool) {
        let layout = &code.headers[header.0 as usize];
        if valid && self.get(layout.valid) != 0 {
            return;
        }
        // Fields of an invalid header are 0, so that a read needs no check of the validity.
        for (field, _, _) in &layout.fields {
            self.set(*field, 0);
        }
        self.set(layout.varbits, 0);
        self.set(layout.valid, valid.into());
    }

    fn extract(
        &mut self,
        code: &Bytecode,
        header: HeaderId,
        varbits: Option<ValueId>,
        packet: &[u8],
    ) -> Result<(), u16> {
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

    /// Assembles the outgoing packet.
    pub fn deparse(&mut self, code: &Bytecode, packet: &[u8], buffer: &mut Vec<u8>) {
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

    fn add_clone(&mut self, session: ValueId) {
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

    /// Concatenates values, padded with zero bits to whole bytes.
    fn concat_inputs(&mut self, code: &Bytecode, inputs: Range) {
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
    fn get(&self, value: ValueId) -> u128 {
        self.values[value as usize]
    }

    #[inline]
    fn set(&mut self, to: ValueId, value: u128) {
        self.values[to as usize] = value;
    }

    fn cell(&self, index: ValueId) -> Option<usize> {
        usize::try_from(self.get(index)).ok()
    }
}

fn operands(code: &Bytecode, range: Range) -> &[(ValueId, u16)] {
    &code.operands[range.start as usize..range.end as usize]
}
