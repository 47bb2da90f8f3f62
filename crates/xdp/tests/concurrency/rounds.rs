//! Concurrency tests of rounds: two workers use the same rows, and the sender that sees the sums acts as the server.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use pathcall_conformance::RandomChoice;
use pathcall_wire::{FrameKind, MapFlags, MapFrame};
use pathcall_xdp::{KernelSwitch, RunResult};

use super::{SEEN_MIN, deadline, exclusive, on_two_processors, value};
use crate::common::frames::{self, GAID, WIDTH};
use crate::common::loaded;

/// Most tries without an error in the build without locks: on a busy machine the two senders rarely collide.
#[cfg(feature = "planted")]
const TRIES: u32 = 60;
/// Rows with concurrent rounds.
const AT_ONCE: u32 = 4;

fn values(worker: usize, row: u32, round: u32) -> Vec<i32> {
    (0..WIDTH).map(|lane| value(worker, row, round, lane)).collect()
}

#[test]
fn concurrent_rounds_are_summed_exactly() {
    let _turn = exclusive();
    let Some(kernel) = loaded(frames::kernel()) else { return };
    hammer(&kernel, deadline());
}

/// The same test finds missing locks.
#[cfg(feature = "planted")]
#[test]
fn missing_row_locks_corrupt_sums() {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use crate::mistakes::Mistake;

    use crate::common::config;

    let _turn = exclusive();
    if std::thread::available_parallelism().is_ok_and(|processors| processors.get() < 2) {
        println!("skipped: one processor only");
        return;
    }
    for _ in 0..TRIES {
        let kernel = KernelSwitch::load_planted(Mistake::Unlocked as u32, &config(frames::SIZE));
        let Some(kernel) = loaded(kernel.and_then(frames::admitted)) else { return };
        if catch_unwind(AssertUnwindSafe(|| hammer(&kernel, deadline()))).is_err() {
            return;
        }
    }
    panic!("no wrong sum without locks");
}

fn hammer(kernel: &KernelSwitch, until: Instant) {
    let rounds = [const { AtomicU32::new(1) }; AT_ONCE as usize];
    let sent = on_two_processors(kernel, until, |mut sender| {
        let mut sent = 0_u64;
        while sender.continues(rounds.iter().map(|at| u64::from(at.load(Ordering::Acquire) - 1)).sum()) {
            for row in 0..AT_ONCE {
                let at = &rounds[row as usize];
                let round = at.load(Ordering::Acquire);
                // Sometimes a repeat of the other sender's part, possibly at the same time.
                let worker = if sender.random.once_in(4) { 1 - sender.me } else { sender.me };
                let part = frames::part(worker, round * AT_ONCE + row, row, round, &values(worker, row, round));
                sent += 1;
                let RunResult::Out(_, answer) = sender.send(&part) else { continue };
                let answer = MapFrame::new_checked(&answer[..]).expect("a frame");
                if !answer.map().has(MapFlags::REACHED) {
                    assert!(answer.kind() == FrameKind::MapHeld || answer.map().has(MapFlags::OLD), "{answer:?}");
                    continue;
                }
                for lane in 0..WIDTH {
                    let sum = value(0, row, round, lane) + value(1, row, round, lane);
                    assert_eq!(answer.linear(lane), Some(i64::from(sum)), "row {row} round {round} lane {lane}");
                }
                assert!(matches!(sender.send(&frames::result(row, round)), RunResult::Slow(..)));
                at.fetch_max(round + 1, Ordering::AcqRel);
            }
        }
        sent
    });

    let (mut complete, mut open_rounds) = (0, 0);
    for row in 0..AT_ONCE {
        let state = kernel.read_row(row).expect("read");
        assert_eq!(state.round, rounds[row as usize].load(Ordering::Acquire));
        let part = |worker: usize, lane| match state.workers >> worker & 1 {
            1 => value(worker, row, state.round, lane),
            _ => 0,
        };
        for (lane, got) in kernel.read_rows(GAID, row, 1).expect("read").into_iter().enumerate() {
            assert_eq!(got, part(0, lane) + part(1, lane), "row {row} lane {lane}: incomplete round");
        }
        complete += u64::from(state.round) - 1;
        open_rounds += u64::from(state.workers.count_ones());
    }
    let counters = kernel.applications().expect("read")[0].2;
    assert_eq!((counters.applied, counters.clears), (2 * complete + open_rounds, complete));
    // Of the two parts of a round, one is held and the other reaches the threshold.
    assert_eq!(kernel.counters().expect("read").counters.drop_counted, complete + open_rounds);
    println!("{complete} rounds of {WIDTH} lanes, {} frames", sent[0] + sent[1]);
    assert!(complete > SEEN_MIN);
}
