//! Thread that writes an owner's batches to its store.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Instant;
use std::{io, thread};

use pathcall_endpoint::map::server::durable::Batch;
use tokio::sync::watch;

use super::{BEAT, BatchStore, BatchStoreError};

/// Reason for which an owner cannot store its state any more.
pub type StoreFailure = Arc<BatchStoreError>;

/// Work of the thread.
enum StoreJob {
    Append(Batch),
    /// State after all batches so far.
    Replace(Vec<u8>),
}

/// Sender of batches to the thread, which ends when it is dropped.
#[derive(Debug)]
pub(crate) struct StoreThread {
    jobs: Sender<StoreJob>,
    state: watch::Receiver<StoreState>,
}

/// What the thread has reached.
#[derive(Debug, Clone, Default)]
pub(crate) struct StoreState {
    /// Number of the latest batch in the store.
    pub(crate) persisted: u64,
    /// Number of requests for a snapshot.
    pub(crate) snapshots_wanted: u64,
    pub(crate) failure: Option<StoreFailure>,
}

impl StoreThread {
    /// Starts the thread. `notify` is called after each change of what it has reached, and when it has failed.
    pub(crate) fn start(store: Box<dyn BatchStore>, notify: impl Fn(&StoreState) + Send + 'static) -> io::Result<Self> {
        let (jobs, received) = channel();
        let (sender, state) = watch::channel(StoreState::default());
        let run = move || {
            let failed = write_all(store, &received, |persisted, wants_snapshot| {
                sender.send_modify(|state| {
                    state.persisted = state.persisted.max(persisted);
                    state.snapshots_wanted += u64::from(wants_snapshot);
                });
                let state = sender.borrow().clone();
                notify(&state);
            });
            if let Err(error) = failed {
                sender.send_modify(|state| state.failure = Some(Arc::new(error)));
                let state = sender.borrow().clone();
                notify(&state);
            }
        };
        thread::Builder::new().name("pathcall-store".into()).spawn(run)?;
        Ok(Self { jobs, state })
    }

    /// Hands a batch over. After a failure it is lost, and never counts as persisted.
    pub(crate) fn append(&self, batch: Batch) {
        let _ = self.jobs.send(StoreJob::Append(batch));
    }

    /// Hands a snapshot over, which has all batches so far.
    pub(crate) fn replace(&self, snapshot: Vec<u8>) {
        let _ = self.jobs.send(StoreJob::Replace(snapshot));
    }

    /// What the thread has reached.
    pub(crate) fn state(&self) -> watch::Receiver<StoreState> {
        self.state.clone()
    }
}

/// Writes what comes, until the sender is dropped. `reach` gets the latest durable batch, or 0, and whether the store wants
/// a snapshot.
fn write_all(
    mut store: Box<dyn BatchStore>,
    jobs: &Receiver<StoreJob>,
    reach: impl Fn(u64, bool),
) -> Result<(), BatchStoreError> {
    let (mut beat, mut asked) = (Instant::now(), false);
    loop {
        let first = match jobs.recv_timeout(BEAT.saturating_sub(beat.elapsed())) {
            Ok(first) => Some(first),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        let (mut group, mut last) = (Vec::new(), 0);
        // All batches that wait share a sync.
        for job in first.into_iter().chain(jobs.try_iter()) {
            match job {
                StoreJob::Append(batch) => {
                    last = batch.number;
                    group.push(batch.bytes);
                }
                StoreJob::Replace(snapshot) => {
                    // It has all batches before it.
                    group.clear();
                    store.replace(&snapshot)?;
                    asked = false;
                }
            }
        }
        if !group.is_empty() {
            store.append(&group)?;
        }
        let wants = !asked && store.wants_snapshot();
        asked |= wants;
        if last > 0 || wants {
            reach(last, wants);
        }
        if beat.elapsed() >= BEAT {
            store.beat()?;
            beat = Instant::now();
        }
    }
}
