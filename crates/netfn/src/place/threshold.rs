//! Threshold of flow reports, in packets per window: `k · packets / flows`. Feedback on `k` makes the number
//! of reports equal to the room of the table (CLIP §V-A).

/// Largest change of `k` from one window to the next, as a factor.
const STEP_MAX: f64 = 4.0;
/// Exponent of the change of `k` in response to the ratio of reports to room. With a Zipf distribution of exponent α
/// the number of flows above a threshold is proportional to its -1/α-th power, so `k` converges in a few windows for α
/// ≤ 1.
const POWER: f64 = 0.7;
/// Bounds of `k`.
const K_RANGE: (f64, f64) = (1e-3, 1e6);

/// Feedback control of `k`.
#[derive(Debug, Clone, PartialEq)]
pub struct ThresholdFeedback {
    k: f64,
    tolerance: f64,
    /// Target number of reports.
    room: f64,
    threshold: u32,
}

impl ThresholdFeedback {
    /// Feedback that starts with this `k`; `room`: target number of reports, with a relative tolerance.
    #[must_use]
    pub fn new(k: f64, tolerance: f64, room: u64) -> Self {
        Self { k: k.clamp(K_RANGE.0, K_RANGE.1), tolerance: tolerance.max(0.0), room: room.max(1) as f64, threshold: 1 }
    }

    /// Threshold for the next window, packets, after a window with these counts.
    pub fn next(&mut self, packets: u64, flows: f64, reported: u64) -> u32 {
        let mean = packets as f64 / flows.max(1.0);
        let off = reported as f64 / self.room;
        // At a threshold of 1 all flows are reported. A smaller k would not increase the reports, and would have to
        // grow again.
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

    /// Current `k`.
    #[must_use]
    pub fn k(&self) -> f64 {
        self.k
    }

    /// Current threshold, packets.
    #[must_use]
    pub fn threshold(&self) -> u32 {
        self.threshold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of flows above a threshold in a Zipf distribution.
    fn above(threshold: u32, alpha: f64, flows: u32, packets: f64) -> u64 {
        let sum: f64 = (1..=flows).map(|rank| f64::from(rank).powf(-alpha)).sum();
        (1..=flows).filter(|rank| packets * f64::from(*rank).powf(-alpha) / sum >= f64::from(threshold)).count() as u64
    }

    #[test]
    fn k_converges_to_threshold_that_fills_table() {
        for alpha in [0.5, 0.8, 0.9, 0.99] {
            let (flows, packets, room) = (50_000, 1_000_000, 1_000);
            let mut feedback = ThresholdFeedback::new(2.0, 0.1, room);
            let mut threshold = feedback.next(packets, f64::from(flows), 0);
            for _ in 0..12 {
                let reported = above(threshold, alpha, flows, packets as f64);
                threshold = feedback.next(packets, f64::from(flows), reported);
            }
            let reported = above(threshold, alpha, flows, packets as f64) as f64;
            // Thresholds are whole packets: where many flows have the same size, a step of one packet changes the
            // reports much.
            assert!((700.0..=1300.0).contains(&reported), "α = {alpha}: {reported} at {threshold}, k {}", feedback.k());
        }
    }

    #[test]
    fn reports_within_tolerance_leave_k_unchanged() {
        let mut feedback = ThresholdFeedback::new(2.0, 0.1, 100);
        feedback.next(1000, 10.0, 100);
        assert_eq!((feedback.k(), feedback.threshold()), (2.0, 200));
        feedback.next(1000, 10.0, 109);
        assert_eq!(feedback.k(), 2.0);
        feedback.next(1000, 10.0, 150);
        assert!(feedback.k() > 2.0, "k grows with too many reports");
        let k = feedback.k();
        feedback.next(1000, 10.0, 50);
        assert!(feedback.k() < k, "k falls with too few reports");
    }

    #[test]
    fn too_few_flows_or_no_packets_leave_k_unchanged() {
        let mut feedback = ThresholdFeedback::new(2.0, 0.1, 100);
        feedback.next(10, 10.0, 0);
        for _ in 0..50 {
            feedback.next(10, 10.0, 10);
        }
        let k = feedback.k();
        assert_eq!(feedback.threshold(), 1);
        assert!(k > 0.4, "{k} is too small for more flows");
        feedback.next(0, 1.0, 0);
        assert_eq!(feedback.k(), k);
    }
}
