//! Concurrency tests of locks: two callers compete for the same lock, and never hold it at the same time.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use pathcall_conformance::RandomChoice;
use pathcall_wire::{FrameKind, MapFlags};

use super::{SEEN_MIN, Sender, deadline, exclusive, on_two_processors};
use crate::common::frames;
use crate::common::loaded;

/// Number of locks.
const LOCKS: u32 = 2;

/// Record of a lock's holder, written only by the holder.
#[derive(Default)]
struct Held {
    /// Current holder, counted from 1; 0: none.
    holder: AtomicU32,
    /// Token of the last grant.
    token: AtomicU32,
}

#[test]
fn concurrent_lock_has_one_owner() {
    let _turn = exclusive();
    let Some(kernel) = loaded(frames::kernel()) else { return };
    let locks: [Held; LOCKS as usize] = Default::default();
    let [(first, denied), (second, denied_too)] = on_two_processors(&kernel, deadline(), |mut sender| {
        let (mut seq, mut grants, mut denied) = (0, 0_u64, 0_u64);
        let mut acquiring = 0;
        while sender.continues(grants) {
            let row = sender.random.below(LOCKS);
            acquiring += 1;
            seq += 1;
            let take = frames::take(sender.me, seq, row, acquiring);
            let answer = sender.ask(&take);
            assert_eq!(answer.kind(), FrameKind::MapAck);
            if answer.map().has(MapFlags::DENIED) {
                denied += 1;
                continue;
            }
            grants += 1;
            hold(&mut sender, &locks[row as usize], answer.base().round());
            // A repeat gets the same answer while the lock is held.
            let again = sender.ask(&take);
            assert_eq!((again.map().has(MapFlags::DENIED), again.base().round()), (false, answer.base().round()));
            assert_eq!(locks[row as usize].holder.swap(0, Ordering::AcqRel), sender.me as u32 + 1);
            seq += 1;
            let answer = sender.ask(&frames::give_back(sender.me, seq, row, acquiring));
            if answer.map().has(MapFlags::DIVERTED) {
                // The other caller wanted the lock, so the server has it now; nobody waits, and the server frees it.
                let freed = sender.ask(&frames::free(sender.me, row, acquiring));
                assert_eq!(freed.kind(), FrameKind::MapFreed);
            }
        }
        (grants, denied)
    });
    let counters = kernel.applications().expect("read")[0].2;
    assert_eq!(counters.denied, denied + denied_too);
    let granted: u32 = (0..LOCKS).map(|row| kernel.read_row(row).expect("read").grants).sum();
    assert_eq!(u64::from(granted), first + second);
    println!("{first} and {second} grants, {denied} and {denied_too} denials");
    assert!(first.min(second) > SEEN_MIN);
}

/// Critical section: no other holder may run at the same time.
fn hold(sender: &mut Sender<'_>, lock: &Held, token: u32) {
    let me = sender.me as u32 + 1;
    assert_eq!(lock.holder.swap(me, Ordering::AcqRel), 0, "two holders");
    assert_eq!(lock.token.swap(token, Ordering::AcqRel) + 1, token, "tokens count grants");
    if sender.random.once_in(8) {
        thread::yield_now();
    }
    assert_eq!(lock.holder.load(Ordering::Acquire), me);
}
