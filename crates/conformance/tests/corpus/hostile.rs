//! Corpus cases of refused frames, malformed frames and random steps.

use pathcall_conformance::ProgramStep;
use pathcall_conformance::corpus::Case;
use pathcall_conformance::frame::{bare, keyed, linear};
use pathcall_conformance::generate::{Generator, GeneratorOptions, SIZE};
use pathcall_program::{Endpoint, InstalledApplication};
use pathcall_wire::{BaseRepr, Flags, FrameKind, MAX_FRAME, MapFlags, MapRepr, TokenKey};

use super::case_recorder::{ARRAYS, CaseRecorder, INCARNATION, KEYS, MEMORY, caller, endpoint, server};

/// Seed of the random case.
const SEED: u64 = 8;
/// Number of steps of the random case.
const STEPS: usize = 600;

fn add(base: &BaseRepr) -> Vec<u8> {
    keyed(base, &MapRepr { flags: MapFlags::ADD | MapFlags::GET, ..MapRepr::default() }, &[(0, 1)])
}

fn data(seq: u32) -> BaseRepr {
    caller(21, FrameKind::MapData, seq)
}

pub fn refusals() -> Case {
    let mut scene = CaseRecorder::new("refusals");
    let right = data(1);
    scene.remark(
        "not admitted, forwarded with a flag: other epochs, another incarnation, a slot of another endpoint or none",
    );
    for base in [
        BaseRepr { epoch: KEYS.epoch - 1, ..right },
        BaseRepr { epoch: KEYS.epoch + 1, ..right },
        BaseRepr { src_incarnation: INCARNATION + 1, ..right },
        BaseRepr { slot: 6, ..right },
        BaseRepr { slot: 7, ..right },
        BaseRepr { slot: u32::MAX, ..right },
        BaseRepr { src: 11, ..right },
        BaseRepr { src: 99, ..right },
    ] {
        scene.send(add(&base));
    }
    scene.remark("no destination: unknown application, endpoints of another application");
    scene.send(add(&BaseRepr { gaid: 9, ..right }));
    scene.send(add(&BaseRepr { gaid: 1, ..right }));
    scene.send(add(&BaseRepr { src: 99, dst: 11, ..right }));
    scene.remark("admitted, but addressed to an endpoint of another application");
    scene.send(add(&BaseRepr { dst: 11, flags: right.flags | Flags::CROSS, ..right }));
    scene.remark("claims to come from the server, but does not; comes from the server without the flag");
    scene.send(add(&BaseRepr { flags: right.flags | Flags::FROM_SERVER, ..right }));
    let result = |flags| BaseRepr { round: 1, flags, ..server(FrameKind::MapResult, 11) };
    let clears = MapRepr { flags: MapFlags::CLEAR | MapFlags::ROUND, ..MapRepr::default() };
    scene.send(linear(&BaseRepr { src: 11, ..result(Flags::FROM_SERVER) }, &clears, &[0]));
    scene.send(linear(&result(0), &clears, &[0]));
    scene.remark("kinds reserved to the server are forwarded when a caller sends them");
    for kind in [
        FrameKind::MapResult,
        FrameKind::MapRead,
        FrameKind::MapClose,
        FrameKind::MapWipe,
        FrameKind::MapFree,
        FrameKind::MapMove,
    ] {
        scene.send(bare(&caller(21, kind, 1), &MapRepr { flags: MapFlags::BARE, ..MapRepr::default() }));
    }
    scene.remark("passes the element unchanged, whatever it carries");
    scene.send(add(&BaseRepr { flags: right.flags | Flags::CROSS, slot: 99, ..right }));
    scene.send_congested(add(&BaseRepr { flags: right.flags | Flags::CROSS, ..right }));
    scene.remark("flags that only an element may set are cleared in forwarded frames");
    let says = MapRepr { flags: MapFlags::LOGICAL | MapFlags::ELEMENT_ONLY, ..MapRepr::default() };
    scene.send(keyed(&BaseRepr { flags: right.flags | Flags::NOT_ADMITTED, ..right }, &says, &[(0, 1)]));
    scene.remark("congestion is marked in frames that are not admitted as well");
    scene.send_congested(add(&BaseRepr { epoch: 0, ..right }));
    scene.remark("with the correct token");
    scene.send(add(&right));
    scene.end()
}

pub fn hostile() -> Case {
    let mut scene = CaseRecorder::new("hostile");
    let right = add(&data(1));
    scene.remark("truncated at each length");
    for len in [0, 1, 2, 8, 43, 44, 71, 72, 76, right.len() - 1] {
        scene.send(right[..len].to_vec());
    }
    scene.remark("trailing bytes, outside and inside of the length field");
    let mut more = [&right[..], &[0; 3]].concat();
    scene.send(more.clone());
    more[7] += 3;
    scene.send(more);
    scene.remark("one byte is changed: magic, version, kind, length, operator, target, lanes, payload");
    for (at, value) in [
        (0, 0),
        (1, 0),
        (2, 0),
        (2, 2),
        (3, 0),
        (3, 25),
        (3, 31),
        (3, 255),
        (6, 1),
        (7, 0),
        (44, 11),
        (45, 3),
        (48, 1),
        (49, 2),
        (66, 1),
        (67, 1),
    ] {
        let mut bytes = right.clone();
        bytes[at] = value;
        scene.send(bytes);
    }
    scene.remark("the other lane format with the same length");
    for flag in [MapFlags::LINEAR, MapFlags::BARE, MapFlags::WIDE] {
        let mut bytes = right.clone();
        bytes[46..48].copy_from_slice(&(MapFlags::ADD | flag).to_be_bytes());
        scene.send(bytes);
    }
    scene.remark("an unexpected token: the flag only, and with the token's bytes");
    let mut flag = right.clone();
    flag[5] |= Flags::TOKEN as u8;
    scene.send(flag);
    scene.send(TokenKey::new([1, 2]).insert_token(&right, &mut [0; MAX_FRAME]).expect("room").to_vec());
    scene.remark("longest frame, all bits set");
    scene.send(vec![0xff; MAX_FRAME]);
    let wide = MapRepr { flags: MapFlags::LINEAR | MapFlags::ROUND, threshold: 1, ..MapRepr::default() };
    scene.send(linear(&BaseRepr { round: 1, ..data(2) }, &wide, &[-1; 300]));
    scene.remark("sequence numbers at the bounds of their range; a first number 0 is a repeat");
    for seq in [0, u32::MAX, u32::MAX - 256, 255] {
        scene.send(add(&BaseRepr { slot: 5, ..data(seq) }));
    }
    scene.end()
}

pub fn tables() -> Case {
    let mut scene = CaseRecorder::empty("tables", MEMORY);
    scene.remark("empty tables admit nothing");
    scene.send(add(&data(1)));
    scene.step(ProgramStep::SetEndpoint(endpoint(2)));
    scene.send(add(&data(1)));
    scene.step(ProgramStep::Install(KEYS));
    scene.send(add(&data(1)));
    scene.step(ProgramStep::SetEndpoint(endpoint(21)));
    scene.send(add(&data(1)));
    scene.remark("equal entries change nothing; a change of the owner alone zeroes nothing");
    scene.step(ProgramStep::Install(KEYS));
    scene.step(ProgramStep::SetEndpoint(endpoint(21)));
    scene.step(ProgramStep::Install(InstalledApplication { owner: 21, ..KEYS }));
    scene.step(ProgramStep::Install(KEYS));
    scene.send(add(&data(1)));
    scene.state();
    scene.remark("a new epoch starts with empty registers; the repeat filter is the endpoint's");
    scene.step(ProgramStep::Install(InstalledApplication { epoch: KEYS.epoch + 1, ..KEYS }));
    scene.send(add(&data(2)));
    scene.send(add(&BaseRepr { epoch: KEYS.epoch + 1, ..data(1) }));
    scene.send(add(&BaseRepr { epoch: KEYS.epoch + 1, ..data(2) }));
    scene.remark("a new incarnation starts with empty slots");
    scene.step(ProgramStep::SetEndpoint(Endpoint { incarnation: INCARNATION + 1, ..endpoint(21) }));
    scene.send(add(&BaseRepr { epoch: KEYS.epoch + 1, ..data(2) }));
    scene.send(add(&BaseRepr { epoch: KEYS.epoch + 1, src_incarnation: INCARNATION + 1, ..data(2) }));
    scene.remark("a reset zeroes registers, but not generations and slots");
    scene.step(ProgramStep::Reset(2));
    scene.send(add(&BaseRepr { epoch: KEYS.epoch + 1, src_incarnation: INCARNATION + 1, ..data(2) }));
    scene.remark("refused: out of range, already in use, unknown");
    scene.step(ProgramStep::Install(InstalledApplication { row_base: 5, ..KEYS }));
    scene.step(ProgramStep::Install(InstalledApplication { lane_base: u32::MAX, ..KEYS }));
    scene.step(ProgramStep::Install(InstalledApplication { row_base: 7, rows: 1, ..ARRAYS }));
    scene.step(ProgramStep::Install(InstalledApplication { lane_base: 250, ..ARRAYS }));
    scene.step(ProgramStep::SetEndpoint(Endpoint { slot_base: 8, slots: 1, ..endpoint(22) }));
    scene.step(ProgramStep::SetEndpoint(Endpoint { slot_base: 5, ..endpoint(22) }));
    scene.step(ProgramStep::SetGroup(2, vec![21, 22]));
    scene.step(ProgramStep::SetGroup(1, vec![]));
    scene.step(ProgramStep::Reset(1));
    scene.step(ProgramStep::Remove(1));
    scene.remark("an endpoint that moves to another application leaves its group");
    scene.step(ProgramStep::Install(ARRAYS));
    scene.step(ProgramStep::SetGroup(2, vec![21]));
    scene.step(ProgramStep::SetEndpoint(Endpoint { gaid: 1, ..endpoint(21) }));
    scene.step(ProgramStep::SetEndpoint(endpoint(21)));
    let commit = |epoch| {
        let base = server(FrameKind::MapCommit, 21);
        let base = BaseRepr { epoch, flags: base.flags | Flags::MCAST, ..base };
        bare(&base, &MapRepr { flags: MapFlags::BARE, ..MapRepr::default() })
    };
    scene.send(commit(KEYS.epoch + 1));
    scene.remark("removed with its endpoints; the next application gets empty memory");
    scene.step(ProgramStep::Remove(2));
    scene.send(commit(KEYS.epoch + 1));
    scene.step(ProgramStep::RemoveEndpoint(21));
    scene.step(ProgramStep::Install(KEYS));
    scene.step(ProgramStep::SetEndpoint(endpoint(2)));
    scene.step(ProgramStep::SetEndpoint(endpoint(22)));
    scene.send(add(&BaseRepr { slot: 6, src: 22, ..data(1) }));
    scene.end()
}

pub fn tokens() -> Case {
    let mut scene = CaseRecorder::new("tokens");
    let key = TokenKey::new([0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210]);
    let seal = |key: &TokenKey, frame: &[u8]| key.insert_token(frame, &mut [0; MAX_FRAME]).expect("room").to_vec();
    scene.remark("frames of application 2 carry tokens, and outgoing frames are signed again");
    scene.step(ProgramStep::Authenticate(2, Some(key)));
    scene.send(seal(&key, &add(&data(1))));
    scene.send(seal(&key, &add(&data(1))));
    scene.remark("without a token; with another application's token; changed after signing");
    scene.send(add(&data(2)));
    scene.send(seal(&TokenKey::new([0, 0]), &add(&data(2))));
    let mut changed = seal(&key, &add(&data(2)));
    if let Some(byte) = changed.last_mut() {
        *byte ^= 1;
    }
    scene.send(changed);
    scene.remark("not admitted, flagged and signed again");
    scene.send(seal(&key, &add(&BaseRepr { epoch: 0, ..data(2) })));
    scene.remark("copies are signed individually");
    let base = server(FrameKind::MapCommit, 21);
    let commit = BaseRepr { flags: base.flags | Flags::MCAST, ..base };
    scene.send(seal(&key, &bare(&commit, &MapRepr { flags: MapFlags::BARE, ..MapRepr::default() })));
    scene.remark("without a key");
    scene.step(ProgramStep::Authenticate(2, None));
    scene.send(seal(&key, &add(&data(2))));
    scene.send(add(&data(2)));
    scene.remark("an unknown application has no key; a token that cannot be checked is left unchanged");
    scene.step(ProgramStep::Authenticate(9, Some(key)));
    scene.step(ProgramStep::SetEndpoint(Endpoint { endpoint: 90, incarnation: 1, gaid: 9, slot_base: 7, slots: 1 }));
    scene.send(seal(&key, &add(&BaseRepr { gaid: 9, dst: 90, ..data(1) })));
    scene.end()
}

pub fn random() -> Case {
    let mut scene = CaseRecorder::empty("random", SIZE);
    scene.remark("a random sequence, as in the differential test");
    for (at, step) in Generator::new(SEED, GeneratorOptions::default()).take(STEPS).enumerate() {
        scene.step(step);
        if at % 100 == 99 {
            scene.state();
        }
    }
    scene.end()
}
