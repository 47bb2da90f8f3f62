//! Switch program: processing of a frame by a network element.
//!
//! ```text
//! frame ─► admit ─► generation ─► once ─► round ─► count ─► lock, grant ─► modify, map ─► emit
//!                                                        ─► forward │ reflect │ multicast │ drop
//! ```
//!
//! One module per stage, in packet order (NetRPC Fig. 15; App. C: `CntFwd` before the map, so that the frame that
//! reaches the threshold reads the sums in its one visit). The program uses only what a switch pipeline has: integers,
//! and register arrays that a frame visits once each, in stage order; debug builds check that ([`registers`]). Frames
//! of calls to a pool of servers take the stages of [`clone`]. This program is the reference for all other executions.
//! It does no I/O, reads no clock and allocates nothing per frame. [`held`] has what only an element in user space
//! can do: it holds copies of requests, and sends them later.

#![warn(missing_docs)]

mod admit;
mod ballot;
pub mod clone;
mod count;
pub mod counters;
pub mod emit;
mod generation;
pub mod hardware;
pub mod held;
mod keyed;
mod lanes;
pub mod layout;
mod lock;
mod map;
pub mod pipeline;
pub mod registers;
mod repeat_filter;
mod round;
pub mod tables;

use admit::{Admission, AdmissionRefusal};
pub use clone::{CallName, CloneSize, InstalledPool};
pub use counters::{ApplicationCounters, Counters, HedgeCounters, PoolCounters};
pub use held::{HeldHedges, HeldHedgesSize};
pub use repeat_filter::RepeatFilterProfile;
use repeat_filter::RepeatStatus;
use std::num::NonZeroU16;

use clone::CallContext;
use pathcall_wire::clone::is_clone;
use pathcall_wire::{
    BaseRepr, CloneFrame, Flags, FrameKind, Instant, MapFlags, MapFrame, MapRepr, Mutant, OpType, mutant,
};
use registers::Pass;
use round::RoundPart;
pub use tables::{AdmissionTables, Endpoint, InstalledApplication, Size, TableChangeError};

/// Reason of a dropped frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameDropReason {
    /// Not a frame, or fields that contradict the application's layout.
    Malformed,
    /// Has the server's flag, and another sender.
    Forged,
    /// Repeat of a frame acknowledged long ago.
    Stale,
    /// Processed completely; `CntFwd` waits for more frames.
    Counted,
    /// Not admitted, and without a known endpoint to forward it to.
    NotAdmitted,
    /// Addressed to an endpoint that the application does not have.
    UnknownEndpoint,
    /// Has no token or a wrong one, or has a token in an application without tokens.
    Unauthentic,
    /// Slower answer of a cloned call (NetClone §3.5).
    Filtered,
}

/// Destination of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameAction {
    /// To this endpoint; a frame that is returned has its addresses swapped already.
    Forward(u32),
    /// To every member of this application's group, by [`AdmissionTables::copies`], which signs the copies.
    Multicast(u32),
    /// To this endpoint; and the same bytes at once through [`SwitchProgram::recirculate`], which makes the clone of
    /// them.
    Clone(u32),
    /// To nobody.
    Drop(FrameDropReason),
}

/// Result of the program: `frame[..len]` is the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameVerdict {
    /// Destination of the frame.
    pub action: FrameAction,
    /// New length of the frame, bytes.
    pub len: usize,
}

/// Switch program with its tables and registers.
#[derive(Debug)]
pub struct SwitchProgram {
    tables: AdmissionTables,
    profile: RepeatFilterProfile,
    counters: Counters,
    /// Id of this element, written into requests that the element decides about; never 0.
    switch_id: NonZeroU16,
}

impl SwitchProgram {
    /// Program with empty tables.
    #[must_use]
    pub fn new(size: Size) -> Self {
        Self::with_profile(size, RepeatFilterProfile::FullSequence)
    }

    /// Program with this repeat-filter profile.
    #[must_use]
    pub fn with_profile(size: Size, profile: RepeatFilterProfile) -> Self {
        Self::with_clones(size, CloneSize::default(), profile)
    }

    /// Program with these sizes of the tables for calls to pools.
    #[must_use]
    pub fn with_clones(size: Size, clones: CloneSize, profile: RepeatFilterProfile) -> Self {
        let tables = AdmissionTables::new(size, clones);
        Self { tables, profile, counters: Counters::default(), switch_id: NonZeroU16::MIN }
    }

    /// Sets the id of this element among those on a call's path (NetClone §3.7); default 1.
    pub fn set_switch_id(&mut self, switch_id: NonZeroU16) {
        self.switch_id = switch_id;
    }

    /// Sets the number after which requests are numbered; default 0. A number that differs with each start separates
    /// calls from answers to calls before the start.
    pub fn set_last_number(&mut self, last: u64) {
        self.tables.clones.numbers.reset(0, 1, last);
    }

    /// Admission tables and registers.
    #[must_use]
    pub fn tables(&self) -> &AdmissionTables {
        &self.tables
    }

    /// Mutable access to the tables and registers.
    pub fn tables_mut(&mut self) -> &mut AdmissionTables {
        &mut self.tables
    }

    /// Element-wide counters; those of an application are in its table entry.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Counts a frame that was dropped before the pipeline.
    pub fn count_dropped(&mut self, reason: FrameDropReason) {
        self.counters.frames_in += 1;
        self.counters.verdict(FrameAction::Drop(reason));
    }

    /// Runs a frame through the pipeline, and changes it in place. `congested`: the ingress or egress queue is long
    /// (NetRPC §5.1).
    pub fn process(&mut self, now: Instant, bytes: &mut [u8], congested: bool) -> FrameVerdict {
        self.counters.frames_in += 1;
        let len = bytes.len();
        let mut verdict = FrameVerdict { action: FrameAction::Drop(FrameDropReason::Malformed), len };
        if is_clone(bytes) {
            if let Ok(frame) = CloneFrame::new_checked(&mut *bytes) {
                verdict.action = self.steer(now, CallContext::new(frame, congested));
            }
        } else if let Ok(frame) = MapFrame::new_checked(&mut *bytes) {
            let context = Context::new(frame, congested, &self.tables);
            let admission = admit::admit(&mut self.tables, now, &context);
            verdict = match admission.application {
                Ok(application) => self.pipeline(&application, context),
                Err(refused) => context.refuse(refused, &admission),
            };
            if !admission.authentic && mutant::on(Mutant::ElementTokenLate) && admission.key.is_some() {
                verdict.action = FrameAction::Drop(FrameDropReason::Unauthentic);
            }
            if let (Some(key), FrameAction::Forward(_)) = (admission.key, verdict.action) {
                key.sign(&mut bytes[..verdict.len]);
            }
        }
        self.counters.verdict(verdict.action);
        verdict
    }

    fn pipeline(&mut self, application: &InstalledApplication, mut context: Context<'_>) -> FrameVerdict {
        context.write_flags();
        let Context { base, map, .. } = context;
        let from_server = base.flags & Flags::FROM_SERVER != 0;
        if base.flags & Flags::CROSS != 0 {
            self.count_for(base.gaid, |c| c.cross += 1);
            return context.forward();
        }
        match context.frame.kind() {
            FrameKind::MapPairsAck if from_server && map.flags & MapFlags::COUNT != 0 => {
                self.decided(application, context)
            }
            FrameKind::MapResult if from_server => self.result(application, context),
            FrameKind::MapRead if from_server => self.read(application, context),
            FrameKind::MapClose | FrameKind::MapPlaces | FrameKind::MapWipe if from_server => {
                self.harvest(application, context)
            }
            FrameKind::MapMove if from_server => self.move_ballot(application, context),
            FrameKind::MapFree if from_server => self.free(application, context),
            _ if from_server => context.deliver(),
            FrameKind::MapData if map.flags & (MapFlags::LOGICAL | MapFlags::BARE) != 0 => context.forward(),
            FrameKind::MapData if map.flags & MapFlags::LINEAR == 0 && lock::is_of_lock(&map) => {
                self.lock(application, context)
            }
            FrameKind::MapData if map.flags & MapFlags::LINEAR == 0 => self.keyed(application, context),
            FrameKind::MapData => self.linear(application, context),
            FrameKind::MapPairs if ballot::is_query(&map) => self.ballot_query(application, context),
            FrameKind::MapPairs if map.flags & (MapFlags::COUNT | MapFlags::CLEAR) != 0 => {
                self.ballot(application, context)
            }
            _ => context.forward(),
        }
    }

    /// Processes a worker's part of a round.
    fn linear(&mut self, application: &InstalledApplication, mut context: Context<'_>) -> FrameVerdict {
        let Context { base, map, .. } = context;
        if map.flags & MapFlags::WIDE != 0 || map.flags & MapFlags::ROUND == 0 {
            self.count_for(base.gaid, |c| c.diverted += 1);
            return context.divert();
        }
        let fits = context.frame.lane_count() <= application.width as usize
            && map.index < application.rows
            && usize::from(map.worker) < pathcall_wire::MAX_WORKERS
            && map.first_lane == 0
            && map.threshold >= 1;
        if !fits {
            return context.drop(FrameDropReason::Malformed);
        }
        let registers = &mut self.tables.registers;
        let new = match repeat_filter::classify(self.profile, registers, &base, &mut context.pass, 0, true) {
            RepeatStatus::New => true,
            RepeatStatus::Repeat(_) => false,
            RepeatStatus::Refused | RepeatStatus::Stale => {
                self.count_for(base.gaid, |c| c.stale += 1);
                return context.drop(FrameDropReason::Stale);
            }
        };
        let part = round::record_part(application, registers, &mut context, new);
        match part {
            RoundPart::Old => {
                self.count_for(base.gaid, |c| c.old += 1);
                return context.forward_to_backup();
            }
            RoundPart::Diverted => {
                self.count_for(base.gaid, |c| c.diverted += 1);
                return context.divert();
            }
            RoundPart::First | RoundPart::Opening | RoundPart::Again => {}
        }
        let apply = part != RoundPart::Again;
        let reached = count::round(application, registers, &mut context, part);
        map::row(application, registers, &mut context, part, reached);
        self.count_for(base.gaid, |c| {
            c.applied += u64::from(apply);
            c.repeats += u64::from(!apply);
            c.lanes_added += if apply { u64::from(map.lanes) } else { 0 };
            c.reached += u64::from(reached);
            c.held += u64::from(!reached && !apply);
        });
        match (reached, apply) {
            (true, _) => context.emit_sums(apply),
            (false, true) => context.drop(FrameDropReason::Counted),
            (false, false) => context.reflect(FrameKind::MapHeld, true),
        }
    }

    /// Processes the server's result of a round, which clears the round once.
    fn result(&mut self, application: &InstalledApplication, mut context: Context<'_>) -> FrameVerdict {
        let Context { base, map, .. } = context;
        if map.index >= application.rows {
            return context.drop(FrameDropReason::Malformed);
        }
        let mut cleared = false;
        if map.flags & (MapFlags::CLEAR | MapFlags::ROUND) == MapFlags::CLEAR | MapFlags::ROUND {
            let registers = &mut self.tables.registers;
            cleared = round::close(application, registers, &mut context);
            if cleared {
                count::clear(application, registers, &mut context);
                map::clear(application, registers, &mut context);
            }
        }
        self.count_for(base.gaid, |c| {
            c.results += 1;
            c.clears += u64::from(cleared);
        });
        context.deliver()
    }

    /// Reads a row of registers for the server.
    fn read(&mut self, application: &InstalledApplication, mut context: Context<'_>) -> FrameVerdict {
        let Context { base, map, .. } = context;
        let form = MapFlags::LINEAR | MapFlags::GET;
        let fits = map.index < application.rows
            && u32::from(map.first_lane) + u32::from(map.lanes) <= application.width
            && map.flags & (form | MapFlags::WIDE | MapFlags::BARE) == form;
        if !fits {
            return context.drop(FrameDropReason::Malformed);
        }
        map::get_row(application, &mut self.tables.registers, &mut context);
        emit::mark_all(&mut context);
        self.count_for(base.gaid, |c| c.reads += 1);
        context.reflect(FrameKind::MapValues, false)
    }

    fn count_for(&mut self, gaid: u32, change: impl FnOnce(&mut ApplicationCounters)) {
        if let Some(entry) = self.tables.entry_mut(gaid) {
            change(&mut entry.counters);
        }
    }
}

/// Frame in the pipeline, with its parsed headers.
pub(crate) struct Context<'a> {
    pub(crate) frame: MapFrame<&'a mut [u8]>,
    pub(crate) base: BaseRepr,
    pub(crate) map: MapRepr,
    pub(crate) congested: bool,
    pub(crate) pass: Pass,
    /// Whether the addressed endpoint belongs to the application.
    known: bool,
}

impl<'a> Context<'a> {
    /// Context of a new frame. Flags that only an element may set are masked, and the congestion mark is added, in the
    /// parsed headers only; the frame itself changes after admission.
    fn new(frame: MapFrame<&'a mut [u8]>, congested: bool, tables: &AdmissionTables) -> Self {
        let (mut base, mut map) = (frame.base().repr(), frame.map().repr());
        base.flags &= !Flags::NOT_ADMITTED;
        base.flags |= if congested { Flags::ECN } else { 0 };
        map.flags &= !MapFlags::ELEMENT_ONLY;
        let known = tables.is_endpoint_of(base.dst, base.gaid);
        Self { frame, base, map, congested, pass: Pass::default(), known }
    }

    /// Writes the masked flags into the frame.
    fn write_flags(&mut self) {
        self.frame.base_mut().set_flags(self.base.flags);
        self.frame.map_mut().set_flags(self.map.flags);
    }

    /// Handles a refused frame: forwards it with a flag, or drops it if it is forged or unauthentic.
    fn refuse(mut self, refused: AdmissionRefusal, admission: &Admission) -> FrameVerdict {
        match refused {
            AdmissionRefusal::Forged => self.drop(FrameDropReason::Forged),
            AdmissionRefusal::Unauthentic => self.drop(FrameDropReason::Unauthentic),
            AdmissionRefusal::NotAdmitted if !self.known => self.drop(FrameDropReason::NotAdmitted),
            AdmissionRefusal::NotAdmitted => {
                // An element without the key cannot sign a changed frame, so the frame is left unchanged.
                if admission.key.is_some() || self.base.flags & Flags::TOKEN == 0 {
                    self.base.flags |= Flags::NOT_ADMITTED;
                    self.write_flags();
                }
                self.forward()
            }
        }
    }

    pub(crate) fn op(&self) -> (OpType, i32) {
        (self.frame.op(), self.map.para)
    }
}

#[cfg(test)]
mod tests;
