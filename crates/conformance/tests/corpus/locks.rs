//! Corpus cases of locks.

use pathcall_conformance::corpus::Case;
use pathcall_conformance::frame::bare;
use pathcall_wire::map::{LOCK_PARKED, LOCK_WANTED};
use pathcall_wire::{BaseRepr, FrameKind, MapFlags, MapRepr};

use super::case_recorder::{CaseRecorder, caller, server};

fn take(from: u32, seq: u32, lock: u32, tag: u32) -> Vec<u8> {
    let map = MapRepr { flags: MapFlags::COUNT, threshold: 1, index: lock, tag, ..MapRepr::default() };
    bare(&caller(from, FrameKind::MapData, seq), &map)
}

fn give_back(from: u32, seq: u32, lock: u32, tag: u32) -> Vec<u8> {
    let map = MapRepr { flags: MapFlags::CLEAR, index: lock, tag, ..MapRepr::default() };
    bare(&caller(from, FrameKind::MapData, seq), &map)
}

/// Server's release of a lock that `holder` acquired with `tag`; the server has granted it up to number `grants`.
fn free(lock: u32, holder: u32, tag: u32, grants: u32) -> Vec<u8> {
    let map = MapRepr { flags: MapFlags::BARE, index: lock, threshold: holder, tag, ..MapRepr::default() };
    bare(&BaseRepr { round: grants, ..server(FrameKind::MapFree, 21) }, &map)
}

pub fn locks() -> Case {
    let mut scene = CaseRecorder::new("locks");
    scene.remark("acquired; the holder's repeat is granted again, and its next frame of the same acquisition as well");
    scene.send(take(21, 1, 0, 7));
    scene.send(take(21, 1, 0, 7));
    scene.send(take(21, 2, 0, 7));
    scene.remark("released by the acquisition that holds it, not by others; a repeat has no effect");
    scene.send(give_back(22, 1, 0, 7));
    scene.send(give_back(21, 3, 0, 8));
    scene.send(give_back(21, 4, 0, 7));
    scene.send(give_back(21, 4, 0, 7));
    scene.remark("a repeat of a finished acquisition acquires nothing");
    scene.send(take(21, 2, 0, 7));
    scene.remark("denied, which marks the lock as wanted; another acquisition of the same holder is denied as well");
    scene.send(take(21, 5, 0, 9));
    scene.send(take(22, 2, 0, 1));
    scene.send(take(21, 6, 0, 10));
    scene.state();
    scene.remark("released while wanted: the lock is the server's, and the frame goes there, on a repeat as well");
    scene.send(give_back(21, 7, 0, 9));
    scene.send(give_back(21, 7, 0, 9));
    scene.send(take(22, 3, 0, 2));
    scene.send(take(21, 8, 0, 9));
    scene.remark("freed only for the current holder, with the server's number of grants");
    scene.send(free(0, 21, 9, 5));
    scene.send(free(0, 21, 9 | LOCK_PARKED, 5));
    scene.send(free(0, 21, 9 | LOCK_PARKED, 6));
    scene.send(take(22, 4, 0, 3));
    scene.remark("the number of grants never decreases; a held lock may be freed as well");
    scene.send(free(0, 22, 3, 1));
    scene.send(free(0, 0, 0, 9));
    scene.remark("the count saturates at its maximum");
    scene.send(take(21, 9, 1, 1));
    scene.send(free(1, 21, 1, u32::MAX));
    scene.send(take(22, 5, 1, 1));
    scene.remark("acquisition numbers have 30 bits; locks out of range");
    scene.send(take(21, 10, 2, LOCK_WANTED | 1));
    scene.send(take(21, 11, 2, LOCK_PARKED | 1));
    scene.send(take(21, 12, 4, 1));
    scene.send(give_back(21, 13, u32::MAX, 1));
    scene.send(free(4, 21, 1, 1));
    scene.remark("acquisition numbers 0 and the maximum");
    scene.send(take(21, 14, 2, 0));
    scene.send(take(21, 15, 3, LOCK_PARKED - 1));
    scene.send(take(22, 6, 3, LOCK_PARKED - 1));
    scene.remark("locks of the application of arrays are separate");
    scene.send(take(11, 1, 0, 7));
    scene.end()
}
