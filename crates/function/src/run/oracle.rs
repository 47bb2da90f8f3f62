//! The function in one piece: what its parts together are held to.
//!
//! ```text
//! packet ─► before ─► handler, at once ─► behind ─► out          one machine, tables without bound
//! ```

use crate::exec::{Execution, Output};
use crate::interp::{Call, CompileError, Interpreter, Verdict};
use crate::ir::{Program, SlotId, TableId};
use crate::serve::{Change, Handler, Outcome};

/// Runs a function that is not split.
#[derive(Debug)]
pub struct Oracle<H> {
    interpreter: Interpreter,
    handler: H,
    request: Vec<SlotId>,
    response: Vec<(SlotId, u16)>,
    values: Vec<u128>,
    answer: Vec<u128>,
    /// Whether the part before finds the handler's entries. With mirrored registers, whose cells go with entries,
    /// they are the handler's alone.
    mirrors: bool,
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
        let mut oracle = Self {
            interpreter: Interpreter::new(&program)?,
            values: vec![0; request.len()],
            answer: vec![0; response.len()],
            request,
            response: response.into_iter().map(|slot| (slot, program.width(slot))).collect(),
            mirrors: !program.registers.iter().any(|register| register.mirrored),
            handler,
        };
        oracle.expire(0);
        Ok(oracle)
    }

    /// Works on a packet.
    pub fn process(&mut self, now_us: u64, port: u16, packet: &[u8], out: &mut dyn FnMut(Output<'_>)) {
        let Self { interpreter, handler, request, response, values, answer, mirrors } = self;
        let mut remote = |call: &mut Call<'_>| {
            for (value, slot) in values.iter_mut().zip(request.iter()) {
                *value = call.get(*slot);
            }
            answer.fill(0);
            let outcome = handler.handle(now_us / 1000, values, call.packet, answer);
            while let Some((table, change)) = handler.poll_change() {
                if *mirrors {
                    follow(call, table, &change);
                }
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
        self.handler.expire(now_us / 1000);
        while let Some((table, change)) = self.handler.poll_change() {
            if !self.mirrors {
                continue;
            }
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
}

fn follow(call: &mut Call<'_>, table: TableId, change: &Change) {
    let done = match change {
        Change::Put(entry) => call.put(table, entry),
        Change::Removed(keys) => call.remove(table, keys),
    };
    debug_assert!(done.is_ok(), "{done:?}");
}
