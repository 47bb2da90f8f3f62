//! Admission: only what the controller has installed changes anything (NetRPC §5.2.2, App. C).

use pathcall_wire::{Flags, Instant, Kind, Mutant, mutant};

use crate::{Application, Context, Endpoint, Tables};

/// Why a frame is not worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Unknown application, epoch, endpoint, incarnation or slot.
    NotAdmitted,
    /// Says that it comes from the server, and does not.
    Forged,
}

/// The application of an admitted frame; notes the time for the first-level time-out.
pub(crate) fn admit(tables: &mut Tables, now: Instant, context: &Context<'_>) -> Result<Application, Refused> {
    let base = &context.base;
    let lives = |e: &&Endpoint| e.incarnation == base.src_incarnation || mutant::on(Mutant::ElementIncarnation);
    let belongs = |e: &&Endpoint| e.gaid == base.gaid || mutant::on(Mutant::ElementApplication);
    let endpoint = tables.endpoint(base.src).filter(lives).filter(belongs).copied();
    let current = |epoch: u32| epoch == base.epoch || mutant::on(Mutant::ElementEpoch);
    let admitted = tables.entry_mut(base.gaid).filter(|entry| current(entry.application.epoch));
    let (Some(entry), Some(endpoint)) = (admitted, endpoint) else {
        if let Some(entry) = tables.entry_mut(base.gaid) {
            entry.counters.not_admitted += 1;
        }
        return Err(Refused::NotAdmitted);
    };
    let from_server = base.flags & Flags::FROM_SERVER != 0;
    if from_server != (base.src == entry.application.owner) {
        return Err(Refused::Forged);
    }
    let crosses = base.flags & Flags::CROSS != 0;
    let slots = endpoint.slot_base..endpoint.slot_base + endpoint.slots;
    let numbered = matches!(context.frame.kind(), Kind::MapData | Kind::MapPairs);
    if numbered && !from_server && !crosses && !slots.contains(&base.slot) {
        entry.counters.not_admitted += 1;
        return Err(Refused::NotAdmitted);
    }
    entry.last_seen = Some(now);
    entry.counters.admitted += 1;
    entry.counters.ecn_marked += u64::from(context.congested);
    Ok(entry.application)
}
