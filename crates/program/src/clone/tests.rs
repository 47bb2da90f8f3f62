use pathcall_wire::clone::{caller_id, emit, groups, pair};
use pathcall_wire::{BaseRepr, CloneRepr, TokenKey};

use super::*;
use crate::{Application, CloneSize, Endpoint, PoolCounters, Profile, Size, TableError};

mod admission;
mod model;

const GAID: u32 = 7;
const CALLER: u32 = 1;
/// The servers' endpoints: SID 0 is 100, and so on.
const FIRST: u32 = 100;
const INCARNATION: u32 = 5;
const KEY: TokenKey = TokenKey::new([1, 2]);
const SIZE: Size = Size { rows: 1, lanes: 1, slots: 1 };
/// As in Fig. 6: three filter tables. Of one slot each: all ids meet.
const TABLES: CloneSize = CloneSize { pools: 2, requests: 64, filters: 3, slots: 1 };

fn program(servers: u32) -> Program {
    let mut program = Program::with_clones(SIZE, TABLES, Profile::FullSequence);
    install(&mut program, 1, (0..servers).map(|sid| FIRST + sid).collect());
    for endpoint in [CALLER, 2].into_iter().chain((0..servers).map(|sid| FIRST + sid)) {
        admit(&mut program, endpoint, GAID);
    }
    program
}

fn install(program: &mut Program, version: u32, servers: Vec<u32>) {
    program.tables_mut().install_pool(Pool { gaid: GAID, version, servers }).expect("fits");
}

fn admit(program: &mut Program, endpoint: u32, gaid: u32) {
    let entry = Endpoint { endpoint, incarnation: INCARNATION, gaid, slot_base: 0, slots: 0 };
    program.tables_mut().set_endpoint(entry).expect("fits");
}

fn counters(program: &Program) -> PoolCounters {
    program.tables().pools().next().expect("one").2
}

fn frame(base: BaseRepr, head: CloneRepr) -> Vec<u8> {
    let mut bytes = vec![0; pathcall_wire::MAX_FRAME];
    let len = emit(&base, &head, b"payload", &mut bytes);
    bytes.truncate(len);
    bytes
}

fn base(kind: Kind, src: u32, dst: u32) -> BaseRepr {
    let (src_incarnation, dst_incarnation) = (INCARNATION, 0);
    BaseRepr { gaid: GAID, epoch: 1, src, src_incarnation, dst, dst_incarnation, seq: 9, ..BaseRepr::new(kind) }
}

fn head() -> CloneRepr {
    CloneRepr { flags: CloneFlags::CLONE, parts: 1, ..CloneRepr::default() }
}

fn request(head: CloneRepr) -> Vec<u8> {
    frame(base(Kind::CloneRequest, CALLER, 0), head)
}

fn reply(head: CloneRepr) -> Vec<u8> {
    reply_of(Kind::CloneReply, head)
}

fn reply_of(kind: Kind, head: CloneRepr) -> Vec<u8> {
    let from = base(kind, FIRST + u32::from(head.sid), CALLER);
    frame(BaseRepr { flags: Flags::FROM_SERVER, ..from }, head)
}

fn run(program: &mut Program, mut bytes: Vec<u8>) -> (Action, Vec<u8>) {
    let verdict = program.process(Instant(1), &mut bytes, false);
    assert_eq!(verdict.len, bytes.len(), "a frame of a call keeps its length");
    (verdict.action, bytes)
}

fn says(bytes: &[u8]) -> CloneRepr {
    CloneFrame::new_checked(bytes).expect("a frame").head().repr()
}

fn dst(bytes: &[u8]) -> (u32, u32) {
    let base = Base::new_checked(bytes).expect("a frame").repr();
    (base.dst, base.dst_incarnation)
}

/// The answer of a server to a request that it got.
fn answer(request: &[u8], sid: u16, state: u16) -> Vec<u8> {
    reply(CloneRepr { sid, state, ..says(request) })
}

fn set_states(program: &mut Program, states: &[u16]) {
    for (sid, state) in states.iter().enumerate() {
        let word = CloneRepr { sid: sid as u16, state: *state, ..head() };
        assert_eq!(run(program, reply_of(Kind::CloneWorking, word)).0, Action::Forward(CALLER));
    }
}

/// NetClone Fig. 4 (a), Fig. 5: both are idle; the original is on its way with the clone's server in it, and
/// the second pass gives that one the clone.
#[test]
fn a_request_for_two_idle_servers_is_cloned() {
    let mut program = program(3);
    let grp = 1;
    assert_eq!(pair(grp, 3), Some((0, 2)));
    let (action, mut bytes) = run(&mut program, request(CloneRepr { grp, ..head() }));
    assert_eq!((action, dst(&bytes)), (Action::Clone(FIRST), (FIRST, INCARNATION)));
    let original = says(&bytes);
    assert_eq!((original.req_id, original.clo, original.sid, original.switch_id), (1, ORIGINAL, 2, 1));
    let again = program.recirculate(&mut bytes);
    assert_eq!((again.action, dst(&bytes)), (Action::Forward(FIRST + 2), (FIRST + 2, INCARNATION)));
    assert_eq!(says(&bytes), CloneRepr { clo: CLONE, ..original });
    assert_eq!((counters(&program).requests, counters(&program).clones), (1, 1));
    assert_eq!((program.counters().frames_in, program.counters().frames_out), (1, 2));
}

/// Fig. 4 (b) and (c): the faster answer passes and leaves its fingerprint; the slower one clears it and goes
/// no further. Both say how busy their server is.
#[test]
fn the_slower_answer_is_stopped() {
    let mut program = program(2);
    let (_, asked) = run(&mut program, request(head()));
    assert_eq!(run(&mut program, answer(&asked, 1, 4)).0, Action::Forward(CALLER));
    let printed = program.tables().clones().filters.peek(0, 1)[0];
    assert_eq!((printed.req_id, printed.gaid, printed.sid), (1, GAID, 1));
    assert_eq!(run(&mut program, answer(&asked, 0, 3)).0, Action::Drop(Reason::Filtered));
    assert_eq!(program.tables().clones().filters.peek(0, 1)[0].req_id, 0, "the slot is free again");
    assert_eq!(program.tables().loads(GAID), Ok((&[3, 4][..], &[3, 4][..])));
    assert_eq!((counters(&program).replies, counters(&program).filtered), (2, 1));
}

/// Fig. 6: three tables. (a), (b): 7 is put into the second table and taken out; (c): 8 has the same slot of
/// another table, and both are filtered.
#[test]
fn answers_meet_in_the_table_that_their_caller_drew() {
    let mut program = program(2);
    let of = |req_id, idx, sid| reply(CloneRepr { req_id, idx, sid, clo: ORIGINAL, ..head() });
    let table = |program: &Program| [0, 1, 2].map(|idx| program.tables().clones().filters.peek(idx, 1)[0].req_id);
    run(&mut program, of(7, 1, 0));
    assert_eq!(table(&program), [0, 7, 0]);
    run(&mut program, of(8, 2, 0));
    assert_eq!(table(&program), [0, 7, 8]);
    assert_eq!(run(&mut program, of(7, 1, 1)).0, Action::Drop(Reason::Filtered));
    assert_eq!(run(&mut program, of(8, 5, 1)).0, Action::Drop(Reason::Filtered), "IDX modulo the tables");
    assert_eq!(table(&program), [0; 3]);
    // §3.5: another's fingerprint is overwritten, and its slower answer passes.
    run(&mut program, of(7, 1, 0));
    assert_eq!(run(&mut program, of(9, 1, 0)).0, Action::Forward(CALLER));
    assert_eq!(run(&mut program, of(7, 1, 1)).0, Action::Forward(CALLER));
}

#[test]
fn a_busy_server_gets_no_clone() {
    for states in [[0, 1], [1, 0], [2, 2]] {
        let mut program = program(2);
        set_states(&mut program, &states);
        let (action, bytes) = run(&mut program, request(head()));
        assert_eq!((action, says(&bytes).clo), (Action::Forward(FIRST), 0), "{states:?}: the first of the pair");
        // An answer of one that was not cloned is none of the filter's business.
        for _ in 0..2 {
            assert_eq!(run(&mut program, answer(&bytes, 0, 0)).0, Action::Forward(CALLER));
        }
    }
}

/// RackSched (§3.7): if not both are idle, the shorter queue; if they are alike, the first.
#[test]
fn the_shorter_queue_gets_what_is_not_cloned() {
    let flags = CloneFlags::SHORTEST | CloneFlags::CLONE;
    for (states, to, shorter) in [([3, 2], 1, 1), ([2, 3], 0, 0), ([2, 2], 0, 0), ([1, 0], 1, 1)] {
        let mut program = program(2);
        set_states(&mut program, &states);
        let (action, bytes) = run(&mut program, request(CloneRepr { flags, ..head() }));
        assert_eq!((action, says(&bytes).clo), (Action::Forward(FIRST + to), 0), "{states:?}");
        assert_eq!(counters(&program).shorter, shorter);
    }
    let mut program = program(2);
    let (action, _) = run(&mut program, request(CloneRepr { flags: CloneFlags::SHORTEST, ..head() }));
    assert_eq!(action, Action::Forward(FIRST), "both idle, and not to be cloned");
}

#[test]
fn what_may_not_be_cloned_is_not() {
    let mut program = program(2);
    let (action, bytes) = run(&mut program, request(CloneRepr { flags: 0, ..head() }));
    assert_eq!((action, says(&bytes).clo), (Action::Forward(FIRST), 0));
    let mut alone = self::program(1);
    assert_eq!(run(&mut alone, request(head())).0, Action::Forward(FIRST), "there is no other");
    let mut nobody = self::program(0);
    assert_eq!(run(&mut nobody, request(head())).0, Action::Drop(Reason::UnknownEndpoint));
}

#[test]
fn every_group_has_its_pair() {
    let mut program = program(5);
    for grp in 0..groups(5) {
        let (action, mut bytes) = run(&mut program, request(CloneRepr { grp, ..head() }));
        let (first, second) = pair(grp, 5).expect("a group");
        assert_eq!(action, Action::Clone(FIRST + u32::from(first)));
        assert_eq!(program.recirculate(&mut bytes).action, Action::Forward(FIRST + u32::from(second)));
    }
}

#[test]
fn a_group_of_another_version_becomes_some_pair() {
    let mut program = program(3);
    install(&mut program, 2, vec![FIRST, FIRST + 2]);
    for grp in [0, 5, u32::MAX] {
        let (action, _) = run(&mut program, request(CloneRepr { grp, ..head() }));
        assert!(matches!(action, Action::Clone(endpoint) if endpoint != FIRST + 1), "{action:?}");
    }
    assert_eq!(counters(&program).stale_groups, 3);
}

#[test]
fn loads_stay_with_their_servers() {
    let mut program = program(3);
    set_states(&mut program, &[1, 2, 3]);
    install(&mut program, 2, vec![FIRST + 2, 77, FIRST]);
    assert_eq!(program.tables().loads(GAID), Ok((&[3, 0, 1][..], &[3, 0, 1][..])));
    let anew = Endpoint { endpoint: FIRST, incarnation: 6, gaid: GAID, slot_base: 0, slots: 0 };
    program.tables_mut().set_endpoint(anew).expect("fits");
    assert_eq!(program.tables().loads(GAID), Ok((&[3, 0, 0][..], &[3, 0, 0][..])), "it has begun anew");
}

/// §3.7: what is sent again, or comes in parts, brings an id of its caller, and nobody else's.
#[test]
fn a_callers_id_stays() {
    let mut program = program(2);
    for (req_id, kept) in [(caller_id(CALLER, 9, 1), true), (5, false)] {
        let (_, bytes) = run(&mut program, request(CloneRepr { req_id, ..head() }));
        assert_eq!(says(&bytes).req_id == req_id, kept);
    }
    let forged = CloneRepr { req_id: caller_id(2, 9, 1), ..head() };
    assert_eq!(run(&mut program, request(forged)).0, Action::Drop(Reason::Forged));
    let nameless = CloneRepr { parts: 2, ..head() };
    assert_eq!(run(&mut program, request(nameless)).0, Action::Drop(Reason::Malformed));
}

#[test]
fn numbers_go_round_without_zero() {
    let mut program = program(2);
    program.number_after((1 << 63) - 2);
    let ids = [(); 3].map(|()| says(&run(&mut program, request(head())).1).req_id);
    assert_eq!(ids, [(1 << 63) - 1, 1, 2]);
}

#[test]
fn the_parts_of_a_request_take_one_way() {
    let id = caller_id(CALLER, 9, 0);
    let part = |part| request(CloneRepr { req_id: id, part, parts: 3, ..head() });
    let mut program = program(2);
    assert_eq!(run(&mut program, part(0)).0, Action::Clone(FIRST));
    set_states(&mut program, &[1, 1]);
    for again in [1, 2, 0] {
        assert_eq!(run(&mut program, part(again)).0, Action::Clone(FIRST), "every part is cloned (§3.7)");
    }
    // Decided otherwise, and then idle.
    let mut busy = self::program(2);
    set_states(&mut busy, &[1, 1]);
    assert_eq!(run(&mut busy, part(0)).0, Action::Forward(FIRST));
    set_states(&mut busy, &[0, 0]);
    assert_eq!(run(&mut busy, part(1)).0, Action::Forward(FIRST));
    // The first part is lost, or late.
    let mut none = self::program(2);
    assert_eq!(run(&mut none, part(1)).0, Action::Forward(FIRST));
}

/// Not as the paper has it, whose tables would let parts of both answers pass.
#[test]
fn of_two_answers_in_parts_all_of_the_first_pass_and_none_of_the_other() {
    let mut program = program(2);
    let of = |sid, part| reply(CloneRepr { req_id: 3, sid, part, parts: 2, clo: ORIGINAL, ..head() });
    let mut passes = |sid, part| run(&mut program, of(sid, part)).0 == Action::Forward(CALLER);
    assert_eq!(
        [(1, 1), (0, 0), (1, 0), (0, 1), (1, 1)].map(|(sid, part)| passes(sid, part)),
        [true, false, true, false, true]
    );
}

#[test]
fn the_networks_repeat_of_an_answer_is_stopped() {
    let mut program = program(2);
    let (_, asked) = run(&mut program, request(head()));
    for action in [Action::Forward(CALLER), Action::Drop(Reason::Filtered), Action::Drop(Reason::Filtered)] {
        assert_eq!(run(&mut program, answer(&asked, 1, 0)).0, action);
    }
    assert_eq!(run(&mut program, answer(&asked, 0, 0)).0, Action::Drop(Reason::Filtered), "and so is the slower one");
}

#[test]
fn what_hosts_say_of_passes_is_not_believed() {
    for clo in [ORIGINAL, CLONE] {
        let mut program = program(2);
        set_states(&mut program, &[1, 1]);
        let (action, bytes) = run(&mut program, request(CloneRepr { clo, sid: 1, ..head() }));
        assert_eq!((action, says(&bytes).clo, says(&bytes).sid), (Action::Forward(FIRST), 0, 0));
    }
}

/// §3.7: one element decides, the first on the way.
#[test]
fn what_another_element_has_decided_passes_as_it_is() {
    let mut program = program(2);
    program.set_switch_id(std::num::NonZeroU16::new(3).expect("one"));
    let theirs = CloneRepr { switch_id: 4, clo: ORIGINAL, sid: 1, req_id: 8, ..head() };
    let asked = frame(base(Kind::CloneRequest, CALLER, FIRST), theirs);
    assert_eq!(run(&mut program, asked.clone()), (Action::Forward(FIRST), asked));
    for _ in 0..2 {
        let answered = reply(CloneRepr { state: 9, ..theirs });
        assert_eq!(run(&mut program, answered.clone()), (Action::Forward(CALLER), answered));
    }
    assert_eq!(program.tables().loads(GAID), Ok((&[0, 0][..], &[0, 0][..])));
    assert_eq!((counters(&program).passed, counters(&program).requests), (3, 0));
    let ours = CloneRepr { switch_id: 3, ..head() };
    assert_eq!(run(&mut program, request(ours)).0, Action::Clone(FIRST));
}

#[test]
fn a_request_for_one_server_goes_there() {
    let mut program = program(2);
    let direct = CloneRepr { flags: CloneFlags::DIRECT | CloneFlags::CLONE, ..head() };
    let to = |dst| frame(base(Kind::CloneRequest, CALLER, dst), direct);
    let (action, bytes) = run(&mut program, to(FIRST + 1));
    assert_eq!((action, says(&bytes).clo, says(&bytes).req_id), (Action::Forward(FIRST + 1), 0, 1));
    assert_eq!(run(&mut program, to(2)).0, Action::Drop(Reason::UnknownEndpoint), "that is a caller");
}

#[test]
fn a_cancel_goes_to_the_other_server_of_its_pair() {
    let mut program = program(3);
    let cancel = |grp, sid, epoch| {
        let base = BaseRepr { epoch, ..base(Kind::CloneCancel, CALLER, 0) };
        frame(base, CloneRepr { grp, sid, ..head() })
    };
    assert_eq!(pair(1, 3), Some((0, 2)));
    assert_eq!(run(&mut program, cancel(1, 0, 1)).0, Action::Forward(FIRST + 2));
    assert_eq!(run(&mut program, cancel(1, 2, 1)).0, Action::Forward(FIRST));
    for (grp, sid, epoch) in [(1, 1, 1), (1, 0, 2), (99, 0, 1)] {
        assert_eq!(run(&mut program, cancel(grp, sid, epoch)).0, Action::Drop(Reason::Stale));
    }
}

#[test]
fn a_word_of_a_server_about_a_call_is_never_stopped() {
    let mut program = program(2);
    let (_, asked) = run(&mut program, request(head()));
    run(&mut program, answer(&asked, 1, 0));
    for _ in 0..2 {
        let word = reply_of(Kind::CloneWorking, CloneRepr { sid: 0, state: 6, ..says(&asked) });
        assert_eq!(run(&mut program, word).0, Action::Forward(CALLER));
    }
    assert_eq!(program.tables().loads(GAID), Ok((&[6, 0][..], &[6, 0][..])));
}
