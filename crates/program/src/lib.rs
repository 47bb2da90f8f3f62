//! The switch program: what an element does to a frame in passing.
//!
//! ```text
//! frame ─► admit ─► generation ─► once ─► round ─► count ─► lock, grant ─► modify, map ─► emit ─► forward │ reflect │ multicast │ drop
//! ```
//!
//! One module per stage, in packet order (NetRPC Fig. 15; App. C: `CntFwd` before the map, so that
//! the frame that reaches the threshold reads the sums in its one visit). It may use only what a switch pipeline
//! can: integers, and register arrays that a frame touches once each, in stage order; debug builds
//! prove that ([`registers`]). Frames of calls to a pool of servers take the stages of [`clone`]. This program
//! defines right and wrong for every other execution. It does no I/O, reads no clock and allocates nothing per frame.

#![warn(missing_docs)]

mod admit;
mod ballot;
pub mod clone;
mod count;
pub mod counters;
pub mod emit;
mod generation;
pub mod hardware;
mod keyed;
mod lanes;
pub mod layout;
mod lock;
mod map;
mod once;
pub mod registers;
mod round;
pub mod tables;

use admit::{Admission, Refused};
pub use clone::{CloneSize, Pool};
pub use counters::{ApplicationCounters, Counters, PoolCounters};
use once::Met;
pub use once::Profile;
use std::num::NonZeroU16;

use clone::Call;
use pathcall_wire::clone::is_clone;
use pathcall_wire::{BaseRepr, CloneFrame, Flags, Instant, Kind, MapFlags, MapFrame, MapRepr, Mutant, OpType, mutant};
use registers::Pass;
use round::Part;
pub use tables::{Application, Endpoint, Size, TableError, Tables};

/// Why a frame goes no further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Not a frame, or one whose fields contradict its application's layout.
    Malformed,
    /// It says that it comes from the server, and does not.
    Forged,
    /// A repeat of something acknowledged long ago.
    Stale,
    /// Its work is done; `CntFwd` waits for more.
    Counted,
    /// Not admitted, and nobody to pass it on to.
    NotAdmitted,
    /// Addressed to an endpoint that the application does not have.
    UnknownEndpoint,
    /// Without its application's token, or with one where there is none.
    Unauthentic,
    /// An answer of a call that was cloned: another has passed (NetClone §3.5).
    Filtered,
}

/// Where a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// To this endpoint; a reflected frame is already turned round.
    Forward(u32),
    /// To every member of this application's group, by [`Tables::copies`], which signs the copies.
    Multicast(u32),
    /// To this endpoint; and the same bytes once more through [`Program::recirculate`], at once, which makes
    /// of them the clone for another.
    Clone(u32),
    /// Nowhere.
    Drop(Reason),
}

/// What became of a frame: `frame[..len]` is what leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Where it goes.
    pub action: Action,
    /// Its length now, in bytes.
    pub len: usize,
}

/// The program with its tables and registers.
#[derive(Debug)]
pub struct Program {
    tables: Tables,
    profile: Profile,
    counters: Counters,
    /// Written into requests that this element decides about; never 0.
    switch_id: NonZeroU16,
}

impl Program {
    /// A program that admits nothing yet.
    #[must_use]
    pub fn new(size: Size) -> Self {
        Self::with_profile(size, Profile::FullSequence)
    }

    /// The same with another repeat filter.
    #[must_use]
    pub fn with_profile(size: Size, profile: Profile) -> Self {
        Self::with_clones(size, CloneSize::default(), profile)
    }

    /// The same with other tables for calls to pools.
    #[must_use]
    pub fn with_clones(size: Size, clones: CloneSize, profile: Profile) -> Self {
        let tables = Tables::new(size, clones);
        Self { tables, profile, counters: Counters::default(), switch_id: NonZeroU16::MIN }
    }

    /// Says by which id this element is known among others on a call's path (NetClone §3.7); 1 before.
    pub fn set_switch_id(&mut self, switch_id: NonZeroU16) {
        self.switch_id = switch_id;
    }

    /// Says after which number requests are numbered on; 0 before. A number that differs from start to start
    /// keeps calls of now apart from answers to calls of a start before.
    pub fn number_after(&mut self, last: u64) {
        self.tables.clones.numbers.reset(0, 1, last);
    }

    /// Who is admitted, and what the registers hold.
    #[must_use]
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// The same, to be changed.
    pub fn tables_mut(&mut self) -> &mut Tables {
        &mut self.tables
    }

    /// Element-wide counters; those of an application are in its table entry.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Counts a frame that whoever takes frames in has dropped before the pipeline.
    pub fn count_dropped(&mut self, reason: Reason) {
        self.counters.frames_in += 1;
        self.counters.verdict(Action::Drop(reason));
    }

    /// Takes a frame through the pipeline, changing it in place. `congested`: the queue it came
    /// through, or the one it goes to, is long (NetRPC §5.1).
    pub fn process(&mut self, now: Instant, bytes: &mut [u8], congested: bool) -> Verdict {
        self.counters.frames_in += 1;
        let len = bytes.len();
        let mut verdict = Verdict { action: Action::Drop(Reason::Malformed), len };
        if is_clone(bytes) {
            if let Ok(frame) = CloneFrame::new_checked(&mut *bytes) {
                verdict.action = self.steer(now, Call::new(frame, congested));
            }
        } else if let Ok(frame) = MapFrame::new_checked(&mut *bytes) {
            let context = Context::new(frame, congested, &self.tables);
            let admission = admit::admit(&mut self.tables, now, &context);
            verdict = match admission.application {
                Ok(application) => self.pipeline(&application, context),
                Err(refused) => context.refuse(refused, &admission),
            };
            if !admission.authentic && mutant::on(Mutant::ElementTokenLate) && admission.key.is_some() {
                verdict.action = Action::Drop(Reason::Unauthentic);
            }
            if let (Some(key), Action::Forward(_)) = (admission.key, verdict.action) {
                key.sign(&mut bytes[..verdict.len]);
            }
        }
        self.counters.verdict(verdict.action);
        verdict
    }

    fn pipeline(&mut self, application: &Application, mut context: Context<'_>) -> Verdict {
        context.note_flags();
        let Context { base, map, .. } = context;
        let from_server = base.flags & Flags::FROM_SERVER != 0;
        if base.flags & Flags::CROSS != 0 {
            self.count_for(base.gaid, |c| c.cross += 1);
            return context.forward();
        }
        match context.frame.kind() {
            Kind::MapPairsAck if from_server && map.flags & MapFlags::COUNT != 0 => self.decided(application, context),
            Kind::MapResult if from_server => self.result(application, context),
            Kind::MapRead if from_server => self.read(application, context),
            Kind::MapClose | Kind::MapPlaces | Kind::MapWipe if from_server => self.harvest(application, context),
            Kind::MapMove if from_server => self.move_ballot(application, context),
            Kind::MapFree if from_server => self.free(application, context),
            _ if from_server => context.deliver(),
            Kind::MapData if map.flags & (MapFlags::LOGICAL | MapFlags::BARE) != 0 => context.forward(),
            Kind::MapData if map.flags & MapFlags::LINEAR == 0 && lock::is_of_lock(&map) => {
                self.lock(application, context)
            }
            Kind::MapData if map.flags & MapFlags::LINEAR == 0 => self.keyed(application, context),
            Kind::MapData => self.linear(application, context),
            Kind::MapPairs if map.flags & (MapFlags::COUNT | MapFlags::CLEAR) != 0 => self.ballot(application, context),
            _ => context.forward(),
        }
    }

    /// A worker's part of a round.
    fn linear(&mut self, application: &Application, mut context: Context<'_>) -> Verdict {
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
            return context.drop(Reason::Malformed);
        }
        let registers = &mut self.tables.registers;
        let new = match once::meet(self.profile, registers, &base, &mut context.pass, 0, true) {
            Met::New => true,
            Met::Repeat(_) => false,
            Met::Refused | Met::Stale => {
                self.count_for(base.gaid, |c| c.stale += 1);
                return context.drop(Reason::Stale);
            }
        };
        let part = round::enter(application, registers, &mut context, new);
        match part {
            Part::Old => {
                self.count_for(base.gaid, |c| c.old += 1);
                return context.old();
            }
            Part::Diverted => {
                self.count_for(base.gaid, |c| c.diverted += 1);
                return context.divert();
            }
            Part::First | Part::Opening | Part::Again => {}
        }
        let apply = part != Part::Again;
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
            (true, _) => context.reached(apply),
            (false, true) => context.drop(Reason::Counted),
            (false, false) => context.reflect(Kind::MapHeld, true),
        }
    }

    /// The server's result of a round: clears it in passing, once.
    fn result(&mut self, application: &Application, mut context: Context<'_>) -> Verdict {
        let Context { base, map, .. } = context;
        if map.index >= application.rows {
            return context.drop(Reason::Malformed);
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

    /// The server reads a row of registers.
    fn read(&mut self, application: &Application, mut context: Context<'_>) -> Verdict {
        let Context { base, map, .. } = context;
        let form = MapFlags::LINEAR | MapFlags::GET;
        let fits = map.index < application.rows
            && u32::from(map.first_lane) + u32::from(map.lanes) <= application.width
            && map.flags & (form | MapFlags::WIDE | MapFlags::BARE) == form;
        if !fits {
            return context.drop(Reason::Malformed);
        }
        map::get_row(application, &mut self.tables.registers, &mut context);
        emit::mark_all(&mut context);
        self.count_for(base.gaid, |c| c.reads += 1);
        context.reflect(Kind::MapValues, false)
    }

    fn count_for(&mut self, gaid: u32, change: impl FnOnce(&mut ApplicationCounters)) {
        if let Some(entry) = self.tables.entry_mut(gaid) {
            change(&mut entry.counters);
        }
    }
}

/// A frame on its way through the stages, its headers as they came.
pub(crate) struct Context<'a> {
    pub(crate) frame: MapFrame<&'a mut [u8]>,
    pub(crate) base: BaseRepr,
    pub(crate) map: MapRepr,
    pub(crate) congested: bool,
    pub(crate) pass: Pass,
    /// Whether the addressed endpoint is one of the application's.
    known: bool,
}

impl<'a> Context<'a> {
    /// A frame that has just come. Its headers are read without what only an element may say, and with
    /// its mark; in the frame nothing changes before it is admitted.
    fn new(frame: MapFrame<&'a mut [u8]>, congested: bool, tables: &Tables) -> Self {
        let (mut base, mut map) = (frame.base().repr(), frame.map().repr());
        base.flags &= !Flags::NOT_ADMITTED;
        base.flags |= if congested { Flags::ECN } else { 0 };
        map.flags &= !MapFlags::ELEMENT_ONLY;
        let known = tables.is_endpoint_of(base.dst, base.gaid);
        Self { frame, base, map, congested, pass: Pass::default(), known }
    }

    /// Writes the flags as they were read into the frame.
    fn note_flags(&mut self) {
        self.frame.base_mut().set_flags(self.base.flags);
        self.frame.map_mut().set_flags(self.map.flags);
    }

    /// What becomes of a frame that is not admitted: it goes on, unless it is not what it says.
    fn refuse(mut self, refused: Refused, admission: &Admission) -> Verdict {
        match refused {
            Refused::Forged => self.drop(Reason::Forged),
            Refused::Unauthentic => self.drop(Reason::Unauthentic),
            Refused::NotAdmitted if !self.known => self.drop(Reason::NotAdmitted),
            Refused::NotAdmitted => {
                // Who can't sign it again leaves it as it came.
                if admission.key.is_some() || self.base.flags & Flags::TOKEN == 0 {
                    self.base.flags |= Flags::NOT_ADMITTED;
                    self.note_flags();
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
