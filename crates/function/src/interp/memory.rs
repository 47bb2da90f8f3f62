//! What outlives a packet, and what a handler sees of both.

use super::bits::mask;
use super::table::Table;
use crate::exec::{Count, TableError};
use crate::ir::{Entry, Match, Program, RegisterId, SlotId, TableId};

/// What outlives a packet.
#[derive(Debug)]
pub struct Memory {
    pub tables: Vec<Table>,
    pub registers: Vec<Register>,
    pub counters: Vec<Vec<Count>>,
}

/// A register array.
#[derive(Debug)]
pub struct Register {
    pub width: u16,
    pub cells: Vec<u128>,
}

impl Memory {
    /// The memory of a program before its first packet.
    ///
    /// # Errors
    /// If entries that the program declares do not fit their tables.
    pub fn new(program: &Program) -> Result<Self, TableError> {
        let tables = (0..program.tables.len() as u32).map(|id| Table::new(program, TableId(id)));
        let register = |r: &crate::ir::Register| Register { width: r.ty.width(), cells: vec![0; r.size as usize] };
        Ok(Self {
            tables: tables.collect::<Result<_, _>>()?,
            registers: program.registers.iter().map(register).collect(),
            counters: program.counters.iter().map(|c| vec![Count::default(); c.size as usize]).collect(),
        })
    }
}

/// What a handler sees of a packet.
#[derive(Debug)]
pub struct Call<'a> {
    /// The packet as it came in.
    pub packet: &'a [u8],
    pub(super) values: &'a mut [u128],
    pub(super) tables: &'a mut [Table],
    pub(super) registers: &'a mut [Register],
}

impl Call<'_> {
    /// A slot's value.
    #[must_use]
    pub fn get(&self, slot: SlotId) -> u128 {
        self.values[slot.0 as usize]
    }

    /// Writes a slot, of this width.
    pub fn set(&mut self, slot: SlotId, width: u16, value: u128) {
        self.values[slot.0 as usize] = value & mask(width);
    }

    /// A cell of a register; 0 beyond its end.
    #[must_use]
    pub fn register(&self, register: RegisterId, index: u32) -> u128 {
        self.registers[register.0 as usize].cells.get(index as usize).copied().unwrap_or(0)
    }

    /// Writes a cell of a register; beyond its end nothing happens.
    pub fn set_register(&mut self, register: RegisterId, index: u32, value: u128) {
        let register = &mut self.registers[register.0 as usize];
        if let Some(cell) = register.cells.get_mut(index as usize) {
            *cell = value & mask(register.width);
        }
    }

    /// Adds an entry, or gives the one with these keys another action.
    ///
    /// # Errors
    /// If it does not fit, or the table is full.
    pub fn put(&mut self, table: TableId, entry: &Entry) -> Result<(), TableError> {
        let table = &mut self.tables[table.0 as usize];
        match table.insert(entry) {
            Err(TableError::Exists { .. }) => table.modify(entry),
            done => done.map(|_| ()),
        }
    }

    /// Removes an entry.
    ///
    /// # Errors
    /// If it is not there.
    pub fn remove(&mut self, table: TableId, keys: &[Match]) -> Result<(), TableError> {
        self.tables[table.0 as usize].remove(keys)
    }
}
