//! From how many packets in a window on a flow is reported: `k · packets / flows`, with a `k` that makes the reports as
//! many as the table has room for (CLIP §V-A).

/// The greatest change of `k` from one window to the next, as a factor.
const STEP_MAX: f64 = 4.0;
/// How `k` answers reports that are too many: with Zipf's law of exponent α the flows above a threshold are as many
/// as its -1/α-th power, so this finds its way in a few windows for all α up to 1.
const POWER: f64 = 0.7;
/// Bounds of `k`.
const K_RANGE: (f64, f64) = (1e-3, 1e6);

/// The feedback on `k`.
#[derive(Debug, Clone, PartialEq)]
pub struct Feedback {
    k: f64,
    tolerance: f64,
    /// Flows that shall be reported.
    room: f64,
    threshold: u32,
}

impl Feedback {
    /// Begins with this `k`; `room`: how many reports are right, give or take a share of `tolerance`.
    #[must_use]
    pub fn new(k: f64, tolerance: f64, room: u64) -> Self {
        Self { k: k.clamp(K_RANGE.0, K_RANGE.1), tolerance: tolerance.max(0.0), room: room.max(1) as f64, threshold: 1 }
    }

    /// The threshold for the next window, in packets, after one with so many packets, flows and reports.
    pub fn next(&mut self, packets: u64, flows: f64, reported: u64) -> u32 {
        let mean = packets as f64 / flows.max(1.0);
        let off = reported as f64 / self.room;
        // All flows are reported at a threshold of 1: fewer there are not, and a smaller k would only have to grow again.
        let at_bottom = self.threshold <= 1 && off < 1.0;
        if packets > 0 && !at_bottom && (off > 1.0 + self.tolerance || off < 1.0 - self.tolerance) {
            let step = off.max(1e-9).powf(POWER).clamp(1.0 / STEP_MAX, STEP_MAX);
            self.k = (self.k * step).clamp(K_RANGE.0, K_RANGE.1);
        }
        if packets > 0 {
            self.threshold = (self.k * mean).round().clamp(1.0, f64::from(u32::MAX - 1)) as u32;
        }
        self.threshold
    }

    /// The `k` of now.
    #[must_use]
    pub fn k(&self) -> f64 {
        self.k
    }

    /// The threshold of now, in packets.
    #[must_use]
    pub fn threshold(&self) -> u32 {
        self.threshold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Flows of Zipf's sizes above a threshold.
    fn above(threshold: u32, alpha: f64, flows: u32, packets: f64) -> u64 {
        let sum: f64 = (1..=flows).map(|rank| f64::from(rank).powf(-alpha)).sum();
        (1..=flows).filter(|rank| packets * f64::from(*rank).powf(-alpha) / sum >= f64::from(threshold)).count() as u64
    }

    #[test]
    fn k_finds_the_threshold_that_fills_the_table() {
        for alpha in [0.5, 0.8, 0.9, 0.99] {
            let (flows, packets, room) = (50_000, 1_000_000, 1_000);
            let mut feedback = Feedback::new(2.0, 0.1, room);
            let mut threshold = feedback.next(packets, f64::from(flows), 0);
            for _ in 0..12 {
                let reported = above(threshold, alpha, flows, packets as f64);
                threshold = feedback.next(packets, f64::from(flows), reported);
            }
            let reported = above(threshold, alpha, flows, packets as f64) as f64;
            // Thresholds are whole packets: one more or less is many flows where they are all alike.
            assert!((700.0..=1300.0).contains(&reported), "α = {alpha}: {reported} at {threshold}, k {}", feedback.k());
        }
    }

    #[test]
    fn reports_within_the_tolerance_change_nothing() {
        let mut feedback = Feedback::new(2.0, 0.1, 100);
        feedback.next(1000, 10.0, 100);
        assert_eq!((feedback.k(), feedback.threshold()), (2.0, 200));
        feedback.next(1000, 10.0, 109);
        assert_eq!(feedback.k(), 2.0);
        feedback.next(1000, 10.0, 150);
        assert!(feedback.k() > 2.0, "too many are filtered out");
        let k = feedback.k();
        feedback.next(1000, 10.0, 50);
        assert!(feedback.k() < k, "too few let more in");
    }

    #[test]
    fn fewer_flows_than_room_and_silence_keep_k() {
        let mut feedback = Feedback::new(2.0, 0.1, 100);
        feedback.next(10, 10.0, 0);
        for _ in 0..50 {
            feedback.next(10, 10.0, 10);
        }
        let k = feedback.k();
        assert_eq!(feedback.threshold(), 1);
        assert!(k > 0.4, "{k}: ready when more flows come");
        feedback.next(0, 1.0, 0);
        assert_eq!(feedback.k(), k);
    }
}
