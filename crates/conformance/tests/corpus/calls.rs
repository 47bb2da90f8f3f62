//! Scenes of calls to a pool: cloning, the shorter queue, filtering, versions, parts.

use pathcall_conformance::Step;
use pathcall_conformance::corpus::Case;
use pathcall_program::{Endpoint, Pool};
use pathcall_wire::clone::{CLONE, ORIGINAL, caller_id, emit, groups};
use pathcall_wire::{BaseRepr, CloneFlags, CloneRepr, Flags, Kind, MAX_FRAME};

use super::scene::{INCARNATION, MEMORY, Scene};

const GAID: u32 = 3;
const CALLERS: [u32; 2] = [31, 32];
/// SID 0 is 41, and so on.
const SERVERS: [u32; 3] = [41, 42, 43];

fn pool(version: u32, servers: &[u32]) -> Step {
    Step::InstallPool(Pool { gaid: GAID, version, servers: servers.to_vec() })
}

fn endpoint(endpoint: u32) -> Step {
    Step::SetEndpoint(Endpoint { endpoint, incarnation: INCARNATION, gaid: GAID, slot_base: 0, slots: 0 })
}

fn frame(kind: Kind, version: u32, src: u32, dst: u32, head: CloneRepr) -> Vec<u8> {
    let flags = match kind {
        Kind::CloneReply | Kind::CloneWorking => Flags::FROM_SERVER,
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
    frame(Kind::CloneRequest, 1, CALLERS[0], SERVERS[0], head)
}

fn reply(sid: u16, head: CloneRepr) -> Vec<u8> {
    frame(Kind::CloneReply, 1, SERVERS[usize::from(sid)], CALLERS[0], CloneRepr { sid, switch_id: 1, ..head })
}

fn may(flags: u8) -> CloneRepr {
    CloneRepr { flags, ..CloneRepr::default() }
}

pub fn calls() -> Case {
    let mut scene = Scene::empty("calls", MEMORY);
    scene.remark("a pool of three servers, and two callers");
    scene.step(pool(1, &SERVERS));
    CALLERS.iter().chain(&SERVERS).for_each(|id| scene.step(endpoint(*id)));
    let clone = may(CloneFlags::CLONE);
    let shortest = may(CloneFlags::CLONE | CloneFlags::SHORTEST);

    scene.remark("all are idle: each group is another pair, and the clone follows the original");
    (0..groups(SERVERS.len())).for_each(|grp| scene.send(request(CloneRepr { grp, idx: grp as u8, ..clone })));
    scene.remark("what must not be cloned is not; marked where congestion was met");
    scene.send(request(may(0)));
    scene.send_congested(request(may(CloneFlags::SHORTEST)));

    scene.remark("the faster answer passes, the slower is stopped, and says that its server is busy");
    let first = CloneRepr { req_id: 1, clo: ORIGINAL, ..clone };
    scene.send(reply(0, first));
    scene.send(reply(1, CloneRepr { clo: CLONE, state: 3, ..first }));
    scene.remark("the clone's answer first; the network repeats it; then the other");
    let second = CloneRepr { req_id: 2, clo: CLONE, idx: 1, ..clone };
    scene.send(reply(2, second));
    scene.send(reply(2, second));
    scene.send(reply(0, CloneRepr { clo: ORIGINAL, ..second }));
    scene.remark("an answer of what was not cloned, twice");
    scene.send(reply(0, CloneRepr { req_id: 7, ..clone }));
    scene.send(reply(0, CloneRepr { req_id: 7, ..clone }));
    scene.state();

    scene.remark("one of the pair is busy: to the first; or to the shorter queue; alike: to the first");
    for (grp, head) in [(0, clone), (2, clone), (0, shortest), (2, shortest)] {
        scene.send(request(CloneRepr { grp, ..head }));
    }
    scene.send(frame(Kind::CloneWorking, 1, SERVERS[0], CALLERS[0], CloneRepr { state: 3, ..clone }));
    scene.send(request(shortest));

    scene.remark("a group of another version, and one that there is not: some pair");
    scene.send(frame(Kind::CloneRequest, 9, CALLERS[1], 0, CloneRepr { grp: 4, ..clone }));
    scene.send(request(CloneRepr { grp: 77, ..clone }));

    scene.remark("sent again, with its caller's id; with another's; a request of parts without one");
    scene.send(request(CloneRepr { req_id: caller_id(CALLERS[0], 1, 1), attempt: 1, ..clone }));
    scene.send(request(CloneRepr { req_id: caller_id(CALLERS[1], 1, 1), attempt: 1, ..clone }));
    scene.send(request(CloneRepr { parts: 2, ..clone }));

    scene.remark("the parts of a request take the way of the first, whatever has become of the servers");
    let words = [0, 1, 2]
        .map(|sid| frame(Kind::CloneWorking, 1, SERVERS[sid], CALLERS[0], CloneRepr { sid: sid as u16, ..clone }));
    words.into_iter().for_each(|word| scene.send(word));
    let id = caller_id(CALLERS[0], 2, 0);
    let part = |part| request(CloneRepr { req_id: id, part, parts: 3, ..clone });
    scene.send(part(0));
    scene.send(reply(1, CloneRepr { state: 1, ..clone }));
    [1, 2, 0].into_iter().for_each(|at| scene.send(part(at)));
    scene.remark("answers in parts: all of the first, none of the other");
    let answer = |sid, part| reply(sid, CloneRepr { req_id: id, part, parts: 2, clo: ORIGINAL, ..clone });
    [(1, 1), (0, 0), (1, 0), (0, 1)].into_iter().for_each(|(sid, part)| scene.send(answer(sid, part)));

    scene.remark("to the server that it is addressed to; a caller is none");
    scene.send(frame(Kind::CloneRequest, 1, CALLERS[0], SERVERS[2], may(CloneFlags::DIRECT | CloneFlags::CLONE)));
    scene.send(frame(Kind::CloneRequest, 1, CALLERS[0], CALLERS[1], may(CloneFlags::DIRECT)));
    scene.remark("a cancel goes to the other of the pair; of another version, or about a third, nowhere");
    for (version, grp, sid) in [(1, 0, 0), (1, 0, 1), (0, 0, 0), (1, 0, 2), (1, 6, 0)] {
        scene.send(frame(Kind::CloneCancel, version, CALLERS[0], 0, CloneRepr { grp, sid, ..clone }));
    }
    scene.remark("what another element has decided passes as it is, and so does what asks for it");
    scene.send(request(CloneRepr { switch_id: 2, clo: ORIGINAL, sid: 1, req_id: 9, ..clone }));
    scene.send(reply(0, CloneRepr { state: 5, clo: ORIGINAL, req_id: 9, ..clone }));
    let theirs = CloneRepr { sid: 1, switch_id: 2, state: 5, clo: ORIGINAL, req_id: 9, ..clone };
    scene.send(frame(Kind::CloneReply, 1, SERVERS[1], CALLERS[0], theirs));
    scene.remark("hosts are not believed what only an element says");
    scene.send(request(CloneRepr { clo: CLONE, sid: 2, grp: 1, ..may(0) }));

    scene.remark("in another's name: a server asks, a caller answers, a server answers as another");
    scene.send(frame(Kind::CloneRequest, 1, SERVERS[0], 0, clone));
    scene.send(frame(Kind::CloneReply, 1, CALLERS[0], CALLERS[1], clone));
    scene.send(frame(Kind::CloneReply, 1, SERVERS[0], CALLERS[0], CloneRepr { sid: 1, ..clone }));
    scene.remark("not admitted: on, flagged, if it is addressed to one of the pool's");
    scene.send(frame(Kind::CloneRequest, 1, 55, SERVERS[1], clone));
    scene.send(frame(Kind::CloneRequest, 1, 55, 0, clone));

    scene.remark("servers go and come: loads stay with them; one alone gets no clones, and nobody gets nothing");
    scene.send(reply(2, CloneRepr { state: 4, ..clone }));
    scene.step(pool(2, &[SERVERS[2], SERVERS[0]]));
    scene.state();
    scene.send(frame(Kind::CloneRequest, 2, CALLERS[0], 0, shortest));
    scene.step(pool(3, &[SERVERS[1]]));
    scene.send(frame(Kind::CloneRequest, 3, CALLERS[0], 0, clone));
    scene.step(pool(4, &[]));
    scene.send(frame(Kind::CloneRequest, 4, CALLERS[0], 0, clone));
    scene.remark("a server twice, an application's id, too many servers");
    scene.step(pool(5, &[SERVERS[0], SERVERS[0]]));
    scene.step(pool(5, &(0..65).collect::<Vec<_>>()));
    scene.remark("numbers go round without 0");
    scene.step(pool(6, &SERVERS));
    scene.step(Step::NumberAfter((1 << 63) - 2));
    for _ in 0..2 {
        scene.send(frame(Kind::CloneRequest, 6, CALLERS[0], 0, clone));
    }
    scene.end()
}
