//! Timeouts that count only the time in which this process runs. A process that was stopped, or whose machine slept,
//! did not receive messages in that time and must not conclude that its peer was silent.

use std::pin::pin;
use std::time::Duration;

use tokio::time::Instant;

/// Number of parts of a wait: a part in which the process is stopped counts as one elapsed part.
const PARTS: u32 = 16;

/// Error of an operation that has not finished in time.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Elapsed;

/// Waits for a future, at most for this time.
pub(crate) async fn timeout<T>(limit: Duration, what: impl Future<Output = T>) -> Result<T, Elapsed> {
    TimeBudget::new(limit).wait(what).await
}

/// Time limit that several waits share.
#[derive(Debug)]
pub(crate) struct TimeBudget {
    left: Duration,
    part: Duration,
}

impl TimeBudget {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { left: limit, part: limit / PARTS }
    }

    /// Waits for a future until the time is used up.
    pub(crate) async fn wait<T>(&mut self, what: impl Future<Output = T>) -> Result<T, Elapsed> {
        let mut what = pin!(what);
        while !self.left.is_zero() {
            let (part, began) = (self.part.min(self.left), Instant::now());
            let come = tokio::time::timeout(part, &mut what).await;
            self.left -= part.min(began.elapsed());
            if let Ok(come) = come {
                return Ok(come);
            }
        }
        Err(Elapsed)
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::{advance, sleep};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(2);

    #[tokio::test(start_paused = true)]
    async fn wait_ends_at_limit() {
        let began = Instant::now();
        assert_eq!(timeout(LIMIT, pending::<()>()).await, Err(Elapsed));
        assert!((LIMIT..LIMIT + Duration::from_millis(100)).contains(&began.elapsed()), "{:?}", began.elapsed());
        assert_eq!(timeout(LIMIT, sleep(LIMIT / 2)).await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn stopped_process_counts_one_part() {
        let began = Instant::now();
        let waiting = tokio::spawn(timeout(LIMIT, pending::<()>()));
        tokio::task::yield_now().await;
        for _ in 0..3 {
            advance(10 * LIMIT).await;
        }
        assert!(!waiting.is_finished());
        assert_eq!(waiting.await.expect("no panic"), Err(Elapsed));
        let awake = began.elapsed() - 30 * LIMIT;
        assert!(awake >= LIMIT * (PARTS - 4) / PARTS, "{awake:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn waits_share_time_budget() {
        let mut budget = TimeBudget::new(LIMIT);
        for _ in 0..4 {
            assert_eq!(budget.wait(sleep(LIMIT / 5)).await, Ok(()));
        }
        assert_eq!(budget.wait(sleep(LIMIT / 4)).await, Err(Elapsed));
        assert_eq!(budget.wait(pending::<()>()).await, Err(Elapsed));
    }
}
