//! Clone as a part of a combined run: single steps, and the interface to other parts.

use pathcall_endpoint::clone::{Pool, PoolRequestId};
use pathcall_wire::Instant;

use super::checker::CloneViolation;
use super::payload::PayloadTag;
use super::world::{CALLER, CloneEvent, CloneNode, CloneWorld, EVENTS_MAX, GAID, INCARNATION, SERVER};
use crate::environment::ELEMENT;
use crate::stepping::SteppedRun;

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
    type Violation = CloneViolation;

    fn next(&self) -> Option<Instant> {
        self.queue.next_at()
    }

    fn step(&mut self) -> Result<(), CloneViolation> {
        let Some((at, event)) = self.queue.pop() else { return Ok(()) };
        self.now = at;
        self.events += 1;
        if self.events > EVENTS_MAX {
            return Err(CloneViolation::Endless(self.events));
        }
        self.mix(at.0);
        self.handle_event(event)
    }

    fn host(&self) -> Option<usize> {
        let node = match self.queue.peek()? {
            CloneEvent::Call(call) | CloneEvent::GiveUp(call) => CloneNode::Caller(self.plan.calls[*call].caller),
            CloneEvent::Frame { to: node, .. } | CloneEvent::Wake(node) | CloneEvent::PoolUpdate(node, _) => *node,
            CloneEvent::Done { server, .. } => CloneNode::Server(*server),
            CloneEvent::Up | CloneEvent::Install => CloneNode::Element,
            _ => return None,
        };
        machine(node)
    }

    fn wait(&mut self, until: Instant) {
        self.queue.postpone(until);
    }

    fn check_end(&mut self) -> Result<(), CloneViolation> {
        self.counts.virtual_time = self.now.since(Instant(0));
        self.checker.check_end()?;
        self.check_no_state_left()
    }
}

impl CloneWorld<'_> {
    /// Fails the element. It forwards again at `up`, and its tables are installed at `told`; `None`: never.
    pub(crate) fn element_fails(&mut self, now: Instant, up: Option<Instant>, told: Option<Instant>) {
        self.now = now;
        self.element_is_lost();
        self.queue.extend(up.map(|at| (at, CloneEvent::Up)));
        self.queue.extend(told.map(|at| (at, CloneEvent::Install)));
    }

    /// Delivers a frame that has passed the network function in front of the element.
    pub(crate) fn deliver_passed(&mut self, now: Instant, bytes: Vec<u8>) -> Result<(), CloneViolation> {
        self.now = now;
        self.at_element(bytes)
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
        self.queue.push(at, CloneEvent::Done { server, incarnation, work, tag, undone });
    }

    /// Service time of the server without a placed host.
    pub(crate) fn service(&self, begun: &PlacedExecution) -> std::time::Duration {
        self.plan.servers[begun.server].service.0
    }

    /// Pool that was last installed, if any.
    pub(crate) fn installed(&self) -> Option<Pool> {
        self.element.installed()
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
        CloneNode::Element => Some(ELEMENT),
        CloneNode::Attacker => None,
    }
}
