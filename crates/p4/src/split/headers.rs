//! Generated headers of the element's program: Ethernet, fixed part, parameters, carried values.

use super::SplitTarget;
use super::balance::BalanceObjects;
use super::build::Build;
use super::layout::{FIXED, HeaderArea, HeaderLayout};
use super::postpone::PostponedFunction;
use crate::ir::{HeaderId, Program, SlotId, Ty};

/// Helper calls of the handler's C source that need the position of the last header.
const OPTION_CALLS: [&str; 2] = ["last_header_index", "last_header_length"];

/// Generated headers; a header without fields does not exist.
pub struct Headers {
    pub eth: HeaderId,
    /// Destination, source and type.
    pub eth_fields: Vec<SlotId>,
    pub head: HeaderId,
    /// Load type, function, guard, flags and version.
    pub head_fields: Vec<SlotId>,
    pub req: Option<HeaderId>,
    pub res: Option<HeaderId>,
    pub carried: Option<HeaderId>,
    /// Pairs of a program's slot and its header field.
    pub request: Vec<(SlotId, SlotId)>,
    pub response: Vec<(SlotId, SlotId)>,
    /// Travelling and carried slots.
    pub values: Vec<(SlotId, SlotId)>,
    pub valid: Vec<(HeaderId, SlotId)>,
    /// Offset and length of the last header.
    pub options: Option<[SlotId; 2]>,
    pub layout: HeaderLayout,
}

impl Headers {
    pub fn new(build: &mut Build, of: &PostponedFunction, balance: &BalanceObjects, target: &SplitTarget) -> Self {
        let (whole, carried) = (&of.program, &of.carried);
        let typed = |fields: &[(&str, u16)]| -> Vec<(String, Ty)> {
            fields.iter().map(|(name, width)| ((*name).to_owned(), Ty::Bit(*width))).collect()
        };
        let (eth, eth_fields) = build.header("pc.eth", &typed(&[("dst", 48), ("src", 48), ("type", 16)]));
        let fixed = [("load_type", 16), ("function", 16), ("guard", 16), ("flags", 8), ("version", 8)];
        let (head, head_fields) = build.header("pc.head", &typed(&fixed));
        let handler = whole.handler.as_ref();
        let (request, response) = handler.map_or((&[][..], &[][..]), |h| (&h.request, &h.response));
        let later = |slot: &SlotId| of.on_server.as_ref().is_some_and(|on_server| on_server.slots.contains(slot));
        let request: Vec<SlotId> = request.iter().filter(|slot| !later(slot)).copied().collect();
        let (mut req, mut res) = (area(whole, &request), area(whole, response));
        let params = req.bytes().max(res.bytes());
        req.fill(params);
        res.fill(params);
        let mut rest = HeaderArea::default();
        for slot in balance.travelling() {
            let travelling = &build.program.slots[slot.0 as usize];
            rest.whole(&travelling.name, Some(slot), travelling.ty);
        }
        let travelling = rest.values.len();
        let (whole_bytes, parts): (Vec<SlotId>, Vec<SlotId>) =
            carried.slots.iter().partition(|slot| whole.width(**slot).is_multiple_of(8));
        for slot in whole_bytes.iter().chain(&parts) {
            let carried = &whole.slots[slot.0 as usize];
            rest.close(&carried.name, Some(*slot), carried.ty);
        }
        for header in &carried.headers {
            rest.close(&format!("{}.valid", whole.headers[header.0 as usize].name), None, Ty::Bool);
        }
        let values = rest.values.len();
        let asked = handler
            .is_some_and(|h| [&h.body, &h.state].iter().any(|c| OPTION_CALLS.iter().any(|call| c.text.contains(call))));
        if asked {
            rest.whole("last_header.index", None, Ty::Bit(16));
            rest.whole("last_header.length", None, Ty::Bit(16));
        }
        rest.fill((FIXED + params + rest.bytes()).next_multiple_of(4) - FIXED - params);
        let (req_header, req_slots) = made(build, "pc.req", &req);
        let (res_header, res_slots) = made(build, "pc.res", &res);
        let (rest_header, rest_slots) = made(build, "pc.carried", &rest);
        let pairs = |area: &HeaderArea, slots: &[SlotId]| -> Vec<(SlotId, SlotId)> {
            area.values.iter().zip(slots).filter_map(|(field, slot)| Some((field.slot?, *slot))).collect()
        };
        let placed = rest.placed(FIXED + params);
        let layout = HeaderLayout {
            function: target.function,
            length: FIXED + params + rest.bytes(),
            params,
            request: req.placed(FIXED),
            response: res.placed(FIXED),
            travelling: placed[..travelling].to_vec(),
            carried: placed[travelling..values].to_vec(),
            options: placed[values..].to_vec(),
        };
        let first_valid = travelling + carried.slots.len();
        Self {
            request: pairs(&req, &req_slots),
            response: pairs(&res, &res_slots),
            values: pairs(&rest, &rest_slots),
            valid: carried.headers.iter().copied().zip(rest_slots[first_valid..].iter().copied()).collect(),
            options: asked.then(|| [rest_slots[values], rest_slots[values + 1]]),
            eth,
            eth_fields,
            head,
            head_fields,
            req: req_header,
            res: res_header,
            carried: rest_header,
            layout,
        }
    }

    /// Headers of a request.
    pub fn of_request(&self) -> impl Iterator<Item = HeaderId> {
        [Some(self.eth), Some(self.head), self.req, self.carried].into_iter().flatten()
    }

    /// Headers of a response.
    pub fn of_response(&self) -> impl Iterator<Item = HeaderId> {
        [Some(self.eth), Some(self.head), self.res, self.carried].into_iter().flatten()
    }
}

fn area(program: &Program, slots: &[SlotId]) -> HeaderArea {
    let mut area = HeaderArea::default();
    for slot in slots {
        let param = &program.slots[slot.0 as usize];
        area.whole(&param.name, Some(*slot), param.ty);
    }
    area
}

/// Creates the IR header of an area; returns it with the slots of the area's values.
fn made(build: &mut Build, name: &str, area: &HeaderArea) -> (Option<HeaderId>, Vec<SlotId>) {
    if area.fields.is_empty() {
        return (None, Vec::new());
    }
    let fields: Vec<(String, Ty)> = area.fields.iter().map(|(field, ty, _)| (field.clone(), *ty)).collect();
    let (header, slots) = build.header(name, &fields);
    let values = area.fields.iter().zip(slots).filter(|((_, _, value), _)| value.is_some()).map(|(_, slot)| slot);
    (Some(header), values.collect())
}
