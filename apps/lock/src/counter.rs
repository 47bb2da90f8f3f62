//! What the locks protect: counters that only come out right when nobody else is in between, and
//! that notice it when somebody is.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};

/// Nobody is in the critical section. Clients count from 1.
const NOBODY: u64 = 0;

/// A counter for one lock.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    value: AtomicU64,
    inside: AtomicU64,
    /// The largest fencing token that was let in.
    token: AtomicU64,
}

/// The critical section of a counter, entered.
#[derive(Debug)]
#[must_use = "increment it"]
pub(crate) struct Section<'a> {
    counter: &'a Counter,
    read: u64,
    client: u64,
}

impl Counter {
    /// Enters the critical section and reads.
    ///
    /// # Errors
    /// When another client is in it, or the lock is an older one than was seen before.
    pub(crate) fn enter(&self, client: u64, token: Option<u64>) -> Result<Section<'_>> {
        let other = self.inside.swap(client, Ordering::SeqCst);
        ensure!(other == NOBODY, "clients {other} and {client} hold the same lock");
        if let Some(token) = token {
            let newest = self.token.fetch_max(token, Ordering::SeqCst);
            ensure!(token > newest, "client {client} holds a lock of token {token}, but {newest} was seen");
        }
        Ok(Section { counter: self, read: self.value.load(Ordering::SeqCst), client })
    }

    /// How many sections there were.
    pub(crate) fn value(&self) -> u64 {
        self.value.load(Ordering::SeqCst)
    }
}

impl Section<'_> {
    /// Writes one more than was read, and leaves.
    ///
    /// # Errors
    /// When another client came in meanwhile.
    pub(crate) fn increment(self) -> Result<()> {
        let Self { counter, read, client } = self;
        counter.value.store(read + 1, Ordering::SeqCst);
        let last = counter.inside.swap(NOBODY, Ordering::SeqCst);
        ensure!(last == client, "client {last} was let in while {client} held the lock");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_at_once_are_noticed_and_would_lose_a_count() {
        let counter = Counter::default();
        counter.enter(1, None).unwrap().increment().unwrap();
        let first = counter.enter(1, None).unwrap();
        assert_eq!(counter.enter(2, None).unwrap_err().to_string(), "clients 1 and 2 hold the same lock");
        assert!(first.increment().is_err());
        assert_eq!(counter.value(), 2);
    }

    #[test]
    fn an_older_lock_is_fenced_off() {
        let counter = Counter::default();
        counter.enter(1, Some(7)).unwrap().increment().unwrap();
        counter.enter(2, Some(9)).unwrap().increment().unwrap();
        let error = counter.enter(1, Some(7)).unwrap_err();
        assert_eq!(error.to_string(), "client 1 holds a lock of token 7, but 9 was seen");
    }
}
