//! Concurrency tests with frames on two processors for the same registers: sums are exact, nothing takes effect twice,
//! one frame reaches a threshold and gets all sums, a lock has one owner, a call one answer.
//!
//! Needs root; with `PATHCALL_ROOT_TESTS=1` missing permission is a failure. `SECONDS_EACH=n` runs longer.

mod calls;
mod keyed;
mod locks;
mod rounds;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{ELEMENT, SENDER};
use pathcall_wire::MapFrame;
use pathcall_wire::SplitMix64;
use pathcall_xdp::{KernelSwitch, Packet, RunResult};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Default duration of each test, seconds.
const SECONDS_EACH: u64 = 2;
/// Longest wait for the other sender, who may have failed.
const WAIT_MAX: Duration = Duration::from_secs(180);
/// Least number of events that a test needs, however long it takes.
const SEEN_MIN: u64 = 100;

/// Lock of the tests, as each uses both processors.
static EXCLUSIVE: Mutex<()> = Mutex::new(());

fn exclusive() -> MutexGuard<'static, ()> {
    EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// End of the test.
fn deadline() -> Instant {
    let seconds = std::env::var("SECONDS_EACH").map_or(SECONDS_EACH, |n| n.parse().expect("a number"));
    Instant::now() + Duration::from_secs(seconds)
}

/// Sender on a processor of its own.
struct Sender<'a> {
    kernel: &'a KernelSwitch,
    me: usize,
    random: SplitMix64,
    until: Instant,
    packet: Vec<u8>,
    out: Vec<u8>,
}

impl Sender<'_> {
    fn send(&mut self, frame: &[u8]) -> RunResult {
        Packet { from: SENDER, to: ELEMENT, congested: false }.emit(frame, &mut self.packet);
        self.kernel.run(&self.packet, &mut self.out).expect("the kernel runs it")
    }

    /// Sends a frame, and returns the answer or the forwarded frame.
    fn ask(&mut self, frame: &[u8]) -> MapFrame<Vec<u8>> {
        match self.send(frame) {
            RunResult::Out(_, frame) => MapFrame::new_checked(frame).expect("a frame"),
            other => panic!("{other:?}"),
        }
    }

    /// Whether the test continues: until its time is over and `seen` is large enough, at most for minutes.
    fn continues(&self, seen: u64) -> bool {
        let now = Instant::now();
        now < self.until || seen <= SEEN_MIN && now < self.until + WAIT_MAX
    }

    /// Waits until both senders have reached `step`; steps count from 1.
    fn wait_for_other(&self, at: &[AtomicU32; 2], step: u32) {
        at[self.me].store(step, Ordering::Release);
        let wait_until = Instant::now() + WAIT_MAX;
        while at[1 - self.me].load(Ordering::Acquire) < step {
            assert!(Instant::now() < wait_until, "the other sender has failed");
            thread::yield_now();
        }
    }
}

/// Runs `work` on both senders at once, each on a processor of its own.
fn on_two_processors<T: Send>(kernel: &KernelSwitch, until: Instant, work: impl Fn(Sender<'_>) -> T + Sync) -> [T; 2] {
    let allowed = sched_getaffinity(None).expect("known");
    let processors: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor)).collect();
    let work = &work;
    thread::scope(|scope| {
        let threads = [0, 1].map(|me| {
            let processor = processors[me % processors.len()];
            scope.spawn(move || {
                let mut only = CpuSet::new();
                only.set(processor);
                sched_setaffinity(None, &only).expect("an available processor");
                let (random, packet, out) = (SplitMix64::new(me as u64), Vec::new(), Vec::new());
                work(Sender { kernel, me, random, until, packet, out })
            })
        });
        threads.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Value of a worker at a lane in a round; eight of them do not overflow.
fn value(worker: usize, row: u32, round: u32, lane: usize) -> i32 {
    let place = round.wrapping_mul(0x9e37_79b9) ^ row << 8 ^ lane as u32;
    place.wrapping_mul(0x85eb_ca6b + 2 * worker as u32).cast_signed() / 8
}
