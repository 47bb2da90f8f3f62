//! Rules of the operator for the memory of elements: weights, quotas, and times.

use std::collections::BTreeMap;
use std::time::Duration;

/// Default time without frames after which an application gives its memory back if another application wants it.
pub const IDLE_DEFAULT: Duration = Duration::from_secs(60);
/// Default time without frames after which an application always gives its memory back.
pub const IDLE_MAX_DEFAULT: Duration = Duration::from_secs(600);
/// Default time limit for an owner that is told to give memory back.
pub const RECALL_DEFAULT: Duration = Duration::from_secs(3);
/// Default minimum time between two changes of an application's share.
pub const SETTLE_DEFAULT: Duration = Duration::from_secs(10);
/// Maximum weight of an application.
pub const WEIGHT_MAX: u32 = 1000;

/// Rules for sharing the memory of elements among applications. They belong to the operator, who also pays for the
/// elements: an application cannot choose its own weight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryPolicy {
    /// Weights by `AppName`, 1 to [`WEIGHT_MAX`]; the weight of any other application is 1.
    pub weights: BTreeMap<String, u32>,
    /// Maximum number of bytes by `AppName`; any other application may have all that is free.
    pub quotas: BTreeMap<String, u64>,
    /// See [`IDLE_DEFAULT`].
    pub idle: Duration,
    /// See [`IDLE_MAX_DEFAULT`].
    pub idle_max: Duration,
    /// See [`RECALL_DEFAULT`].
    pub recall: Duration,
    /// See [`SETTLE_DEFAULT`].
    pub settle: Duration,
}

impl Default for MemoryPolicy {
    fn default() -> Self {
        Self {
            weights: BTreeMap::new(),
            quotas: BTreeMap::new(),
            idle: IDLE_DEFAULT,
            idle_max: IDLE_MAX_DEFAULT,
            recall: RECALL_DEFAULT,
            settle: SETTLE_DEFAULT,
        }
    }
}

impl MemoryPolicy {
    pub(super) fn weight(&self, name: &str) -> u32 {
        self.weights.get(name).map_or(1, |weight| (*weight).clamp(1, WEIGHT_MAX))
    }

    pub(super) fn quota(&self, name: &str) -> Option<u64> {
        self.quotas.get(name).copied()
    }

    /// Interval at which elements are asked for the times of the last frames.
    pub(super) fn poll_interval(&self) -> Duration {
        (self.idle / 4).clamp(Duration::from_millis(50), Duration::from_secs(15))
    }
}
