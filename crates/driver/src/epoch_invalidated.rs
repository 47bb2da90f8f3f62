//! Notifications that an element's memory has become invalid, for the user of an owner.

use tokio::sync::watch;

/// Notification that the values that the element holds are no longer valid: the epoch is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochInvalidated {
    /// Number of the terms that have ended.
    pub terms: u64,
    /// Whether the element stopped answering the owner or a caller. If false, it can be used again at once.
    pub silent: bool,
}

/// Receiver of [`EpochInvalidated`] notifications; does not keep the owner running.
#[derive(Debug)]
pub struct EpochInvalidations(watch::Receiver<Option<EpochInvalidated>>);

impl EpochInvalidations {
    pub(super) fn new(invalidated: watch::Receiver<Option<EpochInvalidated>>) -> Self {
        Self(invalidated)
    }

    /// Waits for the latest notification that differs from `known`; `None` when the owner has stopped.
    pub async fn next(&mut self, known: Option<EpochInvalidated>) -> Option<EpochInvalidated> {
        let invalidated = self.0.wait_for(|invalidated| invalidated.is_some() && *invalidated != known).await;
        invalidated.ok().and_then(|invalidated| *invalidated)
    }
}
