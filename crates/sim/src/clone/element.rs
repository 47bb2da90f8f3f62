//! Element of the clone simulation: the switch program, with checks of each verdict.

use std::num::NonZeroU16;

use pathcall_endpoint::clone::Pool;
use pathcall_program::clone::CloneSize;
use pathcall_program::{Endpoint, FrameAction, FrameDropReason, RepeatFilterProfile, Size, SwitchProgram};
use pathcall_wire::clone::ServerReport;
use pathcall_wire::{CloneFlags, CloneFrame, Flags, FrameKind, Instant, clone};

use super::holding::{ElementHolder, HoldPlan};
use super::plan::ClonePlan;
use super::violation::CloneViolation;
use super::world::GAID;
use crate::element_program::ElementProgram;

/// Switch program and its configuration.
pub(super) struct Element {
    pub(super) switch: ElementProgram,
    /// Calls of which the element may hold hedges, if it holds some.
    pub(super) holder: Option<ElementHolder>,
    /// Index of the element's rack.
    index: usize,
    /// Whether the element lost its tables and has not been configured again.
    pub(super) silent: bool,
    /// Version of the pool that was last installed.
    version: u32,
    servers: Vec<u32>,
}

/// Frame that the element sends.
pub(super) struct OutgoingFrame {
    pub(super) to: u32,
    pub(super) bytes: Vec<u8>,
    /// Whether the frame stands for a cloned request.
    pub(super) cloned: bool,
}

impl Element {
    /// Creates an element; `shared` is the program that several worlds share.
    pub(super) fn new(plan: &ClonePlan, index: usize, shared: Option<ElementProgram>) -> Self {
        let switch = shared.unwrap_or_else(|| ElementProgram::own(numbered(plan, index)));
        Self { switch, holder: ElementHolder::new(plan), index, silent: false, version: 0, servers: Vec::new() }
    }

    /// Returns the element after the loss of all state.
    pub(super) fn lost(&self, plan: &ClonePlan) -> Self {
        let switch = self.switch.lost(|| numbered(plan, self.index));
        Self::new(plan, self.index, Some(switch))
    }

    /// Installs endpoints and pool, as the controller does.
    pub(super) fn install(&mut self, pool: &Pool, endpoints: &[(u32, u32)]) -> Result<(), String> {
        self.version = pool.version;
        self.servers.clone_from(&pool.servers);
        self.switch.with_tables(|tables| {
            for &(endpoint, incarnation) in endpoints {
                let entry = Endpoint { endpoint, incarnation, gaid: GAID, slot_base: 0, slots: 0 };
                tables.set_endpoint(entry).map_err(|error| error.to_string())?;
            }
            let Pool { gaid, version, servers } = pool.clone();
            let pool = pathcall_program::InstalledPool { gaid, version, servers };
            tables.install_pool(pool).map_err(|error| error.to_string())
        })
    }

    /// Pool that was installed since the last loss of state.
    pub(super) fn installed(&self) -> Option<Pool> {
        let told = !self.servers.is_empty() || self.version > 0;
        told.then(|| Pool { gaid: GAID, version: self.version, servers: self.servers.clone() })
    }

    /// Number of slower answers that the response filter has dropped since the start.
    pub(super) fn filtered(&self) -> u64 {
        self.switch.with_program(|program| program.counters().drop_filtered)
    }

    /// Processes a frame and returns the frames that leave.
    pub(super) fn receive(&mut self, now: Instant, mut bytes: Vec<u8>) -> Result<Vec<OutgoingFrame>, CloneViolation> {
        let before = bytes.clone();
        let loads = self.loads();
        let verdict = self.switch.process(now, &mut bytes, false);
        bytes.truncate(verdict.len);
        let mut leaving = Vec::new();
        match verdict.action {
            FrameAction::Forward(to) => leaving.push(OutgoingFrame { to, bytes, cloned: false }),
            FrameAction::Clone(to) => {
                let mut copy = bytes.clone();
                leaving.push(OutgoingFrame { to, bytes, cloned: true });
                if let FrameAction::Forward(to) = self.switch.recirculate(&mut copy).action {
                    leaving.push(OutgoingFrame { to, bytes: copy, cloned: false });
                }
            }
            FrameAction::Multicast(_) | FrameAction::Drop(_) => {}
        }
        self.check_verdict(&before, verdict.action, &leaving, loads.as_deref())?;
        let decided = CloneFrame::new_checked(before.as_slice()).map_or(0, |frame| frame.head().switch_id());
        let ours = decided == 0 || decided == switch_id(self.index).get();
        if let (Some(holder), Some(frame), true) = (&mut self.holder, leaving.first(), ours) {
            holder.record(now, verdict.action, &frame.bytes);
        }
        Ok(leaving)
    }

    fn loads(&self) -> Option<Vec<ServerReport>> {
        self.switch.with_program(|program| program.tables().loads(GAID).ok().map(|(loads, _)| loads.to_vec()))
    }

    /// Checks a verdict of the program against its tables.
    fn check_verdict(
        &self,
        before: &[u8],
        action: FrameAction,
        leaving: &[OutgoingFrame],
        loads: Option<&[ServerReport]>,
    ) -> Result<(), CloneViolation> {
        self.switch.with_program(|program| match program.tables().loads(GAID) {
            Ok((loads, shadows)) if loads != shadows => {
                Err(CloneViolation::Shadow { loads: loads.to_vec(), shadows: shadows.to_vec() })
            }
            Ok((after, _)) => {
                let before = loads.unwrap_or_default().iter().zip(after);
                let is_older = |(before, after): &(&ServerReport, &ServerReport)| before.is_newer_than(**after);
                before.enumerate().find(|(_, reports)| is_older(reports)).map_or(Ok(()), |(sid, (before, after))| {
                    Err(CloneViolation::OldReport { sid, before: before.number, after: after.number })
                })
            }
            Err(_) => Ok(()),
        })?;
        let (Some(loads), Ok(frame)) = (loads, CloneFrame::new_checked(before)) else { return Ok(()) };
        let (base, head) = (frame.base(), frame.head());
        if head.switch_id() != 0 && head.switch_id() != switch_id(self.index).get() {
            let changed = leaving.iter().any(|leaving| !passes(before, &leaving.bytes)) || leaving.len() > 1;
            return if changed { Err(CloneViolation::DecidedTwice(base.seq())) } else { Ok(()) };
        }
        let current = base.epoch() == self.version;
        if frame.kind() == FrameKind::CloneCancel && !current && !leaving.is_empty() {
            return Err(CloneViolation::StaleCancel(base.seq()));
        }
        if frame.kind() != FrameKind::CloneRequest || head.parts() > 1 {
            return Ok(());
        }
        if action == FrameAction::Drop(FrameDropReason::Stale) {
            return Err(CloneViolation::Dropped(base.seq()));
        }
        let load = |endpoint: u32| {
            self.servers
                .iter()
                .position(|server| *server == endpoint)
                .and_then(|sid| loads.get(sid))
                .map(|report| report.state)
        };
        if let FrameAction::Clone(_) = action
            && leaving.iter().any(|leaving| load(leaving.to) != Some(0))
        {
            return Err(CloneViolation::ClonedBusy(base.seq()));
        }
        let FrameAction::Forward(to) = action else { return Ok(()) };
        let admitted = leaving.iter().all(|leaving| {
            CloneFrame::new_checked(leaving.bytes.as_slice())
                .is_ok_and(|frame| !frame.base().has(Flags::NOT_ADMITTED) && frame.head().switch_id() != 0)
        });
        if !admitted {
            return Ok(());
        }
        if head.flags() & CloneFlags::DIRECT != 0 {
            return if to == base.dst() { Ok(()) } else { Err(CloneViolation::Steered(base.seq())) };
        }
        let state = |sid: u16| loads.get(usize::from(sid)).map(|report| report.state);
        let pair = clone::pair(head.grp(), self.servers.len()).filter(|_| current);
        if let Some((one, other)) = pair
            && head.flags() & CloneFlags::SHORTEST != 0
            && load(to) > state(one).min(state(other))
        {
            return Err(CloneViolation::Longer(base.seq()));
        }
        Ok(())
    }
}

/// Whether a frame is the same, apart from the flag of a sender that the element does not know.
fn passes(before: &[u8], after: &[u8]) -> bool {
    let mut after = after.to_vec();
    let Ok(mut frame) = CloneFrame::new_checked(after.as_mut_slice()) else { return false };
    let flags = frame.base().flags() & !Flags::NOT_ADMITTED;
    frame.base_mut().set_flags(flags);
    after == before
}

/// Id of the element in a rack.
fn switch_id(index: usize) -> NonZeroU16 {
    clone::switch_id(index as u32 + 1)
}

/// Program of the element in a rack, without entries.
fn numbered(plan: &ClonePlan, index: usize) -> SwitchProgram {
    let mut program = blank(plan, Size { rows: 0, lanes: 0, slots: 0 });
    program.set_switch_id(switch_id(index));
    program
}

/// Program with clone's tables, of the plan's sizes, beside those of map; without entries.
pub(crate) fn blank(plan: &ClonePlan, size: Size) -> SwitchProgram {
    let clones: CloneSize = plan.size;
    let mut program = SwitchProgram::with_clones(size, clones, RepeatFilterProfile::FullSequence);
    program.set_last_number(plan.numbered);
    if let Some(size) = plan.holding.and_then(HoldPlan::size) {
        program.hold_hedges(size);
    }
    program
}
