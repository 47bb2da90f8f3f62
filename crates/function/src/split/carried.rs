//! What goes with a request, because the part behind needs what the part before made of it (§IV-B).

use super::find::Parts;
use super::flow::{self, Places};
use crate::ir::{HeaderId, Program, SlotId, SlotKind, Standard, Transition};

/// What goes with a request because the part behind needs it.
#[derive(Debug, Clone)]
pub struct Carried {
    /// Slots that the part before may have written.
    pub slots: Vec<SlotId>,
    /// Headers whose validity it may have changed.
    pub headers: Vec<HeaderId>,
}

/// Values that differ when the packet comes back, whoever wrote them.
pub const OF_ITS_ARRIVAL: [Standard; 4] =
    [Standard::IngressPort, Standard::PacketLength, Standard::IngressTimestamp, Standard::InstanceType];

/// What has to go with a request (liveness, §IV-B).
pub fn carried(program: &Program, parts: &Parts) -> Carried {
    let mut written = flow::written(program, &parts.before);
    written.join(&flow::written(program, &parts.leading));
    written.join(&flow::written(program, &program.verify));
    let arrival = OF_ITS_ARRIVAL.iter().filter_map(|field| flow::standard(program, *field));
    arrival.for_each(|slot| written.add(slot));
    let live = live_behind(program, parts);
    let response = |slot: &SlotId| program.slots[slot.0 as usize].kind == SlotKind::Response;
    let slots: Vec<SlotId> = written.slots().filter(|slot| live.has(*slot) && !response(slot)).collect();
    // A field is put back where its header is valid.
    let needs = |header: &HeaderId| {
        let fields = &program.headers[header.0 as usize].fields;
        live.has_valid(*header) || fields.iter().any(|field| slots.contains(field))
    };
    let headers = (0..program.headers.len() as u32).map(HeaderId);
    let headers = headers.filter(|header| written.has_valid(*header) && needs(header)).collect();
    Carried { slots, headers }
}

/// What is read from the handler's return on; the parser runs once more before.
pub fn live_behind(program: &Program, parts: &Parts) -> Places {
    let exit = flow::live_after_ingress(program);
    let live = flow::live_before(program, &parts.behind, exit.clone(), &exit);
    let mut live = flow::live_before(program, &parts.trailing, live, &exit);
    live.join(&read_by_parser(program));
    live
}

/// What the parser reads of how the packet arrived: all else is as it was when the packet came first.
pub fn read_by_parser(program: &Program) -> Places {
    let mut places = Places::none(program);
    for state in &program.parser.states {
        for stmt in flow::flat(program, &state.body) {
            flow::exprs(program, stmt, &mut |expr| flow::read(expr, &mut places));
        }
        if let Transition::Select { keys, .. } = &state.next {
            keys.iter().for_each(|key| flow::read(key, &mut places));
        }
    }
    let mut arrival = Places::none(program);
    for field in OF_ITS_ARRIVAL {
        flow::standard(program, field).iter().filter(|slot| places.has(**slot)).for_each(|slot| arrival.add(*slot));
    }
    arrival
}
