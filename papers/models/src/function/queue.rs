//! Latency of packets: in the element, or through a server that processes one packet after the other.

use pathcall_sim::random::Random;

/// Costs of packets. The paper measures 17.92 ± 5.94 µs if all packets go to two servers (Table I, BL, exact), and
/// 18.92 ± 5.77 µs for prefixes. A server of one core processes six million packets per second (Fig. 5), and the detour
/// to it takes 9 µs (§VII-B). The other values are derived: the element's time, and the load at which a queue has this
/// variance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PacketCosts {
    /// Microseconds in the element alone.
    pub element_us: f64,
    /// Microseconds through an idle server.
    pub remote_us: f64,
    /// Service time of a packet at a server, microseconds.
    pub service_us: f64,
    /// Load of each server if all packets go to servers.
    pub load: f64,
}

/// Latencies of packets, microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PacketLatency {
    /// Mean.
    pub mean_us: f64,
    /// Standard deviation.
    pub deviation_us: f64,
}

/// Packets per second of a server with one core (Fig. 5: 50 Gbit/s of 1024 bytes).
const SERVER_RATE: f64 = 6.0e6;
/// Number of servers (§VII-A).
const SERVERS: u64 = 2;
/// Packets per measurement.
const PACKETS: usize = 1_000_000;

impl PacketCosts {
    /// Costs for which packets through servers have this mean and standard deviation.
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
        // Every path includes the element's time: 9 µs less than through an idle server.
        costs.element_us = (costs.remote_us - 9.0).max(1.0);
        costs
    }

    /// Latency if the share `hits` of the packets matches in the element.
    #[must_use]
    pub fn latency(&self, hits: f64, seed: u64) -> PacketLatency {
        let (mut sum, mut squares) = (0.0, 0.0);
        for time in self.times(hits, seed).take(PACKETS) {
            sum += time;
            squares += time * time;
        }
        let mean_us = sum / PACKETS as f64;
        PacketLatency { mean_us, deviation_us: (squares / PACKETS as f64 - mean_us * mean_us).max(0.0).sqrt() }
    }

    /// Endless sequence of packet latencies, microseconds.
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

    /// Packets per second that the servers sustain if `sent` packets are sent and the share `hits` matches in the
    /// element.
    #[must_use]
    pub fn throughput(hits: f64, sent: f64) -> f64 {
        let bear = SERVERS as f64 * SERVER_RATE / (1.0 - hits).max(1e-9);
        bear.min(sent)
    }
}
