//! Service times of calls (NetClone §5.1.2).

use std::time::Duration;

use pathcall_sim::random::Random;

/// Service times without jitter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Service {
    /// Exponential, with this mean.
    Exponential(Duration),
    /// Two values.
    Bimodal {
        /// Time of most calls.
        short: Duration,
        /// Time of the other calls.
        long: Duration,
        /// Share of the long calls.
        share: f64,
    },
}

/// Service times with the paper's jitter. Original and clone draw their times independently. The paper does not state
/// this, but its improvement cannot be reproduced otherwise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Workload {
    /// Times without jitter.
    pub service: Service,
    /// Probability p of jitter.
    pub jitter: f64,
    /// Factor by which jitter lengthens a service time.
    pub factor: u32,
}

/// Factor of jitter in the paper.
const FACTOR: u32 = 15;

impl Workload {
    /// Exp(mean) with the given probability of jitter: 0.01 is high, 0.001 low.
    #[must_use]
    pub const fn exponential(mean_us: u64, jitter: f64) -> Self {
        let service = Service::Exponential(Duration::from_micros(mean_us));
        Self { service, jitter, factor: FACTOR }
    }

    /// Bimodal(90 %-short, 10 %-long) with the given probability of jitter.
    #[must_use]
    pub const fn bimodal(short_us: u64, long_us: u64, jitter: f64) -> Self {
        let (short, long) = (Duration::from_micros(short_us), Duration::from_micros(long_us));
        Self { service: Service::Bimodal { short, long, share: 0.1 }, jitter, factor: FACTOR }
    }

    /// Mean service time, jitter included.
    #[must_use]
    pub fn mean(&self) -> Duration {
        let plain = match self.service {
            Service::Exponential(mean) => mean,
            Service::Bimodal { short, long, share } => short.mul_f64(1.0 - share) + long.mul_f64(share),
        };
        plain.mul_f64(1.0 + self.jitter * f64::from(self.factor - 1))
    }

    /// Draws the service time of one execution.
    pub(super) fn draw(&self, random: &mut Random) -> Duration {
        let time = match self.service {
            Service::Exponential(mean) => exponential(random, mean.as_nanos() as f64),
            Service::Bimodal { short, long, share } => {
                if uniform(random) < share {
                    long
                } else {
                    short
                }
            }
        };
        if uniform(random) < self.jitter { time * self.factor } else { time }
    }
}

/// Uniform random number in [0, 1).
fn uniform(random: &mut Random) -> f64 {
    (random.bits() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Exponential random time with a mean in nanoseconds.
pub(super) fn exponential(random: &mut Random, mean: f64) -> Duration {
    Duration::from_nanos((-mean * (1.0 - uniform(random)).ln()) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_times_have_expected_mean() {
        let mut random = Random::new(3);
        for workload in [Workload::exponential(25, 0.01), Workload::bimodal(25, 250, 0.01)] {
            let draws = 400_000;
            let total: Duration = (0..draws).map(|_| workload.draw(&mut random)).sum();
            let ratio = (total / draws).as_secs_f64() / workload.mean().as_secs_f64();
            assert!((0.98..1.02).contains(&ratio), "{workload:?}: {ratio}");
        }
    }
}
