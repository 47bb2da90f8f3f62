//! Network of the clone simulation: delay, loss, repeats and forged frames; and incidents at hosts and pools.

use std::time::Duration;

use pathcall_endpoint::clone::{CloneDestination, Pool};
use pathcall_wire::clone::{CLONE, ORIGINAL};
use pathcall_wire::{Base, CloneFlags, CloneFrame, Flags, FrameKind};

use super::element::OutgoingFrame;
use super::part::machine;
use super::plan::CloneIncident;
use super::violation::CloneViolation;
use super::world::{CALLER, CloneEvent, CloneNode, CloneWorld, INCARNATION, SERVER};

/// Time until the controller detects the death of a server.
const DEATH_DETECTION: Duration = Duration::from_millis(40);
/// Limit on the time until a node receives a pool update.
const POOL_UPDATE_DELAY: Duration = Duration::from_millis(30);
/// Limit on the extra delay of a late copy.
const LATE_DELAY: Duration = Duration::from_millis(400);

impl CloneWorld<'_> {
    /// Sends a frame of a host.
    pub(super) fn route(&mut self, from: CloneNode, to: CloneDestination, bytes: &[u8]) {
        let to = match to {
            CloneDestination::Element => CloneNode::Element(self.plan.element_of(from)),
            CloneDestination::Endpoint(endpoint) => Self::host_of(endpoint),
        };
        self.send(from, to, bytes);
    }

    fn send(&mut self, from: CloneNode, to: CloneNode, bytes: &[u8]) {
        self.counts.frames += 1;
        self.time.trace.mix(bytes.len() as u64);
        let faulty = self.time.now < self.plan.faults_until;
        // Between elements the attacker hears nothing.
        if !matches!((from, to), (CloneNode::Element(_), CloneNode::Element(_))) {
            self.send_forged(to, bytes);
        }
        let cut = self.environment.is_cut(self.time.now, machine(from), machine(to));
        let lost = faulty && self.random.happens(self.plan.loss) || cut;
        let repeated = faulty && self.random.happens(self.plan.repeat) && !cut;
        let late = faulty && self.random.happens(self.plan.late) && !cut;
        if lost {
            self.counts.lost += 1;
            self.line(from, || format!("LOST to {to:?}: {}", describe(bytes)));
        }
        self.counts.repeated += u64::from(repeated) + u64::from(late);
        for (comes, later) in [(!lost, Duration::ZERO), (repeated, Duration::ZERO), (late, LATE_DELAY)] {
            let at = self.time.now + self.random.between(self.plan.delay) + self.random.up_to(later);
            let at = if matches!(to, CloneNode::Element(_)) { at + self.plan.element_delay(self.time.now) } else { at };
            if comes {
                self.time.push(at, CloneEvent::Frame { from, to, bytes: bytes.to_vec() });
            }
        }
    }

    /// Sends a forged version of an overheard frame. It must have no effect.
    fn send_forged(&mut self, to: CloneNode, bytes: &[u8]) {
        if self.time.now >= self.plan.faults_until || !self.random.happens(self.plan.forged) {
            return;
        }
        let mut forged = bytes.to_vec();
        let Ok(mut frame) = CloneFrame::new_checked(forged.as_mut_slice()) else { return };
        let (kind, junk) = (frame.kind(), self.random.bits());
        match (junk % 6, kind) {
            // The CLO field may be set by elements only.
            (0 | 1, FrameKind::CloneRequest) if matches!(to, CloneNode::Element(_)) => {
                frame.head_mut().set_clo(if junk & 64 == 0 { ORIGINAL } else { CLONE });
            }
            (_, FrameKind::CloneRequest) if matches!(to, CloneNode::Element(_)) => {
                frame.base_mut().set_src_incarnation(junk as u32 | 64)
            }
            // An answer to an earlier process with the same call number.
            (0 | 1, FrameKind::CloneReply) => {
                frame.base_mut().set_dst_incarnation(INCARNATION - 1);
                damage_payload(&mut forged, junk);
            }
            (2, FrameKind::CloneReply) => {
                frame.base_mut().set_src(SERVER + 90);
                damage_payload(&mut forged, junk);
            }
            (3, FrameKind::CloneReply) => {
                let flags = frame.base().flags() & !Flags::FROM_SERVER;
                frame.base_mut().set_flags(flags);
                damage_payload(&mut forged, junk);
            }
            _ => forged.truncate((junk >> 8) as usize % (bytes.len() + 1)),
        }
        self.counts.forged += 1;
        let after = self.random.up_to(self.plan.delay.1);
        self.time.after(after, CloneEvent::Frame { from: CloneNode::Attacker, to, bytes: forged });
    }

    /// Processes a frame at an element.
    pub(super) fn at_element(&mut self, index: usize, bytes: Vec<u8>) -> Result<(), CloneViolation> {
        if self.elements[index].silent {
            return Ok(());
        }
        // A forged request may be cloned first; that clone does not count as the caller's.
        if let Ok(frame) = CloneFrame::new_checked(bytes.as_slice())
            && frame.head().switch_id() == 0
            && let Some(call) = self.call_of(&frame)
        {
            self.checker.record_at_element(call, &frame);
        }
        let leaving = self.elements[index].receive(self.time.now, bytes)?;
        for frame in leaving {
            self.forward_frame(index, &frame)?;
        }
        self.send_hedges(index)
    }

    pub(super) fn forward_frame(
        &mut self,
        index: usize,
        OutgoingFrame { to, bytes, cloned }: &OutgoingFrame,
    ) -> Result<(), CloneViolation> {
        if *cloned
            && let Ok(frame) = CloneFrame::new_checked(bytes.as_slice())
            && let Some(call) = self.call_of(&frame)
        {
            self.counts.cloned += u64::from(!is_hedge(&frame));
            self.checker.cloned(self.time.now, call, &frame)?;
        }
        let next = self.plan.next_hop(index, Self::host_of(*to));
        self.send(CloneNode::Element(index), next, bytes);
        Ok(())
    }

    pub(super) fn incident(&mut self, incident: CloneIncident) {
        self.counts.incidents += 1;
        self.line(CloneNode::Element(0), || format!("{incident:?}"));
        match incident {
            CloneIncident::Restart { silent } => {
                self.element_is_lost(0);
                self.time.queue.extend(silent.map(|silent| (self.time.now + silent, CloneEvent::Install(0))));
            }
            CloneIncident::RestartSecond { silent } if self.elements.len() > 1 => {
                self.element_is_lost(1);
                self.time.queue.extend(silent.map(|silent| (self.time.now + silent, CloneEvent::Install(1))));
            }
            CloneIncident::RestartSecond { .. } => {}
            CloneIncident::Kill { server, back } => {
                self.servers[server].worker = None;
                self.break_streams(server);
                match back {
                    // It may be back before its death is detected.
                    Some(back) => self.time.after(back, CloneEvent::Back(server)),
                    None => self.time.after(DEATH_DETECTION, CloneEvent::Member(server, false)),
                }
            }
            CloneIncident::Move { server } => {
                let member = self.pool.servers.contains(&(SERVER + server as u32));
                self.change_membership(server, !member);
            }
        }
    }

    /// Removes all state of an element and silences it.
    pub(super) fn element_is_lost(&mut self, index: usize) {
        self.elements[index] = self.elements[index].lost(self.plan);
        self.elements[index].silent = true;
    }

    /// Adds a server to the pool or removes it, and sends the update to all nodes with random delays.
    pub(super) fn change_membership(&mut self, server: usize, member: bool) {
        let endpoint = SERVER + server as u32;
        self.pool.servers.retain(|other| *other != endpoint);
        if member {
            let at = self.random.index(self.pool.servers.len() + 1);
            self.pool.servers.insert(at, endpoint);
        }
        self.pool.version += 1;
        let everybody =
            (0..self.callers.len()).map(CloneNode::Caller).chain((0..self.servers.len()).map(CloneNode::Server));
        let elements = (0..self.elements.len()).map(CloneNode::Element);
        for node in everybody.chain(elements).collect::<Vec<_>>() {
            let after = self.random.up_to(POOL_UPDATE_DELAY);
            self.time.after(after, CloneEvent::PoolUpdate(node, self.pool.clone()));
        }
    }

    /// Delivers a pool update to a node, unless the node has a newer one.
    pub(super) fn update_pool(&mut self, node: CloneNode, pool: Pool) -> Result<(), CloneViolation> {
        match node {
            CloneNode::Caller(index) => {
                if pool.version > self.callers[index].0.pool().version {
                    self.callers[index].0.set_pool(self.time.now, pool);
                }
            }
            CloneNode::Server(index) => {
                let endpoint = SERVER + index as u32;
                let sid = self.pool.servers.iter().position(|server| *server == endpoint);
                if let (Some(worker), Some(sid)) = (&mut self.servers[index].worker, sid) {
                    worker.set_sid(sid as u16);
                }
            }
            CloneNode::Element(index) => self.install(index),
            CloneNode::Attacker => {}
        }
        self.drain(node)
    }

    /// Installs the endpoints and the pool in an element.
    pub(super) fn install(&mut self, index: usize) {
        let servers =
            self.servers.iter().enumerate().map(|(index, server)| (SERVER + index as u32, server.incarnation));
        let callers = (0..self.callers.len() as u32).map(|index| (CALLER + index, INCARNATION));
        let endpoints: Vec<_> = servers.chain(callers).collect();
        // The tables are large enough for every plan.
        let installed = self.elements[index].install(&self.pool, &endpoints);
        debug_assert!(installed.is_ok(), "{installed:?}");
    }
}

/// Whether an element has held a request before it sent it.
pub(super) fn is_hedge(frame: &CloneFrame<&[u8]>) -> bool {
    frame.kind() == FrameKind::CloneRequest
        && frame.head().clo() == CLONE
        && frame.head().flags() & CloneFlags::CLONE == 0
}

/// Changes the payload.
fn damage_payload(bytes: &mut [u8], junk: u64) {
    if let Some(last) = bytes.last_mut() {
        *last ^= (junk >> 32) as u8 | 1;
    }
}

/// Frame description for the trace.
pub(super) fn describe(bytes: &[u8]) -> String {
    let Ok(frame) = CloneFrame::new_checked(bytes) else {
        return match Base::new_checked(bytes) {
            Ok(base) => format!("kind {}", base.kind()),
            Err(error) => format!("{} bytes: {error}", bytes.len()),
        };
    };
    let (base, head) = (frame.base(), frame.head().repr());
    format!(
        "{:?} {}→{} seq {} attempt {} part {}/{} id {:x} grp {} v{} sid {} state {} clo {} idx {} by {} flags {:x}/{:x}",
        frame.kind(),
        base.src(),
        base.dst(),
        base.seq(),
        head.attempt,
        head.part,
        head.parts,
        head.req_id,
        head.grp,
        base.epoch(),
        head.sid,
        head.state,
        head.clo,
        head.idx,
        head.switch_id,
        base.flags(),
        head.flags
    )
}
