//! Calls: the two answers of one come at once and one passes, and no two requests have one number.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};

use pathcall_program::{CloneSize, Endpoint, Pool};
use pathcall_wire::clone::{ORIGINAL, emit};
use pathcall_wire::{BaseRepr, CloneFlags, CloneFrame, CloneRepr, Flags, Kind, MAX_FRAME};
use pathcall_xdp::{Config, Kernel, Ran};

use super::{SEEN_MIN, Sender, deadline, on_two_processors, turn};
use crate::common::frames::SIZE;
use crate::common::{address, config, loaded};

const GAID: u32 = 9;
const CALLERS: [u32; 2] = [1, 2];
/// By SID.
const SERVERS: [u32; 2] = [11, 12];
const INCARNATION: u32 = 4;
/// Calls that both answer before they wait for each other.
const BATCH: u32 = 64;

fn kernel() -> Option<Kernel> {
    let mut kernel = loaded(Kernel::load(&Config { clones: CloneSize::default(), ..config(SIZE) }))?;
    kernel.own(*super::ELEMENT.ip()).expect("an empty table");
    kernel.install_pool(&Pool { gaid: GAID, version: 1, servers: SERVERS.to_vec() }).expect("there is room");
    for endpoint in CALLERS.into_iter().chain(SERVERS) {
        let entry = Endpoint { endpoint, incarnation: INCARNATION, gaid: GAID, slot_base: 0, slots: 0 };
        kernel.set_endpoint(&entry, address(endpoint)).expect("there is room");
    }
    Some(kernel)
}

fn frame(kind: Kind, src: u32, head: CloneRepr) -> Vec<u8> {
    let flags = if CALLERS.contains(&src) { 0 } else { Flags::FROM_SERVER };
    let (gaid, src_incarnation, dst) = (GAID, INCARNATION, CALLERS[0]);
    let base = BaseRepr { flags, gaid, epoch: 1, src, src_incarnation, dst, ..BaseRepr::new(kind) };
    let mut bytes = [0; MAX_FRAME];
    let len = emit(&base, &CloneRepr { parts: 1, ..head }, b"", &mut bytes);
    bytes[..len].to_vec()
}

#[test]
fn of_two_answers_at_once_one_passes() {
    let _turn = turn();
    let Some(kernel) = kernel() else { return };
    let at: [AtomicU32; 2] = Default::default();
    let ended = AtomicU32::new(u32::MAX);
    let until = deadline();
    let passed = on_two_processors(&kernel, until, |mut sender| {
        let mut passed = HashSet::new();
        for batch in 1.. {
            sender.meet(&at, batch);
            if batch > ended.load(Ordering::Acquire) {
                break;
            }
            if sender.me == 0
                && !sender.goes_on(u64::from(batch) * u64::from(BATCH))
                && ended.load(Ordering::Acquire) == u32::MAX
            {
                // One more: the other may be in it already.
                ended.store(batch + 1, Ordering::Release);
            }
            for call in batch * BATCH..(batch + 1) * BATCH {
                let (req_id, sid) = (call.into(), sender.me as u16);
                let head = CloneRepr { req_id, sid, clo: ORIGINAL, ..CloneRepr::default() };
                match sender.send(&frame(Kind::CloneReply, SERVERS[sender.me], head)) {
                    Ran::Out(..) => drop(passed.insert(call)),
                    Ran::Dropped => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        passed
    });
    let calls = u64::from(ended.into_inner()) * u64::from(BATCH);
    let counters = kernel.pools().expect("read")[0].2;
    let [first, second] = &passed;
    println!("{calls} calls, {} and {} answers passed", first.len(), second.len());
    assert_eq!((counters.replies, counters.filtered), (2 * calls, calls));
    assert!(first.is_disjoint(second) && (first.len() + second.len()) as u64 == calls, "one of each");
    assert!(calls > SEEN_MIN);
}

#[test]
fn no_two_requests_have_one_number() {
    let _turn = turn();
    let Some(kernel) = kernel() else { return };
    let numbers = on_two_processors(&kernel, deadline(), |mut sender: Sender<'_>| {
        let mut numbers = Vec::new();
        while sender.goes_on(numbers.len() as u64) {
            let head = CloneRepr { flags: CloneFlags::CLONE, ..CloneRepr::default() };
            match sender.send(&frame(Kind::CloneRequest, CALLERS[sender.me], head)) {
                Ran::Out(_, left) | Ran::Slow(_, left) => {
                    numbers.push(CloneFrame::new_checked(&left[..]).expect("a frame").head().req_id());
                }
                other => panic!("{other:?}"),
            }
        }
        numbers
    });
    let all: HashSet<u64> = numbers.iter().flatten().copied().collect();
    let given = kernel.last_number().expect("read");
    assert_eq!((all.len(), all.len() as u64), (numbers[0].len() + numbers[1].len(), given));
    assert!(numbers.iter().all(|numbers| numbers.len() as u64 > SEEN_MIN));
}
