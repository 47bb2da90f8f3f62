//! Report of a split: place of each statement, carried and postponed values, sizes. `pathcall function explain` prints
//! it.

use std::collections::HashMap;

use super::SplitWarning;
use super::layout::HeaderLayout;
use super::liveness;
use super::postpone::PostponedFunction;
use crate::ir::{Block, Program, RegisterId, SlotId, SourceSpan, Stmt, StmtKind};

/// Place of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StatementPlace {
    /// In the element, before the handler.
    Before,
    /// On a server.
    Server,
    /// In the element, after the handler, or without a handler.
    After,
}

impl StatementPlace {
    /// Text of the reason.
    #[must_use]
    pub fn why(self) -> &'static str {
        match self {
            Self::Before => "the part before the handler: tables, registers and integers, at line rate",
            Self::Server => "the handler in C: persistent state, floats, loops; only for packets sent to a server",
            Self::After => "the part after the handler: runs on the response, or directly without a server",
        }
    }
}

/// Value that a request carries for the part after the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CarriedValue {
    /// Name.
    pub name: String,
    /// Width, bits.
    pub bits: u16,
}

/// New place of a postponed value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PostponedPlace {
    /// Only before the part after the call.
    After,
    /// Before the part after the call as well, when the packet returns; the part before the call needs the value
    /// itself.
    AgainAfter,
    /// On the server, before the handler.
    Server,
}

impl PostponedPlace {
    /// Text of the new place.
    #[must_use]
    pub fn what(self) -> &'static str {
        match self {
            Self::After => "computed from the packet before the part after the handler; not carried",
            Self::AgainAfter => "computed from the packet again when it returns; not carried",
            Self::Server => "computed from the packet on the server; not sent",
        }
    }
}

/// Value that was postponed to fit the target's header vector (CLIP §IV-C).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostponedValue {
    /// Name.
    pub name: String,
    /// Width, bits.
    pub bits: u16,
    /// Positions of its assignments.
    pub at: Vec<SourceSpan>,
    /// New place.
    pub to: PostponedPlace,
}

/// Report of a split.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SplitReport {
    /// Source spans with their places, in the order of the source.
    pub lines: Vec<(SourceSpan, StatementPlace)>,
    /// Carried values.
    pub carried: Vec<CarriedValue>,
    /// Sizes in bytes: whole header, parameters, travelling values of the generated parts.
    pub header_bytes: (usize, usize, usize),
    /// Postponed values.
    pub postponed: Vec<PostponedValue>,
    /// Largest number of simultaneously live bits in the element ([`super::vector`]): without postponed values, and as
    /// built.
    pub phv_bits: (u32, u32),
    /// Lower bound of the pipeline's stages, from data dependencies: of the function, and with the generated parts.
    pub stages: (u32, u32),
    /// Memory of the element in bits: tables (keys and arguments), and registers.
    pub memory_bits: (u64, u64),
    /// Possible differences from the unsplit function.
    pub warnings: Vec<SplitWarning>,
}

impl SplitReport {
    /// Report of the facts known before the element's program is built.
    pub(super) fn new(of: &PostponedFunction, warnings: Vec<SplitWarning>) -> Self {
        let (program, parts, carried) = (&of.program, &of.parts, &of.carried);
        let mut lines = Vec::new();
        let mut note = |block: &Block, place| {
            for stmt in liveness::flatten(program, block).into_iter().filter(|stmt| stmt.at != SourceSpan::default()) {
                lines.push((stmt.at, place));
            }
        };
        note(&program.verify, StatementPlace::Before);
        note(&parts.before, StatementPlace::Before);
        note(&parts.leading, StatementPlace::Before);
        note(&of.on_return, StatementPlace::After);
        of.on_server.iter().for_each(|on_server| note(&on_server.program.ingress, StatementPlace::Server));
        for block in [&parts.trailing, &parts.otherwise, &parts.after, &program.egress, &program.compute] {
            note(block, StatementPlace::After);
        }
        if let Some(handler) = &program.handler {
            let written = [&handler.state, &handler.body].into_iter().filter(|source| !source.text.is_empty());
            lines.extend(written.map(|source| (source.at, StatementPlace::Server)));
        }
        lines.sort_by_key(|(span, place)| (*span, *place as u8));
        lines.dedup();
        let slot = |slot: &SlotId| &program.slots[slot.0 as usize];
        let values =
            carried.slots.iter().map(|s| CarriedValue { name: slot(s).name.clone(), bits: slot(s).ty.width() });
        let validity = carried.headers.iter().map(|header| {
            let name = format!("{}.isValid()", program.headers[header.0 as usize].name);
            CarriedValue { name, bits: 1 }
        });
        let mut stages = Stages::new(program);
        stages.block(&program.ingress, 0);
        stages.block(&program.egress, 0);
        let (carried, postponed) = (values.chain(validity).collect(), of.postponed.clone());
        Self { lines, carried, postponed, stages: (stages.last, 0), warnings, ..Self::default() }
    }

    /// Adds the element's program and the header.
    pub(super) fn of(mut self, element: &Program, layout: &HeaderLayout, phv_bits: (u32, u32)) -> Self {
        let travelling = layout.travelling.iter().map(|field| field.bytes().len()).sum();
        self.header_bytes = (layout.length, layout.params, travelling);
        self.phv_bits = phv_bits;
        let mut stages = Stages::new(element);
        stages.block(&element.ingress, 0);
        stages.block(&element.egress, 0);
        self.stages.1 = stages.last;
        self.memory_bits = (tables_bits(element), registers_bits(element));
        self
    }
}

fn tables_bits(program: &Program) -> u64 {
    let bits = program.tables.iter().map(|table| {
        let keys: u64 = table.keys.iter().map(|key| u64::from(key.expr.ty.width())).sum();
        let args = table.actions.iter().map(|action| {
            let params = &program.actions[action.0 as usize].params;
            params.iter().map(|slot| u64::from(program.width(*slot))).sum::<u64>()
        });
        u64::from(table.size) * (keys + args.max().unwrap_or(0))
    });
    bits.sum()
}

fn registers_bits(program: &Program) -> u64 {
    program.registers.iter().map(|r| u64::from(r.size) * u64::from(r.ty.width())).sum()
}

/// Earliest stage of each value: one after the stages of the values that it depends on.
struct Stages<'a> {
    program: &'a Program,
    slots: Vec<u32>,
    registers: HashMap<RegisterId, u32>,
    last: u32,
}

impl<'a> Stages<'a> {
    fn new(program: &'a Program) -> Self {
        Self { program, slots: vec![0; program.slots.len()], registers: HashMap::new(), last: 0 }
    }

    fn block(&mut self, block: &'a [Stmt], under: u32) {
        for stmt in block {
            self.stmt(stmt, under);
        }
    }

    fn stmt(&mut self, stmt: &'a Stmt, under: u32) {
        let program = self.program;
        let mut needs = liveness::PlaceSet::none(program);
        liveness::visit_exprs(program, stmt, &mut |expr| liveness::add_read_places(expr, &mut needs));
        let ready = needs.slots().map(|slot| self.slots[slot.0 as usize]).max().unwrap_or(0).max(under);
        match &stmt.kind {
            StmtKind::If { then, otherwise, .. } => {
                self.block(then, ready);
                self.block(otherwise, ready);
            }
            StmtKind::Body(block) => self.block(block, under),
            StmtKind::Apply { table, hit, action } => {
                let stage = self.at(ready + 1);
                hit.iter().chain(action).for_each(|slot| self.slots[slot.0 as usize] = stage);
                for action in liveness::actions(program, *table) {
                    action.params.iter().for_each(|slot| self.slots[slot.0 as usize] = ready);
                    self.block(&action.body, ready);
                }
            }
            StmtKind::Read { register, .. } | StmtKind::Write { register, .. } | StmtKind::Update { register, .. } => {
                // An array is in a single stage, the latest of its accesses.
                let known = self.registers.get(register).copied().unwrap_or(0);
                let stage = self.at((ready + 1).max(known));
                self.registers.insert(*register, stage);
                if let StmtKind::Read { to, .. } | StmtKind::Update { to: Some(to), .. } = &stmt.kind {
                    self.slots[to.0 as usize] = stage;
                }
            }
            StmtKind::Assign { to, .. } | StmtKind::Hash { to, .. } | StmtKind::Checksum { to, .. } => {
                let stage = self.at(ready + 1);
                self.slots[to.0 as usize] = self.slots[to.0 as usize].max(stage);
            }
            _ => {
                self.at(ready + 1);
            }
        }
    }

    fn at(&mut self, stage: u32) -> u32 {
        self.last = self.last.max(stage);
        stage
    }
}
