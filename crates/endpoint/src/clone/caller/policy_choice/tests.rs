//! Tests of the choice against a model: each policy has a distribution of latencies.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use proptest::prelude::*;

use super::*;

/// Latencies of a policy: exponential, with this mean, and ten times as long for this share of the calls.
#[derive(Debug, Clone, Copy)]
struct Shape {
    mean_us: f64,
    slow_share: f64,
}

impl Shape {
    const fn new(mean_us: f64, slow_share: f64) -> Self {
        Self { mean_us, slow_share }
    }

    fn draw(self, random: &mut SplitMix64) -> Duration {
        let uniform = |random: &mut SplitMix64| (f64::from(random.below(1 << 30)) + 0.5) / f64::from(1 << 30);
        let slow = if uniform(random) < self.slow_share { 10.0 } else { 1.0 };
        Duration::from_nanos((-1e3 * self.mean_us * slow * uniform(random).ln()) as u64)
    }

    /// Latency that this share of the calls exceeds, in us.
    fn exceeded_by(self, share: f64) -> f64 {
        let exceeds = |us: f64| {
            let of = |mean: f64| (-us / mean).exp();
            (1.0 - self.slow_share) * of(self.mean_us) + self.slow_share * of(10.0 * self.mean_us)
        };
        let (mut low, mut high) = (0.0, 1e3 * self.mean_us);
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            if exceeds(middle) > share { low = middle } else { high = middle }
        }
        low
    }
}

const USUAL: Shape = Shape::new(100.0, 0.02);

/// Calls of a method at equal intervals.
struct Calls {
    choice: PolicyChoice,
    random: SplitMix64,
    interval_us: u64,
    now_us: u64,
    open: BinaryHeap<Reverse<(u64, u32, Duration)>>,
}

impl Calls {
    fn new(share: f64, seed: u64) -> Self {
        let random = SplitMix64::new(seed + 1);
        Self {
            choice: PolicyChoice::new(200, share, seed),
            random,
            interval_us: 50,
            now_us: 0,
            open: BinaryHeap::new(),
        }
    }

    /// Makes calls; returns how many had each policy.
    fn make(&mut self, calls: u32, shapes: [Shape; POLICIES]) -> [u32; POLICIES] {
        let mut made = [0; POLICIES];
        for _ in 0..calls {
            self.now_us += self.interval_us;
            while let Some(Reverse((at, period, latency))) = self.open.peek().copied()
                && at <= self.now_us
            {
                self.open.pop();
                self.choice.end_call(period, Some(latency));
            }
            let AssignedPolicy { policy, period } = self.choice.start_call(false);
            made[policy as usize] += 1;
            let latency = shapes[policy as usize].draw(&mut self.random);
            self.open.push(Reverse((self.now_us + latency.as_micros() as u64, period, latency)));
        }
        made
    }

    fn chosen(&self) -> (ClonePolicy, PolicyReason) {
        let stats = self.choice.stats();
        (stats.policy, stats.reason)
    }
}

#[test]
fn policy_with_lower_p99_is_kept() {
    let hedged = Shape::new(98.0, 0.002);
    let mut calls = Calls::new(0.1, 7);
    let made = calls.make(100_000, [USUAL, USUAL, hedged, USUAL]);
    assert_eq!(calls.chosen(), (ClonePolicy::Hedged, PolicyReason::LowerP99));
    assert!(made[ClonePolicy::Hedged as usize] > 70_000 && made[ClonePolicy::Cloned as usize] == 0, "{made:?}");
    let periods = calls.choice.stats().periods;
    assert!(periods[ClonePolicy::Random as usize] > 10 && calls.choice.stats().changes == 0, "{periods:?}");
}

#[test]
fn policy_that_gains_nothing_gives_way_to_fewer_requests() {
    let mut calls = Calls::new(1.0, 7);
    calls.make(60_000, [USUAL; POLICIES]);
    assert!(calls.chosen().0 < ClonePolicy::Hedged, "{:?}", calls.chosen());
    let made = calls.make(100_000, [USUAL; POLICIES]);
    assert!(made[0] + made[1] > 75_000, "{made:?}");
}

#[test]
fn random_server_is_chosen_if_other_policies_are_worse() {
    let worse = Shape::new(120.0, 0.02);
    let mut calls = Calls::new(1.0, 7);
    calls.make(60_000, [USUAL, worse, worse, worse]);
    assert_eq!(calls.chosen().0, ClonePolicy::Random);
    let made = calls.make(200_000, [USUAL, worse, worse, worse]);
    assert!(made[0] > 190_000, "{made:?}");
}

#[test]
fn cheaper_policy_takes_the_place_of_one_that_is_about_as_good() {
    let better = Shape::new(95.0, 0.005);
    let mut calls = Calls::new(0.1, 7);
    calls.make(100_000, [USUAL, better, better, USUAL]);
    assert_eq!(calls.chosen(), (ClonePolicy::Shortest, PolicyReason::FewestRequests));
}

#[test]
fn policy_is_left_when_it_becomes_worse_and_chosen_again_later() {
    let (better, worse) = (Shape::new(95.0, 0.005), Shape::new(150.0, 0.03));
    let mut calls = Calls::new(0.1, 7);
    calls.make(60_000, [USUAL, USUAL, better, USUAL]);
    calls.make(60_000, [USUAL, USUAL, worse, USUAL]);
    assert_eq!(calls.chosen().0, ClonePolicy::Random);
    calls.make(200_000, [USUAL, USUAL, better, USUAL]);
    assert_eq!(calls.chosen().0, ClonePolicy::Hedged);
}

#[test]
fn calls_of_the_policy_before_are_not_counted() {
    let hedged = Shape::new(95.0, 0.005);
    for seed in 0..4 {
        let mut calls = Calls::new(0.1, seed);
        // Some 400 calls are in progress, twice as many as a period counts.
        let slower = |shape: Shape| Shape { mean_us: 150.0 * shape.mean_us, ..shape };
        calls.make(400_000, [USUAL, USUAL, hedged, USUAL].map(slower));
        assert_eq!(calls.chosen(), (ClonePolicy::Hedged, PolicyReason::LowerP99), "seed {seed}");
    }
}

#[test]
fn calls_without_answer_count_against_their_policy() {
    let never = Shape::new(1e9, 0.0);
    let mut calls = Calls::new(0.1, 7);
    calls.make(20_000, [USUAL, USUAL, never, USUAL]);
    assert_eq!(calls.chosen(), (ClonePolicy::Random, PolicyReason::OtherWorse));
}

#[test]
fn slow_time_of_all_servers_decides_nothing() {
    let mut calls = Calls::new(0.1, 7);
    calls.make(60_000, [USUAL, USUAL, Shape::new(95.0, 0.005), USUAL]);
    let before = calls.choice.stats();
    for _ in 0..10_000 {
        let assigned = calls.choice.start_call(true);
        assert_eq!(assigned, AssignedPolicy { policy: ClonePolicy::Random, period: 0 });
        calls.choice.end_call(0, Some(Duration::from_secs(1)));
    }
    assert_eq!(calls.choice.stats(), before);
}

#[test]
fn policy_that_makes_all_servers_slow_is_left() {
    let mut calls = Calls::new(0.1, 7);
    for _ in 0..2 {
        calls.make(500, [USUAL; POLICIES]);
        assert_eq!(calls.chosen(), (ClonePolicy::Hedged, PolicyReason::FewCalls));
        (0..100).for_each(|_| _ = calls.choice.start_call(true));
    }
    assert_eq!(calls.chosen(), (ClonePolicy::Random, PolicyReason::OtherWorse));
}

#[test]
fn extra_requests_stop_while_requests_wait_at_the_servers() {
    let better = Shape::new(95.0, 0.005);
    let mut calls = Calls::new(1.0, 7);
    calls.make(60_000, [USUAL, USUAL, better, USUAL]);
    assert_eq!(calls.chosen().0, ClonePolicy::Hedged);
    (0..2_000).for_each(|_| calls.choice.record_server_state(true));
    assert_eq!(calls.chosen(), (ClonePolicy::Shortest, PolicyReason::ServersBusy));
    let made = calls.make(50_000, [USUAL, USUAL, better, better]);
    assert_eq!([made[2], made[3]], [0, 0]);
    (0..4_000).for_each(|_| calls.choice.record_server_state(false));
    calls.make(50_000, [USUAL, USUAL, better, USUAL]);
    assert_eq!(calls.chosen().0, ClonePolicy::Hedged);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Whatever the policies' latencies are: no policy is kept of which the p50 or the p99 is a fifth above that of a
    /// random server, and none that the budget does not allow is ever used.
    #[test]
    fn no_policy_is_kept_that_is_a_fifth_worse(
        means in prop::array::uniform3(60.0..200.0),
        slow in prop::array::uniform3(0.0..0.1),
        share in prop::sample::select(vec![0.0, 0.05, 0.1, 1.0, 2.0]),
        interval_us in prop::sample::select(vec![10_u64, 50, 10_000]),
        seed: u64,
    ) {
        let other = |at: usize| Shape::new(means[at], slow[at]);
        let shapes = [USUAL, other(0), other(1), other(2)];
        let mut calls = Calls { interval_us, ..Calls::new(share, seed >> 1) };
        let mut made = calls.make(100_000, shapes);
        let later = calls.make(100_000, shapes);
        let mut worse = 0;
        for (at, shape) in shapes.iter().enumerate().skip(1) {
            let ratio = |exceeded: f64| shape.exceeded_by(exceeded) / USUAL.exceeded_by(exceeded);
            worse += if ratio(0.5).max(ratio(0.01)) > 1.2 { later[at] } else { 0 };
        }
        prop_assert!(worse <= 10_000, "{worse} calls of worse policies: {later:?} of {shapes:?}");
        made.iter_mut().zip(later).for_each(|(made, later)| *made += later);
        prop_assert!(share > 0.0 || made[2] == 0, "{made:?}");
        prop_assert!(share >= 1.0 || made[3] == 0, "{made:?}");
    }
}
