//! Postponement of intermediate values, which then do not occupy the header vector during the part before the call
//! (CLIP §IV-C).
//!
//! ```text
//! part before ─► values that only the part after reads    ─► computed there from the packet, not carried
//!             └► parameters that only the handler reads   ─► computed on the server from the packet, not sent
//! ```
//!
//! The paper finds "values declared and assigned during pre-processing but referenced only in post-processing" and lets
//! the handler assign them. Here the packet returns unchanged, so values computed from it can be computed again. Values
//! that the part after the call reads are computed directly before that part, whether or not the packet went to a
//! server, and take no space in a request or response. Values that only servers read are computed by the servers. A
//! value can be postponed if it depends only on assignments and hashes of parsed fields; the result of a table or
//! register cannot be reproduced.
//!
//! The transformation works on IR: statements move from the part before the call to other places, so that all
//! executions agree.

mod prune;
mod rename;
mod slice;

use super::ServerPrologue;
use super::call_site::IngressParts;
use super::carried::{self, ARRIVAL_FIELDS, CarriedSet};
use super::liveness::{self, PlaceSet};
use super::report::{PostponedPlace, PostponedValue};
use crate::ir::{Block, Program, SlotId, SlotKind, SourceSpan, StandardField, Stmt, StmtKind};
use prune::prune;
use rename::renamed;
use slice::{Slice, slice};

/// Values to postpone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PostponeChoice {
    /// Carried values, moved to the part after the call.
    pub after: Vec<SlotId>,
    /// Request parameters, moved to the server.
    pub server: Vec<SlotId>,
}

/// Function with postponed values.
#[derive(Debug)]
pub struct PostponedFunction {
    /// Program, with additional variables.
    pub program: Program,
    /// Parts, without the postponed statements.
    pub parts: IngressParts,
    /// Values that are still carried.
    pub carried: CarriedSet,
    /// Statements before the part after the call, for a packet that returned from a server.
    pub on_return: Block,
    /// Statements before the part after the call, for a packet that did not go to a server.
    pub without_server: Block,
    /// Program that servers run before the handler.
    pub on_server: Option<ServerPrologue>,
    /// Postponed values for the report.
    pub postponed: Vec<PostponedValue>,
}

impl PostponedFunction {
    /// Function without postponed values.
    pub fn whole(program: &Program, parts: &IngressParts, carried: &CarriedSet) -> Self {
        Self {
            program: program.clone(),
            parts: parts.clone(),
            carried: carried.clone(),
            on_return: Block::new(),
            without_server: Block::new(),
            on_server: None,
            postponed: Vec::new(),
        }
    }
}

/// Values that can be postponed individually.
pub fn candidates(program: &Program, parts: &IngressParts, carried: &CarriedSet) -> PostponeChoice {
    let blocks = [&parts.before, &parts.leading];
    let made = |slot: SlotId, unknown: &PlaceSet| {
        slice(program, &blocks, &slot_set(program, [slot])).filter(|slice| !slice.needs.intersects(unknown))
    };
    let after = places_lost_on_return(program, parts, carried);
    let of_moving = |slot: &SlotId| match program.slots[slot.0 as usize].kind {
        SlotKind::Field { header, .. } => carried.headers.contains(&header),
        _ => false,
    };
    let fits = |slot: &&SlotId| !of_moving(slot) && !is_arrival(program, **slot) && made(**slot, &after).is_some();
    let mut choice = PostponeChoice { after: carried.slots.iter().filter(fits).copied().collect(), server: Vec::new() };
    if let Some(handler) = &program.handler
        && !handler.flow.is_empty()
        && parses_on_server(program)
    {
        let server = places_unknown_to_server(program);
        let sent = |slot: &&SlotId| !handler.flow.contains(slot) && !carried.slots.contains(slot);
        let fits = |slot: &&SlotId| sent(slot) && made(**slot, &server).is_some();
        choice.server = handler.request.iter().filter(fits).copied().collect();
    }
    choice
}

/// Postpones a choice of the [`candidates`].
pub fn postpone(
    program: &Program,
    parts: &IngressParts,
    carried: &CarriedSet,
    choice: &PostponeChoice,
) -> PostponedFunction {
    let mut made = PostponedFunction::whole(program, parts, carried);
    let blocks = [&parts.before, &parts.leading];
    let (after, server) = (slot_set(program, choice.after.clone()), slot_set(program, choice.server.clone()));
    let (Some(on_return), Some(on_server)) = (slice(program, &blocks, &after), slice(program, &blocks, &server)) else {
        debug_assert!(false, "candidates are made of the packet");
        return made;
    };
    made.carried.slots.retain(|slot| !after.has(*slot));
    let left = RemainingPart::new(program, parts, &made.carried, &after, &server);
    made.postponed = list_postponed(program, choice, &left.gone, &on_return, &on_server);
    (made.parts.before, made.parts.leading) = (left.before, left.leading);
    made.without_server = renamed(&mut made.program, left.without_server, &left.written, &left.gone);
    made.on_return = on_return.block;
    if !choice.server.is_empty() {
        made.on_server =
            Some(ServerPrologue { program: with_parser(program, on_server.block), slots: choice.server.clone() });
    }
    made
}

/// Part before the call, without the postponed statements.
struct RemainingPart {
    before: Block,
    leading: Block,
    /// Places that `before` may still write.
    written: PlaceSet,
    /// Values that it does not compute any more.
    gone: PlaceSet,
    /// Statements that compute the postponed values for a packet that did not go to a server.
    without_server: Block,
}

impl RemainingPart {
    /// Removes as many statements as possible; values that the part before the call reads itself stay.
    fn new(program: &Program, parts: &IngressParts, carried: &CarriedSet, after: &PlaceSet, server: &PlaceSet) -> Self {
        let exit = liveness::live_after_ingress(program);
        let mut gone = after.clone();
        gone.join(server);
        loop {
            let mut wanted = gone.clone();
            wanted.keep(after);
            let without_server = slice(program, &[&parts.before], &wanted);
            // Live places for a packet that goes to a server, and for one that does not.
            let mut flies = slot_set(program, carried.slots.iter().copied());
            carried.headers.iter().for_each(|header| flies.add_valid(*header));
            if let Some(handler) = &program.handler {
                handler.request.iter().filter(|slot| !server.has(**slot)).for_each(|slot| flies.add(*slot));
            }
            let mut stays = liveness::live_before(program, &parts.after, exit.clone(), &exit);
            stays = liveness::live_before(program, &parts.otherwise, stays, &exit);
            without_server.iter().for_each(|slice| stays.join(&slice.needs));
            stays.subtract(&wanted);
            let leading = prune(program, &parts.leading, flies, &exit, &gone);
            let mut live = leading.needs;
            live.join(&stays);
            parts.condition.iter().for_each(|condition| liveness::add_read_places(condition, &mut live));
            let before = prune(program, &parts.before, live, &exit, &gone);
            let mut read = before.needs;
            read.join(&before.missed);
            read.join(&leading.missed);
            let (leading, before) = (leading.block, before.block);
            let written = liveness::written_places(program, &before);
            let remakes = |slot: &SlotId| {
                let own = slice(program, &[&parts.before], &slot_set(program, [*slot]));
                own.is_some_and(|own| !own.needs.intersects(&written))
            };
            let stay: Vec<SlotId> = gone.slots().filter(|x| read.has(*x) || (after.has(*x) && !remakes(x))).collect();
            match without_server {
                Some(without_server) if stay.is_empty() => {
                    return Self { before, leading, written, gone, without_server: without_server.block };
                }
                // Not reachable: a slice of all values exists if each value has one.
                None if stay.is_empty() => gone = PlaceSet::none(program),
                _ => {}
            }
            stay.iter().for_each(|slot| gone.remove(*slot));
        }
    }
}

/// Set of the slots.
fn slot_set(program: &Program, slots: impl IntoIterator<Item = SlotId>) -> PlaceSet {
    let mut places = PlaceSet::none(program);
    slots.into_iter().for_each(|slot| places.add(slot));
    places
}

fn is_arrival(program: &Program, slot: SlotId) -> bool {
    matches!(program.slots[slot.0 as usize].kind, SlotKind::Standard(field) if ARRIVAL_FIELDS.contains(&field))
}

/// Places that differ from the beginning of the part before the call when the packet returns.
fn places_lost_on_return(program: &Program, parts: &IngressParts, carried: &CarriedSet) -> PlaceSet {
    let mut places = liveness::written_places(program, &program.verify);
    let mut changed = liveness::written_places(program, &parts.before);
    changed.join(&liveness::written_places(program, &parts.leading));
    let arrival = ARRIVAL_FIELDS.iter().filter_map(|field| liveness::standard_slot(program, *field));
    let lost = arrival.filter(|slot| !carried.slots.contains(slot) || changed.has(*slot));
    lost.for_each(|slot| places.add(slot));
    places
}

/// Places that a server does not know.
fn places_unknown_to_server(program: &Program) -> PlaceSet {
    let mut places = liveness::written_places(program, &program.verify);
    let arrival = ARRIVAL_FIELDS.iter().filter(|field| **field != StandardField::PacketLength);
    arrival.filter_map(|field| liveness::standard_slot(program, *field)).for_each(|slot| places.add(slot));
    places
}

/// True if a server's parser gives the same result as the element's.
fn parses_on_server(program: &Program) -> bool {
    !carried::read_by_parser(program).intersects(&places_unknown_to_server(program))
}

/// Program that parses a packet and then runs a block.
fn with_parser(program: &Program, mut block: Block) -> Program {
    block.push(Stmt { kind: StmtKind::Remote, at: SourceSpan::default() });
    Program {
        ingress: block,
        verify: Block::new(),
        egress: Block::new(),
        compute: Block::new(),
        tables: Vec::new(),
        actions: Vec::new(),
        registers: Vec::new(),
        counters: Vec::new(),
        partitions: Vec::new(),
        handler: None,
        ..program.clone()
    }
}

/// Postponed values for the report.
fn list_postponed(
    program: &Program,
    choice: &PostponeChoice,
    gone: &PlaceSet,
    on_return: &Slice,
    on_server: &Slice,
) -> Vec<PostponedValue> {
    let one = |slot: &SlotId, of: &Slice, to: PostponedPlace| {
        let mut at: Vec<SourceSpan> = Vec::new();
        liveness::visit_statements(program, &of.block, &mut |stmt| {
            if matches!(&stmt.kind, StmtKind::Assign { to, .. } | StmtKind::Hash { to, .. } if to == slot) {
                at.push(stmt.at);
            }
        });
        at.sort_unstable();
        at.dedup();
        let named = &program.slots[slot.0 as usize];
        PostponedValue { name: named.name.clone(), bits: named.ty.width(), at, to }
    };
    let after = choice.after.iter().map(|slot| {
        one(slot, on_return, if gone.has(*slot) { PostponedPlace::After } else { PostponedPlace::AgainAfter })
    });
    after.chain(choice.server.iter().map(|slot| one(slot, on_server, PostponedPlace::Server))).collect()
}
