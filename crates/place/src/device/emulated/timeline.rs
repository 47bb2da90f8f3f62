//! Performance model of an emulated device, without clock and thread.

use std::time::Duration;

use pathcall_wire::Instant;

use crate::model::SLOTS_MAX;

/// Speed of an emulated device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rate {
    /// Number of slots, which work in parallel; 1 to [`SLOTS_MAX`].
    pub slots: usize,
    /// Slot time of each job.
    pub per_job: Duration,
    /// Slot time of the jobs of some functions, by the names under which they were loaded.
    pub per_task: Vec<(String, Duration)>,
    /// Bytes that a slot processes per second; 0: unlimited.
    pub bytes_per_second: u64,
    /// Additional delay, during which the slot is free for other jobs; mostly transmission.
    pub latency: Duration,
}

/// One slot without delays.
impl Default for Rate {
    fn default() -> Self {
        let (per_job, latency) = (Duration::ZERO, Duration::ZERO);
        Self { slots: 1, per_job, per_task: Vec::new(), bytes_per_second: 0, latency }
    }
}

impl Rate {
    /// Slot time of a function's jobs, without their bytes.
    #[must_use]
    pub fn job(&self, function: &str) -> Duration {
        let of = self.per_task.iter().find(|(name, _)| name == function);
        of.map_or(self.per_job, |(_, time)| *time)
    }

    /// Slot time of a job with this many bytes; `job` is its fixed part.
    #[must_use]
    pub fn busy(&self, job: Duration, bytes: usize) -> Duration {
        let nanos = match self.bytes_per_second {
            0 => 0,
            rate => u128::from(bytes as u64) * 1_000_000_000 / u128::from(rate),
        };
        job.saturating_add(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }
}

/// Slots with the times at which they are free: first come, first served.
#[derive(Debug, Clone)]
pub struct Timeline {
    rate: Rate,
    free: Vec<Instant>,
}

impl Timeline {
    /// Creates a timeline with free slots.
    #[must_use]
    pub fn new(rate: Rate) -> Self {
        Self { free: vec![Instant(0); rate.slots.clamp(1, SLOTS_MAX)], rate }
    }

    /// Adds a job and returns its completion time. `job` is the fixed slot time of [`Rate::job`]; `times` is a
    /// slow-down factor.
    pub fn admit(&mut self, now: Instant, job: Duration, bytes: usize, times: u32) -> Instant {
        let slot = self.free.iter_mut().min().expect("at least one slot");
        *slot = (*slot).max(now) + self.rate.busy(job, bytes).saturating_mul(times);
        *slot + self.rate.latency
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    fn at(micros: u64) -> Instant {
        Instant(micros * 1000)
    }

    #[test]
    fn latency_occupies_no_slot() {
        let rate = Rate { slots: 2, latency: 5 * US, ..Rate::default() };
        let mut timeline = Timeline::new(rate);
        let done: Vec<_> = (0..5).map(|_| timeline.admit(at(100), 10 * US, 0, 1)).collect();
        assert_eq!(done, [at(115), at(115), at(125), at(125), at(135)]);
        // A job never begins in the past, even on a slot that was idle for long.
        assert_eq!(timeline.admit(at(1000), 10 * US, 0, 1), at(1015));
    }

    #[test]
    fn job_time_includes_bytes_and_slowness() {
        let rate = Rate { bytes_per_second: 1_000_000, ..Rate::default() };
        let mut timeline = Timeline::new(rate.clone());
        assert_eq!(timeline.admit(at(0), US, 9, 1), at(10));
        assert_eq!(timeline.admit(at(0), US, 9, 100), at(1010));
        let most = rate.busy(US, usize::MAX / 2);
        assert_eq!(most, US + Duration::from_nanos(u64::MAX).min(most - US));
    }

    #[test]
    fn function_may_have_its_own_job_time() {
        let rate = Rate { per_job: 9 * US, per_task: vec![("pack".into(), 3 * US)], ..Rate::default() };
        assert_eq!([rate.job("pack"), rate.job("unpack")], [3 * US, 9 * US]);
    }
}
