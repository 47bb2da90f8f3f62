//! A deterministic network that runs the real callers, owners and switch program.
//!
//! One seed is one [`scenario`], one run and one trace: virtual time, an event [`queue`], [`link`]s
//! that delay, mark, lose, repeat and reorder, and a [`judge`](Failure) that holds every outcome
//! against a software model.
//!
//! ```text
//! seed ─► scenario ─► world ─► outcome
//!                      ├─ callers (MapClient), owners (MapServer), elements (Program)
//!                      ├─ hosts: clocks that drift, machines that pause or are slow
//!                      ├─ failing: elements lose all, or are lost to the controller; memory moves, shrinks, goes
//!                      ├─ killing: callers' processes die, and others take their places
//!                      ├─ network: links that are cut, change, lose, repeat and reorder; late copies, hostile bytes
//!                      ├─ windows: the rule of sequence numbers, watched from outside
//!                      └─ judge: sums, values, locks; each call ends exactly once
//! ```
//!
//! Other abilities have worlds of their own: [`clone`], [`delegate`], [`function`], [`place`]. In [`all`] they meet.
//!
//! [`run`] plays one seed, [`play`] a scenario of one's own, [`sweep`] many seeds on all cores,
//! [`shrink`] leaves out what a failure does not need, [`cli`] is `pathcall sim`. After the faults end everything
//! must finish within a bound of virtual time; then late repeats come in, and the values of all keys must be exact.

#![warn(missing_docs)]

pub mod all;
pub mod cli;
pub mod clone;
pub mod delegate;
pub mod function;
pub mod host;
pub mod link;
pub mod place;
pub mod queue;
pub mod random;
pub mod scenario;

mod ability;
mod around;
mod caller;
mod element;
mod hostile;
mod judge;
mod network;
mod owner;
mod panics;
mod part;
mod parties;
mod party;
mod shrink;
mod smaller;
mod sweep;
mod switch;
mod tally;
mod trace;
mod windows;
mod world;

use std::fmt;
use std::io::{self, Write};

use pathcall_endpoint::map::server::ServerStats;
use pathcall_wire::Instant;

pub use ability::Ability;
pub use judge::Failure;
pub use party::Node;
pub use scenario::{Scenario, generate};
pub use shrink::shrink;
#[cfg(feature = "mutants")]
pub use sweep::hunt;
pub use sweep::{Progress, Report, sweep};
pub use tally::Tally;
pub use windows::WindowError;

use around::Around;
use part::Part;
use trace::{Millis, Trace};
use world::World;

/// What became of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Its seed.
    pub seed: u64,
    /// Differs where runs differ.
    pub trace_hash: u64,
    /// What was counted.
    pub tally: Tally,
    /// What each application's owner counted.
    pub owners: Vec<ServerStats>,
    /// What was wrong, if anything, and when.
    pub failure: Option<(Instant, Failure)>,
}

/// A failure with all that is needed to see it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The seed.
    pub seed: u64,
    /// When it was seen, in virtual time.
    pub at: Instant,
    /// What was wrong.
    pub failure: Failure,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, at, failure } = self;
        write!(f, "seed {seed}, after {} ms: {failure}\n  replay: pathcall sim map --seed {seed}", Millis(*at))
    }
}

impl Outcome {
    /// The failure, with all that is needed to see it again.
    #[must_use]
    pub fn finding(&self) -> Option<Finding> {
        let (at, failure) = self.failure.clone()?;
        Some(Finding { seed: self.seed, at, failure })
    }
}

/// Plays the scenario of a seed.
#[must_use]
pub fn run(seed: u64) -> Outcome {
    play(&generate(seed))
}

/// Plays a scenario.
#[must_use]
pub fn play(scenario: &Scenario) -> Outcome {
    play_in(scenario, Trace::new(None)).0
}

/// Plays a scenario and writes what happens, line by line.
///
/// # Errors
/// When `text` can't be written.
pub fn play_traced(scenario: &Scenario, text: &mut dyn Write) -> io::Result<Outcome> {
    let (outcome, trace) = play_in(scenario, Trace::new(Some(text)));
    trace.and_then(Trace::into_error).map_or(Ok(outcome), Err)
}

fn play_in<'a>(scenario: &'a Scenario, trace: Trace<'a>) -> (Outcome, Option<Trace<'a>>) {
    let mut outcome =
        Outcome { seed: scenario.seed, trace_hash: 0, tally: Tally::default(), owners: Vec::new(), failure: None };
    let mut world = match World::new(scenario, trace, Around::default()) {
        Ok(world) => world,
        Err(failure) => {
            outcome.failure = Some((Instant(0), failure));
            return (outcome, None);
        }
    };
    let failure = match panics::catch(|| world.play()) {
        Ok(played) => played.err(),
        Err(text) => Some(Failure::Panic(text)),
    };
    outcome.failure = failure.map(|failure| (world.now(), failure));
    outcome.tally = world.tally();
    outcome.owners = world.server_stats();
    let trace = world.into_trace();
    outcome.trace_hash = trace.hash();
    (outcome, Some(trace))
}
