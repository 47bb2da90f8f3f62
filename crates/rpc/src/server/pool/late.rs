//! Requests whose time was over before a worker was free for them: counted, and said.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pathcall_endpoint::clone::Work;

use crate::cloned::request;

/// The share of its time after which a request that is given up was not given up for another reason.
const ABOUT: f64 = 0.9;
/// Pause between two warnings.
const WARN_EVERY: Duration = Duration::from_secs(10);

/// The count, shared by those who find them.
#[derive(Debug, Clone)]
pub(super) struct Late(Arc<Counted>);

#[derive(Debug)]
struct Counted {
    workers: usize,
    count: AtomicU64,
    warned: Mutex<Option<Instant>>,
}

impl Late {
    /// None yet, of a server with so many workers.
    pub(super) fn new(workers: usize) -> Self {
        Self(Arc::new(Counted { workers, count: AtomicU64::new(0), warned: Mutex::default() }))
    }

    pub(super) fn count(&self) -> u64 {
        self.0.count.load(Ordering::Relaxed)
    }

    /// Counts a request that was given up while it waited, if its time was about over.
    pub(super) fn look(&self, Work { waited, request, .. }: Work) {
        if let Ok((Some(left), _)) = request::open(request)
            && waited >= left.mul_f64(ABOUT)
        {
            self.add(left, waited);
        }
    }

    /// One more: it had `left` of its time when it came, and waited for `waited`.
    pub(super) fn add(&self, left: Duration, waited: Duration) {
        let Counted { workers, count, warned } = &*self.0;
        let count = count.fetch_add(1, Ordering::Relaxed) + 1;
        let now = Instant::now();
        let mut warned = super::lock(warned);
        if warned.is_none_or(|warned| now.duration_since(warned) >= WARN_EVERY) {
            *warned = Some(now);
            tracing::warn!(
                count,
                "a call that had {left:?} left waited for {waited:?}: all {workers} workers are busy; give the server more \
                 (`workers` in the method's option, or `Server::builder(..).workers(..)`)"
            );
        }
    }
}
