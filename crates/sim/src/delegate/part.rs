//! The run beside others: step by step, and what others do for it.

use std::time::Duration;

use bytes::Bytes;
use pathcall_endpoint::delegate::{Context, Peer};
use pathcall_wire::Instant;

use super::judge::Wrong;
use super::world::{EVENTS_MAX, Event, World};
use crate::part::Part;

/// A handler that has begun, and whose first step somebody else does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Begun {
    host: (usize, u32),
    execution: Context,
    /// How long it would take alone.
    pub(crate) pause: Duration,
}

/// A message on its way through what stands between hosts.
#[derive(Debug, Clone)]
pub(crate) struct Carried {
    to: (usize, u32),
    from: Peer,
    pub(crate) message: Bytes,
}

/// Plays until every call is over and everything is forgotten.
impl Part for World<'_> {
    type Wrong = Wrong;

    fn next(&self) -> Option<Instant> {
        let forgotten = self.over_at.is_some_and(|over_at| self.now > over_at + self.forgotten_after());
        self.queue.next_at().filter(|_| !forgotten)
    }

    fn step(&mut self) -> Result<(), Wrong> {
        let Some((at, event)) = self.queue.pop() else { return Ok(()) };
        self.now = at;
        self.events += 1;
        if self.events > EVENTS_MAX {
            return Err(Wrong::Endless(self.events));
        }
        self.mix(at.0);
        self.happens(event)?;
        if self.over_at.is_none() && self.is_over() {
            self.over_at = Some(self.now);
        }
        // Calls that failed are over when their servers have been told to stop.
        if self.over_at.is_some() && !self.told && self.hosts.iter().all(|host| host.caller.is_empty()) {
            self.told = true;
            self.last_calls();
        }
        Ok(())
    }

    fn host(&self) -> Option<usize> {
        Some(match self.queue.peek()? {
            Event::Start(call) | Event::Abort(call) | Event::Again(call) => self.plan.calls[*call].host,
            Event::Deliver { to: (host, _), .. }
            | Event::Arriving { to: (host, _), .. }
            | Event::Undelivered { host: (host, _), .. }
            | Event::Step { host: (host, _), .. }
            | Event::Durable { host: (host, _), .. }
            | Event::Consumed(host, ..)
            | Event::Wake(host) => *host,
            Event::Crash(_) | Event::Back(_) | Event::Check => return None,
        })
    }

    fn wait(&mut self, until: Instant) {
        self.queue.postpone(until);
    }

    fn over(&mut self) -> Result<(), Wrong> {
        self.tally.virtual_time = Duration::from_nanos(self.now.0);
        self.nothing_is_left()
    }
}

impl Carried {
    /// Numbers of the hosts that it is from and for.
    pub(crate) fn hosts(&self) -> (u32, u32) {
        let from = super::host::host_at(self.from.address).map_or(u32::MAX, |host| host as u32);
        (from, self.to.0 as u32)
    }
}

impl World<'_> {
    /// A message comes to its host, unless it has to pass what stands between hosts first.
    pub(super) fn comes(&mut self, to: (usize, u32), from: Peer, message: Bytes) -> Result<(), Wrong> {
        // A stranger's come by other ways.
        if self.around.has_front(self.now) && from.node != super::stranger::stranger().node {
            self.carried.push(Carried { to, from, message });
            return Ok(());
        }
        self.deliver(to, from, &message)
    }

    /// It has passed.
    pub(crate) fn passed(&mut self, now: Instant, carried: &Carried) -> Result<(), Wrong> {
        self.now = now;
        self.deliver(carried.to, carried.from, &carried.message)
    }

    /// A handler's first step comes after `pause`, or when others have done it.
    pub(super) fn begun(&mut self, host: (usize, u32), execution: Context, pause: Duration) {
        let begun = Begun { host, execution, pause };
        if self.around.is_placed(host.0) {
            self.placed.push(begun);
        } else {
            self.steps_at(begun, self.now + pause);
        }
    }

    /// A handler has its first step then.
    pub(crate) fn steps_at(&mut self, Begun { host, execution, .. }: Begun, at: Instant) {
        self.queue.push(at, Event::Step { host, execution, step: 0 });
    }
}
