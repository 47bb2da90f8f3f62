//! Simulation of delegate: real callers and workers in a network with loss, delay and reordering, on hosts that die
//! and whose clocks differ, with an attacker.
//!
//! ```text
//! seed ─► plan ─► world ─► outcome
//!                  ├─ host: Caller and Worker of each shard, handlers that follow the plan
//!                  ├─ services: calls that choose replicas, and are made again elsewhere
//!                  ├─ attacker: replays and forges messages
//!                  └─ checker: nothing twice, complete only with all, failed in time, no state left
//! ```

mod attacker;
mod checker;
mod handlers;
mod host;
mod last_calls;
mod network;
pub(crate) mod part;
pub mod plan;
pub mod services;
mod shards;
pub(crate) mod world;

use std::mem::discriminant;
use std::time::Duration;

use pathcall_endpoint::delegate::caller::CallOutcome;

pub use checker::{DelegateViolation, MessageTag};
pub use plan::DelegatePlan;
pub use services::ServiceViolation;

use crate::counts::counts;
use crate::environment::Environment;
use crate::minimizer::{ShrinkList, remove_range};
use crate::random::Chance;
use crate::simulation::{RunOutcome, Simulation};
use crate::timeline::SteppedRun;
use world::DelegateWorld;

counts! {
    /// Counts of a run.
    pub struct DelegateCounts {
        /// Calls that were made.
        pub calls: u64,
        /// Requests of their trees.
        pub requests: u64,
        /// Executions of handlers.
        pub executions: u64,
        /// Replies that callers received.
        pub replies: u64,
        /// Calls that ended complete.
        pub complete: u64,
        /// Failures of calls; a retried call may count several times.
        pub failed: u64,
        /// Calls that were aborted.
        pub aborted: u64,
        /// Messages that were sent.
        pub messages: u64,
        /// Messages that were delivered.
        pub delivered: u64,
        /// Messages that were lost.
        pub lost: u64,
        /// Messages that the attacker replayed.
        pub repeated: u64,
        /// Messages that the attacker forged.
        pub forged: u64,
        /// Processes that died.
        pub crashes: u64,
        /// Calls to services; each attempt is also one of the calls above.
        pub service_calls: u64,
        /// Further attempts of these calls.
        pub repeats: u64,
        /// Calls to services that succeeded, after several attempts.
        pub repaired: u64,
        /// Load reports that arrived.
        pub load_reports: u64,
        /// Choices of a replica while another one was avoided.
        pub avoided: u64,
        /// Virtual time.
        pub virtual_time: Duration,
    }
}

impl DelegateCounts {
    fn count(&mut self, outcome: &CallOutcome) {
        match outcome {
            CallOutcome::Complete => self.complete += 1,
            CallOutcome::Failed(_) => self.failed += 1,
            CallOutcome::Aborted { .. } => self.aborted += 1,
        }
    }
}

/// Result of a run.
pub type DelegateOutcome = RunOutcome<DelegateCounts, DelegateViolation>;

/// Simulation of delegate.
#[derive(Debug, Clone, Copy)]
pub enum DelegateSimulation {}

impl Simulation for DelegateSimulation {
    const NAME: &'static str = "delegate";
    type Plan = DelegatePlan;
    type Counts = DelegateCounts;
    type Violation = DelegateViolation;

    const CHANGES: &'static [fn(&mut DelegatePlan)] = &[
        |plan| plan.loss = Chance(0),
        |plan| plan.repeats = Chance(0),
        |plan| plan.forged = Chance(0),
        |plan| plan.long = Chance(0),
        |plan| plan.delay.1 = plan.delay.0,
        |plan| plan.hosts.iter_mut().for_each(|host| host.0 = 0),
        |plan| plan.shards.clear(),
        |plan| plan.services = None,
        |plan| plan.services.iter_mut().for_each(|services| services.loss = Chance(0)),
        |plan| plan.services.iter_mut().for_each(|services| services.liars.clear()),
    ];
    const LISTS: &'static [ShrinkList<DelegatePlan>] = &[
        |plan, part| remove_range(&mut plan.calls, part),
        |plan, part| remove_range(&mut plan.crashes, part),
        |plan, part| remove_range(&mut plan.breaks, part),
        |plan, part| plan.services.as_mut().map_or(0, |services| remove_range(&mut services.calls, part)),
        |plan, part| plan.services.as_mut().map_or(0, |services| remove_range(&mut services.crashes, part)),
        |plan, part| plan.services.as_mut().map_or(0, |services| remove_range(&mut services.breaks, part)),
        |plan, part| plan.services.as_mut().map_or(0, |services| remove_range(&mut services.slow, part)),
    ];

    fn same_kind(one: &DelegateViolation, other: &DelegateViolation) -> bool {
        match (one, other) {
            (DelegateViolation::Service(one), DelegateViolation::Service(other)) => {
                discriminant(one) == discriminant(other)
            }
            _ => discriminant(one) == discriminant(other),
        }
    }

    fn generate(seed: u64) -> DelegatePlan {
        plan::generate(seed)
    }

    fn play_with_trace(plan: &DelegatePlan, text: &mut Option<String>) -> DelegateOutcome {
        DelegateWorld::new(plan, Environment::default()).outcome(plan.seed, text, DelegateViolation::Panic)
    }
}
