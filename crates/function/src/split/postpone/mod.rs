//! Postponable intermediate values (CLIP §IV-C): what need not be held in the header vector from the part before on.
//!
//! ```text
//! part before ─► values that only the part behind reads   ─► worked out there, from the packet: do not travel
//!             └► parameters that only the handler reads   ─► worked out on the server, from the packet: are not sent
//! ```
//!
//! The paper finds "values declared and assigned during pre-processing but referenced only in post-processing" and has
//! the handler assign them. Here the packet comes back as it went, so what is made of it can be made of it again: values
//! that the part behind reads are worked out in front of it, whether the packet has been away or not, and need no room
//! in a request or response. Servers work out what only they read. A value can be postponed if assignments and hashes
//! alone make it, of what the parser finds in the packet: what a table or a register said is not said again.
//!
//! All of it is IR: statements leave the part before and come in elsewhere, so each execution does the same.

mod prune;
mod rename;
mod slice;

use super::OnServer;
use super::carried::{self, Carried, OF_ITS_ARRIVAL};
use super::find::Parts;
use super::flow::{self, Places};
use super::report::{Later, Postponed};
use crate::ir::{Block, Program, SlotId, SlotKind, Span, Standard, Stmt, StmtKind};
use prune::prune;
use rename::renamed;
use slice::{Slice, slice};

/// Values that are to be postponed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    /// Carried ones, for the part behind.
    pub behind: Vec<SlotId>,
    /// Parameters of the request, for the server.
    pub server: Vec<SlotId>,
}

/// A function whose values are postponed.
#[derive(Debug)]
pub struct Made {
    /// The program, with variables more.
    pub program: Program,
    /// Its parts, without what is postponed.
    pub parts: Parts,
    /// What still travels.
    pub carried: Carried,
    /// In front of the part behind, when the packet is back.
    pub back: Block,
    /// In front of the part behind, when the packet needs no server.
    pub here: Block,
    /// What servers work out.
    pub on_server: Option<OnServer>,
    /// The same in words.
    pub postponed: Vec<Postponed>,
}

impl Made {
    /// Nothing is postponed.
    pub fn whole(program: &Program, parts: &Parts, carried: &Carried) -> Self {
        Self {
            program: program.clone(),
            parts: parts.clone(),
            carried: carried.clone(),
            back: Block::new(),
            here: Block::new(),
            on_server: None,
            postponed: Vec::new(),
        }
    }
}

/// What can be postponed, each by itself.
pub fn candidates(program: &Program, parts: &Parts, carried: &Carried) -> Choice {
    let blocks = [&parts.before, &parts.leading];
    let made = |slot: SlotId, unknown: &Places| {
        slice(program, &blocks, &only(program, [slot])).filter(|slice| !slice.needs.meets(unknown))
    };
    let behind = not_behind(program, parts, carried);
    let of_moving = |slot: &SlotId| match program.slots[slot.0 as usize].kind {
        SlotKind::Field { header, .. } => carried.headers.contains(&header),
        _ => false,
    };
    let fits = |slot: &&SlotId| !of_moving(slot) && !is_arrival(program, **slot) && made(**slot, &behind).is_some();
    let mut choice = Choice { behind: carried.slots.iter().filter(fits).copied().collect(), server: Vec::new() };
    if let Some(handler) = &program.handler
        && !handler.flow.is_empty()
        && server_parses(program)
    {
        let server = not_on_server(program);
        let sent = |slot: &&SlotId| !handler.flow.contains(slot) && !carried.slots.contains(slot);
        let fits = |slot: &&SlotId| sent(slot) && made(**slot, &server).is_some();
        choice.server = handler.request.iter().filter(fits).copied().collect();
    }
    choice
}

/// Postpones values, of those that [`candidates`] names.
pub fn postpone(program: &Program, parts: &Parts, carried: &Carried, choice: &Choice) -> Made {
    let mut made = Made::whole(program, parts, carried);
    let blocks = [&parts.before, &parts.leading];
    let (behind, server) = (only(program, choice.behind.clone()), only(program, choice.server.clone()));
    let (Some(back), Some(on_server)) = (slice(program, &blocks, &behind), slice(program, &blocks, &server)) else {
        debug_assert!(false, "candidates are made of the packet");
        return made;
    };
    made.carried.slots.retain(|slot| !behind.has(*slot));
    let left = Left::new(program, parts, &made.carried, &behind, &server);
    made.postponed = told(program, choice, &left.gone, &back, &on_server);
    (made.parts.before, made.parts.leading) = (left.before, left.leading);
    made.here = renamed(&mut made.program, left.here, &left.written, &left.gone);
    made.back = back.block;
    if !choice.server.is_empty() {
        made.on_server = Some(OnServer { program: parsing(program, on_server.block), slots: choice.server.clone() });
    }
    made
}

/// The part before without what has left it.
struct Left {
    before: Block,
    leading: Block,
    /// What `before` may write now.
    written: Places,
    /// Values that it does not make any more.
    gone: Places,
    /// What makes those that the part behind reads, when the packet has not been away.
    here: Block,
}

impl Left {
    /// Takes out as much as can go: what the part before still reads itself stays.
    fn new(program: &Program, parts: &Parts, carried: &Carried, behind: &Places, server: &Places) -> Self {
        let exit = flow::live_after_ingress(program);
        let mut gone = behind.clone();
        gone.join(server);
        loop {
            let mut wanted = gone.clone();
            wanted.keep(behind);
            let here = slice(program, &[&parts.before], &wanted);
            // What is needed when the packet goes to a server, and when it needs none.
            let mut flies = only(program, carried.slots.iter().copied());
            carried.headers.iter().for_each(|header| flies.add_valid(*header));
            if let Some(handler) = &program.handler {
                handler.request.iter().filter(|slot| !server.has(**slot)).for_each(|slot| flies.add(*slot));
            }
            let mut stays = flow::live_before(program, &parts.behind, exit.clone(), &exit);
            stays = flow::live_before(program, &parts.otherwise, stays, &exit);
            here.iter().for_each(|slice| stays.join(&slice.needs));
            stays.subtract(&wanted);
            let leading = prune(program, &parts.leading, flies, &exit, &gone);
            let mut live = leading.needs;
            live.join(&stays);
            parts.condition.iter().for_each(|condition| flow::read(condition, &mut live));
            let before = prune(program, &parts.before, live, &exit, &gone);
            let mut read = before.needs;
            read.join(&before.missed);
            read.join(&leading.missed);
            let (leading, before) = (leading.block, before.block);
            let written = flow::written(program, &before);
            let remakes = |slot: &SlotId| {
                let own = slice(program, &[&parts.before], &only(program, [*slot]));
                own.is_some_and(|own| !own.needs.meets(&written))
            };
            let stay: Vec<SlotId> = gone.slots().filter(|x| read.has(*x) || (behind.has(*x) && !remakes(x))).collect();
            match here {
                Some(here) if stay.is_empty() => return Self { before, leading, written, gone, here: here.block },
                // What makes all is what makes each: this does not come.
                None if stay.is_empty() => gone = Places::none(program),
                _ => {}
            }
            stay.iter().for_each(|slot| gone.remove(*slot));
        }
    }
}

/// Values by themselves.
fn only(program: &Program, slots: impl IntoIterator<Item = SlotId>) -> Places {
    let mut places = Places::none(program);
    slots.into_iter().for_each(|slot| places.add(slot));
    places
}

fn is_arrival(program: &Program, slot: SlotId) -> bool {
    matches!(program.slots[slot.0 as usize].kind, SlotKind::Standard(field) if OF_ITS_ARRIVAL.contains(&field))
}

/// What is not, when the packet is back, as the part before had it at its beginning.
fn not_behind(program: &Program, parts: &Parts, carried: &Carried) -> Places {
    let mut places = flow::written(program, &program.verify);
    let mut changed = flow::written(program, &parts.before);
    changed.join(&flow::written(program, &parts.leading));
    let arrival = OF_ITS_ARRIVAL.iter().filter_map(|field| flow::standard(program, *field));
    let lost = arrival.filter(|slot| !carried.slots.contains(slot) || changed.has(*slot));
    lost.for_each(|slot| places.add(slot));
    places
}

/// What a server does not know of a packet.
fn not_on_server(program: &Program) -> Places {
    let mut places = flow::written(program, &program.verify);
    let arrival = OF_ITS_ARRIVAL.iter().filter(|field| **field != Standard::PacketLength);
    arrival.filter_map(|field| flow::standard(program, *field)).for_each(|slot| places.add(slot));
    places
}

/// Whether a server's parser finds what the element's found.
fn server_parses(program: &Program) -> bool {
    !carried::read_by_parser(program).meets(&not_on_server(program))
}

/// A program that parses a packet and then does this.
fn parsing(program: &Program, mut block: Block) -> Program {
    block.push(Stmt { kind: StmtKind::Remote, at: Span::default() });
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

/// What was postponed, in words.
fn told(program: &Program, choice: &Choice, gone: &Places, back: &Slice, on_server: &Slice) -> Vec<Postponed> {
    let one = |slot: &SlotId, of: &Slice, to: Later| {
        let mut at: Vec<Span> = Vec::new();
        flow::walk(program, &of.block, &mut |stmt| {
            if matches!(&stmt.kind, StmtKind::Assign { to, .. } | StmtKind::Hash { to, .. } if to == slot) {
                at.push(stmt.at);
            }
        });
        at.sort_unstable();
        at.dedup();
        let named = &program.slots[slot.0 as usize];
        Postponed { name: named.name.clone(), bits: named.ty.width(), at, to }
    };
    let behind = choice
        .behind
        .iter()
        .map(|slot| one(slot, back, if gone.has(*slot) { Later::Behind } else { Later::AgainBehind }));
    behind.chain(choice.server.iter().map(|slot| one(slot, on_server, Later::Server))).collect()
}
