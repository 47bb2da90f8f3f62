//! The ways of keyed applications through the pipeline: pairs, locks, and the server's harvests.

use pathcall_wire::map::LOCK_TAG;
use pathcall_wire::{KEYED_LANES, KEYED_WIDTH, Kind, MapFlags, RECORD_PLACES, Target, W_MAX};
use pathcall_wire::{Mutant, mutant};

use crate::lock::Outcome;
use crate::once::Met;
use crate::{Action, Application, Context, Program, Reason, Verdict, count, emit, generation, lock, map, once};

impl Program {
    /// Pairs to the server: App. C, "for packets to the server".
    pub(crate) fn keyed(&mut self, application: &Application, mut context: Context<'_>) -> Verdict {
        if context.frame.lane_count() > KEYED_LANES || !has_generations(application) {
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
    pub(crate) fn lock(&mut self, application: &Application, mut context: Context<'_>) -> Verdict {
        let Context { base, map, .. } = context;
        if map.index >= application.rows || map.tag & !LOCK_TAG != 0 {
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
        let outcome = lock::work(application, registers, &mut context, new);
        let denied = matches!(outcome, Outcome::Busy | Outcome::Free);
        self.count_for(base.gaid, |c| {
            c.applied += u64::from(new);
            c.repeats += u64::from(!new);
            c.denied += u64::from(denied);
        });
        if outcome == Outcome::Parked {
            return context.divert();
        }
        if denied {
            let flags = context.frame.map().flags();
            context.frame.map_mut().set_flags(flags | MapFlags::DENIED);
        }
        context.reflect(Kind::MapAck, true)
    }

    /// Frees a lock for the server, or says who has it.
    pub(crate) fn free(&mut self, application: &Application, mut context: Context<'_>) -> Verdict {
        if context.map.index >= application.rows {
            return context.drop(Reason::Malformed);
        }
        lock::free(application, &mut self.tables.registers, &mut context);
        context.reflect(Kind::MapFreed, false)
    }

    /// The server makes a generation of keyed values its own.
    pub(crate) fn harvest(&mut self, application: &Application, mut context: Context<'_>) -> Verdict {
        let Context { base, map, .. } = context;
        let kind = context.frame.kind();
        let first = usize::from(map.first_lane);
        let fits = has_generations(application)
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
}

/// Whether the application has rows in two banks. Without a row it has no generation either: the
/// register that its first row would have is another one's.
fn has_generations(application: &Application) -> bool {
    application.width as usize == KEYED_WIDTH && application.rows > 0
}
