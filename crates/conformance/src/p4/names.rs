//! Lookup of the program's tables, registers and counters by name.

use pathcall_p4::exec::Execution;
use pathcall_p4::interp::Interpreter;
use pathcall_p4::ir::{ActionId, CounterId, Program, RegisterId, TableId};
use pathcall_wire::KEYED_WIDTH;

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

/// Register arrays of *map*.
#[derive(Debug)]
pub(super) struct MapRegisters {
    /// Open and committed generation; open generation and version.
    pub(super) opens: RegisterId,
    pub(super) versions: RegisterId,
    pub(super) seqs: RegisterId,
    pub(super) generations: RegisterId,
    /// Array of flip bits, in a program with flip bits only.
    pub(super) flips: Option<RegisterId>,
    pub(super) numbers: RegisterId,
    /// Tag and workers 0 to 31; tag and workers 32 to 63.
    pub(super) parts: [RegisterId; 2],
    pub(super) marks: RegisterId,
    pub(super) counts: RegisterId,
    pub(super) holders: RegisterId,
    pub(super) words: Vec<RegisterId>,
    pub(super) ballot_states: RegisterId,
    pub(super) locks: RegisterId,
    pub(super) grants: RegisterId,
    pub(super) lanes: Vec<RegisterId>,
    pub(super) overflows: RegisterId,
}

/// Register arrays of calls.
#[derive(Debug)]
pub(super) struct CallRegisters {
    pub(super) numbers: RegisterId,
    pub(super) loads: RegisterId,
    pub(super) shadows: RegisterId,
    pub(super) request_ids: RegisterId,
    pub(super) decisions: RegisterId,
    pub(super) filter_ids: RegisterId,
    pub(super) winners: RegisterId,
}

impl MapRegisters {
    pub(super) fn new(program: &Program, lane_arrays: usize) -> Result<Self, NameError> {
        let of = |name: &str| register(program, name);
        Ok(Self {
            opens: of("generation.opens")?,
            versions: of("generation.versions")?,
            seqs: of("repeat_filter.seqs")?,
            generations: of("repeat_filter.generations")?,
            flips: of("repeat_filter.flips").ok(),
            numbers: of("round.numbers")?,
            parts: [of("round.low.parts")?, of("round.high.parts")?],
            marks: of("round.marks")?,
            counts: of("count.counts")?,
            holders: of("ballot.holders")?,
            words: (0..4).map(|words| of(&format!("ballot.words_{words}.words"))).collect::<Result<_, _>>()?,
            ballot_states: of("ballot.standings")?,
            locks: of("lock.locks")?,
            grants: of("grant.grants")?,
            lanes: (0..lane_arrays).map(|lane| of(&format!("map.lane_{lane}.cells"))).collect::<Result<_, _>>()?,
            overflows: of("overflow.marks")?,
        })
    }

    /// Lane array and cell of a lane in a row: by row, bank, and half of the lanes if a half has its own pass.
    pub(super) fn cell(&self, row: u32, lane: usize) -> (RegisterId, u32) {
        let arrays = self.lanes.len();
        let cells = KEYED_WIDTH / arrays;
        (self.lanes[lane % arrays], row * cells as u32 + (lane / arrays) as u32)
    }
}

impl CallRegisters {
    pub(super) fn new(program: &Program) -> Result<Self, NameError> {
        let of = |name: &str| register(program, name);
        Ok(Self {
            numbers: of("number.numbers")?,
            loads: of("load.loads")?,
            shadows: of("load.shadows")?,
            request_ids: of("requests.ids")?,
            decisions: of("requests.decisions")?,
            filter_ids: of("filter.ids")?,
            winners: of("filter.winners")?,
        })
    }
}

/// Counters of an application or a pool at an index, in the program's order.
pub(super) fn counted(machine: &Interpreter, counters: &[Vec<CounterId>], index: u32) -> Vec<u64> {
    let sum = |of: &Vec<CounterId>| of.iter().map(|counter| machine.counter(*counter, index).packets).sum();
    counters.iter().map(sum).collect()
}
