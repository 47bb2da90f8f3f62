//! Who is heard, what a pool may be, and that pools do not meet.

use super::*;

#[test]
fn only_callers_ask_and_only_the_server_itself_answers() {
    let forged = [
        // A server asks; a caller answers; a server in another's name, or without its flag; a caller with it.
        frame(base(Kind::CloneRequest, FIRST, 0), head()),
        frame(BaseRepr { flags: Flags::FROM_SERVER, ..base(Kind::CloneReply, CALLER, 2) }, head()),
        frame(
            BaseRepr { flags: Flags::FROM_SERVER, ..base(Kind::CloneReply, FIRST, CALLER) },
            CloneRepr { sid: 1, ..head() },
        ),
        frame(
            BaseRepr { flags: Flags::FROM_SERVER, ..base(Kind::CloneReply, FIRST, CALLER) },
            CloneRepr { sid: 2, ..head() },
        ),
        frame(base(Kind::CloneReply, FIRST, CALLER), head()),
        frame(BaseRepr { flags: Flags::FROM_SERVER, ..base(Kind::CloneRequest, CALLER, 0) }, head()),
    ];
    let mut program = program(2);
    for bytes in forged {
        assert_eq!(run(&mut program, bytes).0, Action::Drop(Reason::Forged));
    }
    assert_eq!(program.tables().loads(GAID), Ok((&[0, 0][..], &[0, 0][..])));
}

#[test]
fn what_is_not_admitted_passes_untouched_if_it_can() {
    type Change = fn(&mut BaseRepr);
    let changes: [Change; 3] = [|b| b.src_incarnation = 6, |b| b.src = 55, |b| b.src = 0];
    for change in changes {
        let mut program = program(2);
        let mut wrong = base(Kind::CloneRequest, CALLER, FIRST + 1);
        change(&mut wrong);
        let (action, bytes) = run(&mut program, frame(wrong, head()));
        assert_eq!((action, says(&bytes).req_id), (Action::Forward(FIRST + 1), 0));
        assert!(Base::new_checked(&bytes).expect("a frame").has(Flags::NOT_ADMITTED));
        wrong.dst = 0;
        assert_eq!(run(&mut program, frame(wrong, head())).0, Action::Drop(Reason::NotAdmitted));
    }
    let mut program = program(2);
    let of_none = BaseRepr { gaid: 8, ..base(Kind::CloneRequest, CALLER, FIRST) };
    assert_eq!(run(&mut program, frame(of_none, head())).0, Action::Drop(Reason::NotAdmitted));
}

#[test]
fn tokens_are_looked_at_first_and_made_anew_on_both_passes() {
    let mut program = program(2);
    program.tables_mut().authenticate(GAID, Some(KEY)).expect("installed");
    assert_eq!(run(&mut program, request(head())).0, Action::Drop(Reason::Unauthentic));
    let mut room = [0; pathcall_wire::MAX_FRAME];
    let sealed = KEY.seal(&request(head()), &mut room).expect("there is room").to_vec();
    let (action, mut bytes) = run(&mut program, sealed);
    assert!(action == Action::Clone(FIRST) && KEY.has_signed(&bytes), "{action:?}");
    assert_eq!(program.recirculate(&mut bytes).action, Action::Forward(FIRST + 1));
    assert!(KEY.has_signed(&bytes));
    assert_eq!(says(&bytes).clo, CLONE);
}

/// One pool's servers can't have another's answers stopped, whatever ids they say.
#[test]
fn pools_do_not_meet() {
    let mut program = program(2);
    program.tables_mut().install_pool(Pool { gaid: 8, version: 1, servers: vec![200, 201] }).expect("fits");
    for endpoint in [3, 200, 201] {
        admit(&mut program, endpoint, 8);
    }
    let (_, asked) = run(&mut program, request(head()));
    let theirs = BaseRepr { gaid: 8, flags: Flags::FROM_SERVER, ..base(Kind::CloneReply, 200, 3) };
    assert_eq!(run(&mut program, frame(theirs, CloneRepr { sid: 0, ..says(&asked) })).0, Action::Forward(3));
    assert_eq!(run(&mut program, answer(&asked, 1, 5)).0, Action::Forward(CALLER));
    assert_eq!(program.tables().loads(8), Ok((&[0, 0][..], &[0, 0][..])));
    let across = BaseRepr { gaid: 8, ..base(Kind::CloneRequest, CALLER, 0) };
    assert_eq!(run(&mut program, frame(across, head())).0, Action::Drop(Reason::NotAdmitted));
}

#[test]
fn a_pool_that_can_not_be_is_refused() {
    let mut program = program(2);
    let tables = program.tables_mut();
    let pool = |gaid, servers| Pool { gaid, version: 9, servers };
    let wide = (0..65).collect();
    assert!(matches!(tables.install_pool(pool(GAID, wide)), Err(TableError::Range { what: "servers", end: 65, .. })));
    assert_eq!(tables.install_pool(pool(GAID, vec![4, 5, 4])), Err(TableError::Twice(4)));
    tables.install_pool(pool(8, vec![])).expect("the second");
    assert!(matches!(tables.install_pool(pool(9, vec![])), Err(TableError::Range { what: "pools", size: 2, .. })));
    let application = Application { gaid: 8, epoch: 1, owner: 1, row_base: 0, rows: 1, lane_base: 0, width: 1 };
    assert_eq!(tables.install(application), Err(TableError::Taken { gaid: 8, what: "a pool" }));
    tables.remove(8).expect("there");
    tables.install(application).expect("free again");
    let taken = TableError::Taken { gaid: 8, what: "an application" };
    assert_eq!(tables.install_pool(pool(8, vec![])), Err(taken));
    assert_eq!(tables.pools().next().expect("one").0.version, 1, "as it was");
    tables.install_pool(pool(9, vec![])).expect("there is room again");
}
