//! Invariant checks of a combined run, beside those of each part.

use std::collections::BTreeMap;

use pathcall_program::registers::RegisterArray;
use pathcall_program::{Counters, InstalledApplication, SwitchProgram};
use pathcall_wire::FrameKind;
use pathcall_wire::clone::ServerReport;

use crate::element_program::ProgramTraffic;
use crate::{clone, delegate, function, map, place};

/// Violation of an invariant, in one part or in the whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CombinedViolation {
    /// Violation in map.
    #[error("map: {0}")]
    Map(#[from] map::MapViolation),
    /// Violation in clone.
    #[error("clone: {0}")]
    Clone(#[from] clone::CloneViolation),
    /// Violation in delegate.
    #[error("delegate: {0}")]
    Delegate(#[from] delegate::DelegateViolation),
    /// Violation in function.
    #[error("function: {0}")]
    Function(#[from] function::FunctionViolation),
    /// Violation in place.
    #[error("place: {0}")]
    Place(#[from] place::PlaceViolation),
    /// The element sent a frame to an endpoint of another application or pool.
    #[error("element: a frame of {gaid} was sent to endpoint {endpoint}, which is not an endpoint of it")]
    Astray {
        /// Application or pool that the frame names.
        gaid: u32,
        /// Endpoint that the frame was sent to; 0: a group.
        endpoint: u32,
    },
    /// The element admitted a frame of one ability that names an application or pool of another.
    #[error("element: a forged {kind:?} frame with the id of {gaid} was admitted")]
    Admitted {
        /// Kind of the frame.
        kind: FrameKind,
        /// Application or pool that the frame names.
        gaid: u32,
    },
    /// The program's counters do not match the frames that it processed.
    #[error("element: counter {what} is {counted} after {handed} processed frames")]
    Counters {
        /// Name of the counter.
        what: String,
        /// Value of the counter.
        counted: u64,
        /// Frames that the program processed.
        handed: u64,
    },
    /// The program has lost the pool that was installed.
    #[error("element: the installed pool is missing or differs")]
    Forgotten,
    /// State is left in the element after all registrations were removed.
    #[error("element: {0} left after all applications and pools were removed")]
    Left(String),
    /// The function changed a packet of another ability.
    #[error("function: packet {0} of another ability was changed")]
    Changed(u32),
    /// The function sent a packet that no part had sent.
    #[error("function: packet {0} came out but was never sent")]
    Unsent(u32),
    /// The function lost packets although no fault was injected.
    #[error("function: {0} packets of other abilities were lost although no fault was injected")]
    HeldBack(u64),
    /// A request on the placed host ended that belongs to no part.
    #[error("place: request {0} ended but belongs to no part")]
    Nobody(usize),
    /// Work on the placed host has not ended.
    #[error("place: work of {0} requests has not ended")]
    Unended(usize),
    /// The code under test panicked.
    #[error("{0}")]
    Panic(String),
}

/// Checks the counters of a program against the frames that it has processed since it started.
pub(super) fn counters(program: &SwitchProgram, traffic: &ProgramTraffic) -> Result<(), CombinedViolation> {
    let all = program.counters();
    let Counters { frames_in, .. } = *all;
    let verdicts: u64 = all.iter().filter(|(name, _)| *name != "frames_in").map(|(_, count)| count).sum();
    let handed = traffic.frames;
    if frames_in != handed {
        return Err(CombinedViolation::Counters { what: "frames_in".to_owned(), counted: frames_in, handed });
    }
    if verdicts != handed + traffic.again {
        let what = format!("sum of sent frames, {} of them cloned, and drops", traffic.again);
        return Err(CombinedViolation::Counters { what, counted: verdicts, handed });
    }
    for (gaid, counted) in named(program) {
        let handed = traffic.named.get(&gaid).copied().unwrap_or(0);
        if counted > handed {
            return Err(CombinedViolation::Counters { what: format!("frames of {gaid}"), counted, handed });
        }
    }
    Ok(())
}

/// Frames by application or pool, from the program's counters.
fn named(program: &SwitchProgram) -> BTreeMap<u32, u64> {
    let tables = program.tables();
    let applications = tables.applications().map(|(of, _, c)| (of.gaid, c.admitted + c.not_admitted + c.unauthentic));
    let pools = tables.pools().map(|(of, _, c)| (of.gaid, c.admitted + c.not_admitted + c.unauthentic));
    applications.chain(pools).collect()
}

/// Number of frames that the program has admitted, over all applications and pools.
pub(super) fn admitted(program: &SwitchProgram) -> u64 {
    let tables = program.tables();
    let applications: u64 = tables.applications().map(|(_, _, counters)| counters.admitted).sum();
    applications + tables.pools().map(|(_, _, counters)| counters.admitted).sum::<u64>()
}

/// Checks that no state is left in a program after all registrations, these applications among them, were removed.
pub(super) fn check_no_state_left(
    program: &SwitchProgram,
    applications: &[InstalledApplication],
) -> Result<(), CombinedViolation> {
    fn some<T: Default + PartialEq + Copy>(array: &RegisterArray<T>, at: usize, len: usize) -> usize {
        array.peek(at, len).iter().filter(|value| **value != T::default()).count()
    }
    let (tables, registers) = (program.tables(), program.tables().registers());
    let clones = tables.clones();
    let all = |array: &RegisterArray<ServerReport>| some(array, 0, array.size());
    let mut left = vec![
        ("endpoints are", tables.endpoints().count()),
        ("applications are", tables.applications().count()),
        ("pools are", tables.pools().count()),
        ("loads are", all(&clones.loads) + all(&clones.shadows)),
        ("slots of cloned requests are", some(&clones.requests, 0, clones.requests.size())),
        ("slots of filters are", some(&clones.filters, 0, clones.filters.size())),
    ];
    for InstalledApplication { row_base, rows, lane_base, width, .. } in applications {
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
        Some((what, count)) => Err(CombinedViolation::Left(format!("{count} {what}"))),
        None => Ok(()),
    }
}
