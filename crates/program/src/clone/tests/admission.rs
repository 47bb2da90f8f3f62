//! Tests of admission: senders, valid pools, and separation of pools.

use super::*;

#[test]
fn only_callers_request_and_only_own_server_answers() {
    let forged = [
        // Request by a server; answer by a caller; a server under another id, or without its flag; a caller with the
        // flag.
        frame(base(FrameKind::CloneRequest, FIRST, 0), head()),
        frame(BaseRepr { flags: Flags::FROM_SERVER, ..base(FrameKind::CloneReply, CALLER, 2) }, head()),
        frame(
            BaseRepr { flags: Flags::FROM_SERVER, ..base(FrameKind::CloneReply, FIRST, CALLER) },
            CloneRepr { sid: 1, ..head() },
        ),
        frame(
            BaseRepr { flags: Flags::FROM_SERVER, ..base(FrameKind::CloneReply, FIRST, CALLER) },
            CloneRepr { sid: 2, ..head() },
        ),
        frame(base(FrameKind::CloneReply, FIRST, CALLER), head()),
        frame(BaseRepr { flags: Flags::FROM_SERVER, ..base(FrameKind::CloneRequest, CALLER, 0) }, head()),
    ];
    let mut program = program(2);
    for bytes in forged {
        assert_eq!(run(&mut program, bytes).0, FrameAction::Drop(FrameDropReason::Forged));
    }
    assert_eq!(states(&program, GAID), [0, 0]);
}

#[test]
fn frame_not_admitted_is_forwarded_unchanged() {
    type Change = fn(&mut BaseRepr);
    let changes: [Change; 3] = [|b| b.src_incarnation = 6, |b| b.src = 55, |b| b.src = 0];
    for change in changes {
        let mut program = program(2);
        let mut wrong = base(FrameKind::CloneRequest, CALLER, FIRST + 1);
        change(&mut wrong);
        let (action, bytes) = run(&mut program, frame(wrong, head()));
        assert_eq!((action, head_of(&bytes).req_id), (FrameAction::Forward(FIRST + 1), 0));
        assert!(Base::new_checked(&bytes).expect("a frame").has(Flags::NOT_ADMITTED));
        wrong.dst = 0;
        assert_eq!(run(&mut program, frame(wrong, head())).0, FrameAction::Drop(FrameDropReason::NotAdmitted));
    }
    let mut program = program(2);
    let of_none = BaseRepr { gaid: 8, ..base(FrameKind::CloneRequest, CALLER, FIRST) };
    assert_eq!(run(&mut program, frame(of_none, head())).0, FrameAction::Drop(FrameDropReason::NotAdmitted));
}

#[test]
fn tokens_are_checked_first_and_renewed_on_both_passes() {
    let mut program = program(2);
    program.tables_mut().authenticate(GAID, Some(KEY)).expect("installed");
    assert_eq!(run(&mut program, request(head())).0, FrameAction::Drop(FrameDropReason::Unauthentic));
    let mut room = [0; pathcall_wire::MAX_FRAME];
    let sealed = KEY.insert_token(&request(head()), &mut room).expect("there is room").to_vec();
    let (action, mut bytes) = run(&mut program, sealed);
    assert!(action == FrameAction::Clone(FIRST) && KEY.has_signed(&bytes), "{action:?}");
    assert_eq!(program.recirculate(&mut bytes).action, FrameAction::Forward(FIRST + 1));
    assert!(KEY.has_signed(&bytes));
    assert_eq!(head_of(&bytes).clo, CLONE);
}

/// Servers of one pool cannot have the answers of another pool filtered, whatever ids they use.
#[test]
fn pools_are_isolated_from_each_other() {
    let mut program = program(2);
    program.tables_mut().install_pool(InstalledPool { gaid: 8, version: 1, servers: vec![200, 201] }).expect("fits");
    for endpoint in [3, 200, 201] {
        admit(&mut program, endpoint, 8);
    }
    let (_, forwarded) = run(&mut program, request(head()));
    let of_other_pool = BaseRepr { gaid: 8, flags: Flags::FROM_SERVER, ..base(FrameKind::CloneReply, 200, 3) };
    assert_eq!(
        run(&mut program, frame(of_other_pool, CloneRepr { sid: 0, ..head_of(&forwarded) })).0,
        FrameAction::Forward(3)
    );
    assert_eq!(run(&mut program, answer(&forwarded, 1, 5)).0, FrameAction::Forward(CALLER));
    assert_eq!(states(&program, 8), [0, 0]);
    let across = BaseRepr { gaid: 8, ..base(FrameKind::CloneRequest, CALLER, 0) };
    assert_eq!(run(&mut program, frame(across, head())).0, FrameAction::Drop(FrameDropReason::NotAdmitted));
}

#[test]
fn invalid_pool_is_refused() {
    let mut program = program(2);
    let tables = program.tables_mut();
    let pool = |gaid, servers| InstalledPool { gaid, version: 9, servers };
    let wide = (0..=MAX_SERVERS as u32).collect();
    assert!(matches!(
        tables.install_pool(pool(GAID, wide)),
        Err(TableChangeError::Range { what: "servers", end: 513, .. })
    ));
    assert_eq!(tables.install_pool(pool(GAID, vec![4, 5, 4])), Err(TableChangeError::Twice(4)));
    tables.install_pool(pool(8, vec![])).expect("the second");
    assert!(matches!(
        tables.install_pool(pool(9, vec![])),
        Err(TableChangeError::Range { what: "pools", size: 2, .. })
    ));
    let application =
        InstalledApplication { gaid: 8, epoch: 1, owner: 1, row_base: 0, rows: 1, lane_base: 0, width: 1 };
    assert_eq!(tables.install(application), Err(TableChangeError::Taken { gaid: 8, what: "a pool" }));
    tables.remove(8).expect("there");
    tables.install(application).expect("free again");
    let taken = TableChangeError::Taken { gaid: 8, what: "an application" };
    assert_eq!(tables.install_pool(pool(8, vec![])), Err(taken));
    assert_eq!(tables.pools().next().expect("one").0.version, 1, "unchanged");
    tables.install_pool(pool(9, vec![])).expect("there is room again");
}
