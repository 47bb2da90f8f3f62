//! Requests whose time expired before a worker was free: counter and warning.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pathcall_endpoint::clone::PoolRequest;

use crate::cloned::request;

/// Fraction of the time limit after which a dropped waiting request counts as late. Requests that are dropped earlier
/// have another reason.
const LATE_FRACTION: f64 = 0.9;
/// Pause between two warnings.
const WARN_EVERY: Duration = Duration::from_secs(10);

/// Shared counter of late requests.
#[derive(Debug, Clone)]
pub(super) struct LateCounter(Arc<LateState>);

#[derive(Debug)]
struct LateState {
    workers: usize,
    count: AtomicU64,
    warned: Mutex<Option<Instant>>,
}

impl LateCounter {
    /// Counter of a server with this number of workers.
    pub(super) fn new(workers: usize) -> Self {
        Self(Arc::new(LateState { workers, count: AtomicU64::new(0), warned: Mutex::default() }))
    }

    pub(super) fn count(&self) -> u64 {
        self.0.count.load(Ordering::Relaxed)
    }

    /// Counts a request that was dropped while it waited, if its time had nearly expired.
    pub(super) fn check(&self, PoolRequest { waited, request, .. }: PoolRequest) {
        if let Ok((Some(left), _)) = request::decode(request)
            && waited >= left.mul_f64(LATE_FRACTION)
        {
            self.add(left, waited);
        }
    }

    /// Counts a late request that arrived with `left` of its time and waited for `waited`.
    pub(super) fn add(&self, left: Duration, waited: Duration) {
        let LateState { workers, count, warned } = &*self.0;
        let count = count.fetch_add(1, Ordering::Relaxed) + 1;
        let now = Instant::now();
        let mut warned = super::lock(warned);
        if warned.is_none_or(|warned| now.duration_since(warned) >= WARN_EVERY) {
            *warned = Some(now);
            tracing::warn!(
                count,
                "a call that had {left:?} left waited for {waited:?}: all {workers} workers are busy; give the server \
                 more (`workers` in the method's option, or `Layer::builder(..).workers(..)`)"
            );
        }
    }
}
