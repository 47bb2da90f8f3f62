//! Assembly of the element's program (CLIP §IV-B, Fig. 3).
//!
//! ```text
//! original ─► before ─┬─ not in flight ─────────────────────────────────────► behind ─► out
//!                     └─ in flight: add header, original packet ──► server
//! response ─► known? ─► remove header, restore carried values ──────────────► behind ─► out
//! ```
//!
//! A response runs only the part after the call, so no packet can loop. A frame with our EtherTypes that does not come
//! from a server is dropped.

use pathcall_wire::function::{FunctionFlags, REQUEST, RESPONSE, VERSION};

use super::balance::BalanceObjects;
use super::build::{Build, and, assign, cast, either, not, set_valid, stmt, valid, when};
use super::call_site::{self, IngressParts, changed_headers};
use super::carried::{ARRIVAL_FIELDS, read_by_parser};
use super::headers::Headers;
use super::layout::HeaderLayout;
use super::liveness::{self, PlaceSet};
use super::postpone::PostponedFunction;
use super::{ElementEvent, GeneratedObjects, SplitTarget, SteeredKey};
use crate::ir::{
    Binary, Block, DROP_PORT, Expr, ExprKind, HeaderId, Keyset, MatchKind, ParserState, Program, SlotId, SlotKind,
    StandardField, StateId, Stmt, StmtKind, Transition, Ty,
};

/// Values of `pc.kind`, the kind of an arriving frame.
const ORIGINAL: u128 = 0;
const STRAY: u128 = 1;
const ANSWER: u128 = 2;
/// Number of ports that servers may have.
const PORTS: u32 = 512;

/// Element's program, its header layout and the generated objects.
pub struct BuiltElement {
    pub program: Program,
    pub layout: HeaderLayout,
    pub generated: GeneratedObjects,
    /// Headers of the request's and response's parameters, if both exist; they overlap in the frame.
    pub aligned: Option<(HeaderId, HeaderId)>,
}

/// Builds the element's program.
pub fn element(of: &PostponedFunction, target: &SplitTarget) -> BuiltElement {
    let whole = &of.program;
    let mut program = whole.clone();
    program.handler = None;
    let balance = BalanceObjects::new(&mut program, &target.sizes);
    let mut build = Build { program };
    let headers = Headers::new(&mut build, of, &balance, target);
    let vars = ControlFlowSlots::new(&mut build);
    let generated = GeneratedObjects::new(&mut build, &vars, balance, call_site::steered_keys(whole));
    let in_parser = read_by_parser(whole);
    let mut element = Element { build, whole, headers, vars, generated, in_parser };
    element.add_parser();
    element.add_blocks(of);
    let Element { mut build, headers, generated, .. } = element;
    let ours = [Some(headers.eth), Some(headers.head), headers.req, headers.res, headers.carried];
    build.program.deparser = ours.into_iter().flatten().chain(build.program.deparser).collect();
    BuiltElement { program: build.program, layout: headers.layout, generated, aligned: headers.req.zip(headers.res) }
}

struct Element<'a> {
    build: Build,
    whole: &'a Program,
    headers: Headers,
    vars: ControlFlowSlots,
    generated: GeneratedObjects,
    /// Arrival metadata that the parser reads.
    in_parser: PlaceSet,
}

/// Slots of the generated control flow.
pub(super) struct ControlFlowSlots {
    kind: SlotId,
    /// Port of the frame's arrival.
    pub(super) port: SlotId,
    load_type: SlotId,
    /// True if the packet leaves as a request.
    requesting: SlotId,
    known: SlotId,
    ingress_port: SlotId,
    spec: SlotId,
    group: SlotId,
    /// Start and end of the last extracted header in the packet.
    index: SlotId,
    end: SlotId,
}

impl ControlFlowSlots {
    fn new(build: &mut Build) -> Self {
        Self {
            kind: build.local("pc.kind", Ty::Bit(2)),
            port: build.local("pc.port", Ty::Bit(9)),
            load_type: build.local("pc.load_type", Ty::Bit(16)),
            requesting: build.local("pc.requesting", Ty::Bool),
            known: build.local("pc.known", Ty::Bool),
            ingress_port: build.standard(StandardField::IngressPort),
            spec: build.standard(StandardField::EgressSpec),
            group: build.standard(StandardField::McastGroup),
            index: build.local("pc.index", Ty::Bit(16)),
            end: build.local("pc.end", Ty::Bit(16)),
        }
    }
}

impl GeneratedObjects {
    fn new(build: &mut Build, vars: &ControlFlowSlots, balance: BalanceObjects, steered: Vec<SteeredKey>) -> Self {
        let from_server = build.action("pc.from_server", &[], |_| Vec::new());
        let from_other = build.action("pc.from_other", &[], |_| Vec::new());
        let keys = [("port", build.value(vars.port), MatchKind::Exact)];
        let servers = build.table("pc.servers", &keys, &[from_server, from_other], (from_other, vec![]), PORTS);
        let address = build.register("pc.address", Ty::Bit(48), 1);
        let events = build.counter("pc.events", ElementEvent::ALL.len() as u32);
        Self { servers, from_server, address, events, balance, steered }
    }
}

impl Element<'_> {
    /// Adds `pc.start`, which selects by EtherType; a response's headers are extracted before the program's own
    /// `start`.
    fn add_parser(&mut self) {
        let first = self.build.program.parser.states.len() as u32;
        // A parser begins at state 0, so the program's `start` moves to the end.
        let start = StateId(first);
        let (answer, stray) = (StateId(first + 1), StateId(first + 2));
        let mut states = std::mem::take(&mut self.build.program.parser.states);
        for state in &mut states {
            shift(&mut state.next, start);
        }
        let look = |skip: u32, width: u16| Expr { ty: Ty::Bit(width), kind: ExprKind::Lookahead { skip } };
        let vars = &self.vars;
        let begin = ParserState {
            name: "pc_start".to_owned(),
            body: vec![self.build.copy(vars.port, vars.ingress_port), assign(vars.load_type, look(96, 16))],
            next: Transition::Select {
                keys: vec![self.build.value(vars.load_type)],
                cases: vec![
                    (vec![Keyset::Mask(RESPONSE.into(), 0xffff)], Transition::To(answer)),
                    (vec![Keyset::Mask(REQUEST.into(), 0xffff)], Transition::To(stray)),
                    (vec![Keyset::Any], Transition::To(start)),
                ],
            },
        };
        let extract = |header| stmt(StmtKind::Extract { header, varbits: None });
        // The kind is set to a stray until the last generated header is extracted, so that a truncated frame is a
        // stray.
        let mut body = vec![self.build.put(vars.kind, STRAY)];
        body.extend(self.headers.of_response().map(extract));
        body.push(self.build.put(vars.kind, ANSWER));
        let values = self.headers.values.iter().filter(|(slot, _)| self.in_parser.has(*slot));
        body.extend(values.map(|(slot, from)| self.build.copy(*slot, *from)));
        let back = ParserState { name: "pc_response".to_owned(), body, next: Transition::To(start) };
        let body = vec![self.build.put(vars.kind, STRAY)];
        let other = ParserState { name: "pc_stray".to_owned(), body, next: Transition::Accept };
        let mut own = std::mem::replace(&mut states[0], begin);
        if own.name == "start" {
            own.name = "pc_own_start".to_owned();
        }
        states.extend([own, back, other]);
        if self.headers.options.is_some() {
            for state in &mut states[1..=first as usize] {
                self.record_headers(&mut state.body);
            }
        }
        self.build.program.parser.states = states;
    }

    /// Adds the statements that record the offset and end of each extracted header.
    fn record_headers(&self, body: &mut Block) {
        let vars = &self.vars;
        let mut noted = Vec::new();
        for stmt in body.drain(..) {
            let taken = match &stmt.kind {
                StmtKind::Extract { header, varbits } => {
                    let fields = &self.whole.headers[header.0 as usize].fields;
                    let fixed: u32 = fields.iter().map(|slot| u32::from(self.whole.width(*slot))).sum();
                    Some((fixed / 8, varbits.clone()))
                }
                _ => None,
            };
            noted.push(stmt);
            let Some((fixed, varbits)) = taken else { continue };
            let plus = |left, right| Expr::binary(Ty::Bit(16), Binary::Add, left, right);
            let mut end = plus(self.build.value(vars.end), Expr::constant(Ty::Bit(16), fixed.into()));
            if let Some(bits) = varbits {
                let bits = cast(Ty::Bit(16), bits);
                let three = Expr::constant(Ty::Bit(16), 3);
                end = plus(end, Expr::binary(Ty::Bit(16), Binary::Shr, bits, three));
            }
            noted.push(self.build.copy(vars.index, vars.end));
            noted.push(assign(vars.end, end));
        }
        *body = noted;
    }

    fn add_blocks(&mut self, of: &PostponedFunction) {
        let mut parts = of.parts.clone();
        for block in [&mut parts.before, &mut parts.leading, &mut parts.otherwise] {
            self.replace_mirrored_tables(block);
        }
        let (saved, restored) = self.save_headers(&parts);
        let mut fly = parts.leading;
        fly.extend(self.send_request(restored));
        let mut ours = saved;
        ours.extend(parts.before);
        let stay: Block = of.without_server.iter().cloned().chain(parts.otherwise).collect();
        match parts.condition {
            Some(condition) => ours.push(either(condition, fly, stay)),
            None => ours.extend(fly),
        }
        let mut back = self.receive_response(&of.on_return);
        back.extend(parts.trailing);
        let build = &self.build;
        let came = not(build.is(self.vars.kind, ORIGINAL));
        let here = not(build.value(self.vars.requesting));
        let ingress = vec![either(came, back, ours), when(here.clone(), parts.after)];
        let original = build.is(self.vars.kind, ORIGINAL);
        let program = &mut self.build.program;
        program.ingress = ingress;
        guard(&mut program.verify, original);
        guard(&mut program.egress, here.clone());
        guard(&mut program.compute, here);
    }

    /// Replaces mirrored tables and `steer` in the part before the call by the placement's code.
    fn replace_mirrored_tables(&self, block: &mut Block) {
        let balance = &self.generated.balance;
        let mut done = Vec::new();
        for mut statement in block.drain(..) {
            match &mut statement.kind {
                StmtKind::If { then, otherwise, .. } => {
                    self.replace_mirrored_tables(then);
                    self.replace_mirrored_tables(otherwise);
                }
                StmtKind::Body(body) => self.replace_mirrored_tables(body),
                StmtKind::Apply { table, hit, action } if self.build.program.tables[table.0 as usize].mirrored => {
                    if let Some(lookup) = balance.lookup(&self.build.program, *table, *hit, *action) {
                        done.extend(placed(lookup, &statement));
                        continue;
                    }
                }
                StmtKind::Steer { partition, value } => {
                    done.extend(placed(balance.steer(partition, value), &statement));
                    continue;
                }
                _ => {}
            }
            done.push(statement);
        }
        *block = done;
    }

    /// Saves and restores the headers that the part before the call changes, so that a request holds the packet as
    /// received.
    fn save_headers(&mut self, parts: &IngressParts) -> (Block, Block) {
        let mut changed = liveness::written_places(self.whole, &parts.before);
        changed.join(&liveness::written_places(self.whole, &parts.leading));
        let (fields, headers) = changed_headers(self.whole, &changed);
        let (mut saved, mut restored) = (Vec::new(), Vec::new());
        for header in headers {
            let name = format!("pc.saved.{}.valid", self.whole.headers[header.0 as usize].name);
            let slot = self.build.local(&name, Ty::Bool);
            saved.push(assign(slot, valid(header)));
            let on_off = either(self.build.value(slot), vec![set_valid(header, true)], vec![set_valid(header, false)]);
            restored.push(on_off);
        }
        for field in fields {
            let of = &self.whole.slots[field.0 as usize];
            let slot = self.build.local(&format!("pc.saved.{}", of.name), of.ty);
            saved.push(self.build.copy(slot, field));
            restored.push(self.build.copy(field, slot));
        }
        (saved, restored)
    }

    /// Turns the packet into a request.
    fn send_request(&mut self, as_it_came: Block) -> Block {
        let (build, vars, headers) = (&self.build, &self.vars, &self.headers);
        let balance = &self.generated.balance;
        // The egress port is carried before the server's port replaces it.
        let mut block: Block = headers.of_request().map(|header| set_valid(header, true)).collect();
        block.extend(headers.request.iter().map(|(slot, to)| build.copy(*to, *slot)));
        let travelling = balance.travelling();
        let carried = headers.values.iter().filter(|(slot, _)| !travelling.contains(slot));
        block.extend(carried.map(|(slot, to)| build.copy(*to, *slot)));
        for (header, to) in &headers.valid {
            block.push(assign(*to, cast(Ty::Bit(1), valid(*header))));
        }
        if let Some([index, length]) = headers.options {
            block.push(build.copy(index, vars.index));
            let long = Expr::binary(Ty::Bit(16), Binary::Sub, build.value(vars.end), build.value(vars.index));
            block.push(assign(length, long));
        }
        block.extend(as_it_came);
        block.push(build.put(vars.requesting, 1));
        block.push(build.put(vars.group, 0));
        block.push(build.put(vars.spec, DROP_PORT));
        let (flow, params) = self.flow_exprs();
        block.extend(balance.depart(&flow, &params));
        block.extend(
            headers.values.iter().filter(|(slot, _)| travelling.contains(slot)).map(|(s, to)| build.copy(*to, *s)),
        );
        let [dst, src, ether_type] = headers.eth_fields[..] else { unreachable!("three fields") };
        let [load_type, function, guard, _, version] = headers.head_fields[..] else { unreachable!("five fields") };
        block.push(build.copy(dst, balance.vars.server_mac.slot));
        block.push(stmt(StmtKind::Read {
            register: self.generated.address,
            index: Expr::constant(Ty::Bit(32), 0),
            to: src,
        }));
        block.push(build.put(ether_type, REQUEST.into()));
        block.push(build.copy(load_type, vars.load_type));
        block.push(build.put(function, self.headers.layout.function.into()));
        block.push(build.copy(guard, balance.vars.guard.slot));
        block.push(build.put(version, VERSION.into()));
        let lost = vec![self.count_event(ElementEvent::NoServer)];
        block.push(either(build.is(vars.spec, DROP_PORT), lost, vec![self.count_event(ElementEvent::Request)]));
        block
    }

    /// Expressions that identify the flow at the servers: the `@flow` parameters, or the first mirrored table's key if
    /// there are none; and all parameters.
    /// parameters.
    fn flow_exprs(&self) -> (Vec<Expr>, Vec<Expr>) {
        let Some(handler) = &self.whole.handler else { return Default::default() };
        let params = |slots: &[SlotId]| slots.iter().map(|slot| self.build.value(*slot)).collect();
        (params(&handler.flow), params(&handler.request))
    }

    /// Turns a response back into the packet; `postponed` is computed from the packet as received.
    fn receive_response(&self, postponed: &Block) -> Block {
        let (build, vars, headers) = (&self.build, &self.vars, &self.headers);
        let balance = &self.generated.balance;
        let [_, function, guard, flags, version] = headers.head_fields[..] else { unreachable!("five fields") };
        let mut block =
            vec![stmt(StmtKind::Apply { table: self.generated.servers, hit: Some(vars.known), action: None })];
        let ours = and(build.is(vars.kind, ANSWER), build.value(vars.known));
        let ours = and(ours, build.is(function, headers.layout.function.into()));
        let ours = and(ours, build.is(version, VERSION.into()));
        block.push(when(not(ours), self.drop_with_event(ElementEvent::Stray)));
        block.push(build.copy(balance.vars.guard.slot, guard));
        let travelling = balance.travelling();
        let (gone, kept): (Vec<_>, Vec<_>) = headers.values.iter().partition(|(slot, _)| travelling.contains(slot));
        block.extend(gone.iter().map(|(slot, from)| build.copy(*slot, *from)));
        let (noted, repeated) = balance.detect_repeat();
        block.extend(noted);
        block.push(when(repeated, self.drop_with_event(ElementEvent::Repeat)));
        block.extend(balance.arrive());
        let ended = Expr::binary(
            Ty::Bit(8),
            Binary::And,
            build.value(flags),
            Expr::constant(Ty::Bit(8), FunctionFlags::ENDED.into()),
        );
        let ended = Expr::binary(Ty::Bool, Binary::Ne, ended, Expr::constant(Ty::Bit(8), 0));
        block.push(when(ended, self.drop_with_event(ElementEvent::Ended)));
        let of_arrival = |slot: SlotId| matches!(build.program.slots[slot.0 as usize].kind, SlotKind::Standard(field) if ARRIVAL_FIELDS.contains(&field));
        let (first, kept): (Vec<_>, Vec<_>) = kept.into_iter().partition(|(slot, _)| of_arrival(*slot));
        block.extend(first.iter().map(|(slot, from)| build.copy(*slot, *from)));
        block.extend(postponed.iter().cloned());
        // Values that the postponed code reads may have been overwritten since, so they are recomputed.
        let again = liveness::written_places(self.whole, postponed);
        block.extend(first.iter().filter(|(slot, _)| again.has(*slot)).map(|(slot, from)| build.copy(*slot, *from)));
        for (header, from) in &headers.valid {
            block.push(either(build.is(*from, 1), vec![set_valid(*header, true)], vec![set_valid(*header, false)]));
        }
        block.extend(kept.iter().map(|(slot, from)| build.copy(*slot, *from)));
        block.extend(headers.response.iter().map(|(slot, from)| build.copy(*slot, *from)));
        block.extend(headers.of_response().map(|header| set_valid(header, false)));
        block.push(self.count_event(ElementEvent::Response));
        block
    }

    fn drop_with_event(&self, event: ElementEvent) -> Block {
        let (build, vars) = (&self.build, &self.vars);
        vec![
            self.count_event(event),
            build.put(vars.requesting, 1),
            build.put(vars.group, 0),
            build.put(vars.spec, DROP_PORT),
            stmt(StmtKind::Exit),
        ]
    }

    fn count_event(&self, event: ElementEvent) -> Stmt {
        let index = Expr::constant(Ty::Bit(32), event as u128);
        stmt(StmtKind::Count { counter: self.generated.events, index })
    }
}

/// Generated statements with the span of the statement that they replace.
fn placed(block: Block, of: &Stmt) -> impl Iterator<Item = Stmt> {
    let at = of.at;
    block.into_iter().map(move |stmt| Stmt { at, ..stmt })
}

/// Redirects transitions to state 0 to the new index of `start`.
fn shift(next: &mut Transition, start: StateId) {
    match next {
        Transition::To(state) if state.0 == 0 => *state = start,
        Transition::Select { cases, .. } => cases.iter_mut().for_each(|(_, to)| shift(to, start)),
        _ => {}
    }
}

/// Makes a block conditional.
fn guard(block: &mut Block, condition: Expr) {
    if !block.is_empty() {
        *block = vec![when(condition, std::mem::take(block))];
    }
}
