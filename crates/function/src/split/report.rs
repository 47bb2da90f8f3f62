//! What runs where and why, and how large it is: what `pathcall function explain` prints.

use std::collections::HashMap;

use super::Warning;
use super::flow;
use super::layout::Layout;
use super::postpone::Made as Postponing;
use crate::ir::{Block, Program, RegisterId, SlotId, Span, Stmt, StmtKind};

/// Where something runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// In the element, when the packet comes.
    Before,
    /// On a server.
    Server,
    /// In the element, when the packet is back or needs no server.
    Behind,
}

impl Place {
    /// Why it runs there.
    #[must_use]
    pub fn why(self) -> &'static str {
        match self {
            Self::Before => "tables, registers and integers of the part before the handler: at the rate of the link",
            Self::Server => "C: state that lives on, floats, loops; only packets in flight",
            Self::Behind => "the part behind the handler: runs on the response, or at once",
        }
    }
}

/// A value that travels because the part behind needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Travels {
    /// Its name.
    pub name: String,
    /// Its width, bits.
    pub bits: u16,
}

/// When a value is worked out that need not be held from the part before on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Later {
    /// In front of the part behind, and nowhere else.
    Behind,
    /// There too, when the packet is back: the part before needs it itself.
    AgainBehind,
    /// On the server, in front of the handler.
    Server,
}

impl Later {
    /// What became of it.
    #[must_use]
    pub fn what(self) -> &'static str {
        match self {
            Self::Behind => "worked out from the packet in front of the part behind; it does not travel",
            Self::AgainBehind => "worked out from the packet once more when it is back; it does not travel",
            Self::Server => "worked out from the packet on the server; it is not sent",
        }
    }
}

/// A value that was postponed to fit the target's header vector (CLIP §IV-C).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Postponed {
    /// Its name.
    pub name: String,
    /// Its width, bits.
    pub bits: u16,
    /// What assigns it.
    pub at: Vec<Span>,
    /// When it is worked out instead.
    pub to: Later,
}

/// The report of a split.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Pieces of the source and where they run, in the order of the source.
    pub lines: Vec<(Span, Place)>,
    /// Values that travel with a packet.
    pub carried: Vec<Travels>,
    /// Bytes of the header: all of it, the parameters, what the parts around the function send.
    pub header_bytes: (usize, usize, usize),
    /// Values that were postponed.
    pub postponed: Vec<Postponed>,
    /// Bits of values that the element holds at once, at most ([`super::vector`]): if nothing were postponed, and as it is.
    pub phv_bits: (u32, u32),
    /// Stages that a pipeline needs at least, by what depends on what: before, and with the parts around the function.
    pub stages: (u32, u32),
    /// Bits of tables (keys and arguments), and of registers, in the element.
    pub memory_bits: (u64, u64),
    /// What may differ from the function in one piece.
    pub warnings: Vec<Warning>,
}

impl Report {
    /// What is known before the element's program is made.
    pub(super) fn new(of: &Postponing, warnings: Vec<Warning>) -> Self {
        let (program, parts, carried) = (&of.program, &of.parts, &of.carried);
        let mut lines = Vec::new();
        let mut note = |block: &Block, place| {
            for stmt in flow::flat(program, block).into_iter().filter(|stmt| stmt.at != Span::default()) {
                lines.push((stmt.at, place));
            }
        };
        note(&program.verify, Place::Before);
        note(&parts.before, Place::Before);
        note(&parts.leading, Place::Before);
        note(&of.back, Place::Behind);
        of.on_server.iter().for_each(|on_server| note(&on_server.program.ingress, Place::Server));
        for block in [&parts.trailing, &parts.otherwise, &parts.behind, &program.egress, &program.compute] {
            note(block, Place::Behind);
        }
        if let Some(handler) = &program.handler {
            let written = [&handler.state, &handler.body].into_iter().filter(|source| !source.text.is_empty());
            lines.extend(written.map(|source| (source.at, Place::Server)));
        }
        lines.sort_by_key(|(span, place)| (*span, *place as u8));
        lines.dedup();
        let slot = |slot: &SlotId| &program.slots[slot.0 as usize];
        let values = carried.slots.iter().map(|s| Travels { name: slot(s).name.clone(), bits: slot(s).ty.width() });
        let validity = carried.headers.iter().map(|header| {
            let name = format!("{}.isValid()", program.headers[header.0 as usize].name);
            Travels { name, bits: 1 }
        });
        let mut stages = Stages::new(program);
        stages.block(&program.ingress, 0);
        stages.block(&program.egress, 0);
        let (carried, postponed) = (values.chain(validity).collect(), of.postponed.clone());
        Self { lines, carried, postponed, stages: (stages.last, 0), warnings, ..Self::default() }
    }

    /// With the element's program and the header.
    pub(super) fn of(mut self, element: &Program, layout: &Layout, phv_bits: (u32, u32)) -> Self {
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

/// In which stage of a pipeline each value is there at the earliest: one behind those that it is made of.
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
        let mut needs = flow::Places::none(program);
        flow::exprs(program, stmt, &mut |expr| flow::read(expr, &mut needs));
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
                for action in flow::actions(program, *table) {
                    action.params.iter().for_each(|slot| self.slots[slot.0 as usize] = ready);
                    self.block(&action.body, ready);
                }
            }
            StmtKind::Read { register, .. } | StmtKind::Write { register, .. } | StmtKind::Update { register, .. } => {
                // An array lives in one stage: the latest that somebody needs it in.
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
