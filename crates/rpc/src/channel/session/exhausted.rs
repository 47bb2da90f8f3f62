//! Replacement of a session whose sequence numbers are used up. The old session ends by itself, once its calls have
//! ended and the server has the values that only the element had.

use std::sync::Arc;
use std::time::Duration;

use pathcall_endpoint::map::ClearPolicy;
use tokio::time::sleep;

use super::{ChannelApplication, MapSession, lock};

/// Time for which an exhausted worker stays, where only workers have the sums (clear policy *shadow*): another worker
/// may have missed the last sum, and the worker that joins next would begin with it.
const LINGER: Duration = Duration::from_secs(1);
/// Interval at which the end of its calls is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

impl ChannelApplication {
    /// Whether another session must replace this one. Not yet, if a call that has this session may still take a lock in
    /// it, which would be lost.
    pub(super) fn is_exhausted(&self, session: &mut Arc<MapSession>) -> bool {
        // The order matters: once no call has the session, all locks taken in it are known.
        let may_lock = self.application.takes_locks && Arc::get_mut(session).is_none();
        !may_lock && session.handle.is_spent()
    }

    /// Retires the last session, which has ended, is exhausted, or whose server is shutting down.
    pub(super) async fn retire_last(&self) {
        if self.application.clear == ClearPolicy::Shadow {
            self.linger().await;
        }
        let spent = lock(&self.current).as_ref().filter(|session| !session.is_over()).map(|last| last.handle.ended());
        self.retire();
        if let Some(ended) = spent {
            let mut leaving = self.leaving.lock().await;
            let before = leaving.take();
            *leaving = Some(tokio::spawn(async move {
                let before = match before {
                    Some(before) => before.await.unwrap_or(false),
                    None => true,
                };
                ended.await && before
            }));
        }
        if self.application.threshold > 0 {
            // A worker's place is free once its last holder has left.
            self.wait_until_left().await;
        }
    }

    /// Keeps an exhausted session until its calls have ended and other workers have had the time to get its sums.
    async fn linger(&self) {
        let Some(last) = lock(&self.current).clone() else { return };
        // One reference here and one in its place: no call has it.
        while !last.is_over() && Arc::strong_count(&last) > 2 {
            sleep(POLL_INTERVAL).await;
        }
        if !last.is_over() {
            sleep(LINGER).await;
        }
    }

    /// Waits until exhausted sessions have left. Returns whether the server has all their values.
    pub(super) async fn wait_until_left(&self) -> bool {
        let mut leaving = self.leaving.lock().await;
        let Some(session) = leaving.as_mut() else { return true };
        let all = session.await.unwrap_or(false);
        *leaving = None;
        all
    }
}
