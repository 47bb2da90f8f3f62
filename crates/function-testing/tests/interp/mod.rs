//! Tests of the interpreter: parsers, tables, registers, copies and calls.

mod numbers;

use pathcall_p4::exec::{CLONES_MAX, CounterValue, DropReason, Execution, Output, TableError};
use pathcall_p4::interp::{CompileError, HandlerContext, HandlerVerdict, Interpreter};
use pathcall_p4::ir::{
    Action, ActionId, Binary, Counter, CounterId, DROP_PORT, Expr, ExprKind, HashAlgorithm, Header, HeaderId, Keyset,
    Match, MatchKind, Parser, ParserState, Program, Register, RegisterId, Slot, SlotId, SlotKind, StandardField,
    StateId, Stmt, StmtKind, TableEntry, TableId, TableKey, Transition, Ty, Unary,
};

/// Parser error of a `select` without a match (P4_16 core).
const NO_MATCH: u16 = 2;

/// Program whose packets have a header of four fields (`kind` 8, `a` 32, `b` 16, `c` 8 bits), then a header with a
/// varbit.
struct Fixture {
    program: Program,
    kind: SlotId,
    a: SlotId,
    b: SlotId,
    spec: SlotId,
}

fn stmt(kind: StmtKind) -> Stmt {
    Stmt { kind, at: Default::default() }
}

fn assign(to: SlotId, value: Expr) -> Stmt {
    stmt(StmtKind::Assign { to, value })
}

fn fixture() -> Fixture {
    let mut slots = Vec::new();
    let mut slot = |name: &str, width, kind| {
        slots.push(Slot { name: name.into(), ty: Ty::Bit(width), kind });
        SlotId(slots.len() as u32 - 1)
    };
    let field = |header, offset_bits| SlotKind::Field { header: HeaderId(header), offset_bits };
    let kind = slot("h.kind", 8, field(0, 0));
    let a = slot("h.a", 32, field(0, 8));
    let b = slot("h.b", 16, field(0, 40));
    let c = slot("h.c", 8, field(0, 56));
    let length = slot("o.length", 8, field(1, 0));
    let spec = slot("sm.egress_spec", 9, SlotKind::Standard(StandardField::EgressSpec));
    slot("sm.parser_error", 16, SlotKind::Standard(StandardField::ParserError));
    slot("sm.egress_port", 9, SlotKind::Standard(StandardField::EgressPort));
    slot("sm.mcast_grp", 16, SlotKind::Standard(StandardField::McastGroup));
    slot("sm.instance_type", 32, SlotKind::Standard(StandardField::InstanceType));
    let header = |name: &str, fields, varbit| Header {
        name: name.into(),
        type_name: name.into(),
        fields,
        varbit_bits_max: varbit,
    };
    let extract = |header| stmt(StmtKind::Extract { header: HeaderId(header), varbits: None });
    let look = Expr { ty: Ty::Bit(8), kind: ExprKind::Lookahead { skip: 0 } };
    let bits = Expr::binary(Ty::Bit(32), Binary::Shl, cast(32, look), Expr::constant(Ty::Bit(8), 3));
    let options = stmt(StmtKind::Extract { header: HeaderId(1), varbits: Some(bits) });
    let start = ParserState {
        name: "start".into(),
        body: vec![extract(0)],
        next: Transition::Select {
            keys: vec![Expr::slot(Ty::Bit(8), kind)],
            cases: vec![
                (vec![Keyset::Mask(7, 0xff)], Transition::To(StateId(1))),
                (vec![Keyset::Range(8, 9)], Transition::Reject(13)),
                (vec![Keyset::Mask(0, 0xff)], Transition::Accept),
                (vec![Keyset::Mask(0x80, 0x80)], Transition::Accept),
            ],
        },
    };
    let options = ParserState { name: "options".into(), body: vec![options], next: Transition::Accept };
    let program = Program {
        name: "fixture".into(),
        slots,
        headers: vec![header("h", vec![kind, a, b, c], None), header("o", vec![length], Some(64))],
        parser: Parser { states: vec![start, options] },
        verify: vec![],
        ingress: vec![],
        egress: vec![],
        compute: vec![],
        deparser: vec![HeaderId(0), HeaderId(1)],
        tables: vec![],
        actions: vec![],
        registers: vec![Register { name: "r".into(), ty: Ty::Bit(16), size: 4, mirrored: false }],
        counters: vec![Counter { name: "n".into(), size: 2 }],
        partitions: vec![],
        handler: None,
    };
    Fixture { program, kind, a, b, spec }
}

fn cast(width: u16, of: Expr) -> Expr {
    Expr { ty: Ty::Bit(width), kind: ExprKind::Cast(Box::new(of)) }
}

fn number(width: u16, value: u128) -> Expr {
    Expr::constant(Ty::Bit(width), value)
}

/// Output of a packet at port 3: packets with their ports, and drop reasons.
fn process(interpreter: &mut Interpreter, packet: &[u8]) -> (Vec<(u16, Vec<u8>)>, Vec<DropReason>) {
    let (mut packets, mut reasons) = (Vec::new(), Vec::new());
    interpreter.process(5, 3, packet, &mut |output| match output {
        Output::Packet { port, bytes } => packets.push((port, bytes.to_vec())),
        Output::Dropped(reason) => reasons.push(reason),
        Output::Digest { .. } => {}
    });
    (packets, reasons)
}

const PACKET: [u8; 10] = [0, 1, 2, 3, 4, 5, 6, 7, 0xee, 0xff];

#[test]
fn packet_leaves_with_final_header_values() {
    let mut f = fixture();
    f.program.ingress = vec![assign(f.b, number(16, 0xabcd)), assign(f.spec, number(9, 4))];
    let mut interpreter = Interpreter::new(&f.program).expect("runs");
    let expected = vec![0, 1, 2, 3, 4, 0xab, 0xcd, 7, 0xee, 0xff];
    assert_eq!(process(&mut interpreter, &PACKET), (vec![(4, expected)], vec![]));
}

#[test]
fn parser_ends_with_matching_error() {
    let mut f = fixture();
    // The error is output as the egress port.
    let error = SlotId(f.spec.0 + 1);
    f.program.ingress = vec![assign(f.spec, cast(9, Expr::slot(Ty::Bit(16), error)))];
    let mut interpreter = Interpreter::new(&f.program).expect("runs");
    let mut error = |packet: &[u8]| process(&mut interpreter, packet).0[0].0;
    assert_eq!(error(&PACKET), 0);
    assert_eq!(error(&[0; 7]), PACKET_TOO_SHORT);
    assert_eq!(error(&[1, 0, 0, 0, 0, 0, 0, 0]), NO_MATCH);
    assert_eq!(error(&[9, 0, 0, 0, 0, 0, 0, 0]), 13);
    assert_eq!(error(&[0xf0, 0, 0, 0, 0, 0, 0, 0]), 0);
    assert_eq!(error(&[7, 0, 0, 0, 0, 0, 0, 0, 2, 0x55, 0x66, 9]), 0);
    assert_eq!(error(&[7, 0, 0, 0, 0, 0, 0, 0, 2, 0x55]), PACKET_TOO_SHORT);
    assert_eq!(error(&[7, 0, 0, 0, 0, 0, 0, 0, 9, 0x55, 0x66, 9]), HEADER_TOO_SHORT);
}

const PACKET_TOO_SHORT: u16 = 1;
const HEADER_TOO_SHORT: u16 = 4;

#[test]
fn varbit_field_is_carried() {
    let mut f = fixture();
    f.program.ingress = vec![assign(f.kind, number(8, 1))];
    let mut interpreter = Interpreter::new(&f.program).expect("runs");
    let packet = [7, 0, 0, 0, 0, 0, 0, 0, 2, 0x55, 0x66, 9];
    let expected = [1, 0, 0, 0, 0, 0, 0, 0, 2, 0x55, 0x66, 9];
    assert_eq!(process(&mut interpreter, &packet).0, [(0, expected.to_vec())]);
    // Invalid and valid again, the header's varbit is empty.
    f.program.ingress = vec![
        stmt(StmtKind::SetValid { header: HeaderId(1), valid: false }),
        stmt(StmtKind::SetValid { header: HeaderId(1), valid: true }),
    ];
    let mut interpreter = Interpreter::new(&f.program).expect("runs");
    assert_eq!(process(&mut interpreter, &packet).0, [(0, vec![7, 0, 0, 0, 0, 0, 0, 0, 0, 9])]);
}

#[test]
fn fields_of_invalid_headers_stay_zero() {
    let mut f = fixture();
    f.program.ingress = vec![
        stmt(StmtKind::SetValid { header: HeaderId(0), valid: false }),
        assign(f.a, number(32, 9)),
        assign(f.spec, cast(9, Expr::slot(Ty::Bit(32), f.a))),
        stmt(StmtKind::SetValid { header: HeaderId(0), valid: true }),
    ];
    let mut interpreter = Interpreter::new(&f.program).expect("runs");
    assert_eq!(process(&mut interpreter, &PACKET).0, [(0, vec![0, 0, 0, 0, 0, 0, 0, 0, 0xee, 0xff])]);
}

/// Fixture with a table on `a` whose action sends to the port of its argument; a miss drops.
fn routed(kind: MatchKind, size: u32) -> Fixture {
    let mut f = fixture();
    let port = SlotId(f.program.slots.len() as u32);
    f.program.slots.push(Slot { name: "port".into(), ty: Ty::Bit(9), kind: SlotKind::Local });
    let action = |name: &str, params, value| Action {
        name: name.into(),
        params,
        body: vec![assign(f.spec, value), stmt(StmtKind::Return), assign(f.spec, number(9, 99))],
    };
    f.program.actions =
        vec![action("drop", vec![], number(9, DROP_PORT)), action("to", vec![port], Expr::slot(Ty::Bit(9), port))];
    f.program.tables = vec![pathcall_p4::ir::Table {
        name: "route".into(),
        keys: vec![TableKey { expr: Expr::slot(Ty::Bit(32), f.a), kind, name: "a".into() }],
        actions: vec![ActionId(1)],
        default: (ActionId(0), vec![]),
        entries: vec![],
        size,
        mirrored: false,
        idle_timeout_ms: None,
        at: Default::default(),
    }];
    f.program.ingress = vec![
        stmt(StmtKind::Apply { table: TableId(0), hit: None, action: None }),
        stmt(StmtKind::Count { counter: CounterId(0), index: number(32, 1) }),
    ];
    f
}

fn to(value: u128, prefix_bits: u16, port: u128) -> TableEntry {
    TableEntry { keys: vec![Match { value, prefix_bits }], action: ActionId(1), args: vec![port] }
}

#[test]
fn longest_prefix_matches_until_removed() {
    let f = routed(MatchKind::Lpm, 8);
    let mut interpreter = Interpreter::new(&f.program).expect("runs");
    let route = TableId(0);
    assert_eq!(process(&mut interpreter, &PACKET), (vec![], vec![DropReason::Program]));
    for (value, prefix, port) in [(0, 0, 1), (0x0102_0000, 16, 2), (0x0102_0304, 32, 3)] {
        interpreter.insert(route, &to(value, prefix, port)).expect("fits");
    }
    let port = |interpreter: &mut Interpreter| process(interpreter, &PACKET).0[0].0;
    assert_eq!(port(&mut interpreter), 3);
    interpreter.remove(route, &to(0x0102_0304, 32, 0).keys).expect("there");
    assert_eq!(port(&mut interpreter), 2);
    interpreter.modify(route, &to(0x0102_0000, 16, 7)).expect("there");
    assert_eq!(port(&mut interpreter), 7);
    interpreter.remove(route, &to(0x0102_0000, 16, 0).keys).expect("there");
    assert_eq!(port(&mut interpreter), 1);
    assert_eq!(interpreter.counter(CounterId(0), 1), CounterValue { packets: 5, bytes: 50 });
    assert_eq!(interpreter.dropped(DropReason::Program), 1);
}

#[test]
fn invalid_entry_is_refused_with_reason() {
    let f = routed(MatchKind::Exact, 1);
    let mut i = Interpreter::new(&f.program).expect("runs");
    let route = TableId(0);
    assert!(matches!(i.insert(route, &to(1, 31, 1)), Err(TableError::Width { what: "prefix", .. })));
    assert!(matches!(i.insert(route, &to(1 << 32, 32, 1)), Err(TableError::Width { what: "key", .. })));
    assert!(matches!(i.insert(route, &to(1, 32, 512)), Err(TableError::Width { what: "argument", .. })));
    assert!(matches!(
        i.insert(route, &TableEntry { action: ActionId(7), ..to(1, 32, 1) }),
        Err(TableError::Action { action: 7, .. })
    ));
    assert!(matches!(
        i.insert(route, &TableEntry { args: vec![], ..to(1, 32, 1) }),
        Err(TableError::Number { what: "arguments", .. })
    ));
    assert!(matches!(i.remove(route, &to(1, 32, 1).keys), Err(TableError::Missing { .. })));
    i.insert(route, &to(1, 32, 1)).expect("fits");
    assert!(matches!(i.insert(route, &to(1, 32, 1)), Err(TableError::Exists { .. })));
    assert!(matches!(i.insert(route, &to(2, 32, 1)), Err(TableError::Full { size: 1, .. })));
    assert_eq!(i.entries(route), 1);
}

#[test]
fn hit_marks_entry_until_taken() {
    let f = routed(MatchKind::Exact, 2);
    let mut interpreter = Interpreter::new(&f.program).expect("runs");
    let hit = to(0x0102_0304, 32, 1);
    interpreter.insert(TableId(0), &hit).expect("fits");
    interpreter.insert(TableId(0), &to(5, 32, 1)).expect("fits");
    process(&mut interpreter, &PACKET);
    let mut used = Vec::new();
    interpreter.take_used(TableId(0), &mut |entry| used.push(entry.clone()));
    interpreter.take_used(TableId(0), &mut |entry| used.push(entry.clone()));
    assert_eq!(used, [hit]);
}

#[test]
fn registers_wrap_and_ignore_index_beyond_end() {
    let mut f = fixture();
    let (r, width) = (RegisterId(0), 16);
    let update = |index: u128| {
        stmt(StmtKind::Update {
            register: r,
            index: number(32, index),
            op: Binary::Add,
            operand: number(width, 0xffff),
            to: Some(f.b),
        })
    };
    f.program.ingress = vec![update(1), update(1)];
    let mut interpreter = Interpreter::new(&f.program).expect("runs");
    assert_eq!(process(&mut interpreter, &PACKET).0[0].1[5..7], [0xff, 0xfe]);
    assert_eq!(interpreter.register(r, 1), 0xfffe);
    f.program.ingress = vec![update(4)];
    let mut interpreter = Interpreter::new(&f.program).expect("runs");
    assert_eq!(process(&mut interpreter, &PACKET).0[0].1[5..7], [0, 0], "beyond the end: 0");
    interpreter.set_register(r, 9, 1);
    assert_eq!(interpreter.register(r, 9), 0);
}

#[test]
fn truncated_packet_leaves_with_given_length() {
    let mut f = fixture();
    f.program.ingress = vec![stmt(StmtKind::Truncate(number(32, 3)))];
    let mut interpreter = Interpreter::new(&f.program).expect("runs");
    assert_eq!(process(&mut interpreter, &PACKET).0, [(0, PACKET[..3].to_vec())]);
    f.program.ingress = vec![stmt(StmtKind::Truncate(number(32, 11)))];
    let mut interpreter = Interpreter::new(&f.program).expect("runs");
    assert_eq!(process(&mut interpreter, &PACKET).0, [(0, PACKET.to_vec())]);
}

#[test]
fn multicast_reaches_all_ports_after_clone() {
    let mut f = fixture();
    let group = SlotId(f.spec.0 + 3);
    f.program.ingress = vec![
        stmt(StmtKind::Clone { session: number(9, 8) }),
        assign(f.kind, number(8, 1)),
        assign(group, number(16, 2)),
    ];
    // The kind of the copy is output in a field.
    f.program.egress = vec![assign(f.b, cast(16, Expr::slot(Ty::Bit(32), SlotId(f.spec.0 + 4))))];
    let mut interpreter = Interpreter::new(&f.program).expect("runs");
    assert_eq!(process(&mut interpreter, &PACKET).1, [DropReason::NoGroup]);
    interpreter.set_group(2, &[(4, 0), (5, 1)]);
    let (packets, _) = process(&mut interpreter, &PACKET);
    let short: Vec<_> = packets.iter().map(|(port, bytes)| (*port, bytes[0], bytes[6])).collect();
    assert_eq!(short, [(8, 0, 1), (4, 1, 5), (5, 1, 5)]);
}

#[test]
fn endless_recirculation_is_dropped() {
    let mut f = fixture();
    f.program.ingress = vec![stmt(StmtKind::Recirculate)];
    let mut interpreter = Interpreter::new(&f.program).expect("runs");
    assert_eq!(process(&mut interpreter, &PACKET), (vec![], vec![DropReason::Recirculated]));
    f.program.ingress = vec![];
    f.program.egress = vec![stmt(StmtKind::Clone { session: number(9, 8) })];
    let mut interpreter = Interpreter::new(&f.program).expect("runs");
    let (packets, reasons) = process(&mut interpreter, &PACKET);
    assert_eq!(packets.len(), 1 + CLONES_MAX);
    assert_eq!(reasons.len(), 1, "the clone of the last clone: {reasons:?}");
}

#[test]
fn recursive_action_is_refused() {
    let mut f = routed(MatchKind::Exact, 1);
    f.program.actions[1].body = vec![stmt(StmtKind::Apply { table: TableId(0), hit: None, action: None })];
    let refused = Interpreter::new(&f.program).expect_err("unbounded recursion");
    assert_eq!(refused, CompileError::Depth { action: "to".into() });
}

#[test]
fn handler_responds_or_drops_packet() {
    let mut f = fixture();
    f.program.ingress = vec![stmt(StmtKind::Remote)];
    let mut interpreter = Interpreter::new(&f.program).expect("runs");
    let mut ports = Vec::new();
    let (a, spec) = (f.a, f.spec);
    for verdict in [HandlerVerdict::Respond, HandlerVerdict::Drop] {
        let mut remote = |call: &mut HandlerContext<'_>| {
            assert_eq!((call.get(a), call.packet), (0x0102_0304, &PACKET[..]));
            call.set(spec, 9, 6);
            verdict
        };
        interpreter.process_with(0, 0, &PACKET, &mut remote, &mut |output| match output {
            Output::Packet { port, .. } => ports.push(port),
            other => assert_eq!(other, Output::Dropped(DropReason::Handler)),
        });
    }
    assert_eq!(ports, [6]);
}
