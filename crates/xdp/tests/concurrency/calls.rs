//! Concurrency tests of calls: two simultaneous answers of which one passes, and unique request numbers.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};

use pathcall_program::{CloneSize, Endpoint, InstalledPool};
use pathcall_wire::clone::{ORIGINAL, emit};
use pathcall_wire::{BaseRepr, CloneFlags, CloneFrame, CloneRepr, Flags, FrameKind, MAX_FRAME};
use pathcall_xdp::{Config, KernelSwitch, RunResult};

use super::{SEEN_MIN, Sender, deadline, exclusive, on_two_processors};
use crate::common::frames::SIZE;
use crate::common::{address, config, loaded};

const GAID: u32 = 9;
const CALLERS: [u32; 2] = [1, 2];
/// Endpoints of the servers, by SID.
const SERVERS: [u32; 2] = [11, 12];
const INCARNATION: u32 = 4;
/// Calls that both servers answer between two synchronisations.
const BATCH: u32 = 64;

fn kernel() -> Option<KernelSwitch> {
    let mut kernel = loaded(KernelSwitch::load(&Config { clones: CloneSize::default(), ..config(SIZE) }))?;
    kernel.set_element_address(*super::ELEMENT.ip()).expect("an empty table");
    kernel.install_pool(&InstalledPool { gaid: GAID, version: 1, servers: SERVERS.to_vec() }).expect("there is room");
    for endpoint in CALLERS.into_iter().chain(SERVERS) {
        let entry = Endpoint { endpoint, incarnation: INCARNATION, gaid: GAID, slot_base: 0, slots: 0 };
        kernel.set_endpoint(&entry, address(endpoint)).expect("there is room");
    }
    Some(kernel)
}

fn frame(kind: FrameKind, src: u32, head: CloneRepr) -> Vec<u8> {
    let flags = if CALLERS.contains(&src) { 0 } else { Flags::FROM_SERVER };
    let (gaid, src_incarnation, dst) = (GAID, INCARNATION, CALLERS[0]);
    let base = BaseRepr { flags, gaid, epoch: 1, src, src_incarnation, dst, ..BaseRepr::new(kind) };
    let mut bytes = [0; MAX_FRAME];
    let len = emit(&base, &CloneRepr { parts: 1, ..head }, b"", &mut bytes);
    bytes[..len].to_vec()
}

#[test]
fn one_of_two_simultaneous_answers_passes() {
    let _turn = exclusive();
    let Some(kernel) = kernel() else { return };
    let at: [AtomicU32; 2] = Default::default();
    let batches = AtomicU32::new(u32::MAX);
    let until = deadline();
    let passed = on_two_processors(&kernel, until, |mut sender| {
        let mut passed = HashSet::new();
        for batch in 1.. {
            sender.wait_for_other(&at, batch);
            if batch > batches.load(Ordering::Acquire) {
                break;
            }
            if sender.me == 0
                && !sender.continues(u64::from(batch) * u64::from(BATCH))
                && batches.load(Ordering::Acquire) == u32::MAX
            {
                // One more: the other sender may be in the next batch already.
                batches.store(batch + 1, Ordering::Release);
            }
            for call in batch * BATCH..(batch + 1) * BATCH {
                let (req_id, sid) = (call.into(), sender.me as u16);
                let head = CloneRepr { req_id, sid, clo: ORIGINAL, ..CloneRepr::default() };
                match sender.send(&frame(FrameKind::CloneReply, SERVERS[sender.me], head)) {
                    RunResult::Out(..) => drop(passed.insert(call)),
                    RunResult::Dropped => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        passed
    });
    let calls = u64::from(batches.into_inner()) * u64::from(BATCH);
    let counters = kernel.pools().expect("read")[0].2;
    let [first, second] = &passed;
    println!("{calls} calls, {} and {} answers passed", first.len(), second.len());
    assert_eq!((counters.replies, counters.filtered), (2 * calls, calls));
    assert!(first.is_disjoint(second) && (first.len() + second.len()) as u64 == calls, "one answer per call");
    assert!(calls > SEEN_MIN);
}

#[test]
fn concurrent_requests_get_unique_numbers() {
    let _turn = exclusive();
    let Some(kernel) = kernel() else { return };
    let numbers = on_two_processors(&kernel, deadline(), |mut sender: Sender<'_>| {
        let mut numbers = Vec::new();
        while sender.continues(numbers.len() as u64) {
            let head = CloneRepr { flags: CloneFlags::CLONE, ..CloneRepr::default() };
            match sender.send(&frame(FrameKind::CloneRequest, CALLERS[sender.me], head)) {
                RunResult::Out(_, left) | RunResult::Slow(_, left) => {
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
