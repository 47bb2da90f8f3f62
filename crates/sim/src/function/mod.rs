//! Simulation of function: real placement, scaling and generated parts, run by the interpreter around a small
//! function whose packets carry the results to check. Servers die, the element restarts, groups change and packets
//! are lost.
//!
//! ```text
//! seed ─► plan ─► world ─► outcome
//!                  ├─ element: Interpreter with the split program; Installer
//!                  ├─ servers: handler, mirrored tables, LeaseHolder
//!                  ├─ controller: Placer, Scaler
//!                  └─ checker: split equals whole, per flow; order; no loss without a fault; capacity; no state left
//! ```

mod checker;
mod control;
mod incident;
pub(crate) mod part;
pub mod plan;
mod program;
mod server;
pub(crate) mod world;

use std::time::Duration;

pub use checker::FunctionViolation;
pub use plan::FunctionPlan;
pub use program::PacketKind;

use crate::counts::counts;
use crate::environment::Environment;
use crate::minimizer::{ShrinkList, remove_range};
use crate::random::Chance;
use crate::simulation::{RunOutcome, Simulation};
use crate::timeline::SteppedRun;
use world::FunctionWorld;

/// Result of a run.
pub type FunctionOutcome = RunOutcome<FunctionCounts, FunctionViolation>;

counts! {
    /// Counts of a run.
    pub struct FunctionCounts {
        /// Packets that came in.
        pub packets: u64,
        /// Packets that came out.
        pub out: u64,
        /// Packets that came out without having been at a server.
        pub in_element: u64,
        /// Requests that were sent to servers.
        pub requests: u64,
        /// Packets that were lost between element and servers, or with a server.
        pub lost: u64,
        /// Packets that were repeated between element and servers.
        pub repeated: u64,
        /// Repeats that a server or the element recognised.
        pub refused: u64,
        /// Packets that later ones of their flow may overtake.
        pub reordered: u64,
        /// Packets for which there was no server.
        pub no_server: u64,
        /// Reports of flows.
        pub reports: u64,
        /// Entries that were placed in the element.
        pub placed: u64,
        /// Entries that were replaced by others.
        pub replaced: u64,
        /// Entries that a server recalled.
        pub recalled: u64,
        /// Changes of server groups.
        pub groups: u64,
        /// Drain messages that were sent to servers.
        pub drains: u64,
        /// Old groups that ended at the operator's limit although flows still needed them.
        pub overdue: u64,
        /// Servers that died.
        pub deaths: u64,
        /// Virtual time.
        pub virtual_time: Duration,
    }
}

/// Simulation of function.
#[derive(Debug, Clone, Copy)]
pub enum FunctionSimulation {}

impl Simulation for FunctionSimulation {
    const NAME: &'static str = "function";
    type Plan = FunctionPlan;
    type Counts = FunctionCounts;
    type Violation = FunctionViolation;

    const SHRINK_RUNS_MAX: u32 = 600;
    const CHANGES: &'static [fn(&mut FunctionPlan)] = &[
        |plan| plan.loss = Chance(0),
        |plan| plan.repeat = Chance(0),
        |plan| plan.reorder = Chance(0),
        |plan| plan.delay.1 = plan.delay.0,
    ];
    const LISTS: &'static [ShrinkList<FunctionPlan>] = &[
        |plan, part| remove_range(&mut plan.incidents, part),
        |plan, part| remove_range(&mut plan.packets, part),
        |plan, part| remove_range(&mut plan.routes, part),
    ];

    fn generate(seed: u64) -> FunctionPlan {
        plan::generate(seed)
    }

    fn play_with_trace(plan: &FunctionPlan, text: &mut Option<String>) -> FunctionOutcome {
        FunctionWorld::new(plan, Environment::default()).outcome(plan.seed, text, FunctionViolation::Panic)
    }
}
