//! Carried values: results of the part before the call that the part after it needs (§IV-B).

use super::call_site::IngressParts;
use super::liveness::{self, PlaceSet};
use crate::ir::{HeaderId, Program, SlotId, SlotKind, StandardField, Transition};

/// Values carried in a request for the part after the call.
#[derive(Debug, Clone)]
pub struct CarriedSet {
    /// Slots that the part before the call may have written.
    pub slots: Vec<SlotId>,
    /// Headers whose validity the part before the call may have changed.
    pub headers: Vec<HeaderId>,
}

/// Metadata of the arrival, which differs when the packet returns, even if nothing writes it.
pub const ARRIVAL_FIELDS: [StandardField; 4] = [
    StandardField::IngressPort,
    StandardField::PacketLength,
    StandardField::IngressTimestamp,
    StandardField::InstanceType,
];

/// Liveness analysis of the values that a request has to carry (§IV-B).
pub fn carried(program: &Program, parts: &IngressParts) -> CarriedSet {
    let mut written = liveness::written_places(program, &parts.before);
    written.join(&liveness::written_places(program, &parts.leading));
    written.join(&liveness::written_places(program, &program.verify));
    let arrival = ARRIVAL_FIELDS.iter().filter_map(|field| liveness::standard_slot(program, *field));
    arrival.for_each(|slot| written.add(slot));
    let live = live_after_call(program, parts);
    let response = |slot: &SlotId| program.slots[slot.0 as usize].kind == SlotKind::Response;
    let slots: Vec<SlotId> = written.slots().filter(|slot| live.has(*slot) && !response(slot)).collect();
    // A field is restored only where its header is valid.
    let needs = |header: &HeaderId| {
        let fields = &program.headers[header.0 as usize].fields;
        live.has_valid(*header) || fields.iter().any(|field| slots.contains(field))
    };
    let headers = (0..program.headers.len() as u32).map(HeaderId);
    let headers = headers.filter(|header| written.has_valid(*header) && needs(header)).collect();
    CarriedSet { slots, headers }
}

/// Places that are live at the handler's return; the parser runs again before it.
pub fn live_after_call(program: &Program, parts: &IngressParts) -> PlaceSet {
    let exit = liveness::live_after_ingress(program);
    let live = liveness::live_before(program, &parts.after, exit.clone(), &exit);
    let mut live = liveness::live_before(program, &parts.trailing, live, &exit);
    live.join(&read_by_parser(program));
    live
}

/// Arrival metadata that the parser reads. All other values are the same in both runs of the parser.
pub fn read_by_parser(program: &Program) -> PlaceSet {
    let mut places = PlaceSet::none(program);
    for state in &program.parser.states {
        for stmt in liveness::flatten(program, &state.body) {
            liveness::visit_exprs(program, stmt, &mut |expr| liveness::add_read_places(expr, &mut places));
        }
        if let Transition::Select { keys, .. } = &state.next {
            keys.iter().for_each(|key| liveness::add_read_places(key, &mut places));
        }
    }
    let mut arrival = PlaceSet::none(program);
    for field in ARRIVAL_FIELDS {
        liveness::standard_slot(program, field)
            .iter()
            .filter(|slot| places.has(**slot))
            .for_each(|slot| arrival.add(*slot));
    }
    arrival
}
