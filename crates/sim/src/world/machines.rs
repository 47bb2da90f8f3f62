//! Nodes on their machines: what comes in waits until it is looked at, alarms ring when they can.

use pathcall_wire::Instant;

use super::{Event, World};
use crate::judge::Failure;
use crate::network::Datagram;
use crate::party::Node;

/// Times that a node may be woken at one time.
const WAKES_MAX: u32 = 1_000;

impl World<'_> {
    /// A datagram has come to a node's machine: it is taken at once, or it waits.
    pub(super) fn arrive(&mut self, to: Node, mut datagram: Datagram) -> Result<(), Failure> {
        let now = self.now;
        if matches!(to, Node::Element(number) if now < self.element_from[number]) {
            self.in_air -= 1;
            self.effects.recycle(datagram.bytes);
            return Ok(());
        }
        let host = self.parties.host(to);
        if host.inbox.len() >= host.plan.inbox {
            self.in_air -= 1;
            self.tally.lost += 1;
            self.trace.no_room(now, to, &datagram.bytes);
            self.effects.recycle(datagram.bytes);
            return Ok(());
        }
        datagram.marked |= matches!(to, Node::Element(_)) && host.inbox.len() >= host.plan.mark;
        host.inbox.push_back(datagram);
        self.look(to)
    }

    /// A node takes what waits, as far as its machine lets it.
    pub(super) fn look(&mut self, node: Node) -> Result<(), Failure> {
        let now = self.now;
        if self.parties.host(node).plan.timers_first && self.later(node).is_none() {
            self.ring(node)?;
        }
        loop {
            let host = self.parties.host(node);
            if host.inbox.is_empty() {
                return Ok(());
            }
            if host.busy_until > now {
                if !std::mem::replace(&mut host.looks, true) {
                    self.queue.push(host.busy_until, Event::Look(node));
                }
                return Ok(());
            }
            let Some(datagram) = host.inbox.pop_front() else { return Ok(()) };
            if now < self.scenario.faults_until {
                host.busy_until = now + host.plan.frame_time;
            }
            self.take(node, datagram)?;
        }
    }

    fn take(&mut self, node: Node, mut datagram: Datagram) -> Result<(), Failure> {
        self.in_air -= 1;
        self.trace.arrived(self.now, node, &datagram);
        let hostile = datagram.hostile;
        match node {
            Node::Element(number) if !hostile => self.windows.at_element(number, &datagram.bytes)?,
            Node::Caller(application, number) if !hostile => {
                let endpoint = self.scenario.applications[application].callers[number].endpoint;
                self.windows.delivered(endpoint, &datagram.bytes);
            }
            _ => {}
        }
        let now = self.shown(node);
        let mut effects = std::mem::take(&mut self.effects);
        if let Some(party) = self.parties.get(node) {
            party.handle(now, &mut datagram.bytes, datagram.marked, &mut effects);
        }
        if let Some(decision) = effects.decision.take() {
            self.trace.decided(self.now, node, decision);
        }
        effects.recycle(datagram.bytes);
        self.carry_out(node, effects, hostile)
    }

    pub(super) fn wake(&mut self, node: Node) -> Result<(), Failure> {
        let now = self.now;
        let host = self.parties.host(node);
        if host.alarm != Some(now) {
            return Ok(());
        }
        if host.busy_until > now {
            host.alarm = Some(host.busy_until);
            self.queue.push(host.busy_until, Event::Wake(node));
            return Ok(());
        }
        if !host.plan.timers_first {
            self.look(node)?;
        }
        self.ring(node)
    }

    /// Wakes a node if its deadline has come.
    fn ring(&mut self, node: Node) -> Result<(), Failure> {
        let now = self.now;
        let shown = self.shown(node);
        let host = self.parties.host(node);
        if host.alarm.is_some_and(|alarm| alarm <= now) {
            host.alarm = None;
        }
        // An alarm that the node no longer wants must not hide that it set none.
        let mut effects = std::mem::take(&mut self.effects);
        if self.parties.get(node).is_some_and(|party| party.deadline().is_some_and(|at| at <= shown)) {
            if self.parties.host(node).ring(now) > WAKES_MAX {
                return Err(Failure::Busy { node });
            }
            if let Some(party) = self.parties.get(node) {
                party.wake(shown, &mut effects);
            }
        }
        self.carry_out(node, effects, false)
    }

    /// Has a node woken at its deadline.
    pub(super) fn set_alarm(&mut self, node: Node) {
        let Some(deadline) = self.parties.get(node).and_then(|party| party.deadline()) else { return };
        let now = self.now;
        let host = self.parties.host(node);
        let deadline = host.plan.clock.reaches(deadline).max(now);
        if host.alarm.is_none_or(|alarm| deadline < alarm) {
            host.alarm = Some(deadline);
            self.queue.push(deadline, Event::Wake(node));
        }
    }

    /// When a node that stands still goes on.
    pub(super) fn later(&mut self, node: Node) -> Option<Instant> {
        let busy_until = self.parties.host(node).busy_until;
        (busy_until > self.now).then_some(busy_until)
    }

    /// What a node's clock shows.
    pub(super) fn shown(&mut self, node: Node) -> Instant {
        let now = self.now;
        self.parties.host(node).plan.clock.shows(now)
    }
}
