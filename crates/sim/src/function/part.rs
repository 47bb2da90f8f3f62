//! Function as a part of a combined run: single steps, and the packets that it carries for other parts.

use std::time::Duration;

use pathcall_wire::Instant;

use super::FunctionCounts;
use super::checker::FunctionViolation;
use super::plan::{BEGINS, TRAFFIC};
use super::program::{Packet, PacketKind};
use super::server::SimulatedServer;
use super::world::{EVENTS_MAX, FunctionEvent, FunctionWorld};
use crate::timeline::{SteppedRun, Timeline};

/// Time after the end of the traffic within which all state must be removed.
const REST_TIMEOUT: Duration = Duration::from_millis(1_500);
/// First flow key of other parts' packets.
const OTHERS: u32 = 1 << 20;

/// Packet of another part that has left the function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ForwardedPacket {
    /// Sequence number that the function gave it.
    pub(crate) sequence: u32,
    /// Payload of the packet.
    pub(crate) payload: Vec<u8>,
}

/// Start and end of the time in which the function carries packets of other parts; it has servers and own traffic
/// then.
pub(crate) const CARRY_SPAN: (Instant, Instant) =
    (Instant(BEGINS.as_nanos() as u64), Instant(TRAFFIC.as_nanos() as u64));

/// Plays until all packets have left and all state is removed.
impl SteppedRun for FunctionWorld<'_> {
    type Event = FunctionEvent;
    type Counts = FunctionCounts;
    type Violation = FunctionViolation;

    fn time(&mut self) -> &mut Timeline<FunctionEvent> {
        &mut self.time
    }

    fn next(&self) -> Option<Instant> {
        self.time.queue.next_at().filter(|at| *at <= Instant(0) + TRAFFIC + REST_TIMEOUT)
    }

    fn step(&mut self) -> Result<(), FunctionViolation> {
        let Some(event) = self.time.pop(EVENTS_MAX).map_err(FunctionViolation::Endless)? else { return Ok(()) };
        self.handle_event(event)?;
        self.controller();
        Ok(())
    }

    fn check_end(&mut self) -> Result<(), FunctionViolation> {
        self.counts.virtual_time = self.time.now - Instant(0);
        let (place, scale) = (self.placer.stats(), self.scaler.stats());
        (self.counts.placed, self.counts.replaced, self.counts.recalled) =
            (place.placed, place.replaced, place.recalled);
        (self.counts.groups, self.counts.deaths, self.counts.drains) = (scale.changes, scale.deaths, scale.drains);
        self.counts.overdue = scale.overdue;
        let idle = self.servers.iter().flatten().all(SimulatedServer::is_idle);
        if self.placer.placed() != 0 || !idle {
            return Err(FunctionViolation::NotIdle { placed: self.placer.placed() });
        }
        self.checker.finish(self.plan.faulty() || self.overflowed > 0)
    }

    fn counts(&mut self) -> FunctionCounts {
        self.counts
    }
}

impl FunctionWorld<'_> {
    /// Sends a packet of another part's flow into the function; returns its sequence number.
    pub(crate) fn carry(&mut self, now: Instant, flow: u32, payload: &[u8]) -> Result<u32, FunctionViolation> {
        self.time.now = now;
        self.sequence += 1;
        let sequence = self.sequence;
        let packet = Packet { kind: PacketKind::Count, last: false, key: OTHERS + flow, sequence, a: 0, b: 0 };
        self.counts.packets += 1;
        self.checker.sent(now, &packet);
        self.process(1, &[&packet.emit()[..], payload].concat())?;
        self.controller();
        Ok(sequence)
    }

    /// Restarts the element without state.
    pub(crate) fn element_fails(&mut self, now: Instant) {
        self.time.now = now;
        self.element_is_lost();
        self.controller();
    }

    /// Passes a packet of another part on when it leaves.
    pub(super) fn forward_packet(&mut self, packet: &Packet, payload: &[u8]) {
        if packet.key >= OTHERS && packet.kind == PacketKind::Count {
            self.passed.push(ForwardedPacket { sequence: packet.sequence, payload: payload.to_vec() });
        }
    }
}
