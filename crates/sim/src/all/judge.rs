//! What must be so of the whole, whatever each part is about.

use std::collections::BTreeMap;

use pathcall_program::registers::RegisterArray;
use pathcall_program::{Application, Counters, Program};
use pathcall_wire::Kind;

use crate::judge::Failure;
use crate::switch::Passed;
use crate::{clone, delegate, function, place};

/// What was wrong, and with which part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// With map.
    #[error("map: {0}")]
    Map(#[from] Failure),
    /// With clone.
    #[error("clone: {0}")]
    Clone(#[from] clone::Wrong),
    /// With delegate.
    #[error("delegate: {0}")]
    Delegate(#[from] delegate::Wrong),
    /// With function.
    #[error("function: {0}")]
    Function(#[from] function::Wrong),
    /// With place.
    #[error("place: {0}")]
    Place(#[from] place::Wrong),
    /// A frame left for somebody whom it was not for.
    #[error("element: a frame of {gaid} left for endpoint {endpoint}, which is not one of it")]
    Astray {
        /// The application or pool that it named.
        gaid: u32,
        /// Whom it left for; 0: a group.
        endpoint: u32,
    },
    /// What names one ability's application in a frame of another's was let in.
    #[error("element: a {kind:?} frame in the name of {gaid} was admitted")]
    Admitted {
        /// What it was.
        kind: Kind,
        /// In whose name.
        gaid: u32,
    },
    /// The program's counters do not say what was handed to it.
    #[error("element: {what} is {counted}, of {handed} frames that were handed to it")]
    Counters {
        /// Which counters.
        what: String,
        /// What they say.
        counted: u64,
        /// Frames.
        handed: u64,
    },
    /// The program no longer knows the pool that it was told of.
    #[error("element: the pool that was installed is not there, or is another")]
    Forgotten,
    /// Something is left when all is over and everybody was taken out.
    #[error("element: {0} left when all applications and pools were taken out")]
    Left(String),
    /// What the function carried came out changed.
    #[error("function: packet {0} of another ability came out changed")]
    Changed(u32),
    /// What came out of the function is nobody's.
    #[error("function: packet {0} came out, and nobody had sent it")]
    Unsent(u32),
    /// Packets were lost though nothing failed.
    #[error("function: {0} packets of other abilities did not come out, and nothing had failed")]
    HeldBack(u64),
    /// A request of a placed host is nobody's work.
    #[error("place: request {0} ended, and was nobody's work")]
    Nobody(usize),
    /// Work has not ended.
    #[error("place: work of {0} requests has not ended")]
    Unended(usize),
    /// The code panicked.
    #[error("{0}")]
    Panic(String),
}

/// Whether the counters of a program say what was handed to it since it started.
pub(super) fn counters(program: &Program, passed: &Passed) -> Result<(), Wrong> {
    let all = program.counters();
    let Counters { frames_in, .. } = *all;
    let verdicts: u64 = all.iter().filter(|(name, _)| *name != "frames_in").map(|(_, count)| count).sum();
    let handed = passed.frames;
    if frames_in != handed {
        return Err(Wrong::Counters { what: "frames_in".to_owned(), counted: frames_in, handed });
    }
    if verdicts != handed + passed.again {
        let what = format!("the sum of frames that left, {} of them cloned, and drops", passed.again);
        return Err(Wrong::Counters { what, counted: verdicts, handed });
    }
    for (gaid, counted) in named(program) {
        let handed = passed.named.get(&gaid).copied().unwrap_or(0);
        if counted > handed {
            return Err(Wrong::Counters { what: format!("frames of {gaid}"), counted, handed });
        }
    }
    Ok(())
}

/// Frames that named each application and pool, as the program counted them.
fn named(program: &Program) -> BTreeMap<u32, u64> {
    let tables = program.tables();
    let applications = tables.applications().map(|(of, _, c)| (of.gaid, c.admitted + c.not_admitted + c.unauthentic));
    let pools = tables.pools().map(|(of, _, c)| (of.gaid, c.admitted + c.not_admitted + c.unauthentic));
    applications.chain(pools).collect()
}

/// Frames that each application and pool has admitted.
pub(super) fn admitted(program: &Program) -> u64 {
    let tables = program.tables();
    let applications: u64 = tables.applications().map(|(_, _, counters)| counters.admitted).sum();
    applications + tables.pools().map(|(_, _, counters)| counters.admitted).sum::<u64>()
}

/// Whether a program from which everybody was taken out, these applications among them, holds nothing of anybody.
pub(super) fn nothing_is_left(program: &Program, applications: &[Application]) -> Result<(), Wrong> {
    fn some<T: Default + PartialEq + Copy>(array: &RegisterArray<T>, at: usize, len: usize) -> usize {
        array.peek(at, len).iter().filter(|value| **value != T::default()).count()
    }
    let (tables, registers) = (program.tables(), program.tables().registers());
    let clones = tables.clones();
    let all = |array: &RegisterArray<u16>| some(array, 0, array.size());
    let mut left = vec![
        ("endpoints are", tables.endpoints().count()),
        ("applications are", tables.applications().count()),
        ("pools are", tables.pools().count()),
        ("loads are", all(&clones.loads) + all(&clones.shadows)),
        ("slots of cloned requests are", some(&clones.requests, 0, clones.requests.size())),
        ("slots of filters are", some(&clones.filters, 0, clones.filters.size())),
    ];
    for Application { row_base, rows, lane_base, width, .. } in applications {
        let (row, rows) = (*row_base as usize, *rows as usize);
        left.extend([
            ("rounds are", some(&registers.rounds, row, rows)),
            ("counts are", some(&registers.counts, row, rows)),
            ("ballots are", some(&registers.ballots, row, rows)),
            ("locks are", some(&registers.locks, row, rows)),
            ("grants are", some(&registers.grants, row, rows)),
            ("lanes are", some(&registers.lanes, *lane_base as usize, rows * *width as usize)),
        ]);
    }
    match left.iter().find(|(_, count)| *count > 0) {
        Some((what, count)) => Err(Wrong::Left(format!("{count} {what}"))),
        None => Ok(()),
    }
}
