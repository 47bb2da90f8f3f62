//! Scenes of what is not admitted, is no frame, or comes in a random order.

use pathcall_conformance::Step;
use pathcall_conformance::corpus::Case;
use pathcall_conformance::frame::{bare, keyed, linear};
use pathcall_conformance::generate::{Generator, Options, SIZE};
use pathcall_program::{Application, Endpoint};
use pathcall_wire::{BaseRepr, Flags, Kind, MAX_FRAME, MapFlags, MapRepr, TokenKey};

use super::scene::{ARRAYS, INCARNATION, KEYS, MEMORY, Scene, caller, endpoint, server};

/// The seed of the random case.
const SEED: u64 = 8;
/// Steps of the random case.
const STEPS: usize = 600;

fn add(base: &BaseRepr) -> Vec<u8> {
    keyed(base, &MapRepr { flags: MapFlags::ADD | MapFlags::GET, ..MapRepr::default() }, &[(0, 1)])
}

fn data(seq: u32) -> BaseRepr {
    caller(21, Kind::MapData, seq)
}

pub fn refusals() -> Case {
    let mut scene = Scene::new("refusals");
    let right = data(1);
    scene.remark("not admitted, and passed on with a mark: other epochs, another incarnation, another's or no slot");
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
    scene.remark("nobody to pass it on to: an application that is not there, endpoints of another");
    scene.send(add(&BaseRepr { gaid: 9, ..right }));
    scene.send(add(&BaseRepr { gaid: 1, ..right }));
    scene.send(add(&BaseRepr { src: 99, dst: 11, ..right }));
    scene.remark("admitted, but addressed to an endpoint that its application does not have");
    scene.send(add(&BaseRepr { dst: 11, flags: right.flags | Flags::CROSS, ..right }));
    scene.remark("says that it comes from the server, and does not; comes from it, and does not say so");
    scene.send(add(&BaseRepr { flags: right.flags | Flags::FROM_SERVER, ..right }));
    let result = |flags| BaseRepr { round: 1, flags, ..server(Kind::MapResult, 11) };
    let clears = MapRepr { flags: MapFlags::CLEAR | MapFlags::ROUND, ..MapRepr::default() };
    scene.send(linear(&BaseRepr { src: 11, ..result(Flags::FROM_SERVER) }, &clears, &[0]));
    scene.send(linear(&result(0), &clears, &[0]));
    scene.remark("kinds that only the server may have worked on are passed on when a caller sends them");
    for kind in [Kind::MapResult, Kind::MapRead, Kind::MapClose, Kind::MapWipe, Kind::MapFree, Kind::MapMove] {
        scene.send(bare(&caller(21, kind, 1), &MapRepr { flags: MapFlags::BARE, ..MapRepr::default() }));
    }
    scene.remark("past the element, untouched, whatever it carries");
    scene.send(add(&BaseRepr { flags: right.flags | Flags::CROSS, slot: 99, ..right }));
    scene.send_congested(add(&BaseRepr { flags: right.flags | Flags::CROSS, ..right }));
    scene.remark("what only an element may say is taken from what it passes on");
    let says = MapRepr { flags: MapFlags::LOGICAL | MapFlags::ELEMENT_ONLY, ..MapRepr::default() };
    scene.send(keyed(&BaseRepr { flags: right.flags | Flags::NOT_ADMITTED, ..right }, &says, &[(0, 1)]));
    scene.remark("congestion is marked in what is not admitted as well");
    scene.send_congested(add(&BaseRepr { epoch: 0, ..right }));
    scene.remark("and the right one");
    scene.send(add(&right));
    scene.end()
}

pub fn hostile() -> Case {
    let mut scene = Scene::new("hostile");
    let right = add(&data(1));
    scene.remark("cut off anywhere");
    for len in [0, 1, 2, 8, 43, 44, 71, 72, 76, right.len() - 1] {
        scene.send(right[..len].to_vec());
    }
    scene.remark("followed by more, and by more that the length tells of");
    let mut more = [&right[..], &[0; 3]].concat();
    scene.send(more.clone());
    more[7] += 3;
    scene.send(more);
    scene.remark("one byte is another: magic, version, kind, length, operator, target, lanes, payload");
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
    scene.remark("the other form under the same length");
    for flag in [MapFlags::LINEAR, MapFlags::BARE, MapFlags::WIDE] {
        let mut bytes = right.clone();
        bytes[46..48].copy_from_slice(&(MapFlags::ADD | flag).to_be_bytes());
        scene.send(bytes);
    }
    scene.remark("a token where there is none: its flag alone, and in its place");
    let mut flag = right.clone();
    flag[5] |= Flags::TOKEN as u8;
    scene.send(flag);
    scene.send(TokenKey::new([1, 2]).seal(&right, &mut [0; MAX_FRAME]).expect("room").to_vec());
    scene.remark("as long as a frame can be, all ones");
    scene.send(vec![0xff; MAX_FRAME]);
    let wide = MapRepr { flags: MapFlags::LINEAR | MapFlags::ROUND, threshold: 1, ..MapRepr::default() };
    scene.send(linear(&BaseRepr { round: 1, ..data(2) }, &wide, &[-1; 300]));
    scene.remark("numbers at the ends of their range; the first of a place may be 0, which is a repeat");
    for seq in [0, u32::MAX, u32::MAX - 256, 255] {
        scene.send(add(&BaseRepr { slot: 5, ..data(seq) }));
    }
    scene.end()
}

pub fn tables() -> Case {
    let mut scene = Scene::empty("tables", MEMORY);
    scene.remark("an empty table admits nothing");
    scene.send(add(&data(1)));
    scene.step(Step::SetEndpoint(endpoint(2)));
    scene.send(add(&data(1)));
    scene.step(Step::Install(KEYS));
    scene.send(add(&data(1)));
    scene.step(Step::SetEndpoint(endpoint(21)));
    scene.send(add(&data(1)));
    scene.remark("the same entries again change nothing, and another owner alone zeroes nothing");
    scene.step(Step::Install(KEYS));
    scene.step(Step::SetEndpoint(endpoint(21)));
    scene.step(Step::Install(Application { owner: 21, ..KEYS }));
    scene.step(Step::Install(KEYS));
    scene.send(add(&data(1)));
    scene.state();
    scene.remark("a new epoch starts with empty registers; the repeat filter is the endpoint's");
    scene.step(Step::Install(Application { epoch: KEYS.epoch + 1, ..KEYS }));
    scene.send(add(&data(2)));
    scene.send(add(&BaseRepr { epoch: KEYS.epoch + 1, ..data(1) }));
    scene.send(add(&BaseRepr { epoch: KEYS.epoch + 1, ..data(2) }));
    scene.remark("a new incarnation starts with empty slots");
    scene.step(Step::SetEndpoint(Endpoint { incarnation: INCARNATION + 1, ..endpoint(21) }));
    scene.send(add(&BaseRepr { epoch: KEYS.epoch + 1, ..data(2) }));
    scene.send(add(&BaseRepr { epoch: KEYS.epoch + 1, src_incarnation: INCARNATION + 1, ..data(2) }));
    scene.remark("a reset zeroes registers, and leaves generations and slots");
    scene.step(Step::Reset(2));
    scene.send(add(&BaseRepr { epoch: KEYS.epoch + 1, src_incarnation: INCARNATION + 1, ..data(2) }));
    scene.remark("refused: what does not fit, what is another's, what is not there");
    scene.step(Step::Install(Application { row_base: 5, ..KEYS }));
    scene.step(Step::Install(Application { lane_base: u32::MAX, ..KEYS }));
    scene.step(Step::Install(Application { row_base: 7, rows: 1, ..ARRAYS }));
    scene.step(Step::Install(Application { lane_base: 250, ..ARRAYS }));
    scene.step(Step::SetEndpoint(Endpoint { slot_base: 8, slots: 1, ..endpoint(22) }));
    scene.step(Step::SetEndpoint(Endpoint { slot_base: 5, ..endpoint(22) }));
    scene.step(Step::SetGroup(2, vec![21, 22]));
    scene.step(Step::SetGroup(1, vec![]));
    scene.step(Step::Reset(1));
    scene.step(Step::Remove(1));
    scene.remark("an endpoint that moves to another application leaves its group");
    scene.step(Step::Install(ARRAYS));
    scene.step(Step::SetGroup(2, vec![21]));
    scene.step(Step::SetEndpoint(Endpoint { gaid: 1, ..endpoint(21) }));
    scene.step(Step::SetEndpoint(endpoint(21)));
    let commit = |epoch| {
        let base = server(Kind::MapCommit, 21);
        let base = BaseRepr { epoch, flags: base.flags | Flags::MCAST, ..base };
        bare(&base, &MapRepr { flags: MapFlags::BARE, ..MapRepr::default() })
    };
    scene.send(commit(KEYS.epoch + 1));
    scene.remark("taken out with its endpoints; who comes after has empty memory");
    scene.step(Step::Remove(2));
    scene.send(commit(KEYS.epoch + 1));
    scene.step(Step::RemoveEndpoint(21));
    scene.step(Step::Install(KEYS));
    scene.step(Step::SetEndpoint(endpoint(2)));
    scene.step(Step::SetEndpoint(endpoint(22)));
    scene.send(add(&BaseRepr { slot: 6, src: 22, ..data(1) }));
    scene.end()
}

pub fn tokens() -> Case {
    let mut scene = Scene::new("tokens");
    let key = TokenKey::new([0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210]);
    let seal = |key: &TokenKey, frame: &[u8]| key.seal(frame, &mut [0; MAX_FRAME]).expect("room").to_vec();
    scene.remark("frames of application 2 carry tokens, and what leaves is signed anew");
    scene.step(Step::Authenticate(2, Some(key)));
    scene.send(seal(&key, &add(&data(1))));
    scene.send(seal(&key, &add(&data(1))));
    scene.remark("without one, with another's, changed after it was signed");
    scene.send(add(&data(2)));
    scene.send(seal(&TokenKey::new([0, 0]), &add(&data(2))));
    let mut changed = seal(&key, &add(&data(2)));
    if let Some(byte) = changed.last_mut() {
        *byte ^= 1;
    }
    scene.send(changed);
    scene.remark("not admitted, and marked, as it can be signed anew");
    scene.send(seal(&key, &add(&BaseRepr { epoch: 0, ..data(2) })));
    scene.remark("copies are signed one by one");
    let base = server(Kind::MapCommit, 21);
    let commit = BaseRepr { flags: base.flags | Flags::MCAST, ..base };
    scene.send(seal(&key, &bare(&commit, &MapRepr { flags: MapFlags::BARE, ..MapRepr::default() })));
    scene.remark("without a key again");
    scene.step(Step::Authenticate(2, None));
    scene.send(seal(&key, &add(&data(2))));
    scene.send(add(&data(2)));
    scene.remark("an application that is not there has none; a token that can't be checked is left as it is");
    scene.step(Step::Authenticate(9, Some(key)));
    scene.step(Step::SetEndpoint(Endpoint { endpoint: 90, incarnation: 1, gaid: 9, slot_base: 7, slots: 1 }));
    scene.send(seal(&key, &add(&BaseRepr { gaid: 9, dst: 90, ..data(1) })));
    scene.end()
}

pub fn random() -> Case {
    let mut scene = Scene::empty("random", SIZE);
    scene.remark("a random sequence, as the differential fuzzer plays by the million");
    for (at, step) in Generator::new(SEED, Options::default()).take(STEPS).enumerate() {
        scene.step(step);
        if at % 100 == 99 {
            scene.state();
        }
    }
    scene.end()
}
