//! Persistent memory of a program, and the handler's access to memory and packet.

use super::bits::mask;
use super::table::MatchTable;
use crate::exec::{CounterValue, TableError};
use crate::ir::{Match, Program, RegisterId, SlotId, TableEntry, TableId};

/// Memory that persists across packets.
#[derive(Debug)]
pub struct PersistentMemory {
    pub tables: Vec<MatchTable>,
    pub registers: Vec<RegisterValues>,
    pub counters: Vec<Vec<CounterValue>>,
}

/// Register array.
#[derive(Debug)]
pub struct RegisterValues {
    pub width: u16,
    pub cells: Vec<u128>,
}

impl PersistentMemory {
    /// Initial memory of a program.
    ///
    /// # Errors
    /// If an entry declared in the program does not fit its table.
    pub fn new(program: &Program) -> Result<Self, TableError> {
        let tables = (0..program.tables.len() as u32).map(|id| MatchTable::new(program, TableId(id)));
        let register =
            |r: &crate::ir::Register| RegisterValues { width: r.ty.width(), cells: vec![0; r.size as usize] };
        Ok(Self {
            tables: tables.collect::<Result<_, _>>()?,
            registers: program.registers.iter().map(register).collect(),
            counters: program.counters.iter().map(|c| vec![CounterValue::default(); c.size as usize]).collect(),
        })
    }
}

/// Handler's view of a packet and the memory.
#[derive(Debug)]
pub struct HandlerContext<'a> {
    /// Packet as received.
    pub packet: &'a [u8],
    pub(super) values: &'a mut [u128],
    pub(super) tables: &'a mut [MatchTable],
    pub(super) registers: &'a mut [RegisterValues],
}

impl HandlerContext<'_> {
    /// Value of a slot.
    #[must_use]
    pub fn get(&self, slot: SlotId) -> u128 {
        self.values[slot.0 as usize]
    }

    /// Writes a slot of this width.
    pub fn set(&mut self, slot: SlotId, width: u16, value: u128) {
        self.values[slot.0 as usize] = value & mask(width);
    }

    /// Cell of a register; 0 beyond the end.
    #[must_use]
    pub fn register(&self, register: RegisterId, index: u32) -> u128 {
        self.registers[register.0 as usize].cells.get(index as usize).copied().unwrap_or(0)
    }

    /// Writes a cell of a register; no effect beyond the end.
    pub fn set_register(&mut self, register: RegisterId, index: u32, value: u128) {
        let register = &mut self.registers[register.0 as usize];
        if let Some(cell) = register.cells.get_mut(index as usize) {
            *cell = value & mask(register.width);
        }
    }

    /// Adds an entry, or replaces the action of the entry with these keys.
    ///
    /// # Errors
    /// If the entry does not fit, or the table is full.
    pub fn put(&mut self, table: TableId, entry: &TableEntry) -> Result<(), TableError> {
        let table = &mut self.tables[table.0 as usize];
        match table.insert(entry) {
            Err(TableError::Exists { .. }) => table.modify(entry),
            done => done.map(|_| ()),
        }
    }

    /// Removes an entry.
    ///
    /// # Errors
    /// If the entry does not exist.
    pub fn remove(&mut self, table: TableId, keys: &[Match]) -> Result<(), TableError> {
        self.tables[table.0 as usize].remove(keys)
    }
}
