//! A session whose frames come to the end of their numbers: another one follows it while it ends by itself, when its
//! calls have and the server has what only the element had.

use std::sync::Arc;
use std::time::Duration;

use pathcall_endpoint::map::ClearPolicy;
use tokio::time::sleep;

use super::{Session, Slot, lock};

/// How long a worker stays that is spent, where workers alone have sums (clear policy *shadow*): another one may have
/// missed the last, and who comes then would begin with that.
const STAYS: Duration = Duration::from_secs(1);
/// Pause between looks whether its calls have ended.
const LOOK: Duration = Duration::from_millis(10);

impl Slot {
    /// Whether another session is to follow. Not yet, if somebody has this one and may still take a lock in it, which
    /// would go with it.
    pub(super) fn is_spent(&self, session: &mut Arc<Session>) -> bool {
        // In this order: what was locked by those who had it is known when nobody has it any more.
        let may_lock = self.application.takes_locks && Arc::get_mut(session).is_none();
        !may_lock && session.handle.is_spent()
    }

    /// Makes room for another session; the last one is over, or spent, or its server is to end.
    pub(super) async fn follow_last(&self) {
        if self.application.clear == ClearPolicy::Shadow {
            self.stay().await;
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
            // A worker's place is free when its last holder has left it.
            self.left().await;
        }
    }

    /// Keeps a spent session until its calls have ended, and others have had the time to get what it has.
    async fn stay(&self) {
        let Some(last) = lock(&self.current).clone() else { return };
        // Here and in its place; nobody gets it any more.
        while !last.is_over() && Arc::strong_count(&last) > 2 {
            sleep(LOOK).await;
        }
        if !last.is_over() {
            sleep(STAYS).await;
        }
    }

    /// Waits until spent sessions have left; whether the server has all that was done in them.
    pub(super) async fn left(&self) -> bool {
        let mut leaving = self.leaving.lock().await;
        let Some(session) = leaving.as_mut() else { return true };
        let all = session.await.unwrap_or(false);
        *leaving = None;
        all
    }
}
