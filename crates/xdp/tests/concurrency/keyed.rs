//! Concurrency tests of keyed values: two callers add to the same registers, with a threshold, or while the server
//! harvests closed generations.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use pathcall_conformance::RandomChoice;
use pathcall_wire::{FrameKind, KEYED_LANES, MapFlags, MapFrame};
use pathcall_xdp::RunResult;

use super::{SEEN_MIN, Sender, deadline, exclusive, on_two_processors, value};
use crate::common::frames::{self, GAID, ROWS, WORKERS};
use crate::common::loaded;

/// Frames of each caller per threshold.
const EACH: u32 = 4;

#[test]
fn one_frame_reaches_threshold_and_gets_all_sums() {
    let _turn = exclusive();
    let Some(mut kernel) = loaded(frames::kernel()) else { return };
    let until = deadline();
    let mut seq = 1;
    let mut thresholds = 0;
    while Instant::now() < until || thresholds <= SEEN_MIN {
        kernel.reset(GAID).expect("zeroed");
        let at = [const { AtomicU32::new(0) }; 2];
        let seen = AtomicU64::new(0);
        on_two_processors(&kernel, until, |mut sender| {
            for row in 0..ROWS {
                sender.wait_for_other(&at, row + 1);
                for i in 0..EACH {
                    let pairs: Vec<_> = (0..KEYED_LANES).map(|lane| (row, value(sender.me, i, seq, lane))).collect();
                    let frame = frames::counted_pairs(sender.me, seq + row * EACH + i, row, 2 * EACH, &pairs);
                    let RunResult::Out(_, answer) = sender.send(&frame) else { continue };
                    let answer = MapFrame::new_checked(&answer[..]).expect("a frame");
                    assert!(answer.map().has(MapFlags::REACHED) && !answer.map().has(MapFlags::OVERFLOW), "{answer:?}");
                    for lane in 0..KEYED_LANES {
                        let sum: i32 = (0..EACH).map(|i| value(0, i, seq, lane) + value(1, i, seq, lane)).sum();
                        assert_eq!(answer.keyed(lane), Some((row, sum)), "row {row} position {lane}");
                    }
                    seen.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        assert_eq!(seen.into_inner(), u64::from(ROWS), "one frame per threshold");
        seq += ROWS * EACH;
        thresholds += u64::from(ROWS);
    }
    let counters = kernel.applications().expect("read")[0].2;
    let frames = thresholds * u64::from(2 * EACH);
    assert_eq!((counters.applied, counters.lanes_added), (frames, frames * KEYED_LANES as u64));
    assert_eq!(kernel.counters().expect("read").counters.drop_counted, frames - thresholds);
    println!("{thresholds} thresholds, {frames} frames of {KEYED_LANES} pairs");
    assert!(thresholds > SEEN_MIN);
}

/// Values added in a generation, by row and position.
type Values = HashMap<(u32, u32, usize), i64>;

/// Rows that the callers add to.
const ADDED_ROWS: u32 = 4;

#[test]
fn harvested_generations_are_exact_while_callers_add() {
    let _turn = exclusive();
    let Some(kernel) = loaded(frames::kernel()) else { return };
    let (at, closed) = ([const { AtomicU32::new(0) }; 2], AtomicU64::new(0));
    // The second caller is also the server.
    let [(mut added, sent, _), (more, sent_too, (mut harvested, generations))] =
        on_two_processors(&kernel, deadline(), |mut sender| {
            let (mut added, mut server) = (Values::new(), Server::default());
            let mut seq = 0;
            // The second caller counts the generations; the first adds until the last one.
            while sender.continues(closed.load(Ordering::Acquire)) {
                seq += 1;
                at[sender.me].store(seq, Ordering::Release);
                add(&mut sender, seq, &mut added);
                // A repeat of the other caller's newest frame, possibly at the same time as the original: only
                // answered.
                let newest = at[1 - sender.me].load(Ordering::Acquire);
                if newest > 0 && sender.random.once_in(4) {
                    sender.send(&pairs_of(1 - sender.me, newest));
                }
                if sender.me == 1 && sender.random.once_in(8) {
                    server.harvest(&mut sender);
                    closed.store(u64::from(server.closed), Ordering::Release);
                }
            }
            (added, u64::from(seq), (server.harvested, server.closed))
        });
    for (place, value) in more {
        *added.entry(place).or_default() += value;
    }
    // The open generation is not harvested yet.
    let open = kernel.read_row(0).expect("read").generation[0];
    for row in 0..ADDED_ROWS {
        let lanes = kernel.read_rows(GAID, row, 1).expect("read");
        let (even, odd) = lanes.split_at(KEYED_LANES);
        let (bank, other) = if open % 2 == 0 { (even, odd) } else { (odd, even) };
        assert!(other.iter().all(|lane| *lane == 0), "harvested values are wiped");
        for (position, value) in bank.iter().enumerate() {
            harvested.insert((open, row, position), i64::from(*value));
        }
    }
    harvested.retain(|_, value| *value != 0);
    added.retain(|_, value| *value != 0);
    assert_eq!(added.len(), harvested.len());
    for (place, value) in &added {
        assert_eq!(harvested.get(place), Some(value), "generation, row, position: {place:?}");
    }
    let counters = kernel.applications().expect("read")[0].2;
    assert_eq!((counters.applied, counters.harvests), (sent + sent_too, u64::from(generations)));
    println!("{generations} generations, {} frames of {KEYED_LANES} pairs", sent + sent_too);
    assert!(u64::from(generations) > SEEN_MIN);
}

/// Frame of a caller with this sequence number.
fn pairs_of(caller: usize, seq: u32) -> Vec<u8> {
    let pairs: Vec<_> = (0..KEYED_LANES)
        .map(|lane| ((seq + lane as u32) % ADDED_ROWS, value(caller, 0, seq, lane) / (1 << 12)))
        .collect();
    frames::pairs(caller, seq, &pairs)
}

/// Adds, and records the generation that the answer names.
fn add(sender: &mut Sender<'_>, seq: u32, added: &mut Values) {
    let frame = pairs_of(sender.me, seq);
    let answer = sender.ask(&frame);
    assert_eq!((answer.kind(), answer.base().dst()), (FrameKind::MapAck, WORKERS[sender.me]));
    let left_out = if answer.map().has(MapFlags::OVERFLOW) { answer.bitmap(0) } else { 0 };
    let sent = MapFrame::new_checked(&frame[..]).expect("our own");
    for position in (0..KEYED_LANES).filter(|position| left_out >> position & 1 == 0) {
        let (row, value) = sent.keyed(position).expect("a pair");
        *added.entry((answer.base().round(), row, position)).or_default() += i64::from(value);
    }
}

/// Server of the application, which harvests the closed generations in order.
#[derive(Default)]
struct Server {
    harvested: Values,
    closed: u32,
}

impl Server {
    fn harvest(&mut self, sender: &mut Sender<'_>) {
        let generation = self.closed + 1;
        let closed = sender.ask(&frames::close(generation));
        assert_eq!((closed.kind(), closed.base().round()), (FrameKind::MapClosed, generation + 1));
        self.closed = generation;
        let bank = generation as usize % 2 * KEYED_LANES;
        for row in 0..ADDED_ROWS {
            let values = sender.ask(&frames::read(row, bank, KEYED_LANES));
            for position in 0..KEYED_LANES {
                self.harvested.insert((generation, row, position), values.linear(position).expect("a lane"));
            }
        }
        for row in 0..ADDED_ROWS {
            assert_eq!(sender.ask(&frames::wipe(generation, row)).kind(), FrameKind::MapWiped);
        }
    }
}
