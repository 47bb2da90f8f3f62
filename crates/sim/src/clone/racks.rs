//! Two racks with an element each (NetClone §3.7): the plan, the way of frames, and the check of the counts.
//!
//! ```text
//! caller ─▶ its rack's element ─┬──────────────────────────────▶ server of this rack
//!           decides, filters    └─▶ the other element: passes ─▶ server of the other rack
//! ```

use std::time::Duration;

use pathcall_endpoint::clone::{CloneCallerStats, CloneWorkerStats};
use pathcall_wire::Instant;
use pathcall_wire::clone::PART;

use super::plan::{CloneIncident, ClonePlan};
use super::violation::CloneViolation;
use super::world::{CALLER, CloneNode, CloneWorld, SERVER};
use crate::random::{Chance, Random};

/// One plan in this many has two racks.
const ONE_IN: u64 = 4;

/// Rack of each host: 0 or 1, the index of its element.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RackAssignment {
    /// By caller.
    pub callers: Vec<usize>,
    /// By server.
    pub servers: Vec<usize>,
}

/// Puts the hosts of some plans into two racks. The second element may restart, too.
pub(super) fn with_racks(mut plan: ClonePlan) -> ClonePlan {
    let mut random = Random::new(plan.seed ^ 0x7261_636b_7321_2121);
    if random.below(ONE_IN) > 0 || plan.slow.is_some() || plan.slow_way.is_some() {
        return plan;
    }
    // Often all callers are in one rack and all servers in the other.
    let split = random.percent(40);
    let mut rack = |of: usize| if split { of } else { random.index(2) };
    let callers = plan.callers.iter().map(|_| rack(0)).collect();
    let servers = plan.servers.iter().map(|_| rack(1)).collect();
    plan.racks = Some(RackAssignment { callers, servers });
    if !plan.is_calm() && random.percent(30) {
        let silent = (!random.percent(25)).then(|| random.up_to(Duration::from_millis(300)));
        let at = Instant(0) + random.up_to(Duration::from_millis(1_000));
        plan.incidents.push((at, CloneIncident::RestartSecond { silent }));
        plan.incidents.sort_by_key(|(at, _)| *at);
    }
    plan
}

impl ClonePlan {
    /// Number of elements.
    pub(super) fn elements(&self) -> usize {
        if self.racks.is_some() { 2 } else { 1 }
    }

    /// Index of the element in the rack of a host.
    pub(super) fn element_of(&self, host: CloneNode) -> usize {
        let Some(racks) = &self.racks else { return 0 };
        let rack = match host {
            CloneNode::Caller(index) => racks.callers.get(index).copied(),
            CloneNode::Server(index) => racks.servers.get(index).copied(),
            CloneNode::Element(index) => Some(index),
            CloneNode::Attacker => None,
        };
        rack.unwrap_or(0)
    }

    /// Node to which an element sends a frame for a host.
    pub(super) fn next_hop(&self, element: usize, host: CloneNode) -> CloneNode {
        let other = self.element_of(host);
        if other == element { host } else { CloneNode::Element(other) }
    }
}

impl CloneWorld<'_> {
    /// Checks that each clone has one answer that was filtered, in a run without faults. Requests that were cancelled while
    /// they waited, and those that arrived after that, have no answer.
    pub(super) fn check_filtered(&self) -> Result<(), CloneViolation> {
        let workers = self.servers.iter().filter_map(|server| server.worker.as_ref());
        let unanswered = |stats: CloneWorkerStats| stats.clones_dropped + stats.cancelled + stats.repeats;
        let unanswered: u64 = workers.map(|worker| unanswered(worker.stats())).sum();
        let filtered: u64 = self.elements.iter().map(super::element::Element::filtered).sum();
        let expected = self.counts.cloned - unanswered;
        if filtered == expected { Ok(()) } else { Err(CloneViolation::Filtered { filtered, expected }) }
    }

    /// Host of an endpoint.
    pub(super) fn host_of(endpoint: u32) -> CloneNode {
        match endpoint.checked_sub(CALLER) {
            Some(caller) => CloneNode::Caller(caller as usize),
            None => CloneNode::Server(endpoint.saturating_sub(SERVER) as usize),
        }
    }

    /// Whether all requests and answers have one part, so that each is counted once.
    pub(super) fn has_single_parts(&self) -> bool {
        self.plan.calls.iter().all(|call| call.request.max(call.reply) <= PART)
    }

    /// Whether every second answer is that of a clone, and all of them come.
    pub(super) fn is_filter_exact(&self) -> bool {
        let calls = self.plan.calls.iter().all(|call| {
            !call.options.send_to_two
                && call.options.hedge.is_none()
                && !call.options.automatic
                && call.given_up.is_none()
                && call.options.deadline > Duration::from_secs(1)
        });
        let repeats = |stats: CloneCallerStats| stats.repeated + stats.reminded;
        let repeated = self.callers.iter().any(|(caller, _)| repeats(caller.stats()) > 0);
        // The element lets failures pass.
        let all_do_it = self.plan.servers.iter().all(|server| server.fails == Chance(0));
        self.plan.is_calm() && calls && all_do_it && !repeated
    }
}
