//! Keyed frames in the pipeline: pairs, locks, and harvests of the server.

use pathcall_wire::map::LOCK_TAG;
use pathcall_wire::{ForwardTarget, FrameKind, KEYED_LANES, KEYED_WIDTH, MapFlags, RECORD_PLACES, W_MAX};
use pathcall_wire::{Mutant, mutant};

use crate::lock::LockOutcome;
use crate::repeat_filter::RepeatStatus;
use crate::{
    Context, FrameAction, FrameDropReason, FrameVerdict, InstalledApplication, SwitchProgram, count, emit, generation,
    lock, map, repeat_filter,
};

impl SwitchProgram {
    /// Processes pairs for the server (NetRPC App. C, "for packets to the server").
    pub(crate) fn keyed(&mut self, application: &InstalledApplication, mut context: Context<'_>) -> FrameVerdict {
        if context.frame.lane_count() > KEYED_LANES || !has_generations(application) {
            return context.drop(FrameDropReason::Malformed);
        }
        let Context { base, map, .. } = context;
        let registers = &mut self.tables.registers;
        let state = generation::of(application, registers, &mut context);
        let admissible = base.round == state.version;
        let status = repeat_filter::classify(self.profile, registers, &base, &mut context.pass, state.open, admissible);
        let (new, applied_in) = match status {
            RepeatStatus::New => (true, state.open),
            RepeatStatus::Repeat(generation) => (false, generation),
            RepeatStatus::Refused => {
                self.count_for(base.gaid, |c| c.refused += 1);
                context.frame.base_mut().set_round(state.version);
                return context.reflect(FrameKind::MapRefused, true);
            }
            RepeatStatus::Stale => {
                self.count_for(base.gaid, |c| c.stale += 1);
                return context.drop(FrameDropReason::Stale);
            }
        };
        let counted = count::pairs(application, registers, &mut context, new);
        let outcome = map::pairs(application, registers, &mut context, new, state.bank());
        let overflow = &mut registers.overflows.visit(&mut context.pass, repeat_filter::place(&base), 1)[0];
        if new {
            *overflow = outcome.overflow;
        }
        let overflow = if !new && mutant::on(Mutant::OverflowSaidOnce) { 0 } else { *overflow };
        self.count_for(base.gaid, |c| {
            c.applied += u64::from(new);
            c.repeats += u64::from(!new);
            c.lanes_added += u64::from(outcome.added);
            c.overflow_lanes += u64::from(outcome.overflow.count_ones());
        });
        // The sender keeps added pairs until this generation is harvested. Values that are only read are those of the
        // open generation, on a repeat, too.
        let reads = map.flags & MapFlags::ADD == 0 && !mutant::on(Mutant::ReadNamesFirstGeneration);
        context.frame.base_mut().set_round(if reads { state.open } else { applied_in });
        context.frame.map_mut().set_index(state.committed);
        match counted {
            count::CountOutcome::Malformed => return context.drop(FrameDropReason::Malformed),
            count::CountOutcome::Wait if new => return context.drop(FrameDropReason::Counted),
            count::CountOutcome::Wait => {
                self.count_for(base.gaid, |c| c.held += 1);
                return context.reflect(FrameKind::MapHeld, true);
            }
            count::CountOutcome::Forward => {}
        }
        emit::mark_overflow(&mut context, overflow);
        match context.frame.target() {
            ForwardTarget::Src => context.reflect(FrameKind::MapAck, map.flags & MapFlags::GET == 0),
            ForwardTarget::Server => {
                let flags = context.frame.map().flags();
                context.frame.map_mut().set_flags(flags | MapFlags::REACHED);
                context.forward()
            }
            ForwardTarget::All => {
                context.frame.base_mut().set_kind(FrameKind::MapAck as u8);
                FrameVerdict { action: FrameAction::Multicast(base.gaid), len: context.len() }
            }
        }
    }

    /// Acquires or releases a lock.
    pub(crate) fn lock(&mut self, application: &InstalledApplication, mut context: Context<'_>) -> FrameVerdict {
        let Context { base, map, .. } = context;
        if map.index >= application.rows || map.tag & !LOCK_TAG != 0 {
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
        let outcome = lock::process(application, registers, &mut context, new);
        let denied = matches!(outcome, LockOutcome::Busy | LockOutcome::Free);
        self.count_for(base.gaid, |c| {
            c.applied += u64::from(new);
            c.repeats += u64::from(!new);
            c.denied += u64::from(denied);
        });
        if outcome == LockOutcome::Parked {
            return context.divert();
        }
        if denied {
            let flags = context.frame.map().flags();
            context.frame.map_mut().set_flags(flags | MapFlags::DENIED);
        }
        context.reflect(FrameKind::MapAck, true)
    }

    /// Frees a lock for the server, or returns its owner.
    pub(crate) fn free(&mut self, application: &InstalledApplication, mut context: Context<'_>) -> FrameVerdict {
        if context.map.index >= application.rows {
            return context.drop(FrameDropReason::Malformed);
        }
        lock::free(application, &mut self.tables.registers, &mut context);
        context.reflect(FrameKind::MapFreed, false)
    }

    /// Processes a harvest frame of the server.
    pub(crate) fn harvest(&mut self, application: &InstalledApplication, mut context: Context<'_>) -> FrameVerdict {
        let Context { base, map, .. } = context;
        let kind = context.frame.kind();
        let first = usize::from(map.first_lane);
        let fits = has_generations(application)
            && match kind {
                FrameKind::MapPlaces => {
                    self.tables.is_slot_of(map.index, map.threshold, base.gaid)
                        && first.is_multiple_of(RECORD_PLACES)
                        && first < W_MAX as usize
                        && context.frame.lanes().len() == RECORD_PLACES * 12
                }
                FrameKind::MapWipe => map.index < application.rows,
                _ => true,
            };
        if !fits {
            return context.drop(FrameDropReason::Malformed);
        }
        let registers = &mut self.tables.registers;
        let answer = match kind {
            FrameKind::MapClose => {
                let state = generation::close(application, registers, &mut context);
                context.frame.base_mut().set_round(state.open);
                context.frame.map_mut().set_index(state.version);
                FrameKind::MapClosed
            }
            FrameKind::MapPlaces => {
                let lanes = context.frame.bitmap_and_lanes_mut().1;
                repeat_filter::record(registers, &mut context.pass, map.index, first, lanes);
                map::masks(registers, &mut context.pass, map.index, first, &mut lanes[RECORD_PLACES * 8..]);
                FrameKind::MapRecord
            }
            _ => {
                let committed = generation::commit(application, registers, &mut context);
                if committed && !mutant::on(Mutant::WipeForgotten) {
                    map::wipe(application, registers, &mut context, generation::bank(base.round));
                }
                FrameKind::MapWiped
            }
        };
        self.count_for(base.gaid, |c| c.harvests += u64::from(kind == FrameKind::MapClose));
        context.reflect(answer, false)
    }
}

/// Whether the application has rows in two banks. An application without rows has no generation, because the register
/// of its first row would belong to another application.
fn has_generations(application: &InstalledApplication) -> bool {
    application.width as usize == KEYED_WIDTH && application.rows > 0
}
