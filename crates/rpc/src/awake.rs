//! Time-outs that count the time in which this process runs. One that was stopped, or whose machine slept, has not
//! listened meanwhile: it can't tell that somebody else was silent.

use std::pin::pin;
use std::time::Duration;

use tokio::time::Instant;

/// A wait is made of so many parts: one in which the process stands still counts as one that is over.
const PARTS: u32 = 16;

/// What was waited for has not come in time.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Elapsed;

/// Waits for it, for so long at most.
pub(crate) async fn timeout<T>(limit: Duration, what: impl Future<Output = T>) -> Result<T, Elapsed> {
    Patience::new(limit).wait(what).await
}

/// Time that several waits have together.
#[derive(Debug)]
pub(crate) struct Patience {
    left: Duration,
    part: Duration,
}

impl Patience {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { left: limit, part: limit / PARTS }
    }

    /// Waits for it, for as long as there is time left.
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
    async fn silence_ends_a_wait_in_time() {
        let began = Instant::now();
        assert_eq!(timeout(LIMIT, pending::<()>()).await, Err(Elapsed));
        assert!((LIMIT..LIMIT + Duration::from_millis(100)).contains(&began.elapsed()), "{:?}", began.elapsed());
        assert_eq!(timeout(LIMIT, sleep(LIMIT / 2)).await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn standing_still_counts_for_one_part() {
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
    async fn waits_share_their_time() {
        let mut patience = Patience::new(LIMIT);
        for _ in 0..4 {
            assert_eq!(patience.wait(sleep(LIMIT / 5)).await, Ok(()));
        }
        assert_eq!(patience.wait(sleep(LIMIT / 4)).await, Err(Elapsed));
        assert_eq!(patience.wait(pending::<()>()).await, Err(Elapsed));
    }
}
