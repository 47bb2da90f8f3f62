//! Locks: two callers want the same one, and never have it both.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use pathcall_wire::{Kind, MapFlags};

use super::{SEEN_MIN, Sender, deadline, on_two_processors, turn};
use crate::common::frames;
use crate::common::loaded;

/// Locks that are wanted.
const LOCKS: u32 = 2;

/// Whoever has a lock writes here, and nobody else.
#[derive(Default)]
struct Held {
    /// The holder, counted from 1; 0: none.
    holder: AtomicU32,
    /// Token of the last grant.
    token: AtomicU32,
}

#[test]
fn a_lock_has_one_owner() {
    let _turn = turn();
    let Some(kernel) = loaded(frames::kernel()) else { return };
    let locks: [Held; LOCKS as usize] = Default::default();
    let [(first, denied), (second, denied_too)] = on_two_processors(&kernel, deadline(), |mut sender| {
        let (mut seq, mut grants, mut denied) = (0, 0_u64, 0_u64);
        let mut acquiring = 0;
        while sender.goes_on(grants) {
            let row = sender.random.below(LOCKS);
            acquiring += 1;
            seq += 1;
            let take = frames::take(sender.me, seq, row, acquiring);
            let answer = sender.ask(&take);
            assert_eq!(answer.kind(), Kind::MapAck);
            if answer.map().has(MapFlags::DENIED) {
                denied += 1;
                continue;
            }
            grants += 1;
            hold(&mut sender, &locks[row as usize], answer.base().round());
            // Its repeat says the same, as long as the lock is held.
            let again = sender.ask(&take);
            assert_eq!((again.map().has(MapFlags::DENIED), again.base().round()), (false, answer.base().round()));
            assert_eq!(locks[row as usize].holder.swap(0, Ordering::AcqRel), sender.me as u32 + 1);
            seq += 1;
            let answer = sender.ask(&frames::give_back(sender.me, seq, row, acquiring));
            if answer.map().has(MapFlags::DIVERTED) {
                // The other wanted it: it is the server's now, which has nobody in line and frees it.
                let freed = sender.ask(&frames::free(sender.me, row, acquiring));
                assert_eq!(freed.kind(), Kind::MapFreed);
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

/// What one does who has the lock: others must see nothing of it.
fn hold(sender: &mut Sender<'_>, lock: &Held, token: u32) {
    let me = sender.me as u32 + 1;
    assert_eq!(lock.holder.swap(me, Ordering::AcqRel), 0, "two have it");
    assert_eq!(lock.token.swap(token, Ordering::AcqRel) + 1, token, "tokens are grants, counted");
    if sender.random.once_in(8) {
        thread::yield_now();
    }
    assert_eq!(lock.holder.load(Ordering::Acquire), me);
}
