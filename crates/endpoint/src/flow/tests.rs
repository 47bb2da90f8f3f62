use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn at(ms: u64) -> Instant {
    Instant(ms * 1_000_000)
}

#[test]
fn window_is_bounded_by_oldest_unacknowledged_item() {
    let mut flow = Flow::new(FlowTiming::default());
    let mut sent = 0;
    // Acknowledge all items except the first: the window must close at 1 + 256.
    while flow.can_send() {
        let seq = flow.send(at(0), ());
        sent += 1;
        if seq > 1 {
            flow.ack(at(1), seq, false);
        }
    }
    assert_eq!(sent, 256);
    assert_eq!(flow.ack(at(1), 1, false), Some(()));
    assert!(flow.can_send());
}

#[test]
fn overtaken_item_is_resent_before_timeout() {
    let mut flow = Flow::new(FlowTiming::default());
    for item in 0..20 {
        flow.send(at(0), item);
    }
    for seq in 2..=9 {
        flow.ack(at(1), seq, false);
    }
    assert_eq!(flow.due(at(1)), Some(Due::Resend(1, 0)));
    assert_eq!(flow.due(at(1)), None);
}

#[test]
fn overtaken_item_that_is_parked_is_not_lost() {
    let mut flow = Flow::new(FlowTiming::default());
    for item in 0..20 {
        flow.send(at(0), item);
    }
    flow.mark_held(at(1), 1);
    flow.park(1);
    for seq in 2..=20 {
        flow.ack(at(1), seq, false);
    }
    assert_eq!(flow.due(at(1)), None);
    assert!(matches!(flow.due(flow.deadline().expect("the peer is asked")), Some(Due::Resend(1, 0))));
}

#[test]
fn item_behind_others_in_a_queue_does_not_time_out() {
    let mut flow = Flow::new(FlowTiming::default());
    for item in 0..20 {
        flow.send(at(0), item);
    }
    // The network delivers an item each 10 ms, so the last answer is due long after the first timeout.
    for seq in 1..=19 {
        let now = at(30 + 10 * u64::from(seq));
        assert_eq!(flow.due(now), None, "{seq}");
        flow.ack(now, seq, false);
    }
    // The last item is lost: the flow detects this when acknowledgements stop.
    assert_eq!(flow.due(at(230)), None);
    let mut now = at(220);
    let again = std::iter::from_fn(|| {
        now = flow.deadline()?;
        Some(flow.due(now))
    });
    assert_eq!(again.flatten().next(), Some(Due::Resend(20, 19)));
    assert!(now < at(1000), "{now:?}");
}

#[test]
fn item_overtaken_by_slow_acknowledgements_times_out() {
    let mut flow = Flow::new(FlowTiming::default());
    for item in 0..6 {
        flow.send(at(0), item);
    }
    // Fewer acknowledgements than the reorder limit.
    for (seq, ms) in [(2, 10), (3, 30), (4, 45), (5, 49)] {
        assert_eq!(flow.due(at(ms)), None);
        flow.ack(at(ms), seq, false);
    }
    assert_eq!(flow.due(at(51)), Some(Due::Resend(1, 0)));
}

#[test]
fn late_acknowledgement_does_not_extend_overtaken_item() {
    let mut flow = Flow::new(FlowTiming::default());
    let seqs = [0, 1, 2].map(|item| flow.send(at(0), item));
    flow.ack(at(40), seqs[2], false);
    flow.ack(at(45), seqs[0], false);
    assert_eq!(flow.due(at(50)), Some(Due::Resend(seqs[1], 1)));
}

#[test]
fn unanswered_item_is_given_up() {
    let mut flow = Flow::new(FlowTiming::default());
    flow.send(at(0), 'x');
    let mut again = 0;
    loop {
        let now = flow.deadline().expect("item in flight");
        match flow.due(now) {
            Some(Due::Resend(1, 'x')) => again += 1,
            Some(Due::GiveUp('x')) => {
                assert!(now >= at(5000) && now < at(6000), "{now:?}");
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!((5..40).contains(&again), "{again}");
}

#[test]
fn paused_flow_resends_before_it_gives_up() {
    let timing = FlowTiming::default();
    for still in [1_000, 4_900, 5_000, 60_000] {
        let mut flow = Flow::new(timing);
        let seq = flow.send(at(0), 'x');
        let now = at(still);
        assert_eq!(flow.due(now), Some(Due::Resend(seq, 'x')), "{still} ms");
        assert!(flow.silence(now, seq) <= timing.rto_max, "{:?} of {still} ms", flow.silence(now, seq));
        // No answers from now on.
        let mut last = now;
        while let Some(Due::Resend(..)) | None = flow.due(last) {
            last = flow.deadline().expect("in flight");
        }
        let asked = last - now;
        assert!((timing.give_up - timing.rto_max..=timing.give_up + timing.rto_max).contains(&asked), "{asked:?}");
    }
}

#[test]
fn held_item_is_probed_without_limit_and_with_growing_pauses() {
    let mut flow = Flow::new(FlowTiming::default());
    flow.send(at(0), ());
    let (mut last, mut gap) = (at(0), Duration::ZERO);
    for _ in 0..100 {
        // The flow may wake early without work; it never wakes late.
        let now = loop {
            let now = flow.deadline().expect("held");
            if let Some(due) = flow.due(now) {
                assert_eq!(due, Due::Resend(1, ()));
                break now;
            }
        };
        gap = now.since(last);
        last = now;
        flow.mark_held(now, 1);
    }
    assert!(last > at(30_000) && gap <= Duration::from_millis(700), "{last:?} {gap:?}");
}

#[test]
fn held_item_is_probed_when_its_pause_ends() {
    let mut flow = Flow::new(FlowTiming::default());
    flow.send(at(0), ());
    flow.mark_held(at(1), 1);
    assert_eq!(flow.deadline(), Some(at(41)), "before its timeout at 50 ms");
    assert_eq!(flow.due(at(41)), Some(Due::Resend(1, ())));
}

#[test]
fn congestion_signals_halve_window_once_per_round_trip() {
    let mut window = Window::new(true);
    window.shrink(1, 65);
    window.shrink(2, 65);
    assert_eq!(window.size(), 32);
    window.shrink(65, 90);
    assert_eq!(window.size(), 16);
    for _ in 0..10_000 {
        window.grow();
    }
    assert_eq!(window.size(), 142, "additive increase: about one per window");
    for i in 0..20 {
        window.shrink(1000 + i, 1000 + i);
    }
    assert_eq!(window.size(), 2);
}

#[test]
fn marked_acknowledgement_halves_window_once_per_round_trip() {
    let mut flow = Flow::new(FlowTiming::default());
    let seqs: Vec<u32> = (0..20).map(|item| flow.send(at(0), item)).collect();
    let before = flow.window.size();
    flow.ack(at(1), seqs[0], true);
    assert_eq!(flow.window.size(), before / 2);
    // These items were in flight already and report the same queue.
    assert!(seqs[1..].iter().all(|seq| flow.ack(at(1), *seq, true).is_some()));
    assert_eq!(flow.window.size(), before / 2);
    let next = flow.send(at(2), 20);
    flow.ack(at(3), next, true);
    assert_eq!(flow.window.size(), before / 4);
    let unmarked = flow.send(at(4), 21);
    flow.ack(at(5), unmarked, false);
    assert_eq!(flow.window.size(), before / 4, "above the threshold the window grows by one per window");
}

#[test]
fn retransmitted_or_held_item_gives_no_rtt_sample() {
    // The acknowledgement may be for either transmission (Karn and Partridge 1987).
    let mut flow = Flow::new(FlowTiming::default());
    let lost = flow.send(at(0), 1);
    assert_eq!(flow.due(at(50)), Some(Due::Resend(lost, 1)));
    flow.ack(at(51), lost, false);
    assert_eq!(flow.rtt.smoothed(), None);
    // The receiver delays the acknowledgement of a held item.
    let held = flow.send(at(60), 2);
    flow.mark_held(at(61), held);
    flow.ack(at(90), held, false);
    assert_eq!(flow.rtt.smoothed(), None);
    let once = flow.send(at(100), 3);
    assert_eq!(resent_until(&mut flow, at(149)), [], "the timeout is the initial one");
    flow.ack(at(149), once, false);
    assert_eq!(flow.rtt.smoothed(), Some((Duration::from_millis(49), Duration::from_micros(24_500))));
}

#[test]
fn window_is_constant_without_congestion_control() {
    let mut window = Window::new(false);
    window.shrink(1, 65);
    window.grow();
    assert_eq!(window.size(), W_MAX);
}

#[test]
fn flow_stops_at_the_last_sequence_number() {
    let mut flow = Flow::starting_at(FlowTiming::default(), SEQ_END - 3);
    let mut seqs = Vec::new();
    while flow.can_send() {
        assert!(!flow.is_exhausted());
        seqs.push(flow.send(at(0), ()));
    }
    assert_eq!(seqs, [SEQ_END - 3, SEQ_END - 2, SEQ_END - 1]);
    assert!(flow.is_exhausted());
    assert_eq!(flow.due(at(50)), Some(Due::Resend(SEQ_END - 3, ())));
    assert!(seqs.into_iter().all(|seq| flow.ack(at(60), seq, false).is_some()));
    assert!(flow.in_flight() == 0 && !flow.can_send());
}

#[test]
fn late_repeats_are_never_classified_as_new() {
    let mut seen = FlowRepeatFilter::default();
    assert_eq!(seen.classify(0, 1), SeqClass::New);
    assert_eq!(seen.classify(0, 1), SeqClass::Repeat);
    assert_eq!(seen.classify(0, 257), SeqClass::New);
    assert_eq!(seen.classify(0, 1), SeqClass::Stale);
    assert_eq!(seen.classify(1, 1), SeqClass::New);
}

/// Idle flow at 100 ms with early loss detection and round trips of 1 ms.
fn early_loss_flow() -> Flow<u32> {
    let mut flow = Flow::new(FlowTiming { early: Some(Duration::from_micros(250)), ..FlowTiming::default() });
    for i in 0..50 {
        let seq = flow.send(at(50 + i), 0);
        flow.ack(at(51 + i), seq, false);
    }
    flow
}

/// Time in µs since 100 ms, and item, of each retransmission until `until`.
fn resent_until(flow: &mut Flow<u32>, until: Instant) -> Vec<(u64, u32)> {
    let mut all = Vec::new();
    while let Some(now) = flow.deadline().filter(|now| *now <= until) {
        while let Some(due) = flow.due(now) {
            let Due::Resend(_, item) = due else { panic!("{due:?}") };
            all.push((now.since(at(100)).as_micros() as u64, item));
        }
    }
    all
}

#[test]
fn last_item_is_probed_after_two_round_trips_with_growing_pauses() {
    let mut flow = early_loss_flow();
    let window = flow.window.size();
    let seqs: Vec<u32> = (1..=20).map(|item| flow.send(at(100), item)).collect();
    let probes = resent_until(&mut flow, at(109));
    assert_eq!(probes, [(2_000, 20), (6_000, 20)], "only the last item before any timeout");
    assert_eq!(flow.window.size(), window, "a probe does not shrink the window");
    // The acknowledgement of the probe shows that all other items are lost.
    flow.ack(at(109), seqs[19], false);
    let lost: Vec<u32> = resent_until(&mut flow, at(109)).into_iter().map(|(_, item)| item).collect();
    assert_eq!(lost, (1..20).collect::<Vec<u32>>());
    assert!(flow.window.size() < window);
}

#[test]
fn overtaken_item_is_resent_after_a_quarter_round_trip() {
    let mut flow = early_loss_flow();
    let seqs = [1, 2].map(|item| flow.send(at(100), item));
    flow.ack(at(101), seqs[1], false);
    assert_eq!(resent_until(&mut flow, at(102)), [(1_250, 1)]);
    // An early acknowledgement after a repeat is for the first transmission; nothing is overtaken.
    let mut flow = early_loss_flow();
    let seqs = [1, 2, 3].map(|item| flow.send(at(100), item));
    flow.ack(at(101), seqs[2], false);
    assert_eq!(resent_until(&mut flow, Instant(101_250_000)), [(1_250, 1), (1_250, 2)]);
    flow.ack(Instant(101_300_000), seqs[1], false);
    assert_eq!(resent_until(&mut flow, at(103)), []);
    flow.ack(at(103), seqs[0], false);
    assert_eq!(flow.deadline(), None);
}

#[test]
fn item_is_lost_after_eight_later_acknowledgements() {
    let mut flow = Flow::new(FlowTiming::default());
    let seqs: Vec<u32> = (0..9).map(|item| flow.send(at(0), item)).collect();
    for seq in &seqs[1..8] {
        flow.ack(at(1), *seq, false);
        assert_eq!(flow.due(at(1)), None, "the network may have reordered the items");
    }
    flow.ack(at(1), seqs[8], false);
    assert_eq!(flow.due(at(1)), Some(Due::Resend(seqs[0], 0)));
}

/// Window before and after the loss of the first of forty items.
fn lose_one(mut flow: Flow<u32>) -> [u32; 2] {
    let seqs: Vec<u32> = (0..40).map(|item| flow.send(at(400), item)).collect();
    seqs[1..8].iter().for_each(|seq| assert!(flow.ack(at(401), *seq, false).is_some()));
    let before = flow.window.size();
    flow.ack(at(401), seqs[8], false);
    [before, flow.window.size()]
}

#[test]
fn loss_with_queue_halves_window() {
    assert_eq!(lose_one(early_loss_flow()), [121, 97], "without a queue the window keeps four fifths");
    let mut flow = early_loss_flow();
    for i in 0..30 {
        let seq = flow.send(at(100 + 10 * i), 0);
        flow.ack(at(105 + 10 * i), seq, false);
    }
    assert_eq!(lose_one(flow), [151, 76], "round trips are five times longer");
}

#[test]
fn loss_without_answers_halves_window() {
    let mut flow = early_loss_flow();
    let before = flow.window.size();
    for item in 1..=20 {
        flow.send(at(100), item);
    }
    // Two probes; then all items time out.
    resent_until(&mut flow, at(111));
    assert_eq!((before, flow.window.size()), (114, 57));
}

#[test]
fn constant_round_trips_do_not_time_out() {
    let mut flow = Flow::new(FlowTiming::default());
    for i in 0..50 {
        let seq = flow.send(at(20 * i), 0);
        let answer = at(20 * i + 20);
        assert_eq!(resent_until(&mut flow, answer), [], "{i}");
        flow.ack(answer, seq, false);
    }
}

#[test]
fn only_timeouts_resend_without_early_loss_detection() {
    let mut flow = Flow { timing: FlowTiming::default(), ..early_loss_flow() };
    flow.send(at(100), 1);
    assert_eq!(resent_until(&mut flow, at(125)).first(), Some(&(10_000, 1)));
}

proptest! {
    /// Each item takes effect exactly once under loss, repeats and reordering.
    #[test]
    fn each_item_takes_effect_exactly_once(seed in any::<u64>(), loss in 0u64..60, items in 1u32..800, probes: bool) {
        let mut random = seed;
        let mut roll = move || { random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1); random >> 33 };
        let mut flow = Flow::new(FlowTiming {
            give_up: Duration::from_secs(1_000_000),
            early: probes.then_some(Duration::from_micros(250)),
            ..FlowTiming::default()
        });
        let mut seen = FlowRepeatFilter::default();
        let mut effects = BTreeSet::new();
        let (mut next, mut now) = (0u32, at(0));
        let mut air: Vec<(u32, u32)> = Vec::new();
        let mut steps = 0;
        while next < items || flow.in_flight() > 0 {
            steps += 1;
            prop_assert!(steps < 200_000, "no progress at item {next}");
            while next < items && flow.can_send() {
                let seq = flow.send(now, next);
                air.push((seq, next));
                next += 1;
            }
            while let Some(due) = flow.due(now) {
                match due {
                    Due::Resend(seq, item) => air.push((seq, item)),
                    Due::GiveUp(item) => prop_assert!(false, "item {item} was given up"),
                }
            }
            if air.is_empty() {
                now = now.max(flow.deadline().expect("an item is in flight"));
                continue;
            }
            let index = (roll() % air.len() as u64) as usize;
            let (seq, item) = air[index];
            if roll() % 20 != 0 { air.swap_remove(index); }
            now = now + Duration::from_micros(50);
            if roll() % 100 < loss { continue; }
            if seen.classify(0, seq) == SeqClass::New { prop_assert!(effects.insert(item)); }
            if roll() % 100 < loss { continue; }
            flow.ack(now, seq, roll() % 10 == 0);
        }
        prop_assert_eq!(effects.len(), items as usize);
    }
}
