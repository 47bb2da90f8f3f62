//! The switch program: what an element does to a frame in passing.
//!
//! ```text
//! frame ─► admit ─► generation ─► once ─► round ─► count ─► lock ─► modify, map ─► emit ─► forward │ reflect │ multicast │ drop
//! ```
//!
//! One module per stage, in packet order (NetRPC Fig. 15; App. C: `CntFwd` before the map, so that
//! the frame that reaches the threshold reads the sums in its one visit). It may use only what a switch pipeline
//! can: integers, and register arrays that a frame touches once each, in stage order; debug builds
//! prove that ([`registers`]). This program defines right and wrong for every other execution.
//! It does no I/O, reads no clock and allocates nothing per frame.

mod admit;
mod count;
pub mod counters;
pub mod emit;
mod generation;
mod lanes;
mod lock;
mod map;
mod once;
pub mod registers;
mod round;
pub mod tables;

pub use counters::{ApplicationCounters, Counters};
use once::Met;
pub use once::Profile;
use pathcall_wire::{BaseRepr, Flags, Instant, Kind, MapFlags, MapFrame, MapRepr, Mutant, OpType, Target, mutant};
use pathcall_wire::{KEYED_LANES, KEYED_WIDTH, RECORD_PLACES, W_MAX};
use registers::Pass;
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
}

/// Where a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// To this endpoint; a reflected frame is already turned round.
    Forward(u32),
    /// To every member of this application's group, by [`emit::address_copy`].
    Multicast(u32),
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
        Self { tables: Tables::new(size), profile, counters: Counters::default() }
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

    /// Takes a frame through the pipeline, changing it in place. `congested`: the queue it came
    /// through, or the one it goes to, is long (NetRPC §5.1).
    pub fn process(&mut self, now: Instant, bytes: &mut [u8], congested: bool) -> Verdict {
        self.counters.frames_in += 1;
        let len = bytes.len();
        let verdict = match MapFrame::new_checked(bytes) {
            Ok(frame) => self.pipeline(now, frame, congested),
            Err(_) => Verdict { action: Action::Drop(Reason::Malformed), len },
        };
        self.counters.verdict(verdict.action);
        verdict
    }

    fn pipeline(&mut self, now: Instant, mut frame: MapFrame<&mut [u8]>, congested: bool) -> Verdict {
        let mut base = frame.base().repr();
        let mut map = frame.map().repr();
        base.flags &= !Flags::NOT_ADMITTED;
        map.flags &= !MapFlags::ELEMENT_ONLY;
        if congested {
            base.flags |= Flags::ECN;
        }
        frame.base_mut().set_flags(base.flags);
        frame.map_mut().set_flags(map.flags);
        let known = self.tables.is_endpoint_of(base.dst, base.gaid);
        let mut context = Context { frame, base, map, congested, pass: Pass::default(), known };
        let application = match admit::admit(&mut self.tables, now, &context) {
            Ok(application) => application,
            Err(admit::Refused::Forged) => return context.drop(Reason::Forged),
            Err(admit::Refused::NotAdmitted) => {
                context.frame.base_mut().set_flags(base.flags | Flags::NOT_ADMITTED);
                return if known { context.forward() } else { context.drop(Reason::NotAdmitted) };
            }
        };
        let from_server = base.flags & Flags::FROM_SERVER != 0;
        if base.flags & Flags::CROSS != 0 {
            self.count_for(base.gaid, |c| c.cross += 1);
            return context.forward();
        }
        match context.frame.kind() {
            Kind::MapResult if from_server => self.result(&application, context),
            Kind::MapRead if from_server => self.read(&application, context),
            Kind::MapClose | Kind::MapPlaces | Kind::MapWipe if from_server => self.harvest(&application, context),
            Kind::MapFree if from_server => self.free(&application, context),
            _ if from_server => context.deliver(),
            Kind::MapData if map.flags & (MapFlags::LOGICAL | MapFlags::BARE) != 0 => context.forward(),
            Kind::MapData if map.flags & MapFlags::LINEAR == 0 && lock::is_of_lock(&map) => {
                self.lock(&application, context)
            }
            Kind::MapData if map.flags & MapFlags::LINEAR == 0 => self.keyed(&application, context),
            Kind::MapData => self.linear(&application, context),
            _ => context.forward(),
        }
    }

    /// Pairs to the server: App. C, "for packets to the server".
    fn keyed(&mut self, application: &Application, mut context: Context<'_>) -> Verdict {
        if context.frame.lane_count() > KEYED_LANES || application.width as usize != KEYED_WIDTH {
            return context.drop(Reason::Malformed);
        }
        let Context { base, map, .. } = context;
        let registers = &mut self.tables.registers;
        let state = generation::of(application, registers, &mut context);
        let admissible = base.round == state.version;
        let met = once::meet(self.profile, registers, &base, &mut context.pass, state.open, admissible);
        let (new, applied_in) = match met {
            Met::New => (true, state.open),
            Met::Repeat(generation) => (false, generation),
            Met::Refused => {
                self.count_for(base.gaid, |c| c.refused += 1);
                context.frame.base_mut().set_round(state.version);
                return context.reflect(Kind::MapRefused, true);
            }
            Met::Stale => {
                self.count_for(base.gaid, |c| c.stale += 1);
                return context.drop(Reason::Stale);
            }
        };
        let counted = count::pairs(application, registers, &mut context, new);
        let work = map::pairs(application, registers, &mut context, new, state.bank());
        let overflow = &mut registers.overflows.visit(&mut context.pass, once::place(&base), 1)[0];
        if new {
            *overflow = work.overflow;
        }
        let overflow = if !new && mutant::on(Mutant::OverflowSaidOnce) { 0 } else { *overflow };
        self.count_for(base.gaid, |c| {
            c.applied += u64::from(new);
            c.repeats += u64::from(!new);
            c.lanes_added += u64::from(work.added);
            c.overflow_lanes += u64::from(work.overflow.count_ones());
        });
        // The sender keeps what it sent until this generation is the server's.
        context.frame.base_mut().set_round(applied_in);
        context.frame.map_mut().set_index(state.committed);
        match counted {
            count::Counted::Malformed => return context.drop(Reason::Malformed),
            count::Counted::Wait if new => return context.drop(Reason::Counted),
            count::Counted::Wait => {
                self.count_for(base.gaid, |c| c.held += 1);
                return context.reflect(Kind::MapHeld, true);
            }
            count::Counted::Forward => {}
        }
        emit::mark_overflow(&mut context, overflow);
        match context.frame.target() {
            Target::Src => context.reflect(Kind::MapAck, map.flags & MapFlags::GET == 0),
            Target::Server => {
                let flags = context.frame.map().flags();
                context.frame.map_mut().set_flags(flags | MapFlags::REACHED);
                context.forward()
            }
            Target::All => {
                context.frame.base_mut().set_kind(Kind::MapAck as u8);
                Verdict { action: Action::Multicast(base.gaid), len: context.len() }
            }
        }
    }

    /// Takes a lock or gives it back.
    fn lock(&mut self, application: &Application, mut context: Context<'_>) -> Verdict {
        let Context { base, map, .. } = context;
        if map.index >= application.rows {
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
        let granted = lock::work(application, registers, &mut context, new);
        self.count_for(base.gaid, |c| {
            c.applied += u64::from(new);
            c.repeats += u64::from(!new);
            c.denied += u64::from(!granted);
        });
        if !granted {
            let flags = context.frame.map().flags();
            context.frame.map_mut().set_flags(flags | MapFlags::DENIED);
        }
        context.reflect(Kind::MapAck, true)
    }

    /// Frees a lock of an endpoint that has left.
    fn free(&mut self, application: &Application, mut context: Context<'_>) -> Verdict {
        if context.map.index >= application.rows {
            return context.drop(Reason::Malformed);
        }
        lock::free(application, &mut self.tables.registers, &mut context);
        context.reflect(Kind::MapFreed, false)
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
        let apply = match part {
            round::Part::Old => {
                self.count_for(base.gaid, |c| c.old += 1);
                return context.old();
            }
            round::Part::Diverted => {
                self.count_for(base.gaid, |c| c.diverted += 1);
                return context.divert();
            }
            round::Part::First => true,
            round::Part::Again => false,
        };
        let reached = count::round(application, registers, &mut context, apply);
        map::row(application, registers, &mut context, apply, reached);
        self.count_for(base.gaid, |c| {
            c.applied += u64::from(apply);
            c.repeats += u64::from(!apply);
            c.lanes_added += if apply { u64::from(map.lanes) } else { 0 };
            c.reached += u64::from(reached);
            c.held += u64::from(!reached && !apply);
        });
        match (reached, apply) {
            (true, _) => {
                emit::mark_all(&mut context);
                let flags = context.frame.map().flags();
                context.frame.map_mut().set_flags(flags | MapFlags::REACHED);
                context.forward()
            }
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

    /// The server makes a generation of keyed values its own.
    fn harvest(&mut self, application: &Application, mut context: Context<'_>) -> Verdict {
        let Context { base, map, .. } = context;
        let kind = context.frame.kind();
        let first = usize::from(map.first_lane);
        let fits = application.width as usize == KEYED_WIDTH
            && match kind {
                Kind::MapPlaces => {
                    self.tables.is_slot_of(map.index, map.threshold, base.gaid)
                        && first.is_multiple_of(RECORD_PLACES)
                        && first < W_MAX as usize
                        && context.frame.lanes().len() == RECORD_PLACES * 12
                }
                Kind::MapWipe => map.index < application.rows,
                _ => true,
            };
        if !fits {
            return context.drop(Reason::Malformed);
        }
        let registers = &mut self.tables.registers;
        let answer = match kind {
            Kind::MapClose => {
                let state = generation::close(application, registers, &mut context);
                context.frame.base_mut().set_round(state.open);
                context.frame.map_mut().set_index(state.version);
                Kind::MapClosed
            }
            Kind::MapPlaces => {
                let lanes = context.frame.bitmap_and_lanes_mut().1;
                once::record(registers, &mut context.pass, map.index, first, lanes);
                map::masks(registers, &mut context.pass, map.index, first, &mut lanes[RECORD_PLACES * 8..]);
                Kind::MapRecord
            }
            _ => {
                let ours = generation::commit(application, registers, &mut context);
                if ours && !mutant::on(Mutant::WipeForgotten) {
                    map::wipe(application, registers, &mut context, generation::bank(base.round));
                }
                Kind::MapWiped
            }
        };
        self.count_for(base.gaid, |c| c.harvests += u64::from(kind == Kind::MapClose));
        context.reflect(answer, false)
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

impl Context<'_> {
    pub(crate) fn op(&self) -> (OpType, i32) {
        (self.frame.op(), self.map.para)
    }
}

#[cfg(test)]
mod tests;
