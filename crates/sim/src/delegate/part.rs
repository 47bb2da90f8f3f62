//! Delegate as a part of a combined run: single steps, and the interface to other parts.

use std::time::Duration;

use bytes::Bytes;
use pathcall_endpoint::delegate::{ContextId, PeerNode};
use pathcall_wire::Instant;

use super::DelegateCounts;
use super::checker::DelegateViolation;
use super::world::{DelegateEvent, DelegateWorld, EVENTS_MAX};
use crate::timeline::{SteppedRun, Timeline};

/// Running handler whose first step another part runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlacedStep {
    host: (usize, u32),
    execution: ContextId,
    /// Time of the step without a placed host.
    pub(crate) pause: Duration,
}

/// Message that is inside the network function between hosts.
#[derive(Debug, Clone)]
pub(crate) struct MessageInFunction {
    to: (usize, u32),
    from: PeerNode,
    pub(crate) message: Bytes,
}

/// Plays until every call has ended and all state is removed.
impl SteppedRun for DelegateWorld<'_> {
    type Event = DelegateEvent;
    type Counts = DelegateCounts;
    type Violation = DelegateViolation;

    fn time(&mut self) -> &mut Timeline<DelegateEvent> {
        &mut self.time
    }

    fn next(&self) -> Option<Instant> {
        let forgotten = self.ended_at.is_some_and(|ended_at| self.time.now > ended_at + self.state_retention());
        self.time.queue.next_at().filter(|_| !forgotten)
    }

    fn step(&mut self) -> Result<(), DelegateViolation> {
        let Some(event) = self.time.pop(EVENTS_MAX).map_err(DelegateViolation::Endless)? else { return Ok(()) };
        self.time.trace.mix(self.time.now.0);
        self.handle_event(event)?;
        if self.ended_at.is_none() && self.is_over() {
            self.ended_at = Some(self.time.now);
        }
        // Failed calls have ended when their servers have been told to stop.
        if self.ended_at.is_some() && !self.told && self.hosts.iter().all(|host| host.caller.is_empty()) {
            self.told = !self.last_calls();
        }
        Ok(())
    }

    fn host(&self) -> Option<usize> {
        Some(match self.time.queue.peek()? {
            DelegateEvent::Start(call) | DelegateEvent::Abort(call) | DelegateEvent::Again(call) => {
                self.plan.call(*call).host
            }
            DelegateEvent::StartService(call) => self.plan.call(self.plan.index_of_attempt(*call, 0)).host,
            DelegateEvent::Deliver { to: (host, _), .. }
            | DelegateEvent::Arriving { to: (host, _), .. }
            | DelegateEvent::Undelivered { host: (host, _), .. }
            | DelegateEvent::Step { host: (host, _), .. }
            | DelegateEvent::Durable { host: (host, _), .. }
            | DelegateEvent::Repeat { host: (host, _), .. }
            | DelegateEvent::Consumed(host, ..)
            | DelegateEvent::Wake(host) => *host,
            DelegateEvent::Crash(_) | DelegateEvent::Back(_) | DelegateEvent::Check => return None,
        })
    }

    fn check_end(&mut self) -> Result<(), DelegateViolation> {
        self.counts.virtual_time = Duration::from_nanos(self.time.now.0);
        self.check_no_state_left()
    }

    fn counts(&mut self) -> DelegateCounts {
        self.counts
    }
}

impl MessageInFunction {
    /// Host indexes of the sender and the receiver.
    pub(crate) fn hosts(&self) -> (u32, u32) {
        let from = super::host::host_at(self.from.address).map_or(u32::MAX, |host| host as u32);
        (from, self.to.0 as u32)
    }
}

impl DelegateWorld<'_> {
    /// Receives a message, unless the message has to pass the network function first.
    pub(super) fn receive_or_carry(
        &mut self,
        to: (usize, u32),
        from: PeerNode,
        message: Bytes,
    ) -> Result<(), DelegateViolation> {
        // Messages of the attacker do not pass the function.
        if self.environment.has_front(self.time.now) && from.node != super::attacker::attacker().node {
            self.carried.push(MessageInFunction { to, from, message });
            return Ok(());
        }
        self.deliver(to, from, &message)
    }

    /// Delivers a message that has passed the network function.
    pub(crate) fn deliver_passed(
        &mut self,
        now: Instant,
        carried: &MessageInFunction,
    ) -> Result<(), DelegateViolation> {
        self.time.now = now;
        self.deliver(carried.to, carried.from, &carried.message)
    }

    /// Starts the first step of a handler: on the placed host if there is one, else after `pause`.
    pub(super) fn start_execution(&mut self, host: (usize, u32), execution: ContextId, pause: Duration) {
        let begun = PlacedStep { host, execution, pause };
        if self.environment.is_placed(host.0) {
            self.placed.push(begun);
        } else {
            self.steps_at(begun, self.time.now + pause);
        }
    }

    /// Schedules the first step of a handler.
    pub(crate) fn steps_at(&mut self, PlacedStep { host, execution, .. }: PlacedStep, at: Instant) {
        self.time.push(at, DelegateEvent::Step { host, execution, step: 0 });
    }
}
