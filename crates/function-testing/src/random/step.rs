//! What happens to an execution, and what it does then.

use std::fmt;

use super::Choices;
use super::program::exact;
use pathcall_function::exec::{Execution, Output, Reason};
use pathcall_function::ir::{ActionId, Entry, Match, MatchKind, Program, RegisterId, Table, TableId};

/// Ports that packets come in by.
const PORTS: usize = 4;

/// Cells of an array that are compared.
const CELLS_MAX: usize = 2048;

/// Something that happens.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// A packet comes.
    Packet {
        /// Microseconds since the start.
        now_us: u64,
        /// Here.
        port: u16,
        /// Whole.
        bytes: Vec<u8>,
    },
    /// A controller adds an entry.
    Insert(TableId, Entry),
    /// Or changes one.
    Modify(TableId, Entry),
    /// Or removes one.
    Remove(TableId, Vec<Match>),
    /// Or says what runs on a miss.
    Default(TableId, ActionId, Vec<u128>),
    /// Or asks which entries were hit.
    Used(TableId),
    /// Or writes a register.
    Write(RegisterId, u32, u128),
}

/// What an execution does.
#[derive(Clone, PartialEq)]
pub enum Effect {
    /// A packet left here.
    Packet(u16, Vec<u8>),
    /// The controller was told.
    Digest(String, Vec<u128>),
    /// A packet ended.
    Dropped(Reason),
    /// A change was made, or not.
    Changed(bool),
    /// Entries that were hit, in order.
    Used(Vec<Vec<Match>>),
}

impl fmt::Debug for Effect {
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

/// Steps for a program by these choices, at most so many.
#[must_use]
pub fn steps(program: &Program, choices: &mut Choices<'_>, most: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    while steps.len() < most && !choices.is_empty() {
        let table = choices.below(program.tables.len()).min(program.tables.len().saturating_sub(1));
        let id = TableId(table as u32);
        let keyed = program.tables.get(table).filter(|table| !table.keys.is_empty());
        steps.push(match (choices.below(12), keyed) {
            (0..=2, Some(table)) => Step::Insert(id, entry(program, choices, table)),
            (3, Some(table)) => Step::Modify(id, entry(program, choices, table)),
            (4, Some(table)) => Step::Remove(id, entry(program, choices, table).keys),
            (5, Some(table)) => {
                let (action, args) = call(program, choices, table);
                Step::Default(id, action, args)
            }
            (6, Some(_)) => Step::Used(id),
            (7, _) if !program.registers.is_empty() => {
                let at = choices.below(program.registers.len());
                let register = &program.registers[at];
                let index = choices.below(register.size as usize + 1) as u32;
                Step::Write(RegisterId(at as u32), index, choices.number(register.ty.width()))
            }
            _ => packet(choices),
        });
    }
    steps
}

/// A packet: bytes that are often small, so that programs tell few values apart; often cut short.
fn packet(choices: &mut Choices<'_>) -> Step {
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
    // Choices end: a pattern goes on where they do.
    let few: Vec<u8> = (0..24).map(|_| byte(choices)).collect();
    let bytes = (0..length).map(|i| few[i % few.len()].wrapping_add((i / few.len()) as u8)).collect();
    let now_us = choices.number(48) as u64;
    Step::Packet { now_us, port: choices.below(PORTS) as u16, bytes }
}

/// One of a table's actions, with arguments.
pub(super) fn call(program: &Program, choices: &mut Choices<'_>, table: &Table) -> (ActionId, Vec<u128>) {
    let action = choices.pick(&table.actions);
    let params = &program.actions[action.0 as usize].params;
    (action, params.iter().map(|slot| choices.number(program.width(*slot))).collect())
}

pub(super) fn entry(program: &Program, choices: &mut Choices<'_>, table: &Table) -> Entry {
    let key = |key: &pathcall_function::ir::Key| {
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
    Entry { keys, action, args }
}

impl Step {
    /// Has it happen; what is done then.
    pub fn apply(&self, to: &mut dyn Execution) -> Vec<Effect> {
        let mut effects = Vec::new();
        match self {
            Self::Packet { now_us, port, bytes } => to.process(*now_us, *port, bytes, &mut |output| {
                effects.push(match output {
                    Output::Packet { port, bytes } => Effect::Packet(port, bytes.to_vec()),
                    Output::Digest { name, values } => Effect::Digest(name.to_owned(), values.to_vec()),
                    Output::Dropped(reason) => Effect::Dropped(reason),
                });
            }),
            Self::Insert(table, entry) => effects.push(Effect::Changed(to.insert(*table, entry).is_ok())),
            Self::Modify(table, entry) => effects.push(Effect::Changed(to.modify(*table, entry).is_ok())),
            Self::Remove(table, keys) => effects.push(Effect::Changed(to.remove(*table, keys).is_ok())),
            Self::Default(table, action, args) => {
                effects.push(Effect::Changed(to.set_default(*table, *action, args).is_ok()));
            }
            Self::Used(table) => {
                let mut used = Vec::new();
                to.take_used(*table, &mut |entry| used.push(entry.keys.clone()));
                used.sort_unstable();
                effects.push(Effect::Used(used));
            }
            Self::Write(register, index, value) => to.set_register(*register, *index, *value),
        }
        effects
    }
}

/// Has all steps happen to both: the first difference, in words.
pub fn first_difference(
    program: &Program,
    steps: &[Step],
    reference: &mut dyn Execution,
    other: &mut dyn Execution,
) -> Option<String> {
    for (i, step) in steps.iter().enumerate() {
        let (mut expected, mut got) = (step.apply(reference), step.apply(other));
        // When a digest is heard of is up to the execution.
        let told = |effects: &[Effect]| effects.iter().any(|effect| matches!(effect, Effect::Digest(..)));
        if told(&expected) || told(&got) {
            let last = |effect: &Effect| !matches!(effect, Effect::Digest(..));
            expected.sort_by_key(last);
            got.sort_by_key(last);
        }
        if expected != got {
            return Some(format!("step {i}, {step:x?}:\nexpected {expected:?}\ngot      {got:?}"));
        }
    }
    memory(program, reference, other)
}

/// Registers, counters and tables that differ.
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
            let of = |execution: &dyn Execution| execution.counter(pathcall_function::ir::CounterId(id as u32), index);
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
