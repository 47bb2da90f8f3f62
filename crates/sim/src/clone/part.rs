//! Clone as a part of a combined run: single steps, and the interface to other parts.

use pathcall_endpoint::clone::{Pool, PoolRequestId};
use pathcall_wire::Instant;

use super::CloneCounts;
use super::element::Element;
use super::payload::PayloadTag;
use super::violation::CloneViolation;
use super::world::{CALLER, CloneEvent, CloneNode, CloneWorld, EVENTS_MAX, GAID, INCARNATION, SERVER};
use crate::environment::ELEMENT;
use crate::timeline::{SteppedRun, Timeline};

/// Execution on a server whose work another part runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlacedExecution {
    server: usize,
    incarnation: u32,
    work: PoolRequestId,
    tag: PayloadTag,
    /// Whether the other part failed to do the work.
    pub(crate) undone: bool,
}

/// Plays until every call has ended and all state is removed.
impl SteppedRun for CloneWorld<'_> {
    type Event = CloneEvent;
    type Counts = CloneCounts;
    type Violation = CloneViolation;

    fn time(&mut self) -> &mut Timeline<CloneEvent> {
        &mut self.time
    }

    fn next(&self) -> Option<Instant> {
        self.time.queue.next_at()
    }

    fn step(&mut self) -> Result<(), CloneViolation> {
        let Some(event) = self.time.pop(EVENTS_MAX).map_err(CloneViolation::Endless)? else { return Ok(()) };
        self.time.trace.mix(self.time.now.0);
        self.handle_event(event)
    }

    fn host(&self) -> Option<usize> {
        let node = match self.time.queue.peek()? {
            CloneEvent::Call(call) | CloneEvent::GiveUp(call) => CloneNode::Caller(self.plan.calls[*call].caller),
            CloneEvent::Frame { to: node, .. } | CloneEvent::Wake(node) | CloneEvent::PoolUpdate(node, _) => *node,
            CloneEvent::Done { server, .. } => CloneNode::Server(*server),
            CloneEvent::Up => CloneNode::Element(0),
            CloneEvent::Install(element) => CloneNode::Element(*element),
            _ => return None,
        };
        machine(node)
    }

    fn check_end(&mut self) -> Result<(), CloneViolation> {
        self.counts.virtual_time = self.time.now.since(Instant(0));
        self.checker.check_end()?;
        self.check_no_state_left()
    }

    fn counts(&mut self) -> CloneCounts {
        let mut counts = self.counts;
        for stats in self.callers.iter().map(|(caller, _)| caller.stats()) {
            counts.redundant += stats.redundant;
            counts.resent += stats.extra() - stats.cloned;
            counts.refused += stats.refused.total();
            counts.set_aside += stats.set_aside;
            counts.silent += stats.silent;
        }
        let workers = self.servers.iter().filter_map(|server| server.worker.as_ref());
        counts.clones_dropped = workers.map(|worker| worker.stats().clones_dropped).sum();
        counts.filtered = self.elements.iter().map(Element::filtered).sum();
        counts
    }
}

impl CloneWorld<'_> {
    /// Fails the element. It forwards again at `up`, and its tables are installed at `told`; `None`: never.
    pub(crate) fn element_fails(&mut self, now: Instant, up: Option<Instant>, told: Option<Instant>) {
        self.time.now = now;
        self.element_is_lost(0);
        self.time.queue.extend(up.map(|at| (at, CloneEvent::Up)));
        self.time.queue.extend(told.map(|at| (at, CloneEvent::Install(0))));
    }

    /// Delivers a frame that has passed the network function in front of the element.
    pub(crate) fn deliver_passed(&mut self, now: Instant, bytes: Vec<u8>) -> Result<(), CloneViolation> {
        self.time.now = now;
        self.at_element(0, bytes)
    }

    /// Starts the work of an execution: on the placed host if there is one, else on the server until `in_time`.
    pub(super) fn start_execution(&mut self, begun: PlacedExecution, in_time: Instant) {
        if machine(CloneNode::Server(begun.server)).is_some_and(|host| self.environment.is_placed(host)) {
            self.placed.push(begun);
        } else {
            self.done_at(begun, in_time);
        }
    }

    /// Schedules the end of an execution.
    pub(crate) fn done_at(
        &mut self,
        PlacedExecution { server, incarnation, work, tag, undone }: PlacedExecution,
        at: Instant,
    ) {
        self.time.push(at, CloneEvent::Done { server, incarnation, work, tag, undone });
    }

    /// Service time of the server without a placed host.
    pub(crate) fn service(&self, begun: &PlacedExecution) -> std::time::Duration {
        self.plan.servers[begun.server].service.0
    }

    /// Pool that was last installed, if any.
    pub(crate) fn installed(&self) -> Option<Pool> {
        self.elements[0].installed()
    }
}

impl PlacedExecution {
    pub(super) fn new(server: usize, incarnation: u32, work: PoolRequestId, tag: PayloadTag) -> Self {
        Self { server, incarnation, work, tag, undone: false }
    }
}

/// Ids of the pool, of a caller with its incarnation, and of a server.
pub(crate) fn names(caller: usize, server: usize) -> (u32, (u32, u32), u32) {
    (GAID, (CALLER + caller as u32, INCARNATION), SERVER + server as u32)
}

/// Host index of a node.
pub(super) fn machine(node: CloneNode) -> Option<usize> {
    match node {
        CloneNode::Server(index) => Some(index),
        CloneNode::Caller(index) => Some(index + 1),
        CloneNode::Element(0) => Some(ELEMENT),
        CloneNode::Element(_) | CloneNode::Attacker => None,
    }
}
