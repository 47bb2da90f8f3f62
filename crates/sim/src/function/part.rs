//! The run beside others: step by step, and what it carries for them.

use std::time::Duration;

use pathcall_wire::Instant;

use super::judge::Wrong;
use super::plan::{BEGINS, TRAFFIC};
use super::program::{Kind, Packet};
use super::server::Server;
use super::world::{EVENTS_MAX, World};
use crate::part::Part;

/// When traffic has ended, everything has to be at rest after so long.
const REST: Duration = Duration::from_millis(1_500);
/// Flows of others begin here.
const OTHERS: u32 = 1 << 20;

/// A packet of somebody else that has passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Passed {
    /// The number that it was given.
    pub(crate) sequence: u32,
    /// What it carries.
    pub(crate) payload: Vec<u8>,
}

/// From when and until when it carries what others send: it has servers by then, and has traffic of its own.
pub(crate) const CARRIES: (Instant, Instant) = (Instant(BEGINS.as_nanos() as u64), Instant(TRAFFIC.as_nanos() as u64));

/// Plays until all is over and everything is at rest.
impl Part for World<'_> {
    type Wrong = Wrong;

    fn next(&self) -> Option<Instant> {
        self.queue.next_at().filter(|at| *at <= Instant(0) + TRAFFIC + REST)
    }

    fn step(&mut self) -> Result<(), Wrong> {
        let Some((at, happening)) = self.queue.pop() else { return Ok(()) };
        self.now = at;
        self.events += 1;
        if self.events > EVENTS_MAX {
            return Err(Wrong::Endless(EVENTS_MAX));
        }
        self.happen(happening)?;
        self.controller();
        Ok(())
    }

    fn host(&self) -> Option<usize> {
        None
    }

    fn wait(&mut self, until: Instant) {
        self.queue.postpone(until);
    }

    fn over(&mut self) -> Result<(), Wrong> {
        self.tally.virtual_time = self.now - Instant(0);
        let (place, scale) = (self.placer.stats(), self.scaler.stats());
        (self.tally.placed, self.tally.replaced, self.tally.recalled) = (place.placed, place.replaced, place.recalled);
        (self.tally.groups, self.tally.deaths, self.tally.drains) = (scale.changes, scale.deaths, scale.drains);
        self.tally.overdue = scale.overdue;
        let idle = self.servers.iter().flatten().all(Server::is_idle);
        if self.placer.placed() != 0 || !idle {
            return Err(Wrong::NotIdle { placed: self.placer.placed() });
        }
        self.judge.finish(self.plan.faulty() || self.overflowed > 0)
    }
}

impl World<'_> {
    /// A packet of somebody else's flow comes in from the network; the number by which it is known.
    pub(crate) fn carry(&mut self, now: Instant, flow: u32, payload: &[u8]) -> Result<u32, Wrong> {
        self.now = now;
        self.sequence += 1;
        let sequence = self.sequence;
        let packet = Packet { kind: Kind::Count, last: false, key: OTHERS + flow, sequence, a: 0, b: 0 };
        self.tally.packets += 1;
        self.judge.sent(now, &packet);
        self.process(1, &[&packet.emit()[..], payload].concat())?;
        self.controller();
        Ok(sequence)
    }

    /// The element loses all that it holds.
    pub(crate) fn element_fails(&mut self, now: Instant) {
        self.now = now;
        self.element_is_lost();
        self.controller();
    }

    /// A packet leaves: of what it carries for others they hear.
    pub(super) fn leaves(&mut self, packet: &Packet, payload: &[u8]) {
        if packet.key >= OTHERS && packet.kind == Kind::Count {
            self.passed.push(Passed { sequence: packet.sequence, payload: payload.to_vec() });
        }
    }
}
