//! Simulation of map: real callers, owners and switch program on a faulty network.
//!
//! One seed is one [`scenario`], one run and one trace: [`link`]s delay, mark, lose, repeat and reorder, and a
//! [checker](MapViolation) compares every outcome with a software model.
//!
//! ```text
//! seed ─► scenario ─► world ─► outcome
//!                      ├─ callers (MapClient), owners (MapServer), elements (Program)
//!                      ├─ hosts: clocks that drift, machines that pause or are slow
//!                      ├─ failing: elements lose their state, or the controller loses them; memory moves or shrinks
//!                      ├─ killing: callers' processes die and are replaced
//!                      ├─ takeover: owners end, lose what was not synced, and others continue from their disks
//!                      ├─ network: links that are cut, change, lose, repeat, reorder; late copies, hostile datagrams
//!                      ├─ windows: window rule of sequence numbers, checked from outside
//!                      └─ checker: sums, values, locks; each call ends exactly once
//! ```
//!
//! After the end of the faults all calls must end within a bound of virtual time. Then late repeats are delivered, and
//! the values of all keys must be exact.

pub mod host;
pub mod link;
pub mod scenario;

mod caller;
mod checker;
mod disk;
mod element;
mod gradients;
mod handler;
mod hostile;
pub(crate) mod network;
mod node;
mod nodes;
mod owner;
mod shrink;
mod trace;
mod windows;
pub(crate) mod world;

use std::time::Duration;

pub use checker::MapViolation;
pub use disk::StorePlan;
pub use handler::HandlerPlan;
pub use node::MapNodeId;
pub use scenario::{Scenario, generate};
pub use windows::WindowError;

use crate::counts::counts;
use crate::environment::Environment;
use crate::minimizer::FailureTest;
use crate::simulation::{RunOutcome, Simulation};
use crate::timeline::SteppedRun;
use crate::trace::Millis;
use host::HostPlan;
use link::Outage;
use scenario::WireChange;
use world::MapWorld;

/// Result of a run.
pub type MapOutcome = RunOutcome<MapCounts, MapViolation>;

counts! {
    /// Counts of one run, or of many.
    pub struct MapCounts {
        /// Calls that ended or were cancelled.
        pub calls: u64,
        /// Frames sent over links.
        pub frames: u64,
        /// Frames lost: by chance, damaged, on links that were cut or in full queues.
        pub lost: u64,
        /// Lost frames whose link was cut.
        pub cut: u64,
        /// Frames that were repeated.
        pub repeated: u64,
        /// Copies that arrived hundreds of frames later.
        pub late: u64,
        /// Hostile datagrams that arrived: damaged and forged frames, random bytes.
        pub hostile: u64,
        /// Frames that were dropped for their token; receivers that died are not included.
        pub unauthentic: u64,
        /// Pauses of machines.
        pub pauses: u64,
        /// Frames that were held back.
        pub reordered: u64,
        /// Frames that were marked for congestion.
        pub marked: u64,
        /// Frames that callers retransmitted.
        pub retransmits: u64,
        /// Lanes and pairs that took effect in the element.
        pub lanes_element: u64,
        /// Lanes and pairs that took effect in software.
        pub lanes_software: u64,
        /// Lane bytes that callers sent, without retransmissions.
        pub lane_bytes_sent: u64,
        /// Lane bytes that owners received.
        pub lane_bytes_received: u64,
        /// Rounds that owners completed with an element.
        pub rounds_element: u64,
        /// Rounds that owners completed in software.
        pub rounds_software: u64,
        /// Keys that lost their registers to others.
        pub keys_evicted: u64,
        /// Frames for processing by an element on their route.
        pub inline: u64,
        /// Inline frames that passed no element.
        pub bare: u64,
        /// Times that an owner continued without a silent element.
        pub suspended: u64,
        /// Owners that ended, so that another one took over.
        pub owner_crashes: u64,
        /// Virtual time.
        pub virtual_time: Duration,
    }
}

/// Simulation of map.
#[derive(Debug, Clone, Copy)]
pub enum MapSimulation {}

impl Simulation for MapSimulation {
    const NAME: &'static str = "map";
    type Plan = Scenario;
    type Counts = MapCounts;
    type Violation = MapViolation;

    fn generate(seed: u64) -> Scenario {
        generate(seed)
    }

    fn play_with_trace(plan: &Scenario, text: &mut Option<String>) -> MapOutcome {
        match MapWorld::new(plan, Environment::default()) {
            Ok(world) => world.outcome(plan.seed, text, MapViolation::Panic),
            Err(violation) => RunOutcome::not_started(plan.seed, violation),
        }
    }

    /// Links, applications and planned faults of a scenario.
    fn describe(plan: &Scenario) -> String {
        let any = |node: Option<MapNodeId>| node.map_or_else(|| "any".to_owned(), |node| node.to_string());
        let span = |since, until| format!("from {} ms to {} ms", Millis(since), Millis(until));
        let Scenario { seed, wire, faults, faults_until, .. } = plan;
        let mut lines = vec![format!("seed {seed}: {wire:?}, {faults:?} until {faults_until:?}")];
        for (index, plan) in plan.applications.iter().enumerate() {
            let callers: Vec<u32> = plan.callers.iter().map(|caller| caller.endpoint).collect();
            let (owner, memory) = (plan.endpoint, plan.memory.map(|memory| (memory.rows, memory.width)));
            let purpose = plan.purpose;
            lines.push(format!("a{index}: {purpose:?}, owner {owner}, callers {callers:?}, memory {memory:?}"));
            lines.extend(plan.store.map(|store| format!("a{index}: {store:?}")));
        }
        lines.extend(plan.owner_crashes.iter().map(|crash| format!("{crash:?}")));
        for Outage { from, to, since, until } in &plan.outages {
            lines.push(format!("cut: {} → {} {}", any(*from), any(*to), span(*since, *until)));
        }
        if plan.inline {
            lines.push("elements are on the route between hosts".to_owned());
        }
        for Outage { from, to, since, until } in &plan.detours {
            lines.push(format!("route past the element: {} → {} {}", any(*from), any(*to), span(*since, *until)));
        }
        for WireChange { at, node, wire } in &plan.wire_changes {
            lines.push(format!("links of {} from {} ms: {wire:?}", any(*node), Millis(*at)));
        }
        for (node, HostPlan { clock, inbox, frame_time, pauses, .. }) in &plan.hosts {
            let (rate, pauses) = (clock.rate_ppm, pauses.len());
            let text = format!("{node}: clock at {rate} ppm, inbox {inbox}, {frame_time:?} a frame, {pauses} pauses");
            lines.push(text);
        }
        lines.iter().fold(String::new(), |text, line| text + line + "\n")
    }

    fn shrink_plan(plan: &Scenario, fails: FailureTest<'_, Scenario>) -> Scenario {
        shrink::shrink_plan(plan, fails)
    }
}
