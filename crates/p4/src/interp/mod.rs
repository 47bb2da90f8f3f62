//! Reference interpreter of programs.
//!
//! ```text
//!            ┌────────────────────────── recirculated ◄─────────────────────────┐
//! packet ─► parser ─► verify ─► ingress ─┬─► for each copy: egress ─► compute ─► deparser ─► out
//!                                        └─ clones, multicast, or one port
//! ```
//!
//! `compile` translates the IR to operations on one array of 128-bit values, and `machine` runs them. All memory for a
//! packet is allocated in advance.

mod arithmetic;
pub mod bits;
mod code;
mod compile;
mod hash;
mod machine;
mod memory;
mod states;
pub mod table;

use std::collections::HashMap;

pub use compile::CompileError;
pub use memory::HandlerContext;

use crate::exec::{
    CLONES_MAX, CounterValue, DropReason, Execution, Output, PACKET_MAX, RECIRCULATIONS_MAX, TableError,
};
use crate::ir::{
    ActionId, CounterId, DROP_PORT, Match, Program, RegisterId, SlotKind, StandardField, TableEntry, TableId,
};
use code::Bytecode;
use machine::{BlockResult, Machine};
use memory::PersistentMemory;
use table::MatchTable;

/// Parser error for a `select` without a match (P4_16 core).
const NO_MATCH: u16 = 2;
/// `instance_type` of a clone.
const CLONED: u128 = 1;
/// `instance_type` of a recirculated packet.
const RECIRCULATED: u128 = 4;
/// `instance_type` of a multicast replica.
const REPLICATED: u128 = 5;

/// Verdict of the handler on a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandlerVerdict {
    /// Continue with the response.
    Respond,
    /// Drop the packet.
    Drop,
}

/// Handler of an unsplit program: reads the request slots, writes the response slots.
pub type RemoteHandler<'a> = dyn FnMut(&mut HandlerContext<'_>) -> HandlerVerdict + 'a;

/// Interpreter of one program.
#[derive(Debug)]
pub struct Interpreter {
    code: Bytecode,
    machine: Machine,
    memory: PersistentMemory,
    standard: StandardSlots,
    groups: HashMap<u16, Vec<(u16, u16)>>,
    /// Remaining replicas of a multicast.
    copies: Vec<(u16, u16)>,
    /// Values after the ingress, while replicas are sent.
    kept: Vec<u128>,
    /// Outgoing packet.
    buffer: Vec<u8>,
    /// Recirculated packets.
    again: Vec<Vec<u8>>,
    again_used: usize,
    dropped: [u64; DropReason::ALL.len()],
}

/// Slots of `standard_metadata` that the program has.
#[derive(Debug)]
struct StandardSlots {
    ingress_port: Option<u32>,
    egress_spec: Option<u32>,
    egress_port: Option<u32>,
    packet_length: Option<u32>,
    timestamp: Option<u32>,
    mcast_group: Option<u32>,
    egress_rid: Option<u32>,
    instance_type: Option<u32>,
    parser_error: Option<u32>,
}

/// Slot of a field of `standard_metadata`, if the program has it.
fn standard(program: &Program, field: StandardField) -> Option<crate::ir::SlotId> {
    let at = program.slots.iter().position(|slot| slot.kind == SlotKind::Standard(field))?;
    Some(crate::ir::SlotId(at as u32))
}

impl Interpreter {
    /// Interpreter for a program, with the entries that the program declares.
    ///
    /// # Errors
    /// If the program cannot be compiled.
    pub fn new(program: &Program) -> Result<Self, CompileError> {
        let code = compile::compile(program)?;
        let memory = PersistentMemory::new(program)?;
        let machine = Machine::new(&code);
        let slot = |field| standard(program, field).map(|slot| slot.0);
        let headers: usize = code.headers.iter().map(|h| (h.bits + h.varbits_max).div_ceil(8) as usize).sum();
        Ok(Self {
            standard: StandardSlots {
                ingress_port: slot(StandardField::IngressPort),
                egress_spec: slot(StandardField::EgressSpec),
                egress_port: slot(StandardField::EgressPort),
                packet_length: slot(StandardField::PacketLength),
                timestamp: slot(StandardField::IngressTimestamp),
                mcast_group: slot(StandardField::McastGroup),
                egress_rid: slot(StandardField::EgressRid),
                instance_type: slot(StandardField::InstanceType),
                parser_error: slot(StandardField::ParserError),
            },
            groups: HashMap::new(),
            copies: Vec::new(),
            kept: vec![0; code.cleared],
            buffer: Vec::with_capacity(PACKET_MAX + headers),
            again: (0..RECIRCULATIONS_MAX).map(|_| Vec::new()).collect(),
            again_used: 0,
            dropped: [0; DropReason::ALL.len()],
            machine,
            memory,
            code,
        })
    }

    /// As [`Execution::process`], for a program with a handler: `remote` runs at the call.
    pub fn process_with(
        &mut self,
        now_us: u64,
        port: u16,
        packet: &[u8],
        remote: &mut RemoteHandler<'_>,
        out: &mut dyn FnMut(Output<'_>),
    ) {
        self.again_used = 0;
        if packet.len() > PACKET_MAX {
            return self.drop_packet(DropReason::TooLong, out);
        }
        self.run_pass(now_us, port, packet, 0, remote, out);
        let mut next = 0;
        while next < self.again_used {
            let bytes = std::mem::take(&mut self.again[next]);
            self.run_pass(now_us, port, &bytes, RECIRCULATED, remote, out);
            self.again[next] = bytes;
            next += 1;
        }
    }

    fn run_pass(
        &mut self,
        now_us: u64,
        port: u16,
        packet: &[u8],
        instance_type: u128,
        remote: &mut RemoteHandler<'_>,
        out: &mut dyn FnMut(Output<'_>),
    ) {
        self.machine.start(&self.code);
        self.set(self.standard.ingress_port, port.into());
        self.set(self.standard.packet_length, packet.len() as u128);
        self.set(self.standard.timestamp, u128::from(now_us) & bits::mask(48));
        self.set(self.standard.instance_type, instance_type);
        if let BlockResult::Rejected(error) = self.run(self.code.parser, packet, remote, out) {
            self.set(self.standard.parser_error, error.into());
        }
        self.run(self.code.verify, packet, remote, out);
        if self.run(self.code.ingress, packet, remote, out) == BlockResult::Dropped {
            return self.drop_packet(DropReason::Handler, out);
        }
        let recirculate = self.machine.recirculate;
        self.kept.copy_from_slice(&self.machine.values[..self.code.cleared]);
        self.send_clones(packet, remote, out);
        self.restore_values();
        self.machine.recirculate = recirculate;
        let group = self.value(self.standard.mcast_group) as u16;
        if group != 0 {
            return self.send_multicast(group, packet, recirculate, remote, out);
        }
        let spec = self.value(self.standard.egress_spec);
        if spec == DROP_PORT {
            return self.drop_packet(DropReason::Program, out);
        }
        self.send_copy(spec as u16, packet, remote, out);
        self.send_clones(packet, remote, out);
    }

    fn send_multicast(
        &mut self,
        group: u16,
        packet: &[u8],
        recirculate: bool,
        remote: &mut RemoteHandler<'_>,
        out: &mut dyn FnMut(Output<'_>),
    ) {
        let mut copies = std::mem::take(&mut self.copies);
        copies.clear();
        copies.extend_from_slice(self.groups.get(&group).map_or(&[][..], Vec::as_slice));
        if copies.is_empty() {
            self.drop_packet(DropReason::NoGroup, out);
        }
        for (port, rid) in &copies {
            self.restore_values();
            self.machine.recirculate = recirculate;
            self.set(self.standard.egress_rid, (*rid).into());
            self.set(self.standard.instance_type, REPLICATED);
            self.send_copy(*port, packet, remote, out);
            self.send_clones(packet, remote, out);
        }
        self.copies = copies;
    }

    /// Sends the pending clones, and clones of the clones.
    fn send_clones(&mut self, packet: &[u8], remote: &mut RemoteHandler<'_>, out: &mut dyn FnMut(Output<'_>)) {
        while let Some(port) = self.machine.take_clone() {
            if port.is_none() {
                self.drop_packet(DropReason::Clones, out);
                continue;
            }
            self.machine.recirculate = false;
            self.set(self.standard.instance_type, CLONED);
            self.send_copy(port.unwrap_or(0), packet, remote, out);
        }
    }

    /// Runs egress, checksums and deparser for one copy.
    fn send_copy(&mut self, port: u16, packet: &[u8], remote: &mut RemoteHandler<'_>, out: &mut dyn FnMut(Output<'_>)) {
        self.set(self.standard.egress_port, port.into());
        // After the ingress only the egress itself can drop the copy.
        self.set(self.standard.egress_spec, port.into());
        self.run(self.code.egress, packet, remote, out);
        if port as u128 == DROP_PORT || self.value(self.standard.egress_spec) == DROP_PORT {
            return self.drop_packet(DropReason::Program, out);
        }
        self.run(self.code.compute, packet, remote, out);
        let mut buffer = std::mem::take(&mut self.buffer);
        self.machine.deparse(&self.code, packet, &mut buffer);
        if buffer.len() > PACKET_MAX {
            self.drop_packet(DropReason::TooLong, out);
        } else if !self.machine.recirculate {
            out(Output::Packet { port, bytes: &buffer });
        } else if self.again_used == RECIRCULATIONS_MAX {
            self.drop_packet(DropReason::Recirculated, out);
        } else {
            let kept = &mut self.again[self.again_used];
            kept.clear();
            kept.extend_from_slice(&buffer);
            self.again_used += 1;
        }
        self.buffer = buffer;
    }

    fn run(
        &mut self,
        at: u32,
        packet: &[u8],
        remote: &mut RemoteHandler<'_>,
        out: &mut dyn FnMut(Output<'_>),
    ) -> BlockResult {
        self.machine.run(&self.code, &mut self.memory, at, packet, remote, out)
    }

    fn restore_values(&mut self) {
        self.machine.values[..self.code.cleared].copy_from_slice(&self.kept);
    }

    fn set(&mut self, slot: Option<u32>, value: u128) {
        if let Some(slot) = slot {
            self.machine.values[slot as usize] = value;
        }
    }

    fn value(&self, slot: Option<u32>) -> u128 {
        slot.map_or(0, |slot| self.machine.values[slot as usize])
    }

    fn drop_packet(&mut self, reason: DropReason, out: &mut dyn FnMut(Output<'_>)) {
        self.dropped[reason as usize] += 1;
        out(Output::Dropped(reason));
    }

    fn table(&mut self, table: TableId) -> &mut MatchTable {
        &mut self.memory.tables[table.0 as usize]
    }
}

impl Execution for Interpreter {
    fn process(&mut self, now_us: u64, port: u16, packet: &[u8], out: &mut dyn FnMut(Output<'_>)) {
        // A split program calls no handler; an unsplit program without one drops the packet.
        self.process_with(now_us, port, packet, &mut |_| HandlerVerdict::Drop, out);
    }

    fn insert(&mut self, table: TableId, entry: &TableEntry) -> Result<(), TableError> {
        self.table(table).insert(entry).map(|_| ())
    }

    fn modify(&mut self, table: TableId, entry: &TableEntry) -> Result<(), TableError> {
        self.table(table).modify(entry)
    }

    fn remove(&mut self, table: TableId, keys: &[Match]) -> Result<(), TableError> {
        self.table(table).remove(keys)
    }

    fn set_default(&mut self, table: TableId, action: ActionId, args: &[u128]) -> Result<(), TableError> {
        self.table(table).set_default(action, args)
    }

    fn take_used(&mut self, table: TableId, each: &mut dyn FnMut(&TableEntry)) {
        self.table(table).take_used(each);
    }

    fn entries(&self, table: TableId) -> usize {
        self.memory.tables[table.0 as usize].len()
    }

    fn register(&self, register: RegisterId, index: u32) -> u128 {
        self.memory.registers[register.0 as usize].cells.get(index as usize).copied().unwrap_or(0)
    }

    fn set_register(&mut self, register: RegisterId, index: u32, value: u128) {
        let register = &mut self.memory.registers[register.0 as usize];
        if let Some(cell) = register.cells.get_mut(index as usize) {
            *cell = value & bits::mask(register.width);
        }
    }

    fn counter(&self, counter: CounterId, index: u32) -> CounterValue {
        self.memory.counters[counter.0 as usize].get(index as usize).copied().unwrap_or_default()
    }

    fn set_group(&mut self, group: u16, ports: &[(u16, u16)]) {
        if ports.is_empty() {
            self.groups.remove(&group);
            return;
        }
        self.groups.insert(group, ports.to_vec());
        let most = self.groups.values().map(Vec::len).max().unwrap_or(0);
        self.copies.reserve(most);
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }
}
