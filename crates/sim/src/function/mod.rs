//! A network function that is split: the real placement, scaling and generated parts, in the interpreter, around a small
//! function whose packets say what became of them; servers die, the element restarts, groups change, packets get lost.
//!
//! ```text
//! seed ─► plan ─► world ─► outcome
//!                  ├─ element: Interpreter with the split program; Installer
//!                  ├─ servers: handler, mirrored tables, Holder
//!                  ├─ controller: Placer, Scaler
//!                  └─ judge: split equals whole, per flow; order; nothing lost where nothing failed; room; rest
//! ```
//!
//! Beside that, [`performance`] says what placement gains, at the paper's scale.

mod control;
mod incident;
mod judge;
pub mod performance;
pub mod plan;
mod program;
mod server;
mod world;

use std::ops::AddAssign;
use std::time::Duration;

pub use judge::Wrong;
pub use plan::{Plan, generate};
pub use program::Kind;

use crate::sweep::{FINDINGS_MAX, Progress};
use crate::{ability, panics};
use world::World;

/// What became of a run.
pub type Outcome = ability::Outcome<Tally, Wrong>;
/// A failure with all that is needed to see it again.
pub type Finding = ability::Finding<Wrong>;
/// What became of many seeds.
pub type Report = ability::Report<Tally, Wrong>;

/// As the command line calls it.
pub(crate) const NAME: &str = "function";

/// What was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Packets that came in.
    pub packets: u64,
    /// Packets that left.
    pub out: u64,
    /// Of them, those that no server worked on.
    pub in_element: u64,
    /// Requests to servers.
    pub requests: u64,
    /// Packets lost on their way to or from servers, or with them.
    pub lost: u64,
    /// Packets that found no server.
    pub no_server: u64,
    /// Reports of flows.
    pub reports: u64,
    /// Entries that came into the element.
    pub placed: u64,
    /// That left for others.
    pub replaced: u64,
    /// That left because a server said so.
    pub recalled: u64,
    /// Changes of server groups.
    pub groups: u64,
    /// Servers that died.
    pub deaths: u64,
    /// Entries of one table at most.
    pub entries_max: u64,
    /// Virtual time.
    pub virtual_time: Duration,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.out += other.out;
        self.in_element += other.in_element;
        self.requests += other.requests;
        self.lost += other.lost;
        self.no_server += other.no_server;
        self.reports += other.reports;
        self.placed += other.placed;
        self.replaced += other.replaced;
        self.recalled += other.recalled;
        self.groups += other.groups;
        self.deaths += other.deaths;
        self.entries_max = self.entries_max.max(other.entries_max);
        self.virtual_time += other.virtual_time;
    }
}

/// Plays the plan of a seed.
#[must_use]
pub fn run(seed: u64) -> Outcome {
    play(&generate(seed))
}

/// Plays a plan.
#[must_use]
pub fn play(plan: &Plan) -> Outcome {
    play_in(World::new(plan)).0
}

/// Plays a plan; what happens, line by line, too.
#[must_use]
pub fn play_traced(plan: &Plan) -> (Outcome, String) {
    let mut world = World::new(plan);
    world.text = Some(String::new());
    play_in(world)
}

fn play_in(mut world: World<'_>) -> (Outcome, String) {
    let failure = match panics::catch(|| world.play()) {
        Ok(played) => played.err(),
        Err(text) => Some(Wrong::Panic(text)),
    };
    let failure = failure.map(|wrong| (world.now, wrong));
    let text = world.text.unwrap_or_default();
    (Outcome { seed: world.plan.seed, trace_hash: world.hash, tally: world.tally, failure }, text)
}

/// Plays `count` seeds from `first_seed` on, on all cores. `progress` is called after each.
pub fn sweep(first_seed: u64, count: u64, progress: impl FnMut(Progress)) -> Report {
    ability::sweep_by(NAME, run, first_seed, count, FINDINGS_MAX, progress)
}

/// Plays seeds with a mistake in the code under test, until one shows it.
#[cfg(feature = "mutants")]
pub fn hunt(mutant: pathcall_wire::Mutant, first_seed: u64, count: u64) -> Report {
    let planted = |seed| {
        pathcall_wire::mutant::plant(Some(mutant));
        run(seed)
    };
    ability::sweep_by(NAME, planted, first_seed, count, 1, drop)
}
