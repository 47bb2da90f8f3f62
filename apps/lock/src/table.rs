//! Lock table for plain gRPC: holders with leases, and waiting clients.
//!
//! A unary call does not tell the server that its caller died later, so each lock has a lease; a slower holder has lost
//! it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// Duration of a lease.
pub(crate) const LEASE: Duration = Duration::from_secs(1);

/// Locks by name.
#[derive(Debug, Default)]
pub(crate) struct Table {
    held: Mutex<HashMap<String, HeldLock>>,
    /// Notified when a lock is released.
    free: Notify,
}

#[derive(Debug, Clone, Copy)]
struct HeldLock {
    client: i64,
    until: Instant,
}

impl Table {
    /// Takes all these locks together, as soon as none is held. If dropped before, takes none.
    pub(crate) async fn take(&self, locks: HashMap<String, i64>) {
        loop {
            // Registered before the check, so that no release is missed.
            let mut free = std::pin::pin!(self.free.notified());
            free.as_mut().enable();
            match self.try_take(&locks) {
                None => return,
                // The first of: a release, or the end of a lease.
                Some(until) => drop(timeout_at(until, free).await),
            }
        }
    }

    /// `None` if the locks were taken; else the earliest end of a conflicting lease.
    fn try_take(&self, locks: &HashMap<String, i64>) -> Option<Instant> {
        let now = Instant::now();
        let mut held = self.held();
        let taken = locks.keys().filter_map(|lock| held.get(lock)).map(|held| held.until).filter(|until| *until > now);
        if let Some(until) = taken.min() {
            return Some(until);
        }
        held.extend(
            locks.iter().map(|(lock, client)| (lock.clone(), HeldLock { client: *client, until: now + LEASE })),
        );
        None
    }

    /// Releases the locks that the client still holds.
    pub(crate) fn release(&self, locks: &HashMap<String, i64>) {
        self.held().retain(|lock, held| locks.get(lock) != Some(&held.client));
        self.free.notify_waiters();
    }

    fn held(&self) -> MutexGuard<'_, HashMap<String, HeldLock>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locks(names: &[&str], client: i64) -> HashMap<String, i64> {
        names.iter().map(|name| ((*name).to_owned(), client)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn lock_is_held_until_release_or_lease_end() {
        let table = Table::default();
        let began = Instant::now();
        table.take(locks(&["a"], 1)).await;
        assert!(tokio::time::timeout(LEASE / 2, table.take(locks(&["a", "b"], 2))).await.is_err());
        // The client that timed out holds nothing, and another client's lock is not released.
        table.take(locks(&["b"], 3)).await;
        table.release(&locks(&["a"], 2));
        assert!(tokio::time::timeout(LEASE / 4, table.take(locks(&["a"], 2))).await.is_err());
        table.release(&locks(&["a"], 1));
        table.take(locks(&["a"], 2)).await;
        assert_eq!(began.elapsed(), LEASE / 2 + LEASE / 4);
        // Never released.
        table.take(locks(&["a"], 1)).await;
        assert!(began.elapsed() >= LEASE + LEASE / 2 + LEASE / 4);
    }
}
