//! Function under test: a small program with every construct that can fail, split by hand as the compiler does it.
//!
//! ```text
//! packet: kind 8 │ key 32 │ sequence 32 │ a 32 │ b 32      highest bit of kind: the packet ends its flow
//!
//! count   a = sequence number of the flow's previous packet    mirrored register of an exact entry
//! out     a = value of this flow                               exact entry; values are a partition
//! back    b = flow that has the value `key`                    steered by the value
//! route   a = next hop of `key`                                prefix
//! ```

use pathcall_p4::ir::{
    Action, ActionId, Binary, Block, Expr, Header, HeaderId, Keyset, MatchKind, Parser, ParserState, Partition,
    Program, Register, RegisterId, Slot, SlotId, SlotKind, StandardField, StateId, Stmt, StmtKind, Table, TableId,
    TableKey, Transition, Ty,
};
use pathcall_p4::split::balance::{BalanceObjects, Sizes};

/// Length of a packet in bytes.
pub(super) const PACKET: usize = 17;
/// First port of servers.
pub(super) const SERVER_PORT: u16 = 8;
/// Range of the values that flows are given.
pub(super) const VALUES: (u32, u32) = (64, 64 + 4095);
/// EtherTypes of a request and of a response.
const TYPES: (u128, u128) = (0x88b5, 0x88b6);

/// Kind of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PacketKind {
    /// Returns the number of the flow's previous packet.
    Count,
    /// Returns the value of the flow.
    Out,
    /// Returns the flow of a value.
    Back,
    /// Returns the next hop of a key.
    Route,
}

impl PacketKind {
    /// Bit of a packet that ends its flow.
    const LAST: u8 = 0x80;

    /// Table of this kind.
    pub(super) fn table(self) -> TableId {
        TableId(self as u32)
    }
}

/// Packet of the function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) kind: PacketKind,
    pub(super) last: bool,
    pub(super) key: u32,
    pub(super) sequence: u32,
    pub(super) a: u32,
    pub(super) b: u32,
}

impl Packet {
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let kind = match bytes.first()? & !PacketKind::LAST {
            0 => PacketKind::Count,
            1 => PacketKind::Out,
            2 => PacketKind::Back,
            3 => PacketKind::Route,
            _ => return None,
        };
        let last = bytes[0] & PacketKind::LAST != 0;
        Some(Self { kind, last, key: word(1)?, sequence: word(5)?, a: word(9)?, b: word(13)? })
    }

    pub(super) fn emit(&self) -> [u8; PACKET] {
        let mut bytes = [0; PACKET];
        bytes[0] = self.kind as u8 | if self.last { PacketKind::LAST } else { 0 };
        for (at, word) in [self.key, self.sequence, self.a, self.b].into_iter().enumerate() {
            bytes[1 + 4 * at..5 + 4 * at].copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }
}

/// Header between element and server, behind two addresses and the EtherType.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ServerHeader {
    pub(super) response: bool,
    pub(super) guard: u16,
    pub(super) period: u16,
    pub(super) number: u32,
    pub(super) entry: u32,
    pub(super) turn: u16,
    pub(super) version: u8,
    pub(super) bucket: u16,
    pub(super) value: u32,
}

impl ServerHeader {
    const LEN: usize = 14 + 21;

    /// Parses the header and the packet behind it.
    pub(super) fn parse(bytes: &[u8]) -> Option<(Self, Packet)> {
        let half = |at: usize| Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let word = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let front = Self {
            response: u128::from(half(12)?) == TYPES.1,
            guard: half(14)?,
            period: half(16)?,
            number: word(18)?,
            entry: word(22)?,
            turn: half(26)?,
            version: *bytes.get(28)?,
            bucket: half(29)?,
            value: word(31)?,
        };
        Some((front, Packet::parse(bytes.get(Self::LEN..)?)?))
    }

    /// Bytes behind the packet.
    pub(super) fn payload(bytes: &[u8]) -> &[u8] {
        bytes.get(Self::LEN + PACKET..).unwrap_or_default()
    }

    pub(super) fn emit(&self, packet: &Packet) -> Vec<u8> {
        let mut bytes = vec![0; 12];
        bytes.extend((if self.response { TYPES.1 } else { TYPES.0 } as u16).to_be_bytes());
        bytes.extend(self.guard.to_be_bytes());
        bytes.extend(self.period.to_be_bytes());
        bytes.extend(self.number.to_be_bytes());
        bytes.extend(self.entry.to_be_bytes());
        bytes.extend(self.turn.to_be_bytes());
        bytes.push(self.version);
        bytes.extend(self.bucket.to_be_bytes());
        bytes.extend(self.value.to_be_bytes());
        bytes.extend(packet.emit());
        bytes
    }
}

fn stmt(kind: StmtKind) -> Stmt {
    Stmt { kind, at: Default::default() }
}

fn set(to: SlotId, value: Expr) -> Stmt {
    stmt(StmtKind::Assign { to, value })
}

fn number(width: u16, value: u128) -> Expr {
    Expr::constant(Ty::Bit(width), value)
}

fn equal(left: Expr, right: u128) -> Expr {
    let width = left.ty.width();
    Expr::binary(Ty::Bool, Binary::Eq, left, number(width, right))
}

fn when(condition: Expr, then: Block, otherwise: Block) -> Stmt {
    stmt(StmtKind::If { condition, then, otherwise })
}

/// Slots of the function under test.
struct FunctionSlots {
    kind: SlotId,
    last: SlotId,
    key: SlotId,
    sequence: SlotId,
    a: SlotId,
    b: SlotId,
    index: SlotId,
    flight: SlotId,
    hit: SlotId,
    port: SlotId,
    spec: SlotId,
}

/// Program of the element, with tables of these sizes.
pub(super) fn program(sizes: &Sizes) -> (Program, BalanceObjects) {
    let mut slots: Vec<Slot> = Vec::new();
    let mut slot = |name: &str, ty: Ty, kind: SlotKind| {
        slots.push(Slot { name: name.to_owned(), ty, kind });
        SlotId(slots.len() as u32 - 1)
    };
    let packet = HeaderId(0);
    let field = |offset_bits| SlotKind::Field { header: packet, offset_bits };
    let own = FunctionSlots {
        last: slot("p.last", Ty::Bit(1), field(0)),
        kind: slot("p.kind", Ty::Bit(7), field(1)),
        key: slot("p.key", Ty::Bit(32), field(8)),
        sequence: slot("p.sequence", Ty::Bit(32), field(40)),
        a: slot("p.a", Ty::Bit(32), field(72)),
        b: slot("p.b", Ty::Bit(32), field(104)),
        index: slot("md.index", Ty::Bit(32), SlotKind::Metadata),
        flight: slot("flight", Ty::Bool, SlotKind::Local),
        hit: slot("hit", Ty::Bool, SlotKind::Local),
        port: slot("sm.ingress_port", Ty::Bit(9), SlotKind::Standard(StandardField::IngressPort)),
        spec: slot("sm.egress_spec", Ty::Bit(9), SlotKind::Standard(StandardField::EgressSpec)),
    };
    let mut actions = vec![Action { name: "missed".into(), params: Vec::new(), body: Vec::new() }];
    let mut tables = Vec::new();
    let act = [("track", own.index), ("give", own.a), ("whose", own.b), ("via", own.a)];
    for (at, (name, to)) in act.into_iter().enumerate() {
        let param = slot(&format!("{name}.value"), Ty::Bit(32), SlotKind::Local);
        actions.push(Action {
            name: name.into(),
            params: vec![param],
            body: vec![set(to, Expr::slot(Ty::Bit(32), param))],
        });
        let kind = if at == 3 { MatchKind::Lpm } else { MatchKind::Exact };
        tables.push(Table {
            name: format!("t{at}"),
            keys: vec![TableKey { expr: Expr::slot(Ty::Bit(32), own.key), kind, name: "key".into() }],
            actions: vec![ActionId(at as u32 + 1)],
            default: (ActionId(0), Vec::new()),
            entries: Vec::new(),
            size: 1 << 20,
            mirrored: true,
            idle_timeout_ms: None,
            at: Default::default(),
        });
    }
    let fields = vec![own.last, own.kind, own.key, own.sequence, own.a, own.b];
    let header = Header { name: "p".into(), type_name: "p".into(), fields, varbit_bits_max: None };
    let before = Register { name: "before".into(), ty: Ty::Bit(32), size: 1, mirrored: true };
    let values = Partition { name: "values".into(), ty: Ty::Bit(32), first: VALUES.0.into(), last: VALUES.1.into() };
    let mut program = Program {
        name: "played".into(),
        slots,
        headers: vec![header],
        parser: Parser::default(),
        verify: Vec::new(),
        ingress: vec![stmt(StmtKind::Read {
            register: RegisterId(0),
            index: Expr::slot(Ty::Bit(32), own.index),
            to: own.a,
        })],
        egress: Vec::new(),
        compute: Vec::new(),
        deparser: Vec::new(),
        tables,
        actions,
        registers: vec![before],
        counters: Vec::new(),
        partitions: vec![values],
        handler: None,
    };
    let balance = BalanceObjects::new(&mut program, sizes);
    assemble(&mut program, &balance, &own);
    (program, balance)
}

/// Assembles headers, parser and generated parts around the function.
fn assemble(program: &mut Program, balance: &BalanceObjects, own: &FunctionSlots) {
    let vars = &balance.vars;
    let pc = HeaderId(1);
    let travelling =
        [vars.guard, vars.period, vars.number, vars.entry, vars.turn, vars.version, vars.bucket, vars.values[0].1];
    let mut offset_bits = 0;
    let mut fields = Vec::new();
    let front = [("to", 48), ("from", 48), ("type", 16)].map(|(name, width)| (name.to_owned(), width));
    let names = travelling.map(|var| (program.slots[var.slot.0 as usize].name.clone(), var.ty.width()));
    for (name, width) in front.into_iter().chain(names) {
        let kind = SlotKind::Field { header: pc, offset_bits };
        program.slots.push(Slot { name: format!("front.{name}"), ty: Ty::Bit(width), kind });
        fields.push(SlotId(program.slots.len() as u32 - 1));
        offset_bits += u32::from(width);
    }
    program.headers.push(Header {
        name: "front".into(),
        type_name: "front".into(),
        fields: fields.clone(),
        varbit_bits_max: None,
    });
    let extract = |header| stmt(StmtKind::Extract { header, varbits: None });
    let server = Transition::Select {
        keys: vec![Expr::slot(Ty::Bit(9), own.port)],
        cases: vec![
            (vec![Keyset::Range(SERVER_PORT.into(), 510)], Transition::To(StateId(1))),
            (vec![Keyset::Any], Transition::To(StateId(2))),
        ],
    };
    let state = |name: &str, body, next| ParserState { name: name.into(), body, next };
    program.parser = Parser {
        states: vec![
            state("start", Vec::new(), server),
            state("front", vec![extract(pc)], Transition::To(StateId(2))),
            state("packet", vec![extract(HeaderId(0))], Transition::Accept),
        ],
    };
    program.deparser = vec![pc, HeaderId(0)];
    let valid = |valid| stmt(StmtKind::SetValid { header: pc, valid });
    let out = set(own.spec, number(9, 1));
    let ty = |slot: SlotId| program.slots[slot.0 as usize].ty;
    let mut response: Block =
        travelling.iter().zip(&fields[3..]).map(|(var, field)| set(var.slot, Expr::slot(var.ty, *field))).collect();
    let drop = set(own.spec, number(9, pathcall_p4::ir::DROP_PORT));
    let (noted, repeated) = balance.detect_repeat();
    response.extend(noted);
    let mut first = balance.arrive();
    first.extend([valid(false), out.clone()]);
    response.push(when(repeated, vec![drop.clone()], first));
    let answered = equal(Expr::slot(Ty::Bit(16), fields[2]), TYPES.1);
    let response = vec![when(answered, response, vec![drop])];
    let mut request = balance.depart(&[], &[]);
    request.extend([valid(true), set(fields[0], Expr::slot(Ty::Bit(48), vars.server_mac.slot))]);
    request.push(set(fields[2], number(16, TYPES.0)));
    request.extend(
        travelling.iter().zip(&fields[3..]).map(|(var, field)| set(*field, Expr::slot(ty(var.slot), var.slot))),
    );
    let mut original = before(program, balance, own);
    original.push(when(Expr::slot(Ty::Bool, own.flight), request, vec![out]));
    let from_server =
        Expr::binary(Ty::Bool, Binary::Ge, Expr::slot(Ty::Bit(9), own.port), number(9, SERVER_PORT.into()));
    program.ingress = vec![when(from_server, response, original)];
}

/// Function body of the element's part, as a user would write it.
fn before(program: &Program, balance: &BalanceObjects, own: &FunctionSlots) -> Block {
    let truth = |value: bool| Expr::constant(Ty::Bool, value.into());
    let missed = vec![set(own.flight, truth(true))];
    let word = |slot| Expr::slot(Ty::Bit(32), slot);
    let mut block = Vec::new();
    for kind in [PacketKind::Count, PacketKind::Out, PacketKind::Back, PacketKind::Route] {
        let mut of = if kind == PacketKind::Back { balance.steer("values", &word(own.key)) } else { Vec::new() };
        of.extend(balance.lookup(program, kind.table(), Some(own.hit), None).expect("mirrored"));
        let ends = set(own.flight, equal(Expr::slot(Ty::Bit(1), own.last), 1));
        let register = RegisterId(0);
        let mut hit = vec![ends];
        if kind == PacketKind::Count {
            // The server ends a flow: the element does not touch the register then.
            let here = vec![
                stmt(StmtKind::Read { register, index: word(own.index), to: own.a }),
                stmt(StmtKind::Write { register, index: word(own.index), value: word(own.sequence) }),
            ];
            hit.push(when(Expr::slot(Ty::Bool, own.flight), Vec::new(), here));
        }
        of.push(when(Expr::slot(Ty::Bool, own.hit), hit, missed.clone()));
        block.push(when(equal(Expr::slot(Ty::Bit(7), own.kind), kind as u128), of, Vec::new()));
    }
    block
}
