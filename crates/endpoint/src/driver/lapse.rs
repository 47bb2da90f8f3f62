//! End of what an element holds, as an owner's user hears of it.

use tokio::sync::watch;

/// What an element holds is of no use any more: its epoch is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lapse {
    /// The number of the terms that are over.
    pub terms: u64,
    /// Whether it does not answer the owner or a caller; otherwise it can be taken again at once.
    pub silent: bool,
}

/// Hears of lapses, and does not keep the owner running.
#[derive(Debug)]
pub struct Lapses(watch::Receiver<Option<Lapse>>);

impl Lapses {
    pub(super) fn of(lapse: watch::Receiver<Option<Lapse>>) -> Self {
        Self(lapse)
    }

    /// The last one, if it is not `known`; `None` when the owner has stopped.
    pub async fn next(&mut self, known: Option<Lapse>) -> Option<Lapse> {
        let lapse = self.0.wait_for(|lapse| lapse.is_some() && *lapse != known).await;
        lapse.ok().and_then(|lapse| *lapse)
    }
}
