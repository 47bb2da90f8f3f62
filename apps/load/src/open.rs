//! Open-loop calls at planned times.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use crate::{Latencies, Random};

/// Offered load.
#[derive(Debug, Clone, Copy)]
pub struct LoadPlan {
    /// Mean calls per second; the intervals are exponentially distributed.
    pub rate: f64,
    /// Warm-up: calls of this time are made but not counted.
    pub warm: Duration,
    /// Measured time after the warm-up.
    pub measured: Duration,
    /// Limit of concurrent calls. Further calls wait, which counts as part of their latency.
    pub in_flight_max: usize,
    /// Seed of the intervals.
    pub seed: u64,
}

/// Results of the measured calls, by kind.
#[derive(Debug, Clone)]
pub struct Run<K> {
    /// Latencies of answered calls, from their planned times on.
    pub latencies: BTreeMap<K, Latencies>,
    /// Number of failed calls.
    pub failed: u64,
    /// Reason of the first failure.
    pub why: Option<String>,
    /// Calls that waited for the limit of concurrent calls: many of them mean overload.
    pub held: u64,
    /// Time from the first measured call to the last answer.
    pub took: Duration,
}

impl<K: Ord> Run<K> {
    /// Number of answered calls.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.latencies.values().map(Latencies::count).sum()
    }

    /// Latencies of all kinds together.
    #[must_use]
    pub fn all(&self) -> Latencies {
        let mut all = Latencies::default();
        self.latencies.values().for_each(|latencies| all.add(latencies));
        all
    }

    /// Answered calls per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.answered() as f64 / self.took.as_secs_f64()
    }
}

/// Completed call.
struct Ended<K> {
    /// Kind of the call, or the reason of its failure.
    outcome: Result<K, String>,
    meant: Instant,
    at: Instant,
    held: bool,
}

/// Makes calls as planned. `call` gets the number of each call, and returns the kind of an answered one. Must run in a
/// tokio runtime with time.
///
/// # Panics
/// Panics if the pacing thread can't start, or if `call` panics.
pub async fn open_loop<K, E, F>(plan: LoadPlan, call: impl Fn(u64) -> F) -> Run<K>
where
    K: Ord + Send + 'static,
    E: Display,
    F: Future<Output = Result<K, E>> + Send + 'static,
{
    let (due, mut arrivals) = unbounded_channel();
    let began = Instant::now();
    // Timers of the runtime have millisecond resolution.
    let pacing = thread::Builder::new().name("arrivals".to_owned());
    pacing.spawn(move || arrive(plan, began, &due)).expect("a thread for the times of calls");

    let counts_from = began + plan.warm;
    let room = Arc::new(Semaphore::new(plan.in_flight_max.max(1)));
    let (ended, mut ends) = unbounded_channel::<Ended<K>>();
    let tally = tokio::spawn(async move {
        let mut run = Run { latencies: BTreeMap::new(), failed: 0, why: None, held: 0, took: Duration::ZERO };
        while let Some(end) = ends.recv().await {
            if end.meant >= counts_from {
                run.count(end, counts_from);
            }
        }
        run
    });
    let mut nth = 0;
    while let Some(meant) = arrivals.recv().await {
        let (permit, held) = enter(&room).await;
        let (call, ended) = (call(nth), ended.clone());
        tokio::spawn(async move {
            let outcome = call.await.map_err(|error| error.to_string());
            // The receiver is gone only if the load was abandoned.
            let _ = ended.send(Ended { outcome, meant, at: Instant::now(), held });
            drop(permit);
        });
        nth += 1;
    }
    drop(ended);
    tally.await.expect("counting does not panic")
}

impl<K: Ord> Run<K> {
    fn count(&mut self, end: Ended<K>, from: Instant) {
        self.took = self.took.max(end.at - from);
        self.held += u64::from(end.held);
        match end.outcome {
            Ok(kind) => self.latencies.entry(kind).or_default().record(end.at - end.meant),
            Err(why) => {
                self.failed += 1;
                self.why.get_or_insert(why);
            }
        }
    }
}

/// Sends the planned time of each call when it is due; ends with the plan, or when the receiver is gone.
fn arrive(plan: LoadPlan, began: Instant, due: &UnboundedSender<Instant>) {
    let mut random = Random::new(plan.seed);
    let between = Duration::from_secs_f64(1.0 / plan.rate);
    let end = began + plan.warm + plan.measured;
    let mut next = began + random.exponential(between);
    while next < end {
        thread::sleep(next.saturating_duration_since(Instant::now()));
        if due.send(next).is_err() {
            return;
        }
        next += random.exponential(between);
    }
}

/// Waits for room for a call. Returns whether it had to wait.
async fn enter(room: &Arc<Semaphore>) -> (OwnedSemaphorePermit, bool) {
    if let Ok(permit) = room.clone().try_acquire_owned() {
        return (permit, false);
    }
    (room.clone().acquire_owned().await.expect("never closed"), true)
}

/// Measures capacity: `callers` that each call again after each answer, for `time`. Returns answered calls per second,
/// and the number of failures.
///
/// # Panics
/// Panics if `call` panics.
pub async fn closed_loop<E, F>(
    callers: usize,
    time: Duration,
    call: impl Fn(u64) -> F + Send + Sync + 'static,
) -> (f64, u64)
where
    F: Future<Output = Result<(), E>> + Send + 'static,
    E: Send,
{
    let (call, next) = (Arc::new(call), Arc::new(AtomicU64::new(0)));
    let began = Instant::now();
    let mut running = JoinSet::new();
    for _ in 0..callers {
        let (call, next) = (call.clone(), next.clone());
        running.spawn(async move {
            let mut counts = [0_u64; 2];
            while began.elapsed() < time {
                let failed = call(next.fetch_add(1, Ordering::Relaxed)).await.is_err();
                counts[usize::from(failed)] += 1;
            }
            counts
        });
    }
    let counts = running.join_all().await;
    let sum = |i: usize| counts.iter().map(|counts| counts[i]).sum::<u64>();
    (sum(0) as f64 / began.elapsed().as_secs_f64(), sum(1))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    const PLAN: LoadPlan = LoadPlan {
        rate: 2000.0,
        warm: Duration::from_millis(50),
        measured: Duration::from_millis(300),
        in_flight_max: 1000,
        seed: 1,
    };

    #[test]
    fn calls_are_due_at_rate() {
        let (due, mut arrivals) = unbounded_channel();
        arrive(LoadPlan { rate: 1e6, ..PLAN }, Instant::now(), &due);
        drop(due);
        let calls = std::iter::from_fn(|| arrivals.try_recv().ok()).count();
        // 350 ms at a million calls per second; the standard deviation of a Poisson process would be 600.
        assert!((calls as f64 / 350e3 - 1.0).abs() < 0.01, "{calls}");
    }

    #[tokio::test]
    async fn open_loop_does_not_wait_for_answers() {
        // The first calls wait for later ones: a closed loop would deadlock.
        let gate = Arc::new(Semaphore::new(0));
        let run = open_loop(PLAN, move |nth| {
            let gate = gate.clone();
            async move {
                match nth {
                    0..200 => drop(gate.acquire().await),
                    200 => gate.add_permits(1),
                    _ => {}
                }
                Ok::<_, Infallible>(nth % 2)
            }
        })
        .await;
        assert_eq!((run.failed, run.held), (0, 0));
        assert!(run.answered() > 300 && run.latencies.len() == 2, "{}", run.answered());
    }

    #[tokio::test]
    async fn waiting_for_room_counts_as_latency() {
        let plan = LoadPlan { rate: 1000.0, in_flight_max: 1, warm: Duration::ZERO, ..PLAN };
        let nap = Duration::from_millis(5);
        let run = open_loop(plan, move |_| async move {
            tokio::time::sleep(nap).await;
            Ok::<_, Infallible>(())
        })
        .await;
        // Five times the capacity: the last call waits for all the others.
        assert!(run.held > 200, "{}", run.held);
        let longest = run.all().quantile(1.0);
        assert!(longest > plan.measured * 2, "{longest:?}");
        assert!(run.took > plan.measured * 3 && run.rate() < 250.0, "{:?}", run.took);
    }

    #[tokio::test]
    async fn failures_are_counted_with_reason() {
        let run = open_loop(PLAN, |nth| async move { if nth % 2 == 0 { Ok(()) } else { Err("busy") } }).await;
        assert!(run.failed > 100 && run.answered() > 100, "{run:?}");
        assert_eq!(run.why.as_deref(), Some("busy"));
    }

    #[tokio::test]
    async fn closed_loop_has_one_call_per_caller() {
        let under_way = Arc::new(AtomicU64::new(0));
        let (rate, failed) = closed_loop(4, Duration::from_millis(50), move |_| {
            let under_way = under_way.clone();
            async move {
                let others = under_way.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
                under_way.fetch_sub(1, Ordering::Relaxed);
                if others < 4 { Ok(()) } else { Err(()) }
            }
        })
        .await;
        assert!(rate > 0.0 && failed == 0, "{rate} {failed}");
    }
}
