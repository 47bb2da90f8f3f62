//! Unit tests of the host calls.

use pathcall_sandbox::Host;
use proptest::prelude::*;

use super::host_state::{HandlerState, HostCall, REASONS_MAX};
use crate::mirror::MirroredTable;
use pathcall_p4::ir::{
    Action, ActionId, Expr, MatchKind, Parser, Program, Slot, SlotId, SlotKind, SourceSpan, Table, TableId, TableKey,
    Ty,
};

/// Program with a table of flows (32-bit key) and a table of routes (tenant and prefix).
fn program() -> Program {
    let (bit12, bit16, bit32) = (Ty::Bit(12), Ty::Bit(16), Ty::Bit(32));
    let slots = [("req.addr", bit32), ("md.tenant", bit12), ("pre.to.addr", bit32), ("pre.to.port", bit16)];
    let slots = slots.into_iter().chain([("pre.via.hop", bit16)]);
    let key = |slot, ty, kind, name: &str| TableKey { expr: Expr::slot(ty, SlotId(slot)), kind, name: name.into() };
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
    let flow = key(0, bit32, MatchKind::Exact, "req.addr");
    let route = vec![key(1, bit12, MatchKind::Exact, "md.tenant"), key(0, bit32, MatchKind::Lpm, "req.addr")];
    let action = |name: &str, params: &[u32]| Action {
        name: name.into(),
        params: params.iter().copied().map(SlotId).collect(),
        body: Vec::new(),
    };
    Program {
        name: "f".into(),
        slots: slots.map(|(name, ty)| Slot { name: name.into(), ty, kind: SlotKind::Local }).collect(),
        headers: Vec::new(),
        parser: Parser::default(),
        verify: Vec::new(),
        ingress: Vec::new(),
        egress: Vec::new(),
        compute: Vec::new(),
        deparser: Vec::new(),
        tables: vec![table("pre.flows", vec![flow], 0, 3, Some(1000)), table("pre.routes", route, 1, 100, None)],
        actions: vec![action("pre.to", &[2, 3]), action("pre.via", &[4]), action("NoAction", &[])],
        registers: Vec::new(),
        counters: Vec::new(),
        partitions: Vec::new(),
        handler: None,
    }
}

proptest! {
    /// Any host call with any sizes returns without a panic.
    #[test]
    fn arbitrary_host_calls_never_panic(
        calls in proptest::collection::vec(
            (0u32..14, 0u32..4, proptest::collection::vec(any::<u8>(), 0..80), 0usize..1200,
             prop_oneof![0u64..20, any::<u64>()]),
            1..60,
        ),
    ) {
        let program = program();
        let tables = (0..2).map(|id| MirroredTable::new(&program, TableId(id), 0).unwrap()).collect();
        let mut state = HandlerState::new(tables, vec![32], 1);
        state.ranges[0] = vec![(1, 5), (9, 9)];
        let mut output = vec![0xee; 1200];
        for (op, which, mut input, out, value) in calls {
            // Few random sizes are valid, so every second call gets a valid one.
            if value % 2 == 0 && input.len() >= 28 {
                input.truncate([4, 16, 12, 20, 8][value as usize / 2 % 5]);
            }
            let out = if value % 3 == 0 { [16, 20, 0, 24][value as usize / 3 % 4] } else { out };
            HostCall { state: &mut state, packet: &[1, 2, 3] }.call(op, which, &input, &mut output[..out], value);
        }
        prop_assert!(state.tables[0].len() <= 3 && state.reasons.len() <= REASONS_MAX);
    }
}
