//! Tests of handlers in each kind of sandbox: tables, time-outs, traps, compiler errors.

use std::path::PathBuf;
use std::time::Duration;

use pathcall_netfn::handler::{
    CHandler, CHandlerOutcome, CInterface, Config, GuestBuildError, HandlerStartError, SandboxKind, TrapReason,
};
use pathcall_p4::ir::{
    Action, ActionId, CSource, Expr, HandlerDecl, Match, MatchKind, Parser, Partition, Program, Register, Slot, SlotId,
    SlotKind, SourceSpan, Stmt, StmtKind, Table, TableEntry, TableId, TableKey, Ty,
};

const STATE: &str = r"
    static uint32_t calls;
    static float mean;
    static int sums[4];
    static int depth(int n) { volatile char frame[200]; frame[n % 200] = 1; return n ? depth(n - 1) + frame[n % 200] : 0; }
    void remote_start(void)
    {
        struct flows_entry entry;
        for (uint64_t cursor = 0; flows_next(&cursor, &entry);)
            sums[entry.to.port % 4]++;
    }
    void remote_expired_flows(const struct flows_entry *entry) { if (entry->key.addr == 77) sums[3] += 100; }
    void remote_ports_changed(void) { sums[2] += 1000; }
";

const BODY: &str = r"
    calls++;
    switch (req->what) {
    case 0: res->addr = req->addr + 1; res->port = calls; res->f = req->f * 0.5f + sqrtf(16); break;
    case 1: if (!flows_apply(req, res)) {
                struct flows_entry entry = { .key = { req->addr }, .action = flows_to, .to = { 5, req->port } };
                res->port = flows_insert(&entry, 0) ? 0 : 0xffff;
            }
            break;
    case 2: { struct flows_key key = { req->addr }; res->port = flows_remove(&key); break; }
    case 3: { const uint8_t *p = packet(2, 4); res->port = p ? p[0] << 8 | p[3] : 0xffff; break; }
    case 4: if (req->addr) { drop(NO_ROUTE); } else drop(); res->port = 9; break;
    case 5: count(SEEN); count(SEEN); count(OTHER); res->port = now_ms(); break;
    case 6: sequence_write(req->addr, 0x123456789); res->addr = sequence_read(req->addr); break;
    case 7: res->port = ports_at(req->addr); res->addr = ports_count(); break;
    case 8: res->addr = sums[req->addr % 4]; break;
    case 9: { struct routes_key key = { 7, req->addr }; struct routes_entry entry;
              res->port = routes_find(&key, &entry) ? entry.via.hop : 0; break; }
    case 10: { struct routes_entry entry = { .key = { 7, req->addr, req->port }, .action = routes_via, .via = { calls } };
              res->port = routes_insert(&entry, 0); break; }
    case 11: { const struct flows_entry *e = flows_lookup(&(struct flows_key){ req->addr }); res->port = e ? e->to.port : 0; break; }
    case 12: { struct flows_key key = { req->addr }; res->port = flows_timeout(&key, req->port); break; }
    case 20: ((volatile int *)sums)[req->addr] = 1; break;
    case 21: res->addr = 7 / (req->addr & 0x1000); break;
    case 22: *(volatile int *)(uintptr_t)(req->addr & 0x1000) = 1; break;
    case 23: __builtin_trap();
    case 24: res->addr = depth(req->addr); break;
    case 25: for (;;) flows_count();
    }
";

/// Program with two tables, a register and a partition; its text begins at lines 10 and 30 of `f.p4c`.
fn program(state: &str, body: &str) -> Program {
    let slot = |name: &str, ty, kind| Slot { name: name.into(), ty, kind };
    let (bit8, bit16, bit32) = (Ty::Bit(8), Ty::Bit(16), Ty::Bit(32));
    let slots = vec![
        slot("req.what", bit8, SlotKind::Request),
        slot("req.addr", bit32, SlotKind::Request),
        slot("req.port", bit16, SlotKind::Request),
        slot("req.f", Ty::Float, SlotKind::Request),
        slot("res.addr", bit32, SlotKind::Response),
        slot("res.port", bit16, SlotKind::Response),
        slot("res.f", Ty::Float, SlotKind::Response),
        slot("pre.flight", Ty::Bool, SlotKind::Local),
        slot("pre.to.addr", bit32, SlotKind::Local),
        slot("pre.to.port", bit16, SlotKind::Local),
        slot("pre.via.hop", bit16, SlotKind::Local),
        slot("md.tenant", Ty::Bit(12), SlotKind::Metadata),
    ];
    let key = |slot, ty, kind, name: &str| TableKey { expr: Expr::slot(ty, SlotId(slot)), kind, name: name.into() };
    let assign = |to, value| Stmt { kind: StmtKind::Assign { to: SlotId(to), value }, at: SourceSpan::default() };
    let table = |name: &str, keys, action, size, idle_timeout_ms| Table {
        name: name.into(),
        keys,
        actions: vec![ActionId(action), ActionId(2)],
        default: (ActionId(2), Vec::new()),
        entries: Vec::new(),
        size,
        mirrored: true,
        idle_timeout_ms,
        at: SourceSpan::default(),
    };
    let text = |text: &str, start| CSource { text: text.into(), at: SourceSpan { file: 0, start, end: start } };
    Program {
        name: "f".into(),
        slots,
        headers: Vec::new(),
        parser: Parser::default(),
        verify: Vec::new(),
        ingress: Vec::new(),
        egress: Vec::new(),
        compute: Vec::new(),
        deparser: Vec::new(),
        tables: vec![
            table("pre.flows", vec![key(1, bit32, MatchKind::Exact, "req.addr")], 0, 3, Some(1000)),
            table(
                "pre.routes",
                vec![key(11, Ty::Bit(12), MatchKind::Exact, "md.tenant"), key(1, bit32, MatchKind::Lpm, "req.addr")],
                1,
                100,
                None,
            ),
        ],
        actions: vec![
            Action {
                name: "pre.to".into(),
                params: vec![SlotId(8), SlotId(9)],
                body: vec![
                    assign(4, Expr::slot(bit32, SlotId(8))),
                    assign(
                        5,
                        Expr::binary(
                            bit16,
                            pathcall_p4::ir::Binary::Add,
                            Expr::slot(bit16, SlotId(9)),
                            Expr::constant(bit16, 1),
                        ),
                    ),
                ],
            },
            Action { name: "pre.via".into(), params: vec![SlotId(10)], body: Vec::new() },
            Action { name: "NoAction".into(), params: Vec::new(), body: Vec::new() },
        ],
        registers: vec![Register { name: "pre.sequence".into(), ty: bit32, size: 16, mirrored: true }],
        counters: Vec::new(),
        partitions: vec![Partition { name: "ports".into(), ty: bit16, first: 1024, last: 65535 }],
        handler: Some(HandlerDecl {
            request: (0..4).map(SlotId).collect(),
            response: (4..7).map(SlotId).collect(),
            flow: Vec::new(),
            flight: SlotId(7),
            defines: "#define UNUSED 1\n".into(),
            state: text(state, 10),
            body: text(body, 30),
        }),
    }
}

fn place(at: SourceSpan) -> Option<(String, usize, usize)> {
    Some(("f.p4c".into(), at.start as usize, 5))
}

fn cache() -> PathBuf {
    std::env::temp_dir().join(format!("pathcall-test-handlers-{}", std::process::id() / 1_000_000))
}

/// Handler in each kind of sandbox that this machine has tools for.
fn handlers(state: &str, body: &str) -> Vec<(Program, CHandler)> {
    let program = program(state, body);
    let start = |kind| {
        // A machine that stands still counts this time as the handler's.
        let config = Config { kind: Some(kind), limit: Duration::from_secs(1) };
        match CHandler::start(&program, &place, &config, &cache(), 0) {
            Ok(handler) => Some((program.clone(), handler)),
            Err(HandlerStartError::Build(GuestBuildError::MissingTools(lacking))) => {
                assert!(std::env::var_os("PATHCALL_ROOT_TESTS").is_none(), "{lacking}");
                eprintln!("skipped: {kind:?}: {lacking}");
                None
            }
            Err(error) => panic!("{kind:?}: {error}"),
        }
    };
    [SandboxKind::Wasm, SandboxKind::Process, SandboxKind::Native].into_iter().filter_map(start).collect()
}

/// Calls the handler; returns the outcome, and `addr`, `port`, `f` of the response.
fn call(handler: &mut CHandler, now_ms: u64, case: u8, addr: u32, port: u16) -> (CHandlerOutcome, u32, u16, f32) {
    let request = handler.request();
    request[0] = case;
    request[4..8].copy_from_slice(&addr.to_le_bytes());
    request[8..10].copy_from_slice(&port.to_le_bytes());
    request[12..16].copy_from_slice(&3f32.to_le_bytes());
    let outcome = handler.call(now_ms, &[0, 1, 2, 3, 4, 5, 6, 7]);
    let response = handler.response();
    (
        outcome,
        u32::from_le_bytes(response[..4].try_into().unwrap()),
        u16::from_le_bytes(response[4..6].try_into().unwrap()),
        f32::from_le_bytes(response[8..12].try_into().unwrap()),
    )
}

/// Number of entries of a table.
fn count(handler: &CHandler, table: TableId) -> usize {
    let mut count = 0;
    pathcall_netfn::serve::FunctionHandler::each_entry(handler, table, &mut |_| count += 1);
    count
}

#[test]
fn handler_accesses_request_packet_and_tables() {
    for (_, mut handler) in handlers(STATE, BODY) {
        let kind = handler.kind();
        let done = CHandlerOutcome::Done;
        assert_eq!(call(&mut handler, 5, 0, 41, 0), (done, 42, 1, 5.5), "{kind:?}");
        assert_eq!(call(&mut handler, 5, 0, 41, 0).2, 2, "variables keep their state");
        // The first packet inserts an entry, the second finds it: action `to` returns the address, and the port plus
        // one.
        assert_eq!(call(&mut handler, 5, 1, 9, 80), (done, 0, 0, 0.0));
        assert_eq!(call(&mut handler, 5, 1, 9, 80), (done, 5, 81, 0.0));
        assert_eq!(call(&mut handler, 5, 11, 9, 0).2, 80);
        assert_eq!((call(&mut handler, 5, 1, 10, 1).2, call(&mut handler, 5, 1, 11, 2).2), (0, 0));
        assert_eq!(call(&mut handler, 5, 1, 12, 2).2, 0xffff, "the table is full");
        assert_eq!((call(&mut handler, 5, 2, 9, 0).2, call(&mut handler, 5, 2, 9, 0).2), (1, 0));
        assert_eq!(call(&mut handler, 5, 3, 0, 0).2, 0x0205);
        assert_eq!(call(&mut handler, 1234, 5, 0, 0).2, 1234);
        assert_eq!(call(&mut handler, 5, 4, 0, 0).0, CHandlerOutcome::Dropped(2));
        assert_eq!(call(&mut handler, 5, 4, 1, 0).0, CHandlerOutcome::Dropped(3));
        assert_eq!(call(&mut handler, 5, 6, 4_000_000, 0).1, 0x2345_6789, "cells have 32 bits");
        assert_eq!(call(&mut handler, 5, 7, 10, 0), (done, 65535 - 1023, 1034, 0.0));
        handler.set_ranges(0, &[(2000, 2009), (3000, 3009)], 6);
        assert_eq!(call(&mut handler, 5, 7, 12, 0), (done, 20, 3002, 0.0));
        assert_eq!(call(&mut handler, 5, 8, 2, 0).1, 1000, "the handler has the new ranges");
        let reasons = &handler.state().reasons;
        let expected = [("SEEN", 2), ("OTHER", 1), ("dropped by the handler", 1), ("NO_ROUTE", 1)];
        assert!(reasons.iter().map(|(name, count)| (name.as_str(), *count)).eq(expected), "{reasons:?}");
    }
}

#[test]
fn prefix_lookup_returns_longest_match() {
    for (_, mut handler) in handlers(STATE, BODY) {
        assert_eq!(call(&mut handler, 0, 10, 0x0a00_0000, 8).2, 1);
        assert_eq!(call(&mut handler, 0, 10, 0x0a01_0000, 16).2, 1);
        assert_eq!(call(&mut handler, 0, 9, 0x0a02_0000, 0).2, 1);
        assert_eq!(call(&mut handler, 0, 9, 0x0a01_0203, 0).2, 2);
        assert_eq!(call(&mut handler, 0, 9, 0x0b00_0000, 0).2, 0);
        assert_eq!(call(&mut handler, 0, 10, 0x0a01_0000, 33).2, 0, "prefix longer than the key");
    }
}

#[test]
fn idle_entries_expire_and_are_passed_to_handler() {
    for (_, mut handler) in handlers(STATE, BODY) {
        assert_eq!(call(&mut handler, 0, 1, 77, 80).2, 0);
        assert_eq!(call(&mut handler, 0, 1, 78, 80).2, 0);
        assert_eq!(call(&mut handler, 0, 12, 78, 5000).2, 1);
        assert!(handler.next_ms().is_some_and(|at| at <= 1016));
        // Each use restarts the idle time.
        assert_eq!(call(&mut handler, 900, 1, 77, 80).2, 81);
        handler.expire(1500);
        assert_eq!(handler.state().tables[0].len(), 2);
        handler.expire(1950);
        assert_eq!((handler.state().tables[0].len(), call(&mut handler, 1950, 8, 3, 0).1), (1, 100));
    }
}

#[test]
fn trap_loses_only_its_packet() {
    for (program, mut handler) in handlers(STATE, BODY) {
        let kind = handler.kind();
        let mut other = handler.new_instance(&program, &Config { kind: Some(kind), ..Config::default() }, 0).unwrap();
        let cases = [
            (20, 1 << 28, TrapReason::Bounds, Some("f.p4c:52")),
            (21, 0, TrapReason::Divide, Some("f.p4c:53")),
            (22, 0, TrapReason::Bounds, Some("f.p4c:54")),
            (23, 0, TrapReason::Unreachable, None),
            (24, 100_000_000, TrapReason::Bounds, None),
            (25, 0, TrapReason::Time, None),
        ];
        assert_eq!(call(&mut handler, 0, 1, 9, 2).2, 0, "an entry is inserted");
        for (index, (case, addr, reason, line)) in cases.into_iter().enumerate() {
            assert_eq!(call(&mut other, 0, 0, 0, 0).2, index as u16 + 1, "the other instance is not affected");
            let got = call(&mut handler, 1, case, addr, 0).0;
            let stack = case == 24 && got == CHandlerOutcome::Trapped(TrapReason::Stack);
            assert!(got == CHandlerOutcome::Trapped(reason) || stack, "{kind:?}, {case}: {got:?}, not {reason:?}");
            let trapped = handler.take_trap_reports();
            assert_eq!((trapped.len(), trapped[0].during), (1, "remote_handler"));
            if line.is_some() {
                assert_eq!(trapped[0].line.as_deref(), line, "{}", trapped[0]);
            }
            // The memory is fresh, with the state that `remote_start` rebuilt from the table, which was kept.
            assert_eq!(call(&mut handler, 1, 0, 41, 0), (CHandlerOutcome::Done, 42, 1, 5.5), "{kind:?}, {case}");
            assert_eq!((call(&mut handler, 1, 8, 2, 0).1, call(&mut handler, 1, 11, 9, 0).2), (1, 2));
        }
        assert_eq!(handler.counts().traps.iter().sum::<u64>(), cases.len() as u64);
        assert_eq!(handler.counts().paused, 0);
    }
}

#[test]
fn repeatedly_trapping_handler_pauses_longer() {
    for (_, mut handler) in
        handlers("static volatile int zero; void remote_start(void) { zero = 7 / zero; }", "res->port = 1;")
    {
        let mut outcomes = Vec::new();
        for now_ms in 0..2000 {
            outcomes.push(call(&mut handler, now_ms, 0, 0, 0).0);
        }
        assert!(outcomes.iter().all(|outcome| *outcome == CHandlerOutcome::Paused), "{:?}", outcomes[0]);
        let traps: u64 = handler.counts().traps.iter().sum();
        assert!((5..20).contains(&traps), "{traps} starts in two seconds");
    }
}

#[test]
fn c_compiler_errors_point_into_program_source() {
    for (state, body, line) in [
        (STATE, BODY.replace("calls++;", "calls++; calls.x = 1;"), 31),
        (&STATE.replace("static float mean;", "static flaot mean;") as &str, BODY.to_owned(), 12),
    ] {
        let program = program(state, &body);
        for kind in [SandboxKind::Wasm, SandboxKind::Process, SandboxKind::Native] {
            let config = Config { kind: Some(kind), ..Config::default() };
            match CHandler::start(&program, &place, &config, &cache(), 0) {
                Err(HandlerStartError::Build(GuestBuildError::Compile(messages))) => {
                    let (file, at, _) = messages[0].at.clone().expect("a source position");
                    assert_eq!((file.as_str(), at), ("f.p4c", line), "{kind:?}: {messages:?}");
                }
                Err(HandlerStartError::Build(GuestBuildError::MissingTools(_))) => {}
                other => panic!("{kind:?}: {other:?}"),
            }
        }
    }
}

#[test]
fn function_handler_uses_program_table_numbers() {
    use pathcall_netfn::place::LeasableTables;
    use pathcall_netfn::serve::{FunctionHandler as _, HandlerOutcome as Served, TableChange};
    use pathcall_p4::ir::RegisterId;
    for (_, mut handler) in handlers(STATE, BODY) {
        let (flows, routes) = (TableId(0), TableId(1));
        let exact = |value, prefix_bits| Match { value, prefix_bits };
        let mut response = [0; 3];
        let half = u128::from(1f32.to_bits());
        assert_eq!(handler.handle(5, &[0, 41, 0, half], &[], &mut response), Served::Respond);
        assert_eq!((response, handler.touched()), ([42, 1, u128::from(4.5f32.to_bits())], None));
        // The packet inserts an entry, which is the entry that the packet is about.
        assert_eq!(handler.handle(5, &[1, 9, 80, 0], &[], &mut response), Served::Respond);
        let touched = handler.touched().expect("the inserted entry");
        assert_eq!((touched.table, &touched.keys[..], &touched.key[..]), (flows, &[exact(9, 32)][..], &[9][..]));
        let Some((table, TableChange::Put(entry))) = handler.poll_change() else { panic!("no change") };
        assert_eq!((table, &entry.args[..], handler.poll_change()), (flows, &[5, 80][..], None));
        assert_eq!((handler.lookup(flows, &[9]), handler.lookup(flows, &[8])), (Some(entry.clone()), None));

        let wide = TableEntry { keys: vec![exact(7, 12), exact(0x0a00_0000, 8)], action: ActionId(1), args: vec![3] };
        let long = TableEntry { keys: vec![exact(7, 12), exact(0x0a01_0000, 16)], action: ActionId(1), args: vec![4] };
        assert!(handler.put(routes, &wide) && !handler.has_more_specific(routes, &wide.keys));
        assert!(
            handler.put(routes, &long)
                && handler.has_more_specific(routes, &wide.keys)
                && !handler.has_more_specific(routes, &long.keys)
        );
        assert_eq!((handler.widths(routes), handler.lpm(routes), handler.lpm(flows)), (&[12, 32][..], Some(1), None));
        assert_eq!(handler.handle(5, &[9, 0x0a01_0203, 0, 0], &[], &mut response), Served::Respond);
        let touched = handler.touched().expect("the route that was found");
        assert_eq!((response[1], touched.keys, &touched.key[..]), (4, long.keys.clone(), &[7, 0x0a01_0203][..]));
        assert_eq!(
            (handler.lookup(routes, &[7, 0x0a02_0000]), handler.entry(routes, &long.keys)),
            (Some(wide), Some(long.clone()))
        );
        assert!(handler.remove(routes, &long.keys) && !handler.remove(routes, &long.keys));
        assert!(!handler.put(flows, &long), "the entry belongs to another table");
        assert_eq!((count(&handler, routes), count(&handler, flows)), (1, 1));

        // A leased entry does not expire.
        handler.set_leased(5, flows, &entry.keys, true);
        pathcall_netfn::serve::FunctionHandler::expire(&mut handler, 100_000);
        assert_eq!(count(&handler, flows), 1);
        handler.set_leased(100_000, flows, &entry.keys, false);
        pathcall_netfn::serve::FunctionHandler::expire(&mut handler, 101_100);
        assert_eq!(count(&handler, flows), 0);
        let last = std::iter::from_fn(|| handler.poll_change()).last();
        assert_eq!(last, Some((flows, TableChange::Removed(entry.keys))));

        handler.set_register(RegisterId(0), 3, 1 << 40 | 7);
        assert_eq!((handler.register(RegisterId(0), 3), handler.register(RegisterId(0), 4)), (7, 0));
        assert_eq!(handler.handle(5, &[4, 0, 0, 0], &[], &mut response), Served::Drop(0));
        assert_eq!(handler.handle(5, &[20, 1 << 28, 0, 0], &[], &mut response), Served::Trap);
    }
}

#[test]
fn file_name_is_escaped_in_line_directive() {
    let named = |_| Some(("x\\\n\"\nint evil;\n//".into(), 7, 1));
    let text = CInterface::new(&program(STATE, BODY), &named).expect("a C interface").text;
    assert!(text.contains("#line 7 \"x\\\\?") && text.lines().all(|line| line.trim() != "int evil;"), "{text}");
}
