//! The program's tables, registers and counters by their names in the text.

use pathcall_function::exec::Execution;
use pathcall_function::interp::Interpreter;
use pathcall_function::ir::{ActionId, CounterId, Program, RegisterId, TableId};

/// What the text does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the P4 program has {found} {what} of the name {name}, expected one")]
pub struct Unnamed {
    what: &'static str,
    name: String,
    found: usize,
}

/// The one whose path ends with this name. Where the compiler has written the program's text, controls are in place and
/// paths are single names.
fn one<'a>(what: &'static str, name: &str, all: impl Iterator<Item = &'a str>) -> Result<u32, Unnamed> {
    let flat = |path: &str| path.replace('.', "_");
    let wanted = flat(name);
    let ends =
        |path: &str| flat(path).strip_suffix(&*wanted).is_some_and(|rest| rest.is_empty() || rest.ends_with('_'));
    let found: Vec<usize> = all.enumerate().filter(|(_, path)| ends(path)).map(|(at, _)| at).collect();
    match found[..] {
        [at] => Ok(at as u32),
        _ => Err(Unnamed { what, name: name.to_owned(), found: found.len() }),
    }
}

pub(super) fn table(program: &Program, name: &str) -> Result<TableId, Unnamed> {
    one("tables", name, program.tables.iter().map(|table| &*table.name)).map(TableId)
}

pub(super) fn action(program: &Program, table: TableId, name: &str) -> Result<ActionId, Unnamed> {
    let actions = &program.tables[table.0 as usize].actions;
    let at = one("actions", name, actions.iter().map(|action| &*program.actions[action.0 as usize].name))?;
    Ok(actions[at as usize])
}

pub(super) fn counter(program: &Program, name: &str) -> Result<CounterId, Unnamed> {
    one("counters", name, program.counters.iter().map(|counter| &*counter.name)).map(CounterId)
}

fn register(program: &Program, name: &str) -> Result<RegisterId, Unnamed> {
    one("registers", name, program.registers.iter().map(|register| &*register.name)).map(RegisterId)
}

/// The register arrays, one for each that the text declares.
#[derive(Debug)]
pub(super) struct Registers {
    pub(super) opens: RegisterId,
    pub(super) commits: RegisterId,
    pub(super) versions: RegisterId,
    pub(super) seqs: RegisterId,
    pub(super) generations: RegisterId,
    /// Of a program with the flip bit alone.
    pub(super) flips: Option<RegisterId>,
    pub(super) numbers: RegisterId,
    pub(super) parts: RegisterId,
    pub(super) marks: RegisterId,
    pub(super) counts: RegisterId,
    pub(super) holders: RegisterId,
    pub(super) words: Vec<RegisterId>,
    pub(super) standings: RegisterId,
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
    pub(super) fn new(program: &Program) -> Result<Self, Unnamed> {
        let of = |name: &str| register(program, name);
        Ok(Self {
            opens: of("generation.opens")?,
            commits: of("generation.commits")?,
            versions: of("generation.versions")?,
            seqs: of("once.seqs")?,
            generations: of("once.generations")?,
            flips: of("once.flips").ok(),
            numbers: of("round.numbers")?,
            parts: of("round.parts")?,
            marks: of("round.marks")?,
            counts: of("count.counts")?,
            holders: of("ballot.holders")?,
            words: (0..8).map(|word| of(&format!("ballot.word_{word}.words"))).collect::<Result<_, _>>()?,
            standings: of("ballot.standings")?,
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

/// The counters of an application or a pool, in the order of the program's, at an index.
pub(super) fn counted(machine: &Interpreter, counters: &[Vec<CounterId>], index: u32) -> Vec<u64> {
    let sum = |of: &Vec<CounterId>| of.iter().map(|counter| machine.counter(*counter, index).packets).sum();
    counters.iter().map(sum).collect()
}
