//! Corpus cases of calls to a pool: cloning, shortest queue, response filter, versions, parts.

use pathcall_conformance::ProgramStep;
use pathcall_conformance::corpus::Case;
use pathcall_program::{Endpoint, InstalledPool};
use pathcall_wire::clone::{CLONE, MAX_SERVERS, ORIGINAL, caller_id, emit, groups, pair};
use pathcall_wire::{BaseRepr, CloneFlags, CloneFrame, CloneRepr, Flags, FrameKind, MAX_FRAME};

use super::case_recorder::{CaseRecorder, INCARNATION, MEMORY};

const GAID: u32 = 3;
const CALLERS: [u32; 2] = [31, 32];
/// Servers: SID 0 is endpoint 41, and so on.
const SERVERS: [u32; 3] = [41, 42, 43];

fn pool(version: u32, servers: &[u32]) -> ProgramStep {
    ProgramStep::InstallPool(InstalledPool { gaid: GAID, version, servers: servers.to_vec() })
}

fn endpoint(endpoint: u32) -> ProgramStep {
    ProgramStep::SetEndpoint(Endpoint { endpoint, incarnation: INCARNATION, gaid: GAID, slot_base: 0, slots: 0 })
}

fn frame(kind: FrameKind, version: u32, src: u32, dst: u32, head: CloneRepr) -> Vec<u8> {
    let flags = match kind {
        FrameKind::CloneReply | FrameKind::CloneWorking => Flags::FROM_SERVER,
        _ => 0,
    };
    let base = BaseRepr {
        flags,
        gaid: GAID,
        epoch: version,
        src,
        src_incarnation: INCARNATION,
        dst,
        seq: 1,
        ..BaseRepr::new(kind)
    };
    let mut bytes = [0; MAX_FRAME];
    let len = emit(&base, &CloneRepr { parts: head.parts.max(1), ..head }, b"Pathcall", &mut bytes);
    bytes[..len].to_vec()
}

fn request(head: CloneRepr) -> Vec<u8> {
    frame(FrameKind::CloneRequest, 1, CALLERS[0], SERVERS[0], head)
}

fn reply(sid: u16, head: CloneRepr) -> Vec<u8> {
    frame(FrameKind::CloneReply, 1, SERVERS[usize::from(sid)], CALLERS[0], CloneRepr { sid, switch_id: 1, ..head })
}

fn may(flags: u8) -> CloneRepr {
    CloneRepr { flags, ..CloneRepr::default() }
}

pub fn calls() -> Case {
    let mut scene = CaseRecorder::empty("calls", MEMORY);
    scene.remark("a pool of three servers, and two callers");
    scene.step(pool(1, &SERVERS));
    CALLERS.iter().chain(&SERVERS).for_each(|id| scene.step(endpoint(*id)));
    let clone = may(CloneFlags::CLONE);
    let shortest = may(CloneFlags::CLONE | CloneFlags::SHORTEST);

    scene.remark("all servers are idle: each group is a different pair, and the clone follows the original");
    (0..groups(SERVERS.len())).for_each(|grp| scene.send(request(CloneRepr { grp, idx: grp as u8, ..clone })));
    scene.remark("a request that must not be cloned; marked after congestion");
    scene.send(request(may(0)));
    scene.send_congested(request(may(CloneFlags::SHORTEST)));

    scene.remark("the faster answer passes; the slower one is dropped, and reports a busy server");
    let first = CloneRepr { req_id: 1, clo: ORIGINAL, ..clone };
    scene.send(reply(0, first));
    scene.send(reply(1, CloneRepr { clo: CLONE, state: 3, ..first }));
    scene.remark("the clone's answer first; a duplicate of it; then the original's");
    let second = CloneRepr { req_id: 2, clo: CLONE, idx: 1, ..clone };
    scene.send(reply(2, second));
    scene.send(reply(2, second));
    scene.send(reply(0, CloneRepr { clo: ORIGINAL, ..second }));
    scene.remark("two answers to a request that was not cloned");
    scene.send(reply(0, CloneRepr { req_id: 7, ..clone }));
    scene.send(reply(0, CloneRepr { req_id: 7, ..clone }));
    scene.state();

    scene.remark("a report that a newer one has overtaken is not recorded; numbers wrap around");
    let report = |round, state| {
        let head = CloneRepr { sid: 2, switch_id: 1, state, ..may(0) };
        let mut bytes = frame(FrameKind::CloneWorking, 1, SERVERS[2], CALLERS[0], head);
        CloneFrame::new_checked(&mut bytes[..]).expect("a frame").base_mut().set_round(round);
        bytes
    };
    for (round, state) in [(2, 7), (1, 9), (u32::MAX, 9), (u32::MAX / 2, 3), (u32::MAX, 2), (u32::MAX, 2), (1, 0)] {
        scene.send(report(round, state));
        scene.state();
    }

    scene.remark("one of the pair is busy: to the first, or to the shorter queue; equal queues: to the first");
    for (grp, head) in [(0, clone), (2, clone), (0, shortest), (2, shortest)] {
        scene.send(request(CloneRepr { grp, ..head }));
    }
    scene.send(frame(FrameKind::CloneWorking, 1, SERVERS[0], CALLERS[0], CloneRepr { state: 3, ..clone }));
    scene.send(request(shortest));

    scene.remark("a group of another version, and an unknown group: some pair");
    scene.send(frame(FrameKind::CloneRequest, 9, CALLERS[1], 0, CloneRepr { grp: 4, ..clone }));
    scene.send(request(CloneRepr { grp: 77, ..clone }));

    scene.remark("repeats with the caller's request id, and with another caller's; a request in parts without an id");
    scene.send(request(CloneRepr { req_id: caller_id(CALLERS[0], 1, 1), attempt: 1, ..clone }));
    scene.send(request(CloneRepr { req_id: caller_id(CALLERS[1], 1, 1), attempt: 1, ..clone }));
    scene.send(request(CloneRepr { parts: 2, ..clone }));

    scene.remark("all parts of a request follow the first, after changes of the servers as well");
    let words = [0, 1, 2]
        .map(|sid| frame(FrameKind::CloneWorking, 1, SERVERS[sid], CALLERS[0], CloneRepr { sid: sid as u16, ..clone }));
    words.into_iter().for_each(|word| scene.send(word));
    let id = caller_id(CALLERS[0], 2, 0);
    let part = |part| request(CloneRepr { req_id: id, part, parts: 3, ..clone });
    scene.send(part(0));
    scene.send(reply(1, CloneRepr { state: 1, ..clone }));
    [1, 2, 0].into_iter().for_each(|at| scene.send(part(at)));
    scene.remark("answers in parts: all parts of the first, none of the other");
    let answer = |sid, part| reply(sid, CloneRepr { req_id: id, part, parts: 2, clo: ORIGINAL, ..clone });
    [(1, 1), (0, 0), (1, 0), (0, 1)].into_iter().for_each(|(sid, part)| scene.send(answer(sid, part)));

    scene.remark("to the addressed server; a caller is not a server");
    scene.send(frame(FrameKind::CloneRequest, 1, CALLERS[0], SERVERS[2], may(CloneFlags::DIRECT | CloneFlags::CLONE)));
    scene.send(frame(FrameKind::CloneRequest, 1, CALLERS[0], CALLERS[1], may(CloneFlags::DIRECT)));
    scene.remark(
        "a cancel goes to the other server of the pair; one of another version, or for a third server, is dropped",
    );
    for (version, grp, sid) in [(1, 0, 0), (1, 0, 1), (0, 0, 0), (1, 0, 2), (1, 6, 0)] {
        scene.send(frame(FrameKind::CloneCancel, version, CALLERS[0], 0, CloneRepr { grp, sid, ..clone }));
    }
    scene.remark("frames decided by another element pass unchanged, and requests for it as well");
    scene.send(request(CloneRepr { switch_id: 2, clo: ORIGINAL, sid: 1, req_id: 9, ..clone }));
    scene.send(reply(0, CloneRepr { state: 5, clo: ORIGINAL, req_id: 9, ..clone }));
    let theirs = CloneRepr { sid: 1, switch_id: 2, state: 5, clo: ORIGINAL, req_id: 9, ..clone };
    scene.send(frame(FrameKind::CloneReply, 1, SERVERS[1], CALLERS[0], theirs));
    scene.remark("flags that only an element may set are ignored in frames of hosts");
    scene.send(request(CloneRepr { clo: CLONE, sid: 2, grp: 1, ..may(0) }));

    scene.remark("a hedge that a pipeline cannot hold: the request leaves at once, to one server");
    let held = |head| {
        let mut bytes = request(head);
        CloneFrame::new_checked(&mut bytes[..]).expect("a frame").base_mut().set_round(1_500);
        bytes
    };
    for head in [clone, shortest, may(0), may(CloneFlags::DIRECT), CloneRepr { parts: 2, ..clone }] {
        scene.send(held(head));
    }
    let unheld = CloneRepr { req_id: 12, ..may(0) };
    scene.send(reply(0, unheld));
    scene.remark("wrong senders: a server sends a request, a caller a reply, a server a reply of another server");
    scene.send(frame(FrameKind::CloneRequest, 1, SERVERS[0], 0, clone));
    scene.send(frame(FrameKind::CloneReply, 1, CALLERS[0], CALLERS[1], clone));
    scene.send(frame(FrameKind::CloneReply, 1, SERVERS[0], CALLERS[0], CloneRepr { sid: 1, ..clone }));
    scene.remark("not admitted: forwarded with a flag if addressed to an endpoint of the pool");
    scene.send(frame(FrameKind::CloneRequest, 1, 55, SERVERS[1], clone));
    scene.send(frame(FrameKind::CloneRequest, 1, 55, 0, clone));

    scene.remark("servers leave and join, with their queue lengths; no clones with one server, no requests with none");
    scene.send(reply(2, CloneRepr { state: 4, ..clone }));
    scene.step(pool(2, &[SERVERS[2], SERVERS[0]]));
    scene.state();
    scene.send(frame(FrameKind::CloneRequest, 2, CALLERS[0], 0, shortest));
    scene.step(pool(3, &[SERVERS[1]]));
    scene.send(frame(FrameKind::CloneRequest, 3, CALLERS[0], 0, clone));
    scene.step(pool(4, &[]));
    scene.send(frame(FrameKind::CloneRequest, 4, CALLERS[0], 0, clone));
    scene.remark("a repeated server, an application's id, too many servers");
    scene.step(pool(5, &[SERVERS[0], SERVERS[0]]));
    scene.step(pool(5, &(0..=MAX_SERVERS as u32).collect::<Vec<_>>()));
    scene.remark("request numbers wrap around without 0");
    scene.step(pool(6, &SERVERS));
    scene.step(ProgramStep::NumberAfter((1 << 63) - 2));
    for _ in 0..2 {
        scene.send(frame(FrameKind::CloneRequest, 6, CALLERS[0], 0, clone));
    }
    large_pool(&mut scene);
    scene.end()
}

/// Calls to a pool of 130 servers: to the first and the last ones of it.
fn large_pool(scene: &mut CaseRecorder) {
    scene.remark("a pool of 130 servers: calls to the first and the last ones; the last one reports waiting requests");
    let servers: Vec<u32> = (1000..1130).collect();
    [0, 1, 63, 64, 129].into_iter().for_each(|sid| scene.step(endpoint(servers[sid])));
    scene.step(pool(7, &servers));
    let send = |scene: &mut CaseRecorder, pairs: &[(u16, u16)]| {
        for wanted in pairs {
            let grp = (0..groups(servers.len())).find(|grp| pair(*grp, servers.len()) == Some(*wanted));
            let head =
                CloneRepr { grp: grp.expect("a group of each pair"), ..may(CloneFlags::CLONE | CloneFlags::SHORTEST) };
            scene.send(frame(FrameKind::CloneRequest, 7, CALLERS[0], 0, head));
        }
    };
    send(scene, &[(0, 1), (63, 64), (64, 129), (129, 0)]);
    let report = CloneRepr { sid: 129, state: 2, ..may(0) };
    scene.send(frame(FrameKind::CloneWorking, 7, servers[129], CALLERS[0], report));
    send(scene, &[(0, 1), (1, 129), (129, 1), (129, 64)]);
}
