//! Frames on two processors at once that want the same registers: sums stay exact, nothing takes effect
//! twice, one frame sees a threshold and it sees all sums, a lock has one owner, a call one answer.
//!
//! Needs root; `PATHCALL_ROOT_TESTS=1` makes its lack a failure. `SECONDS_EACH=n` hammers longer.

mod calls;
mod keyed;
mod locks;
mod rounds;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{ELEMENT, SENDER};
use pathcall_conformance::Random;
use pathcall_wire::MapFrame;
use pathcall_xdp::{Kernel, Packet, Ran};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// How long each of the tests hammers if not told otherwise.
const SECONDS_EACH: u64 = 2;
/// How long a sender waits for the other one, who may have failed.
const PATIENCE: Duration = Duration::from_secs(180);
/// What each test has to have seen of what it is about, however long that takes.
const SEEN_MIN: u64 = 100;

/// The tests take turns: each wants both processors.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// When to end.
fn deadline() -> Instant {
    let seconds = std::env::var("SECONDS_EACH").map_or(SECONDS_EACH, |n| n.parse().expect("a number"));
    Instant::now() + Duration::from_secs(seconds)
}

/// One of two senders, on a processor of its own.
struct Sender<'a> {
    kernel: &'a Kernel,
    me: usize,
    random: Random,
    until: Instant,
    packet: Vec<u8>,
    out: Vec<u8>,
}

impl Sender<'_> {
    fn send(&mut self, frame: &[u8]) -> Ran {
        Packet { from: SENDER, to: ELEMENT, congested: false }.emit(frame, &mut self.packet);
        self.kernel.run(&self.packet, &mut self.out).expect("the kernel runs it")
    }

    /// The frame that comes back or goes on.
    fn ask(&mut self, frame: &[u8]) -> MapFrame<Vec<u8>> {
        match self.send(frame) {
            Ran::Out(_, frame) => MapFrame::new_checked(frame).expect("a frame"),
            other => panic!("{other:?}"),
        }
    }

    /// Until the time is over, and so much of it was `seen` that something has been tried; for minutes at most.
    fn goes_on(&self, seen: u64) -> bool {
        let now = Instant::now();
        now < self.until || seen <= SEEN_MIN && now < self.until + PATIENCE
    }

    /// Waits until both are at `step`, the first of which is 1.
    fn meet(&self, at: &[AtomicU32; 2], step: u32) {
        at[self.me].store(step, Ordering::Release);
        let patience = Instant::now() + PATIENCE;
        while at[1 - self.me].load(Ordering::Acquire) < step {
            assert!(Instant::now() < patience, "the other sender has failed");
            thread::yield_now();
        }
    }
}

/// Has both senders do this at once, each on a processor of its own.
fn on_two_processors<T: Send>(kernel: &Kernel, until: Instant, work: impl Fn(Sender<'_>) -> T + Sync) -> [T; 2] {
    let here = sched_getaffinity(None).expect("known");
    let processors: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|processor| here.is_set(*processor)).collect();
    let work = &work;
    thread::scope(|scope| {
        let threads = [0, 1].map(|me| {
            let processor = processors[me % processors.len()];
            scope.spawn(move || {
                let mut only = CpuSet::new();
                only.set(processor);
                sched_setaffinity(None, &only).expect("one of those that are ours");
                let (random, packet, out) = (Random::new(me as u64), Vec::new(), Vec::new());
                work(Sender { kernel, me, random, until, packet, out })
            })
        });
        threads.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// What a worker has at a lane of something that `round` names: eight of them do not overflow.
fn value(worker: usize, row: u32, round: u32, lane: usize) -> i32 {
    let place = round.wrapping_mul(0x9e37_79b9) ^ row << 8 ^ lane as u32;
    place.wrapping_mul(0x85eb_ca6b + 2 * worker as u32).cast_signed() / 8
}
