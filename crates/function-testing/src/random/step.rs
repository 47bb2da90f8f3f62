//! Random steps of an execution, and their effects.

use std::fmt;

use super::Choices;
use super::program::exact;
use pathcall_p4::exec::{DropReason, Execution, Output};
use pathcall_p4::ir::{ActionId, Match, MatchKind, Program, RegisterId, Table, TableEntry, TableId};

/// Number of ingress ports.
const PORTS: usize = 4;

/// Number of cells of an array that are compared.
const CELLS_MAX: usize = 2048;

/// Step of an execution.
#[derive(Debug, Clone, PartialEq)]
pub enum FunctionStep {
    /// Packet.
    Packet {
        /// Time since the start, µs.
        now_us: u64,
        /// Ingress port.
        port: u16,
        /// Whole packet.
        bytes: Vec<u8>,
    },
    /// Insertion of an entry.
    Insert(TableId, TableEntry),
    /// Modification of an entry.
    Modify(TableId, TableEntry),
    /// Removal of an entry.
    Remove(TableId, Vec<Match>),
    /// Change of a default action.
    Default(TableId, ActionId, Vec<u128>),
    /// Query of the entries that were hit.
    Used(TableId),
    /// Write to a register.
    Write(RegisterId, u32, u128),
}

/// Effect of a step.
#[derive(Clone, PartialEq)]
pub enum FunctionEffect {
    /// Packet sent, with its port.
    Packet(u16, Vec<u8>),
    /// Digest.
    Digest(String, Vec<u128>),
    /// Packet dropped.
    Dropped(DropReason),
    /// Result of a change: applied or refused.
    Changed(bool),
    /// Entries that were hit, sorted.
    Used(Vec<Vec<Match>>),
}

impl fmt::Debug for FunctionEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packet(port, bytes) => {
                write!(f, "packet at {port}: ")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            Self::Digest(name, values) => write!(f, "digest {name} {values:x?}"),
            Self::Dropped(reason) => write!(f, "dropped: {reason}"),
            Self::Changed(done) => write!(f, "changed: {done}"),
            Self::Used(keys) => write!(f, "used: {keys:x?}"),
        }
    }
}

/// Random steps for a program, at most `most`.
#[must_use]
pub fn steps(program: &Program, choices: &mut Choices<'_>, most: usize) -> Vec<FunctionStep> {
    let mut steps = Vec::new();
    while steps.len() < most && !choices.is_empty() {
        let table = choices.below(program.tables.len()).min(program.tables.len().saturating_sub(1));
        let id = TableId(table as u32);
        let keyed = program.tables.get(table).filter(|table| !table.keys.is_empty());
        steps.push(match (choices.below(12), keyed) {
            (0..=2, Some(table)) => FunctionStep::Insert(id, entry(program, choices, table)),
            (3, Some(table)) => FunctionStep::Modify(id, entry(program, choices, table)),
            (4, Some(table)) => FunctionStep::Remove(id, entry(program, choices, table).keys),
            (5, Some(table)) => {
                let (action, args) = call(program, choices, table);
                FunctionStep::Default(id, action, args)
            }
            (6, Some(_)) => FunctionStep::Used(id),
            (7, _) if !program.registers.is_empty() => {
                let at = choices.below(program.registers.len());
                let register = &program.registers[at];
                let index = choices.below(register.size as usize + 1) as u32;
                FunctionStep::Write(RegisterId(at as u32), index, choices.number(register.ty.width()))
            }
            _ => packet(choices),
        });
    }
    steps
}

/// Random packet: bytes are often small, so that programs see few values; often truncated.
fn packet(choices: &mut Choices<'_>) -> FunctionStep {
    let length = match choices.below(4) {
        0 => 14 + choices.below(64),
        1 => 14 + choices.below(256) + choices.below(256),
        _ => 60 + choices.below(128),
    };
    let byte = |choices: &mut Choices<'_>| match choices.below(8) {
        0..=4 => choices.byte() % 4,
        5 => 0xff,
        6 => 0x80,
        _ => choices.byte(),
    };
    // Without further choices the packet repeats a pattern.
    let few: Vec<u8> = (0..24).map(|_| byte(choices)).collect();
    let bytes = (0..length).map(|i| few[i % few.len()].wrapping_add((i / few.len()) as u8)).collect();
    let now_us = choices.number(48) as u64;
    FunctionStep::Packet { now_us, port: choices.below(PORTS) as u16, bytes }
}

/// Random action of a table, with arguments.
pub(super) fn call(program: &Program, choices: &mut Choices<'_>, table: &Table) -> (ActionId, Vec<u128>) {
    let action = choices.pick(&table.actions);
    let params = &program.actions[action.0 as usize].params;
    (action, params.iter().map(|slot| choices.number(program.width(*slot))).collect())
}

pub(super) fn entry(program: &Program, choices: &mut Choices<'_>, table: &Table) -> TableEntry {
    let key = |key: &pathcall_p4::ir::TableKey| {
        let width = key.expr.ty.width();
        let value = choices.number(width);
        match key.kind {
            MatchKind::Exact => exact(value, width),
            MatchKind::Lpm => {
                let prefix_bits = choices.below(usize::from(width) + 1) as u16;
                let rest = width - prefix_bits;
                let value = value.checked_shr(rest.into()).unwrap_or(0).checked_shl(rest.into()).unwrap_or(0);
                Match { value, prefix_bits }
            }
        }
    };
    let keys = table.keys.iter().map(key).collect();
    let (action, args) = call(program, choices, table);
    TableEntry { keys, action, args }
}

impl FunctionStep {
    /// Applies the step; returns its effects.
    pub fn apply(&self, to: &mut dyn Execution) -> Vec<FunctionEffect> {
        let mut effects = Vec::new();
        match self {
            Self::Packet { now_us, port, bytes } => to.process(*now_us, *port, bytes, &mut |output| {
                effects.push(match output {
                    Output::Packet { port, bytes } => FunctionEffect::Packet(port, bytes.to_vec()),
                    Output::Digest { name, values } => FunctionEffect::Digest(name.to_owned(), values.to_vec()),
                    Output::Dropped(reason) => FunctionEffect::Dropped(reason),
                });
            }),
            Self::Insert(table, entry) => effects.push(FunctionEffect::Changed(to.insert(*table, entry).is_ok())),
            Self::Modify(table, entry) => effects.push(FunctionEffect::Changed(to.modify(*table, entry).is_ok())),
            Self::Remove(table, keys) => effects.push(FunctionEffect::Changed(to.remove(*table, keys).is_ok())),
            Self::Default(table, action, args) => {
                effects.push(FunctionEffect::Changed(to.set_default(*table, *action, args).is_ok()));
            }
            Self::Used(table) => {
                let mut used = Vec::new();
                to.take_used(*table, &mut |entry| used.push(entry.keys.clone()));
                used.sort_unstable();
                effects.push(FunctionEffect::Used(used));
            }
            Self::Write(register, index, value) => to.set_register(*register, *index, *value),
        }
        effects
    }
}

/// Applies all steps to both executions; returns the text of the first difference.
pub fn first_difference(
    program: &Program,
    steps: &[FunctionStep],
    reference: &mut dyn Execution,
    other: &mut dyn Execution,
) -> Option<String> {
    for (i, step) in steps.iter().enumerate() {
        let (mut expected, mut got) = (step.apply(reference), step.apply(other));
        // Digests may be delivered later, so their position among the effects is not compared.
        let has_digest =
            |effects: &[FunctionEffect]| effects.iter().any(|effect| matches!(effect, FunctionEffect::Digest(..)));
        if has_digest(&expected) || has_digest(&got) {
            let last = |effect: &FunctionEffect| !matches!(effect, FunctionEffect::Digest(..));
            expected.sort_by_key(last);
            got.sort_by_key(last);
        }
        if expected != got {
            return Some(format!("step {i}, {step:x?}:\nexpected {expected:?}\ngot      {got:?}"));
        }
    }
    memory(program, reference, other)
}

/// Text of registers, counters and tables that differ.
fn memory(program: &Program, reference: &dyn Execution, other: &dyn Execution) -> Option<String> {
    for (id, register) in program.registers.iter().enumerate() {
        for index in (0..=register.size).take(CELLS_MAX) {
            let of = |execution: &dyn Execution| execution.register(RegisterId(id as u32), index);
            let (expected, got) = (of(reference), of(other));
            if expected != got {
                return Some(format!("{}[{index}]: expected {expected:#x}, got {got:#x}", register.name));
            }
        }
    }
    for (id, counter) in program.counters.iter().enumerate() {
        for index in (0..=counter.size).take(CELLS_MAX) {
            let of = |execution: &dyn Execution| execution.counter(pathcall_p4::ir::CounterId(id as u32), index);
            let (expected, got) = (of(reference), of(other));
            if expected != got {
                return Some(format!("{}[{index}]: expected {expected:?}, got {got:?}", counter.name));
            }
        }
    }
    let tables = (0..program.tables.len() as u32).map(TableId);
    tables.into_iter().find_map(|id| {
        let (expected, got) = (reference.entries(id), other.entries(id));
        (expected != got).then(|| format!("table {}: expected {expected} entries, got {got}", id.0))
    })
}
