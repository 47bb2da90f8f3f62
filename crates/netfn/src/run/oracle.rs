//! Oracle of a split function: the function as a whole on one machine, compared with the split parts in tests.
//!
//! ```text
//! packet ─► part before ─► handler, without delay ─► part after ─► out          one machine, unbounded tables
//! ```

use std::collections::{BTreeSet, HashMap};

use crate::serve::{FunctionHandler, HandlerOutcome, TableChange};
use pathcall_p4::exec::{Execution, Output};
use pathcall_p4::interp::{CompileError, HandlerContext, HandlerVerdict, Interpreter};
use pathcall_p4::ir::{ActionId, Program, RegisterId, SlotId, TableEntry, TableId};
use pathcall_p4::split::balance::index_args;

/// Execution of a function that is not split.
#[derive(Debug)]
pub struct Oracle<H> {
    interpreter: Interpreter,
    handler: H,
    request: Vec<SlotId>,
    response: Vec<(SlotId, u16)>,
    values: Vec<u128>,
    answer: Vec<u128>,
    /// Whether the part before the handler finds the handler's entries.
    mirrors: bool,
    mirrored: Vec<TableId>,
    mirrored_registers: MirroredRegisters,
    /// Time of the last packet.
    last_us: u64,
}

/// Mirrored registers, whose cells the part before and the handler share.
#[derive(Debug)]
struct MirroredRegisters {
    registers: Vec<RegisterId>,
    /// Index argument of each action whose entries name cells.
    index_args: HashMap<ActionId, usize>,
    /// Cells that entries have named.
    cells: BTreeSet<u32>,
}

impl<H: FunctionHandler> Oracle<H> {
    /// Oracle with this instance of the handler, which owns all values of all partitions.
    ///
    /// # Errors
    /// If the program cannot be run.
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
            mirrored_registers: MirroredRegisters {
                registers: mirrored.map(|at| RegisterId(at as u32)).collect(),
                index_args: index_args(&program),
                cells: BTreeSet::new(),
            },
            handler,
        };
        oracle.expire(0);
        Ok(oracle)
    }

    /// Oracle whose first part finds no entry of a mirrored table, so that every packet that can go to the handler
    /// does. A function whose handler does the same as its first part, as all do, gives the same packets.
    ///
    /// # Errors
    /// If the program cannot be run.
    pub fn by_handler(program: &Program, handler: H) -> Result<Self, CompileError> {
        let mut oracle = Self::new(program, handler)?;
        oracle.mirrors = false;
        Ok(oracle)
    }

    /// Processes a packet.
    pub fn process(&mut self, now_us: u64, port: u16, packet: &[u8], out: &mut dyn FnMut(Output<'_>)) {
        self.last_us = now_us;
        let Self { interpreter, handler, request, response, values, answer, mirrors, mirrored_registers, .. } = self;
        let mut remote = |call: &mut HandlerContext<'_>| {
            for (value, slot) in values.iter_mut().zip(request.iter()) {
                *value = call.get(*slot);
            }
            answer.fill(0);
            if *mirrors {
                mirrored_registers
                    .each(|register, cell| handler.set_register(register, cell, call.register(register, cell)));
            }
            let outcome = handler.handle(now_us / 1000, values, call.packet, answer);
            while let Some((table, change)) = handler.poll_change() {
                if *mirrors {
                    mirrored_registers.note(&change);
                    follow(call, table, &change);
                }
            }
            if *mirrors {
                mirrored_registers
                    .each(|register, cell| call.set_register(register, cell, handler.register(register, cell)));
            }
            if outcome != HandlerOutcome::Respond {
                return HandlerVerdict::Drop;
            }
            for (value, (slot, width)) in answer.iter().zip(response.iter()) {
                call.set(*slot, *width, *value);
            }
            HandlerVerdict::Respond
        };
        interpreter.process_with(now_us, port, packet, &mut remote, out);
    }

    /// Advances the time and expires entries.
    pub fn expire(&mut self, now_us: u64) {
        let Self { interpreter, handler, mirrored, last_us, .. } = self;
        if handler.next_expiry_ms().is_some_and(|at_ms| at_ms <= now_us / 1000) {
            // The handler does not see the entries that the part before has used.
            for table in mirrored {
                let used = &mut |entry: &TableEntry| handler.set_leased(*last_us / 1000, *table, &entry.keys, false);
                interpreter.take_used(*table, used);
            }
        }
        self.handler.expire(now_us / 1000);
        while let Some((table, change)) = self.handler.poll_change() {
            if !self.mirrors {
                continue;
            }
            self.mirrored_registers.note(&change);
            // The interpreter has the same entries as the handler, so these changes fit.
            let done = match &change {
                TableChange::Put(entry) => match self.interpreter.insert(table, entry) {
                    Err(pathcall_p4::exec::TableError::Exists { .. }) => self.interpreter.modify(table, entry),
                    done => done,
                },
                TableChange::Removed(keys) => self.interpreter.remove(table, keys),
            };
            debug_assert!(done.is_ok(), "{done:?}");
        }
    }

    /// Handler of the function.
    pub fn handler(&mut self) -> &mut H {
        &mut self.handler
    }

    /// Interpreter of the program, for an operator's entries of tables that are not mirrored.
    pub fn execution_mut(&mut self) -> &mut Interpreter {
        &mut self.interpreter
    }
}

impl MirroredRegisters {
    fn each(&self, mut each: impl FnMut(RegisterId, u32)) {
        for register in &self.registers {
            self.cells.iter().for_each(|cell| each(*register, *cell));
        }
    }

    fn note(&mut self, change: &TableChange) {
        let TableChange::Put(entry) = change else { return };
        let index = self.index_args.get(&entry.action).and_then(|at| entry.args.get(*at));
        self.cells.extend(index.and_then(|index| u32::try_from(*index).ok()));
    }
}

fn follow(call: &mut HandlerContext<'_>, table: TableId, change: &TableChange) {
    let done = match change {
        TableChange::Put(entry) => call.put(table, entry),
        TableChange::Removed(keys) => call.remove(table, keys),
    };
    debug_assert!(done.is_ok(), "{done:?}");
}
