//! Counters protected by the locks: a concurrent access changes the result and is detected.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};

/// The critical section is empty. Clients count from 1.
const NO_CLIENT: u64 = 0;

/// Counter of one lock.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    value: AtomicU64,
    inside: AtomicU64,
    /// Largest admitted fencing token.
    token: AtomicU64,
}

/// Entered critical section of a counter.
#[derive(Debug)]
#[must_use = "increment it"]
pub(crate) struct Section<'a> {
    counter: &'a Counter,
    read: u64,
    client: u64,
}

impl Counter {
    /// Enters the critical section and reads the counter.
    ///
    /// # Errors
    /// Returns an error if another client is in it, or if the lock is older than an earlier one.
    pub(crate) fn enter(&self, client: u64, token: Option<u64>) -> Result<Section<'_>> {
        let other = self.inside.swap(client, Ordering::SeqCst);
        ensure!(other == NO_CLIENT, "clients {other} and {client} hold the same lock");
        if let Some(token) = token {
            let newest = self.token.fetch_max(token, Ordering::SeqCst);
            ensure!(token > newest, "client {client} has the old fencing token {token}, the newest is {newest}");
        }
        Ok(Section { counter: self, read: self.value.load(Ordering::SeqCst), client })
    }

    /// Number of completed critical sections.
    pub(crate) fn value(&self) -> u64 {
        self.value.load(Ordering::SeqCst)
    }
}

impl Section<'_> {
    /// Writes the incremented value and leaves.
    ///
    /// # Errors
    /// Returns an error if another client has entered meanwhile.
    pub(crate) fn increment(self) -> Result<()> {
        let Self { counter, read, client } = self;
        counter.value.store(read + 1, Ordering::SeqCst);
        let last = counter.inside.swap(NO_CLIENT, Ordering::SeqCst);
        ensure!(last == client, "client {last} entered the critical section while client {client} held the lock");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concurrent_access_is_detected() {
        let counter = Counter::default();
        counter.enter(1, None).unwrap().increment().unwrap();
        let first = counter.enter(1, None).unwrap();
        assert_eq!(counter.enter(2, None).unwrap_err().to_string(), "clients 1 and 2 hold the same lock");
        assert!(first.increment().is_err());
        assert_eq!(counter.value(), 2);
    }

    #[test]
    fn older_fencing_token_is_rejected() {
        let counter = Counter::default();
        counter.enter(1, Some(7)).unwrap().increment().unwrap();
        counter.enter(2, Some(9)).unwrap().increment().unwrap();
        let error = counter.enter(1, Some(7)).unwrap_err();
        assert_eq!(error.to_string(), "client 1 has the old fencing token 7, the newest is 9");
    }
}
