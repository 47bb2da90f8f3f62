//! When an emulated device is done with what it is given: its model alone, without clock or thread.

use std::time::Duration;

use pathcall_wire::Instant;

/// What an emulated device can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rate {
    /// Jobs that it works on at the same time, at least one.
    pub slots: usize,
    /// Time that each job takes of a slot.
    pub per_job: Duration,
    /// The same of jobs of some functions, by the names under which they were loaded.
    pub per_task: Vec<(String, Duration)>,
    /// Bytes of requests that a slot works on in a second; 0: any number.
    pub bytes_per_second: u64,
    /// Time that passes besides, while the slot is free for others: wires, mostly.
    pub latency: Duration,
}

/// One slot, and no time for anything.
impl Default for Rate {
    fn default() -> Self {
        let (per_job, latency) = (Duration::ZERO, Duration::ZERO);
        Self { slots: 1, per_job, per_task: Vec::new(), bytes_per_second: 0, latency }
    }
}

impl Rate {
    /// Time that each job of a function takes of a slot, before its bytes are counted.
    #[must_use]
    pub fn job(&self, function: &str) -> Duration {
        let of = self.per_task.iter().find(|(name, _)| name == function);
        of.map_or(self.per_job, |(_, time)| *time)
    }

    /// Time that a job of so many bytes takes of a slot, `job` of it whatever its length.
    #[must_use]
    pub fn busy(&self, job: Duration, bytes: usize) -> Duration {
        let nanos = match self.bytes_per_second {
            0 => 0,
            rate => u128::from(bytes as u64) * 1_000_000_000 / u128::from(rate),
        };
        job.saturating_add(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }
}

/// Slots, and when each is free: first come, first served.
#[derive(Debug, Clone)]
pub struct Timeline {
    rate: Rate,
    free: Vec<Instant>,
}

impl Timeline {
    /// All slots are free.
    #[must_use]
    pub fn new(rate: Rate) -> Self {
        Self { free: vec![Instant(0); rate.slots.max(1)], rate }
    }

    /// Takes a job of so many bytes, `times` as slow as usual: when it is done. `job`: what [`Rate::job`] says of it.
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
    fn jobs_take_slots_in_turn_and_latency_keeps_none() {
        let rate = Rate { slots: 2, latency: 5 * US, ..Rate::default() };
        let mut timeline = Timeline::new(rate);
        let done: Vec<_> = (0..5).map(|_| timeline.admit(at(100), 10 * US, 0, 1)).collect();
        assert_eq!(done, [at(115), at(115), at(125), at(125), at(135)]);
        // A slot that was free for long does not begin in the past.
        assert_eq!(timeline.admit(at(1000), 10 * US, 0, 1), at(1015));
    }

    #[test]
    fn bytes_and_slowness_count() {
        let rate = Rate { bytes_per_second: 1_000_000, ..Rate::default() };
        let mut timeline = Timeline::new(rate.clone());
        assert_eq!(timeline.admit(at(0), US, 9, 1), at(10));
        assert_eq!(timeline.admit(at(0), US, 9, 100), at(1010));
        let most = rate.busy(US, usize::MAX / 2);
        assert_eq!(most, US + Duration::from_nanos(u64::MAX).min(most - US));
    }

    #[test]
    fn functions_may_have_times_of_their_own() {
        let rate = Rate { per_job: 9 * US, per_task: vec![("pack".into(), 3 * US)], ..Rate::default() };
        assert_eq!([rate.job("pack"), rate.job("unpack")], [3 * US, 9 * US]);
    }
}
