//! Nodes on their machines: datagrams wait in the inbox, and timers wait during pauses.

use std::time::Duration;

use pathcall_wire::Instant;

use super::{MapEvent, MapWorld};
use crate::map::checker::MapViolation;
use crate::map::network::Datagram;
use crate::map::node::{FrameDecision, MapNodeId};
use crate::map::trace::FrameSummary;

/// Limit on the wake-ups of a node at one time.
const WAKES_MAX: u32 = 1_000;
/// Pause after which a message to an owner that has ended is tried again.
const TAKEOVER_PROBE: Duration = Duration::from_millis(1);

impl MapWorld<'_> {
    /// Receives a datagram on a node's machine, which handles it at once or queues it.
    pub(super) fn arrive(&mut self, to: MapNodeId, mut datagram: Datagram) -> Result<(), MapViolation> {
        let now = self.time.now;
        if matches!(to, MapNodeId::Element(number) if now < self.element_from[number]) {
            self.in_air -= 1;
            self.effects.recycle(datagram.bytes);
            return Ok(());
        }
        let host = self.nodes.host(to);
        if host.inbox.len() >= host.plan.inbox {
            self.in_air -= 1;
            self.counts.lost += 1;
            self.time.node_line(to, || format!("LOST (inbox full) {}", FrameSummary(&datagram.bytes)));
            self.effects.recycle(datagram.bytes);
            return Ok(());
        }
        datagram.marked |= matches!(to, MapNodeId::Element(_)) && host.inbox.len() >= host.plan.mark;
        host.inbox.push_back(datagram);
        self.handle_datagrams(to)
    }

    /// Handles queued datagrams, as far as the machine allows.
    pub(super) fn handle_datagrams(&mut self, node: MapNodeId) -> Result<(), MapViolation> {
        let now = self.time.now;
        if self.nodes.host(node).plan.timers_first && self.later(node).is_none() {
            self.ring(node)?;
        }
        loop {
            let host = self.nodes.host(node);
            if host.inbox.is_empty() {
                return Ok(());
            }
            if host.busy_until > now {
                if !std::mem::replace(&mut host.looks, true) {
                    self.time.push(host.busy_until, MapEvent::Look(node));
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

    fn take(&mut self, node: MapNodeId, mut datagram: Datagram) -> Result<(), MapViolation> {
        self.in_air -= 1;
        self.time.arrived(node, &datagram);
        let hostile = datagram.hostile;
        match node {
            MapNodeId::Element(number) if !hostile => self.windows.at_element(number, &datagram.bytes)?,
            MapNodeId::Caller(application, number) if !hostile => {
                let endpoint = self.scenario.applications[application].callers[number].endpoint;
                self.windows.delivered(endpoint, &datagram.bytes);
            }
            _ => {}
        }
        let now = self.local_time(node);
        let mut effects = std::mem::take(&mut self.effects);
        if let Some(state_machine) = self.nodes.get(node) {
            state_machine.handle(now, &mut datagram.bytes, datagram.marked, &mut effects);
        }
        if let Some(decision) = effects.decision.take().filter(|decision| *decision != FrameDecision::Taken) {
            self.time.node_line(node, || format!("     └ {decision:?}"));
        }
        effects.recycle(datagram.bytes);
        self.carry_out(node, effects, hostile)
    }

    pub(super) fn wake(&mut self, node: MapNodeId) -> Result<(), MapViolation> {
        let now = self.time.now;
        let host = self.nodes.host(node);
        if host.alarm != Some(now) {
            return Ok(());
        }
        if host.busy_until > now {
            host.alarm = Some(host.busy_until);
            self.time.push(host.busy_until, MapEvent::Wake(node));
            return Ok(());
        }
        if !host.plan.timers_first {
            self.handle_datagrams(node)?;
        }
        self.ring(node)
    }

    /// Wakes a node if its deadline has expired.
    fn ring(&mut self, node: MapNodeId) -> Result<(), MapViolation> {
        let now = self.time.now;
        let shown = self.local_time(node);
        let host = self.nodes.host(node);
        if host.alarm.is_some_and(|alarm| alarm <= now) {
            host.alarm = None;
        }
        // An alarm that the node no longer needs must not hide that it set none.
        let mut effects = std::mem::take(&mut self.effects);
        if self.nodes.get(node).is_some_and(|state_machine| state_machine.deadline().is_some_and(|at| at <= shown)) {
            if self.nodes.host(node).ring(now) > WAKES_MAX {
                return Err(MapViolation::Busy { node });
            }
            if let Some(state_machine) = self.nodes.get(node) {
                state_machine.wake(shown, &mut effects);
            }
        }
        self.carry_out(node, effects, false)
    }

    /// Schedules the wake-up of a node at its deadline.
    pub(super) fn set_alarm(&mut self, node: MapNodeId) {
        let Some(deadline) = self.nodes.get(node).and_then(|state_machine| state_machine.deadline()) else { return };
        let host = self.nodes.host(node);
        let deadline = host.plan.clock.world_time(deadline);
        self.time.wake_at(Some(deadline), &mut host.alarm, MapEvent::Wake(node));
    }

    /// End of the pause or processing of a node, if it is busy; messages to an owner that has ended wait for the next one.
    pub(super) fn later(&mut self, node: MapNodeId) -> Option<Instant> {
        let down = matches!(node, MapNodeId::Owner(application) if self.nodes.owners[application].is_down());
        let again = down.then_some(self.time.now + TAKEOVER_PROBE);
        self.busy_until(node).max(again)
    }

    /// End of the pause or processing of a node, if it is busy.
    pub(super) fn busy_until(&mut self, node: MapNodeId) -> Option<Instant> {
        let busy_until = self.nodes.host(node).busy_until;
        (busy_until > self.time.now).then_some(busy_until)
    }

    /// Time on a node's clock.
    pub(super) fn local_time(&mut self, node: MapNodeId) -> Instant {
        let now = self.time.now;
        self.nodes.host(node).plan.clock.local_time(now)
    }
}
