//! How long packets take: in the element, or by way of a server that works on one after the other.

use pathcall_sim::random::Random;

/// What packets cost. The paper measures 17.92 ± 5.94 µs where all go to two servers (Table I, BL, exact) and 18.92 ± 5.77
/// where they look up prefixes; a server of one core works on six million a second (Fig. 5), and going there takes
/// 9 µs (§VII-B). The rest follows: what is left for the element, and the load at which a queue varies so much.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// Microseconds by the element alone.
    pub element_us: f64,
    /// Microseconds by way of a server where nobody waits.
    pub remote_us: f64,
    /// Microseconds that a server works on a packet.
    pub service_us: f64,
    /// Load of each server when all packets go there.
    pub load: f64,
}

/// Latencies of packets, microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Latency {
    /// Their mean.
    pub mean_us: f64,
    /// Their standard deviation.
    pub deviation_us: f64,
}

/// Packets a second that a server of one core works on (Fig. 5: 50 Gbit/s of 1024 bytes).
const SERVER_RATE: f64 = 6.0e6;
/// Servers (§VII-A).
const SERVERS: u64 = 2;
/// Packets that are timed.
const PACKETS: usize = 1_000_000;

impl Costs {
    /// Such that all packets by way of servers take as long as the paper says, on average and in their spread.
    #[must_use]
    pub fn calibrated(mean_us: f64, deviation_us: f64) -> Self {
        let service_us = 1e6 / SERVER_RATE;
        let mut costs = Self { element_us: mean_us - 9.0 - deviation_us, remote_us: 0.0, service_us, load: 0.5 };
        let (mut low, mut high) = (0.5, 0.999);
        for _ in 0..14 {
            costs.load = (low + high) / 2.0;
            let deviation = costs.latency(0.0, 1).deviation_us;
            if deviation < deviation_us { low = costs.load } else { high = costs.load }
        }
        costs.remote_us = mean_us - costs.latency(0.0, 1).mean_us;
        // What the element takes alone is part of every way: 9 µs less than by way of an idle server.
        costs.element_us = (costs.remote_us - 9.0).max(1.0);
        costs
    }

    /// When this share of the packets matches in the element.
    #[must_use]
    pub fn latency(&self, hits: f64, seed: u64) -> Latency {
        let (mut sum, mut squares) = (0.0, 0.0);
        for time in self.times(hits, seed).take(PACKETS) {
            sum += time;
            squares += time * time;
        }
        let mean_us = sum / PACKETS as f64;
        Latency { mean_us, deviation_us: (squares / PACKETS as f64 - mean_us * mean_us).max(0.0).sqrt() }
    }

    /// How long packets take, one after another, microseconds: without end.
    pub fn times(&self, hits: f64, seed: u64) -> impl Iterator<Item = f64> {
        let costs = *self;
        let mut random = Random::new(seed ^ 0x6c61_7465_6e63_7921);
        let mut uniform = move || (random.below(1 << 53) + 1) as f64 / (1u64 << 53) as f64;
        let between = costs.service_us / costs.load / SERVERS as f64;
        let (mut now, mut free) = (0.0f64, [0.0f64; SERVERS as usize]);
        std::iter::repeat_with(move || {
            now -= uniform().ln() * between;
            if uniform() <= hits {
                return costs.element_us;
            }
            let server = usize::from(uniform() > 0.5);
            let begins = free[server].max(now);
            free[server] = begins + costs.service_us;
            costs.remote_us + begins - now
        })
    }

    /// Packets a second, of which this share matches in the element, that the servers can bear, if so many are sent.
    #[must_use]
    pub fn throughput(hits: f64, sent: f64) -> f64 {
        let bear = SERVERS as f64 * SERVER_RATE / (1.0 - hits).max(1e-9);
        bear.min(sent)
    }
}
