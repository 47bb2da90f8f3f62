//! The function in one piece: what its parts together are held to.
//!
//! ```text
//! packet ─► before ─► handler, at once ─► behind ─► out          one machine, tables without bound
//! ```

use std::collections::{BTreeSet, HashMap};

use crate::exec::{Execution, Output};
use crate::interp::{Call, CompileError, Interpreter, Verdict};
use crate::ir::{ActionId, Entry, Program, RegisterId, SlotId, TableId};
use crate::serve::{Change, Handler, Outcome};
use crate::split::balance::index_args;

/// Runs a function that is not split.
#[derive(Debug)]
pub struct Oracle<H> {
    interpreter: Interpreter,
    handler: H,
    request: Vec<SlotId>,
    response: Vec<(SlotId, u16)>,
    values: Vec<u128>,
    answer: Vec<u128>,
    /// Whether the part before finds the handler's entries.
    mirrors: bool,
    mirrored: Vec<TableId>,
    shared: Shared,
    /// When the last packet came.
    last_us: u64,
}

/// Mirrored registers: the part before and the handler have the same cells.
#[derive(Debug)]
struct Shared {
    registers: Vec<RegisterId>,
    /// For each action whose entries name cells: which argument does.
    index_args: HashMap<ActionId, usize>,
    /// Cells that entries have named.
    cells: BTreeSet<u32>,
}

impl<H: Handler> Oracle<H> {
    /// With this instance of the handler, which owns all values of all partitions.
    ///
    /// # Errors
    /// If the program can't be run.
    pub fn new(program: &Program, mut handler: H) -> Result<Self, CompileError> {
        let mut program = program.clone();
        program.tables.iter_mut().filter(|table| table.mirrored).for_each(|table| table.size = u32::MAX);
        for (at, partition) in program.partitions.iter().enumerate() {
            handler.set_ranges(at, &[(partition.first, partition.last)]);
        }
        let (request, response) = program.handler.as_ref().map(|h| (h.request.clone(), h.response.clone())).unzip();
        let (request, response): (Vec<SlotId>, Vec<SlotId>) =
            (request.unwrap_or_default(), response.unwrap_or_default());
        let mirrored = (0..program.registers.len()).filter(|at| program.registers[*at].mirrored);
        let mut oracle = Self {
            interpreter: Interpreter::new(&program)?,
            values: vec![0; request.len()],
            answer: vec![0; response.len()],
            request,
            response: response.into_iter().map(|slot| (slot, program.width(slot))).collect(),
            mirrors: true,
            mirrored: (0..).map(TableId).zip(&program.tables).filter(|(_, of)| of.mirrored).map(|(id, _)| id).collect(),
            last_us: 0,
            shared: Shared {
                registers: mirrored.map(|at| RegisterId(at as u32)).collect(),
                index_args: index_args(&program),
                cells: BTreeSet::new(),
            },
            handler,
        };
        oracle.expire(0);
        Ok(oracle)
    }

    /// The same, but the part before finds no entry of a mirrored table: whatever can be asked of the handler is. A function
    /// that does in its handler what it does before, as all do, gives the same packets.
    ///
    /// # Errors
    /// If the program can't be run.
    pub fn by_handler(program: &Program, handler: H) -> Result<Self, CompileError> {
        let mut oracle = Self::new(program, handler)?;
        oracle.mirrors = false;
        Ok(oracle)
    }

    /// Works on a packet.
    pub fn process(&mut self, now_us: u64, port: u16, packet: &[u8], out: &mut dyn FnMut(Output<'_>)) {
        self.last_us = now_us;
        let Self { interpreter, handler, request, response, values, answer, mirrors, shared, .. } = self;
        let mut remote = |call: &mut Call<'_>| {
            for (value, slot) in values.iter_mut().zip(request.iter()) {
                *value = call.get(*slot);
            }
            answer.fill(0);
            if *mirrors {
                shared.each(|register, cell| handler.set_register(register, cell, call.register(register, cell)));
            }
            let outcome = handler.handle(now_us / 1000, values, call.packet, answer);
            while let Some((table, change)) = handler.poll_change() {
                if *mirrors {
                    shared.note(&change);
                    follow(call, table, &change);
                }
            }
            if *mirrors {
                shared.each(|register, cell| call.set_register(register, cell, handler.register(register, cell)));
            }
            if outcome != Outcome::Respond {
                return Verdict::Drop;
            }
            for (value, (slot, width)) in answer.iter().zip(response.iter()) {
                call.set(*slot, *width, *value);
            }
            Verdict::Respond
        };
        interpreter.process_with(now_us, port, packet, &mut remote, out);
    }

    /// Time has passed.
    pub fn expire(&mut self, now_us: u64) {
        let Self { interpreter, handler, mirrored, last_us, .. } = self;
        if handler.next_expiry_ms().is_some_and(|at_ms| at_ms <= now_us / 1000) {
            // What the part before has found, the handler's tables do not know to be used.
            for table in mirrored {
                let used = &mut |entry: &Entry| handler.set_leased(*last_us / 1000, *table, &entry.keys, false);
                interpreter.take_used(*table, used);
            }
        }
        self.handler.expire(now_us / 1000);
        while let Some((table, change)) = self.handler.poll_change() {
            if !self.mirrors {
                continue;
            }
            self.shared.note(&change);
            // What the handler has fits, and what it has not is gone.
            let done = match &change {
                Change::Put(entry) => match self.interpreter.insert(table, entry) {
                    Err(crate::exec::TableError::Exists { .. }) => self.interpreter.modify(table, entry),
                    done => done,
                },
                Change::Removed(keys) => self.interpreter.remove(table, keys),
            };
            debug_assert!(done.is_ok(), "{done:?}");
        }
    }

    /// The handler.
    pub fn handler(&mut self) -> &mut H {
        &mut self.handler
    }

    /// What runs the program, for an operator's entries of tables that are not mirrored.
    pub fn execution_mut(&mut self) -> &mut Interpreter {
        &mut self.interpreter
    }
}

impl Shared {
    fn each(&self, mut each: impl FnMut(RegisterId, u32)) {
        for register in &self.registers {
            self.cells.iter().for_each(|cell| each(*register, *cell));
        }
    }

    fn note(&mut self, change: &Change) {
        let Change::Put(entry) = change else { return };
        let index = self.index_args.get(&entry.action).and_then(|at| entry.args.get(*at));
        self.cells.extend(index.and_then(|index| u32::try_from(*index).ok()));
    }
}

fn follow(call: &mut Call<'_>, table: TableId, change: &Change) {
    let done = match change {
        Change::Put(entry) => call.put(table, entry),
        Change::Removed(keys) => call.remove(table, keys),
    };
    debug_assert!(done.is_ok(), "{done:?}");
}
