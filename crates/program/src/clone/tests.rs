use pathcall_wire::clone::{MAX_SERVERS, caller_id, emit, groups, pair};
use pathcall_wire::{BaseRepr, CloneRepr, TokenKey};

use super::*;
use crate::{CloneSize, Endpoint, InstalledApplication, PoolCounters, RepeatFilterProfile, Size, TableChangeError};

mod admission;
mod model;

const GAID: u32 = 7;
const CALLER: u32 = 1;
/// Endpoints of the servers: SID 0 is 100, and so on.
const FIRST: u32 = 100;
const INCARNATION: u32 = 5;
const KEY: TokenKey = TokenKey::new([1, 2]);
const SIZE: Size = Size { rows: 1, lanes: 1, slots: 1 };
/// Three filter tables, as in Fig. 6, with one slot each, so that all ids collide.
const TABLES: CloneSize = CloneSize { pools: 2, requests: 64, filters: 3, slots: 1 };

fn program(servers: u32) -> SwitchProgram {
    let mut program = SwitchProgram::with_clones(SIZE, TABLES, RepeatFilterProfile::FullSequence);
    install(&mut program, 1, (0..servers).map(|sid| FIRST + sid).collect());
    for endpoint in [CALLER, 2].into_iter().chain((0..servers).map(|sid| FIRST + sid)) {
        admit(&mut program, endpoint, GAID);
    }
    program
}

fn install(program: &mut SwitchProgram, version: u32, servers: Vec<u32>) {
    program.tables_mut().install_pool(InstalledPool { gaid: GAID, version, servers }).expect("fits");
}

fn admit(program: &mut SwitchProgram, endpoint: u32, gaid: u32) {
    let entry = Endpoint { endpoint, incarnation: INCARNATION, gaid, slot_base: 0, slots: 0 };
    program.tables_mut().set_endpoint(entry).expect("fits");
}

fn counters(program: &SwitchProgram) -> PoolCounters {
    program.tables().pools().next().expect("one").2
}

fn frame(base: BaseRepr, head: CloneRepr) -> Vec<u8> {
    let mut bytes = vec![0; pathcall_wire::MAX_FRAME];
    let len = emit(&base, &head, b"payload", &mut bytes);
    bytes.truncate(len);
    bytes
}

fn base(kind: FrameKind, src: u32, dst: u32) -> BaseRepr {
    let (src_incarnation, dst_incarnation) = (INCARNATION, 0);
    BaseRepr { gaid: GAID, epoch: 1, src, src_incarnation, dst, dst_incarnation, seq: 9, ..BaseRepr::new(kind) }
}

fn head() -> CloneRepr {
    CloneRepr { flags: CloneFlags::CLONE, parts: 1, ..CloneRepr::default() }
}

fn request(head: CloneRepr) -> Vec<u8> {
    frame(base(FrameKind::CloneRequest, CALLER, 0), head)
}

fn reply(head: CloneRepr) -> Vec<u8> {
    reply_of(FrameKind::CloneReply, head)
}

fn reply_of(kind: FrameKind, head: CloneRepr) -> Vec<u8> {
    let from = base(kind, FIRST + u32::from(head.sid), CALLER);
    frame(BaseRepr { flags: Flags::FROM_SERVER, ..from }, head)
}

fn run(program: &mut SwitchProgram, mut bytes: Vec<u8>) -> (FrameAction, Vec<u8>) {
    let verdict = program.process(Instant(1), &mut bytes, false);
    assert_eq!(verdict.len, bytes.len(), "a frame of a call keeps its length");
    (verdict.action, bytes)
}

fn head_of(bytes: &[u8]) -> CloneRepr {
    CloneFrame::new_checked(bytes).expect("a frame").head().repr()
}

fn dst(bytes: &[u8]) -> (u32, u32) {
    let base = Base::new_checked(bytes).expect("a frame").repr();
    (base.dst, base.dst_incarnation)
}

/// Answer of a server to a request.
fn answer(request: &[u8], sid: u16, state: u16) -> Vec<u8> {
    reply(CloneRepr { sid, state, ..head_of(request) })
}

/// Queue lengths of a pool's servers, which the two tables agree on.
fn states(program: &SwitchProgram, gaid: u32) -> Vec<u16> {
    let (loads, shadows) = program.tables().loads(gaid).expect("installed");
    assert_eq!(loads, shadows);
    loads.iter().map(|report| report.state).collect()
}

fn set_states(program: &mut SwitchProgram, states: &[u16]) {
    for (sid, state) in states.iter().enumerate() {
        let word = CloneRepr { sid: sid as u16, state: *state, ..head() };
        assert_eq!(run(program, reply_of(FrameKind::CloneWorking, word)).0, FrameAction::Forward(CALLER));
    }
}

/// NetClone Fig. 4 (a), Fig. 5: both servers are idle; the original leaves with the clone's server in its header, and
/// the second pass sends the clone there.
#[test]
fn request_for_two_idle_servers_is_cloned() {
    let mut program = program(3);
    let grp = 1;
    assert_eq!(pair(grp, 3), Some((0, 2)));
    let (action, mut bytes) = run(&mut program, request(CloneRepr { grp, ..head() }));
    assert_eq!((action, dst(&bytes)), (FrameAction::Clone(FIRST), (FIRST, INCARNATION)));
    let original = head_of(&bytes);
    assert_eq!((original.req_id, original.clo, original.sid, original.switch_id), (1, ORIGINAL, 2, 1));
    let again = program.recirculate(&mut bytes);
    assert_eq!((again.action, dst(&bytes)), (FrameAction::Forward(FIRST + 2), (FIRST + 2, INCARNATION)));
    assert_eq!(head_of(&bytes), CloneRepr { clo: CLONE, ..original });
    assert_eq!((counters(&program).requests, counters(&program).clones), (1, 1));
    assert_eq!((program.counters().frames_in, program.counters().frames_out), (1, 2));
}

/// Fig. 4 (b) and (c): the faster answer passes and leaves its fingerprint; the slower one clears it and is dropped.
/// Both report the state of their server.
#[test]
fn slower_answer_is_filtered() {
    let mut program = program(2);
    let (_, forwarded) = run(&mut program, request(head()));
    assert_eq!(run(&mut program, answer(&forwarded, 1, 4)).0, FrameAction::Forward(CALLER));
    let printed = program.tables().clones().filters.peek(0, 1)[0];
    assert_eq!((printed.req_id, printed.gaid, printed.sid), (1, GAID, 1));
    assert_eq!(run(&mut program, answer(&forwarded, 0, 3)).0, FrameAction::Drop(FrameDropReason::Filtered));
    assert_eq!(program.tables().clones().filters.peek(0, 1)[0].req_id, 0, "the slot is free again");
    assert_eq!(states(&program, GAID), [3, 4]);
    assert_eq!((counters(&program).replies, counters(&program).filtered), (2, 1));
}

/// Fig. 6, three tables. (a), (b): 7 is entered in the second table and removed; (c): 8 has the same slot of another
/// table, and both are filtered.
#[test]
fn answers_use_filter_table_of_their_caller() {
    let mut program = program(2);
    let of = |req_id, idx, sid| reply(CloneRepr { req_id, idx, sid, clo: ORIGINAL, ..head() });
    let table = |program: &SwitchProgram| [0, 1, 2].map(|idx| program.tables().clones().filters.peek(idx, 1)[0].req_id);
    run(&mut program, of(7, 1, 0));
    assert_eq!(table(&program), [0, 7, 0]);
    run(&mut program, of(8, 2, 0));
    assert_eq!(table(&program), [0, 7, 8]);
    assert_eq!(run(&mut program, of(7, 1, 1)).0, FrameAction::Drop(FrameDropReason::Filtered));
    assert_eq!(run(&mut program, of(8, 5, 1)).0, FrameAction::Drop(FrameDropReason::Filtered), "IDX modulo the tables");
    assert_eq!(table(&program), [0; 3]);
    // §3.5: another fingerprint is overwritten, and its slower answer passes.
    run(&mut program, of(7, 1, 0));
    assert_eq!(run(&mut program, of(9, 1, 0)).0, FrameAction::Forward(CALLER));
    assert_eq!(run(&mut program, of(7, 1, 1)).0, FrameAction::Forward(CALLER));
}

#[test]
fn busy_server_gets_no_clone() {
    for states in [[0, 1], [1, 0], [2, 2]] {
        let mut program = program(2);
        set_states(&mut program, &states);
        let (action, bytes) = run(&mut program, request(head()));
        assert_eq!(
            (action, head_of(&bytes).clo),
            (FrameAction::Forward(FIRST), 0),
            "{states:?}: the first of the pair"
        );
        // Answers of requests that were not cloned are not filtered.
        for _ in 0..2 {
            assert_eq!(run(&mut program, answer(&bytes, 0, 0)).0, FrameAction::Forward(CALLER));
        }
    }
}

/// RackSched (§3.7): if a server is busy, the shorter queue; if the queues are equal, the first server.
#[test]
fn request_without_clone_goes_to_shorter_queue() {
    let flags = CloneFlags::SHORTEST | CloneFlags::CLONE;
    for (states, to, shorter) in [([3, 2], 1, 1), ([2, 3], 0, 0), ([2, 2], 0, 0), ([1, 0], 1, 1)] {
        let mut program = program(2);
        set_states(&mut program, &states);
        let (action, bytes) = run(&mut program, request(CloneRepr { flags, ..head() }));
        assert_eq!((action, head_of(&bytes).clo), (FrameAction::Forward(FIRST + to), 0), "{states:?}");
        assert_eq!(counters(&program).shorter, shorter);
    }
    let mut program = program(2);
    let (action, _) = run(&mut program, request(CloneRepr { flags: CloneFlags::SHORTEST, ..head() }));
    assert_eq!(action, FrameAction::Forward(FIRST), "both idle, without clone flag");
}

#[test]
fn request_without_clone_flag_is_not_cloned() {
    let mut program = program(2);
    let (action, bytes) = run(&mut program, request(CloneRepr { flags: 0, ..head() }));
    assert_eq!((action, head_of(&bytes).clo), (FrameAction::Forward(FIRST), 0));
    let mut one_server = self::program(1);
    assert_eq!(run(&mut one_server, request(head())).0, FrameAction::Forward(FIRST), "a pool of one server");
    let mut nobody = self::program(0);
    assert_eq!(run(&mut nobody, request(head())).0, FrameAction::Drop(FrameDropReason::UnknownEndpoint));
}

#[test]
fn every_group_maps_to_its_pair() {
    for servers in [5, MAX_SERVERS] {
        let mut program = program(servers as u32);
        for grp in 0..groups(servers) {
            let (action, mut bytes) = run(&mut program, request(CloneRepr { grp, ..head() }));
            let (first, second) = pair(grp, servers).expect("a group");
            assert_eq!(action, FrameAction::Clone(FIRST + u32::from(first)));
            assert_eq!(program.recirculate(&mut bytes).action, FrameAction::Forward(FIRST + u32::from(second)));
        }
    }
}

#[test]
fn group_of_other_version_maps_to_some_pair() {
    let mut program = program(3);
    install(&mut program, 2, vec![FIRST, FIRST + 2]);
    for grp in [0, 5, u32::MAX] {
        let (action, _) = run(&mut program, request(CloneRepr { grp, ..head() }));
        assert!(matches!(action, FrameAction::Clone(endpoint) if endpoint != FIRST + 1), "{action:?}");
    }
    assert_eq!(counters(&program).stale_groups, 3);
}

#[test]
fn loads_stay_with_their_servers_after_pool_change() {
    let mut program = program(3);
    set_states(&mut program, &[1, 2, 3]);
    install(&mut program, 2, vec![FIRST + 2, 77, FIRST]);
    assert_eq!(states(&program, GAID), [3, 0, 1]);
    let anew = Endpoint { endpoint: FIRST, incarnation: 6, gaid: GAID, slot_base: 0, slots: 0 };
    program.tables_mut().set_endpoint(anew).expect("fits");
    assert_eq!(states(&program, GAID), [3, 0, 0], "the load of a restarted server is reset");
}

/// §3.7: a request that is sent again or in parts has an id of its own caller.
#[test]
fn request_id_of_caller_is_kept() {
    let mut program = program(2);
    for (req_id, same_id) in [(caller_id(CALLER, 9, 1), true), (5, false)] {
        let (_, bytes) = run(&mut program, request(CloneRepr { req_id, ..head() }));
        assert_eq!(head_of(&bytes).req_id == req_id, same_id);
    }
    let forged = CloneRepr { req_id: caller_id(2, 9, 1), ..head() };
    assert_eq!(run(&mut program, request(forged)).0, FrameAction::Drop(FrameDropReason::Forged));
    let nameless = CloneRepr { parts: 2, ..head() };
    assert_eq!(run(&mut program, request(nameless)).0, FrameAction::Drop(FrameDropReason::Malformed));
}

#[test]
fn request_numbers_wrap_without_zero() {
    let mut program = program(2);
    program.set_last_number((1 << 63) - 2);
    let ids = [(); 3].map(|()| head_of(&run(&mut program, request(head())).1).req_id);
    assert_eq!(ids, [(1 << 63) - 1, 1, 2]);
}

#[test]
fn parts_of_request_go_to_same_servers() {
    let id = caller_id(CALLER, 9, 0);
    let part = |part| request(CloneRepr { req_id: id, part, parts: 3, ..head() });
    let mut program = program(2);
    assert_eq!(run(&mut program, part(0)).0, FrameAction::Clone(FIRST));
    set_states(&mut program, &[1, 1]);
    for again in [1, 2, 0] {
        assert_eq!(run(&mut program, part(again)).0, FrameAction::Clone(FIRST), "every part is cloned (§3.7)");
    }
    // Decided while busy; then both become idle.
    let mut busy = self::program(2);
    set_states(&mut busy, &[1, 1]);
    assert_eq!(run(&mut busy, part(0)).0, FrameAction::Forward(FIRST));
    set_states(&mut busy, &[0, 0]);
    assert_eq!(run(&mut busy, part(1)).0, FrameAction::Forward(FIRST));
    // The first part is lost, or late.
    let mut none = self::program(2);
    assert_eq!(run(&mut none, part(1)).0, FrameAction::Forward(FIRST));
}

/// Different from the paper, whose tables would let parts of both answers pass.
#[test]
fn all_parts_of_first_answer_pass_and_none_of_second() {
    let mut program = program(2);
    let of = |sid, part| reply(CloneRepr { req_id: 3, sid, part, parts: 2, clo: ORIGINAL, ..head() });
    let mut passes = |sid, part| run(&mut program, of(sid, part)).0 == FrameAction::Forward(CALLER);
    assert_eq!(
        [(1, 1), (0, 0), (1, 0), (0, 1), (1, 1)].map(|(sid, part)| passes(sid, part)),
        [true, false, true, false, true]
    );
}

#[test]
fn repeat_of_answer_is_filtered() {
    let mut program = program(2);
    let (_, forwarded) = run(&mut program, request(head()));
    for action in [
        FrameAction::Forward(CALLER),
        FrameAction::Drop(FrameDropReason::Filtered),
        FrameAction::Drop(FrameDropReason::Filtered),
    ] {
        assert_eq!(run(&mut program, answer(&forwarded, 1, 0)).0, action);
    }
    assert_eq!(
        run(&mut program, answer(&forwarded, 0, 0)).0,
        FrameAction::Drop(FrameDropReason::Filtered),
        "the slower answer is filtered as well"
    );
}

#[test]
fn pass_flags_of_hosts_are_ignored() {
    for clo in [ORIGINAL, CLONE] {
        let mut program = program(2);
        set_states(&mut program, &[1, 1]);
        let (action, bytes) = run(&mut program, request(CloneRepr { clo, sid: 1, ..head() }));
        assert_eq!((action, head_of(&bytes).clo, head_of(&bytes).sid), (FrameAction::Forward(FIRST), 0, 0));
    }
}

/// §3.7: the first element on the path decides.
#[test]
fn request_decided_by_other_element_passes_unchanged() {
    let mut program = program(2);
    program.set_switch_id(std::num::NonZeroU16::new(3).expect("one"));
    let of_other_switch = CloneRepr { switch_id: 4, clo: ORIGINAL, sid: 1, req_id: 8, ..head() };
    let forwarded = frame(base(FrameKind::CloneRequest, CALLER, FIRST), of_other_switch);
    assert_eq!(run(&mut program, forwarded.clone()), (FrameAction::Forward(FIRST), forwarded));
    for _ in 0..2 {
        let answered = reply(CloneRepr { state: 9, ..of_other_switch });
        assert_eq!(run(&mut program, answered.clone()), (FrameAction::Forward(CALLER), answered));
    }
    assert_eq!(states(&program, GAID), [0, 0]);
    assert_eq!((counters(&program).passed, counters(&program).requests), (3, 0));
    let of_this_switch = CloneRepr { switch_id: 3, ..head() };
    assert_eq!(run(&mut program, request(of_this_switch)).0, FrameAction::Clone(FIRST));
}

#[test]
fn direct_request_goes_to_its_server() {
    let mut program = program(2);
    let direct = CloneRepr { flags: CloneFlags::DIRECT | CloneFlags::CLONE, ..head() };
    let to = |dst| frame(base(FrameKind::CloneRequest, CALLER, dst), direct);
    let (action, bytes) = run(&mut program, to(FIRST + 1));
    assert_eq!((action, head_of(&bytes).clo, head_of(&bytes).req_id), (FrameAction::Forward(FIRST + 1), 0, 1));
    assert_eq!(
        run(&mut program, to(2)).0,
        FrameAction::Drop(FrameDropReason::UnknownEndpoint),
        "the addressed endpoint is a caller"
    );
}

#[test]
fn cancel_goes_to_other_server_of_pair() {
    let mut program = program(3);
    let cancel = |grp, sid, epoch| {
        let base = BaseRepr { epoch, ..base(FrameKind::CloneCancel, CALLER, 0) };
        frame(base, CloneRepr { grp, sid, ..head() })
    };
    assert_eq!(pair(1, 3), Some((0, 2)));
    assert_eq!(run(&mut program, cancel(1, 0, 1)).0, FrameAction::Forward(FIRST + 2));
    assert_eq!(run(&mut program, cancel(1, 2, 1)).0, FrameAction::Forward(FIRST));
    for (grp, sid, epoch) in [(1, 1, 1), (1, 0, 2), (99, 0, 1)] {
        assert_eq!(run(&mut program, cancel(grp, sid, epoch)).0, FrameAction::Drop(FrameDropReason::Stale));
    }
}

#[test]
fn working_report_is_never_filtered() {
    let mut program = program(2);
    let (_, forwarded) = run(&mut program, request(head()));
    run(&mut program, answer(&forwarded, 1, 0));
    for _ in 0..2 {
        let word = reply_of(FrameKind::CloneWorking, CloneRepr { sid: 0, state: 6, ..head_of(&forwarded) });
        assert_eq!(run(&mut program, word).0, FrameAction::Forward(CALLER));
    }
    assert_eq!(states(&program, GAID), [6, 0]);
}

/// The network may deliver an old report after a new one.
#[test]
fn report_that_newer_one_has_overtaken_is_not_recorded() {
    let mut program = program(2);
    let mut report = |number, state| {
        let from = base(FrameKind::CloneWorking, FIRST + 1, CALLER);
        let from = BaseRepr { flags: Flags::FROM_SERVER, round: number, ..from };
        run(&mut program, frame(from, CloneRepr { sid: 1, state, ..head() }));
        states(&program, GAID)[1]
    };
    assert_eq!([(7, 3), (6, 9), (8, 4), (7, 0)].map(|(number, state)| report(number, state)), [3, 3, 4, 4]);
    assert_eq!([(u32::MAX, 6), (1, 2), (u32::MAX, 7)].map(|(number, state)| report(number, state)), [4, 4, 4]);
    assert_eq!([(1 << 31, 6), (u32::MAX, 5), (1, 2), (u32::MAX, 7)].map(|(n, state)| report(n, state)), [6, 5, 2, 2]);
}
