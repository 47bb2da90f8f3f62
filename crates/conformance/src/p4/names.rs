//! Lookup of the program's tables, registers and counters by name.

use pathcall_p4::exec::Execution;
use pathcall_p4::interp::Interpreter;
use pathcall_p4::ir::{ActionId, CounterId, Program, RegisterId, TableId};

/// Name that the program lacks, or has more than once.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the P4 program has {found} {what} of the name {name}, expected one")]
pub struct NameError {
    what: &'static str,
    name: String,
    found: usize,
}

/// Index of the object whose path ends with this name. In text emitted by the compiler, controls are inlined and paths
/// are single names.
fn one<'a>(what: &'static str, name: &str, all: impl Iterator<Item = &'a str>) -> Result<u32, NameError> {
    let flat = |path: &str| path.replace('.', "_");
    let wanted = flat(name);
    let ends =
        |path: &str| flat(path).strip_suffix(&*wanted).is_some_and(|rest| rest.is_empty() || rest.ends_with('_'));
    let found: Vec<usize> = all.enumerate().filter(|(_, path)| ends(path)).map(|(at, _)| at).collect();
    match found[..] {
        [at] => Ok(at as u32),
        _ => Err(NameError { what, name: name.to_owned(), found: found.len() }),
    }
}

pub(super) fn table(program: &Program, name: &str) -> Result<TableId, NameError> {
    one("tables", name, program.tables.iter().map(|table| &*table.name)).map(TableId)
}

pub(super) fn action(program: &Program, table: TableId, name: &str) -> Result<ActionId, NameError> {
    let actions = &program.tables[table.0 as usize].actions;
    let at = one("actions", name, actions.iter().map(|action| &*program.actions[action.0 as usize].name))?;
    Ok(actions[at as usize])
}

pub(super) fn counter(program: &Program, name: &str) -> Result<CounterId, NameError> {
    one("counters", name, program.counters.iter().map(|counter| &*counter.name)).map(CounterId)
}

fn register(program: &Program, name: &str) -> Result<RegisterId, NameError> {
    one("registers", name, program.registers.iter().map(|register| &*register.name)).map(RegisterId)
}

/// Register arrays of the program.
#[derive(Debug)]
pub(super) struct Registers {
    pub(super) opens: RegisterId,
    pub(super) commits: RegisterId,
    pub(super) versions: RegisterId,
    pub(super) seqs: RegisterId,
    pub(super) generations: RegisterId,
    /// Array of flip bits, in a program with flip bits only.
    pub(super) flips: Option<RegisterId>,
    pub(super) numbers: RegisterId,
    pub(super) parts: RegisterId,
    pub(super) marks: RegisterId,
    pub(super) counts: RegisterId,
    pub(super) holders: RegisterId,
    pub(super) words: Vec<RegisterId>,
    pub(super) ballot_states: RegisterId,
    pub(super) locks: RegisterId,
    pub(super) grants: RegisterId,
    pub(super) lanes: Vec<RegisterId>,
    pub(super) overflows: RegisterId,
    pub(super) call_numbers: RegisterId,
    pub(super) loads: RegisterId,
    pub(super) shadows: RegisterId,
    pub(super) requests: RegisterId,
    pub(super) filters: RegisterId,
}

impl Registers {
    pub(super) fn new(program: &Program) -> Result<Self, NameError> {
        let of = |name: &str| register(program, name);
        Ok(Self {
            opens: of("generation.opens")?,
            commits: of("generation.commits")?,
            versions: of("generation.versions")?,
            seqs: of("repeat_filter.seqs")?,
            generations: of("repeat_filter.generations")?,
            flips: of("repeat_filter.flips").ok(),
            numbers: of("round.numbers")?,
            parts: of("round.parts")?,
            marks: of("round.marks")?,
            counts: of("count.counts")?,
            holders: of("ballot.holders")?,
            words: (0..8).map(|word| of(&format!("ballot.word_{word}.words"))).collect::<Result<_, _>>()?,
            ballot_states: of("ballot.standings")?,
            locks: of("lock.locks")?,
            grants: of("grant.grants")?,
            lanes: (0..32).map(|lane| of(&format!("map.lane_{lane}.cells"))).collect::<Result<_, _>>()?,
            overflows: of("overflow.marks")?,
            call_numbers: of("number.numbers")?,
            loads: of("load.loads")?,
            shadows: of("load.shadows")?,
            requests: of("requests.requests")?,
            filters: of("filter.filters")?,
        })
    }
}

/// Counters of an application or a pool at an index, in the program's order.
pub(super) fn counted(machine: &Interpreter, counters: &[Vec<CounterId>], index: u32) -> Vec<u64> {
    let sum = |of: &Vec<CounterId>| of.iter().map(|counter| machine.counter(*counter, index).packets).sum();
    counters.iter().map(sum).collect()
}
