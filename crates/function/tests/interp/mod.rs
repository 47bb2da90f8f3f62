//! The interpreter: parsers, tables, registers, copies and calls.

mod numbers;

use pathcall_function::exec::{CLONES_MAX, Count, Execution, Output, Reason, TableError};
use pathcall_function::interp::{Call, CompileError, Interpreter, Verdict};
use pathcall_function::ir::{
    Action, ActionId, Binary, Counter, CounterId, DROP_PORT, Entry, Expr, ExprKind, HashAlgorithm, Header, HeaderId,
    Key, Match, MatchKind, Parser, Program, Register, RegisterId, Slot, SlotId, SlotKind, Standard, State, StateId,
    Stmt, StmtKind, TableId, Transition, Ty, Unary, Value,
};

/// The parser's error when no case of a `select` matches (P4_16 core).
const NO_MATCH: u16 = 2;

/// A packet's header of four fields: `kind` 8, `a` 32, `b` 16, `c` 8 bits; then a header with a varbit field.
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
    let spec = slot("sm.egress_spec", 9, SlotKind::Standard(Standard::EgressSpec));
    slot("sm.parser_error", 16, SlotKind::Standard(Standard::ParserError));
    slot("sm.egress_port", 9, SlotKind::Standard(Standard::EgressPort));
    slot("sm.mcast_grp", 16, SlotKind::Standard(Standard::McastGroup));
    slot("sm.instance_type", 32, SlotKind::Standard(Standard::InstanceType));
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
    let start = State {
        name: "start".into(),
        body: vec![extract(0)],
        next: Transition::Select {
            keys: vec![Expr::slot(Ty::Bit(8), kind)],
            cases: vec![
                (vec![Value::Mask(7, 0xff)], Transition::To(StateId(1))),
                (vec![Value::Range(8, 9)], Transition::Reject(13)),
                (vec![Value::Mask(0, 0xff)], Transition::Accept),
                (vec![Value::Mask(0x80, 0x80)], Transition::Accept),
            ],
        },
    };
    let options = State { name: "options".into(), body: vec![options], next: Transition::Accept };
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

/// What comes out for a packet at port 3: packets with their ports, and reasons.
fn process(interpreter: &mut Interpreter, packet: &[u8]) -> (Vec<(u16, Vec<u8>)>, Vec<Reason>) {
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
fn a_packet_leaves_as_its_headers_then_are() {
    let mut f = fixture();
    f.program.ingress = vec![assign(f.b, number(16, 0xabcd)), assign(f.spec, number(9, 4))];
    let mut interpreter = Interpreter::new(&f.program).expect("runs");
    let expected = vec![0, 1, 2, 3, 4, 0xab, 0xcd, 7, 0xee, 0xff];
    assert_eq!(process(&mut interpreter, &PACKET), (vec![(4, expected)], vec![]));
}

#[test]
fn parsers_end_with_the_error_that_fits() {
    let mut f = fixture();
    // The error leaves as the port.
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
fn a_field_of_variable_length_is_carried() {
    let mut f = fixture();
    f.program.ingress = vec![assign(f.kind, number(8, 1))];
    let mut interpreter = Interpreter::new(&f.program).expect("runs");
    let packet = [7, 0, 0, 0, 0, 0, 0, 0, 2, 0x55, 0x66, 9];
    let expected = [1, 0, 0, 0, 0, 0, 0, 0, 2, 0x55, 0x66, 9];
    assert_eq!(process(&mut interpreter, &packet).0, [(0, expected.to_vec())]);
    // Off and on again, it is empty.
    f.program.ingress = vec![
        stmt(StmtKind::SetValid { header: HeaderId(1), valid: false }),
        stmt(StmtKind::SetValid { header: HeaderId(1), valid: true }),
    ];
    let mut interpreter = Interpreter::new(&f.program).expect("runs");
    assert_eq!(process(&mut interpreter, &packet).0, [(0, vec![7, 0, 0, 0, 0, 0, 0, 0, 0, 9])]);
}

#[test]
fn fields_of_headers_that_are_not_valid_are_zero_and_stay_so() {
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

/// `f` with a table on `a` whose action sends to the port of its argument; a miss drops.
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
    f.program.tables = vec![pathcall_function::ir::Table {
        name: "route".into(),
        keys: vec![Key { expr: Expr::slot(Ty::Bit(32), f.a), kind, name: "a".into() }],
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

fn to(value: u128, prefix_bits: u16, port: u128) -> Entry {
    Entry { keys: vec![Match { value, prefix_bits }], action: ActionId(1), args: vec![port] }
}

#[test]
fn the_longest_prefix_wins_until_it_goes() {
    let f = routed(MatchKind::Lpm, 8);
    let mut interpreter = Interpreter::new(&f.program).expect("runs");
    let route = TableId(0);
    assert_eq!(process(&mut interpreter, &PACKET), (vec![], vec![Reason::Program]));
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
    assert_eq!(interpreter.counter(CounterId(0), 1), Count { packets: 5, bytes: 50 });
    assert_eq!(interpreter.dropped(Reason::Program), 1);
}

#[test]
fn entries_that_do_not_fit_are_refused_by_what_is_wrong() {
    let f = routed(MatchKind::Exact, 1);
    let mut i = Interpreter::new(&f.program).expect("runs");
    let route = TableId(0);
    assert!(matches!(i.insert(route, &to(1, 31, 1)), Err(TableError::Width { what: "prefix", .. })));
    assert!(matches!(i.insert(route, &to(1 << 32, 32, 1)), Err(TableError::Width { what: "key", .. })));
    assert!(matches!(i.insert(route, &to(1, 32, 512)), Err(TableError::Width { what: "argument", .. })));
    assert!(matches!(
        i.insert(route, &Entry { action: ActionId(7), ..to(1, 32, 1) }),
        Err(TableError::Action { action: 7, .. })
    ));
    assert!(matches!(
        i.insert(route, &Entry { args: vec![], ..to(1, 32, 1) }),
        Err(TableError::Number { what: "arguments", .. })
    ));
    assert!(matches!(i.remove(route, &to(1, 32, 1).keys), Err(TableError::Missing { .. })));
    i.insert(route, &to(1, 32, 1)).expect("fits");
    assert!(matches!(i.insert(route, &to(1, 32, 1)), Err(TableError::Exists { .. })));
    assert!(matches!(i.insert(route, &to(2, 32, 1)), Err(TableError::Full { size: 1, .. })));
    assert_eq!(i.entries(route), 1);
}

#[test]
fn hits_leave_a_mark_until_it_is_taken() {
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
fn registers_wrap_and_end_where_they_end() {
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
fn what_leaves_is_cut() {
    let mut f = fixture();
    f.program.ingress = vec![stmt(StmtKind::Truncate(number(32, 3)))];
    let mut interpreter = Interpreter::new(&f.program).expect("runs");
    assert_eq!(process(&mut interpreter, &PACKET).0, [(0, PACKET[..3].to_vec())]);
    f.program.ingress = vec![stmt(StmtKind::Truncate(number(32, 11)))];
    let mut interpreter = Interpreter::new(&f.program).expect("runs");
    assert_eq!(process(&mut interpreter, &PACKET).0, [(0, PACKET.to_vec())]);
}

#[test]
fn a_multicast_reaches_its_ports_and_a_clone_goes_first() {
    let mut f = fixture();
    let group = SlotId(f.spec.0 + 3);
    f.program.ingress = vec![
        stmt(StmtKind::Clone { session: number(9, 8) }),
        assign(f.kind, number(8, 1)),
        assign(group, number(16, 2)),
    ];
    // What kind of copy it is leaves in a field.
    f.program.egress = vec![assign(f.b, cast(16, Expr::slot(Ty::Bit(32), SlotId(f.spec.0 + 4))))];
    let mut interpreter = Interpreter::new(&f.program).expect("runs");
    assert_eq!(process(&mut interpreter, &PACKET).1, [Reason::NoGroup]);
    interpreter.set_group(2, &[(4, 0), (5, 1)]);
    let (packets, _) = process(&mut interpreter, &PACKET);
    let short: Vec<_> = packets.iter().map(|(port, bytes)| (*port, bytes[0], bytes[6])).collect();
    assert_eq!(short, [(8, 0, 1), (4, 1, 5), (5, 1, 5)]);
}

#[test]
fn what_comes_in_for_ever_ends() {
    let mut f = fixture();
    f.program.ingress = vec![stmt(StmtKind::Recirculate)];
    let mut interpreter = Interpreter::new(&f.program).expect("runs");
    assert_eq!(process(&mut interpreter, &PACKET), (vec![], vec![Reason::Recirculated]));
    f.program.ingress = vec![];
    f.program.egress = vec![stmt(StmtKind::Clone { session: number(9, 8) })];
    let mut interpreter = Interpreter::new(&f.program).expect("runs");
    let (packets, reasons) = process(&mut interpreter, &PACKET);
    assert_eq!(packets.len(), 1 + CLONES_MAX);
    assert_eq!(reasons.len(), 1, "the clone of the last clone: {reasons:?}");
}

#[test]
fn actions_that_apply_themselves_are_refused() {
    let mut f = routed(MatchKind::Exact, 1);
    f.program.actions[1].body = vec![stmt(StmtKind::Apply { table: TableId(0), hit: None, action: None })];
    let refused = Interpreter::new(&f.program).expect_err("without end");
    assert_eq!(refused, CompileError::Depth { action: "to".into() });
}

#[test]
fn a_handler_gives_its_response_or_ends_the_packet() {
    let mut f = fixture();
    f.program.ingress = vec![stmt(StmtKind::Remote)];
    let mut interpreter = Interpreter::new(&f.program).expect("runs");
    let mut ports = Vec::new();
    let (a, spec) = (f.a, f.spec);
    for verdict in [Verdict::Respond, Verdict::Drop] {
        let mut remote = |call: &mut Call<'_>| {
            assert_eq!((call.get(a), call.packet), (0x0102_0304, &PACKET[..]));
            call.set(spec, 9, 6);
            verdict
        };
        interpreter.process_with(0, 0, &PACKET, &mut remote, &mut |output| match output {
            Output::Packet { port, .. } => ports.push(port),
            other => assert_eq!(other, Output::Dropped(Reason::Handler)),
        });
    }
    assert_eq!(ports, [6]);
}
