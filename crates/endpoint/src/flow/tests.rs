use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn at(ms: u64) -> Instant {
    Instant(ms * 1_000_000)
}

#[test]
fn the_window_is_bounded_by_the_oldest_unacknowledged() {
    let mut flow = Flow::new(Timing::default());
    let mut sent = 0;
    // Acknowledge all but the first: the window must close at 1 + 256.
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
fn an_item_out_of_order_is_sent_again_before_its_time_out() {
    let mut flow = Flow::new(Timing::default());
    for item in 0..20 {
        flow.send(at(0), item);
    }
    for seq in 2..=9 {
        flow.ack(at(1), seq, false);
    }
    assert_eq!(flow.due(at(1)), Some(Due::Again(1, 0)));
    assert_eq!(flow.due(at(1)), None);
}

#[test]
fn what_waits_behind_others_in_a_queue_is_not_lost() {
    let mut flow = Flow::new(Timing::default());
    for item in 0..20 {
        flow.send(at(0), item);
    }
    // The queue takes 10 ms an item: the last answer is due long after any time-out of the first.
    for seq in 1..=19 {
        let now = at(30 + 10 * u64::from(seq));
        assert_eq!(flow.due(now), None, "{seq}");
        flow.ack(now, seq, false);
    }
    // The last one is lost: that shows when nothing comes any more.
    assert_eq!(flow.due(at(230)), None);
    let mut now = at(220);
    let again = std::iter::from_fn(|| {
        now = flow.deadline()?;
        Some(flow.due(now))
    });
    assert_eq!(again.flatten().next(), Some(Due::Again(20, 19)));
    assert!(now < at(1000), "{now:?}");
}

#[test]
fn what_later_ones_have_overtaken_is_not_waited_for() {
    let mut flow = Flow::new(Timing::default());
    for item in 0..6 {
        flow.send(at(0), item);
    }
    // Too few for suspicion, and they go on to come.
    for (seq, ms) in [(2, 10), (3, 30), (4, 45), (5, 49)] {
        assert_eq!(flow.due(at(ms)), None);
        flow.ack(at(ms), seq, false);
    }
    assert_eq!(flow.due(at(51)), Some(Due::Again(1, 0)));
}

#[test]
fn what_a_later_one_has_overtaken_is_not_excused_by_an_earlier_ones_acknowledgement() {
    let mut flow = Flow::new(Timing::default());
    let seqs = [0, 1, 2].map(|item| flow.send(at(0), item));
    flow.ack(at(40), seqs[2], false);
    flow.ack(at(45), seqs[0], false);
    assert_eq!(flow.due(at(50)), Some(Due::Again(seqs[1], 1)));
}

#[test]
fn nobody_answers_and_the_item_is_given_up() {
    let mut flow = Flow::new(Timing::default());
    flow.send(at(0), 'x');
    let mut again = 0;
    loop {
        let now = flow.deadline().expect("still waiting");
        match flow.due(now) {
            Some(Due::Again(1, 'x')) => again += 1,
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
fn a_flow_that_stood_still_gives_up_nothing_that_was_not_asked_about() {
    let timing = Timing::default();
    for still in [1_000, 4_900, 5_000, 60_000] {
        let mut flow = Flow::new(timing);
        let seq = flow.send(at(0), 'x');
        let now = at(still);
        assert_eq!(flow.due(now), Some(Due::Again(seq, 'x')), "{still} ms");
        assert!(flow.unheard(now, seq) <= timing.rto_max, "{:?} of {still} ms", flow.unheard(now, seq));
        // Nobody answers from then on.
        let mut last = now;
        while let Some(Due::Again(..)) | None = flow.due(last) {
            last = flow.deadline().expect("in flight");
        }
        let asked = last - now;
        assert!((timing.give_up - timing.rto_max..=timing.give_up + timing.rto_max).contains(&asked), "{asked:?}");
    }
}

#[test]
fn a_held_item_is_asked_about_for_ever_and_ever_more_slowly() {
    let mut flow = Flow::new(Timing::default());
    flow.send(at(0), ());
    let (mut last, mut gap) = (at(0), Duration::ZERO);
    for _ in 0..100 {
        // The flow may wake early and find nothing; it never wakes late.
        let now = loop {
            let now = flow.deadline().expect("held");
            if let Some(due) = flow.due(now) {
                assert_eq!(due, Due::Again(1, ()));
                break now;
            }
        };
        gap = now.since(last);
        last = now;
        flow.held(now, 1);
    }
    assert!(last > at(30_000) && gap <= Duration::from_millis(700), "{last:?} {gap:?}");
}

#[test]
fn a_held_item_is_asked_about_as_soon_as_its_pause_is_over() {
    let mut flow = Flow::new(Timing::default());
    flow.send(at(0), ());
    flow.held(at(1), 1);
    assert_eq!(flow.deadline(), Some(at(41)), "before its time-out, at 50");
    assert_eq!(flow.due(at(41)), Some(Due::Again(1, ())));
}

#[test]
fn marks_halve_the_window_once_a_round_trip() {
    let mut window = Window::new(true);
    window.shrink(1, 65);
    window.shrink(2, 65);
    assert_eq!(window.size(), 32);
    window.shrink(65, 90);
    assert_eq!(window.size(), 16);
    for _ in 0..10_000 {
        window.grow();
    }
    assert_eq!(window.size(), 142, "additive: about one a window");
    for i in 0..20 {
        window.shrink(1000 + i, 1000 + i);
    }
    assert_eq!(window.size(), 2);
}

#[test]
fn marked_acknowledgement_halves_the_window_once_a_round_trip() {
    let mut flow = Flow::new(Timing::default());
    let seqs: Vec<u32> = (0..20).map(|item| flow.send(at(0), item)).collect();
    let before = flow.window.size();
    flow.ack(at(1), seqs[0], true);
    assert_eq!(flow.window.size(), before / 2);
    // These were in flight already: they tell of the same queue.
    assert!(seqs[1..].iter().all(|seq| flow.ack(at(1), *seq, true).is_some()));
    assert_eq!(flow.window.size(), before / 2);
    let next = flow.send(at(2), 20);
    flow.ack(at(3), next, true);
    assert_eq!(flow.window.size(), before / 4);
    let unmarked = flow.send(at(4), 21);
    flow.ack(at(5), unmarked, false);
    assert_eq!(flow.window.size(), before / 4, "above the threshold it grows by one a window");
}

#[test]
fn retransmitted_or_held_item_gives_no_round_trip_time() {
    // Whose acknowledgement it is, the first one's or the repeat's, nobody knows (Karn and Partridge 1987).
    let mut flow = Flow::new(Timing::default());
    let lost = flow.send(at(0), 1);
    assert_eq!(flow.due(at(50)), Some(Due::Again(lost, 1)));
    flow.ack(at(51), lost, false);
    assert_eq!(flow.rtt.smoothed(), None);
    // What the receiver has held was not on its way for so long.
    let held = flow.send(at(60), 2);
    flow.held(at(61), held);
    flow.ack(at(90), held, false);
    assert_eq!(flow.rtt.smoothed(), None);
    let once = flow.send(at(100), 3);
    assert_eq!(again(&mut flow, at(149)), [], "its time-out is the initial one");
    flow.ack(at(149), once, false);
    assert_eq!(flow.rtt.smoothed(), Some((Duration::from_millis(49), Duration::from_micros(24_500))));
}

#[test]
fn without_congestion_control_the_window_is_always_the_greatest() {
    let mut window = Window::new(false);
    window.shrink(1, 65);
    window.grow();
    assert_eq!(window.size(), W_MAX);
}

#[test]
fn the_last_numbers_are_given_out_and_then_none() {
    let mut flow = Flow::starting_at(Timing::default(), SEQ_END - 3);
    let mut seqs = Vec::new();
    while flow.can_send() {
        assert!(!flow.is_over());
        seqs.push(flow.send(at(0), ()));
    }
    assert_eq!(seqs, [SEQ_END - 3, SEQ_END - 2, SEQ_END - 1]);
    assert!(flow.is_over());
    assert_eq!(flow.due(at(50)), Some(Due::Again(SEQ_END - 3, ())));
    assert!(seqs.into_iter().all(|seq| flow.ack(at(60), seq, false).is_some()));
    assert!(flow.in_flight() == 0 && !flow.can_send());
}

#[test]
fn repeats_are_told_from_news_however_late() {
    let mut seen = SeenSet::default();
    assert_eq!(seen.meet(0, 1), Seen::New);
    assert_eq!(seen.meet(0, 1), Seen::Repeat);
    assert_eq!(seen.meet(0, 257), Seen::New);
    assert_eq!(seen.meet(0, 1), Seen::Stale);
    assert_eq!(seen.meet(1, 1), Seen::New);
}

/// A flow whose round trips take a millisecond, at 100 ms; nothing is in flight.
fn early() -> Flow<u32> {
    let mut flow = Flow::new(Timing { early: Some(Duration::from_micros(250)), ..Timing::default() });
    for i in 0..50 {
        let seq = flow.send(at(50 + i), 0);
        flow.ack(at(51 + i), seq, false);
    }
    flow
}

/// What is sent again until then, and when.
fn again(flow: &mut Flow<u32>, until: Instant) -> Vec<(u64, u32)> {
    let mut all = Vec::new();
    while let Some(now) = flow.deadline().filter(|now| *now <= until) {
        while let Some(due) = flow.due(now) {
            let Due::Again(_, item) = due else { panic!("{due:?}") };
            all.push((now.since(at(100)).as_micros() as u64, item));
        }
    }
    all
}

#[test]
fn the_end_is_probed_after_two_round_trips_ever_more_slowly() {
    let mut flow = early();
    let window = flow.window.size();
    let seqs: Vec<u32> = (1..=20).map(|item| flow.send(at(100), item)).collect();
    let probes = again(&mut flow, at(109));
    assert_eq!(probes, [(2_000, 20), (6_000, 20)], "the last one, and no other before its time-out");
    assert_eq!(flow.window.size(), window, "a probe is no sign of congestion");
    // The probe's acknowledgement tells that all others are lost.
    flow.ack(at(109), seqs[19], false);
    let lost: Vec<u32> = again(&mut flow, at(109)).into_iter().map(|(_, item)| item).collect();
    assert_eq!(lost, (1..20).collect::<Vec<u32>>());
    assert!(flow.window.size() < window);
}

#[test]
fn what_one_later_has_overtaken_is_sent_again_a_quarter_of_a_round_trip_later() {
    let mut flow = early();
    let seqs = [1, 2].map(|item| flow.send(at(100), item));
    flow.ack(at(101), seqs[1], false);
    assert_eq!(again(&mut flow, at(102)), [(1_250, 1)]);
    // A repeat that seems to be acknowledged at once: that is for what was sent first, and overtakes nothing.
    let mut flow = early();
    let seqs = [1, 2, 3].map(|item| flow.send(at(100), item));
    flow.ack(at(101), seqs[2], false);
    assert_eq!(again(&mut flow, Instant(101_250_000)), [(1_250, 1), (1_250, 2)]);
    flow.ack(Instant(101_300_000), seqs[1], false);
    assert_eq!(again(&mut flow, at(103)), []);
    flow.ack(at(103), seqs[0], false);
    assert_eq!(flow.deadline(), None);
}

#[test]
fn item_counts_as_lost_once_eight_later_ones_are_acknowledged() {
    let mut flow = Flow::new(Timing::default());
    let seqs: Vec<u32> = (0..9).map(|item| flow.send(at(0), item)).collect();
    for seq in &seqs[1..8] {
        flow.ack(at(1), *seq, false);
        assert_eq!(flow.due(at(1)), None, "the network may have changed their order");
    }
    flow.ack(at(1), seqs[8], false);
    assert_eq!(flow.due(at(1)), Some(Due::Again(seqs[0], 0)));
}

/// The window before and after the first of forty items is lost.
fn loses_one(mut flow: Flow<u32>) -> [u32; 2] {
    let seqs: Vec<u32> = (0..40).map(|item| flow.send(at(400), item)).collect();
    seqs[1..8].iter().for_each(|seq| assert!(flow.ack(at(401), *seq, false).is_some()));
    let before = flow.window.size();
    flow.ack(at(401), seqs[8], false);
    [before, flow.window.size()]
}

#[test]
fn loss_halves_the_window_where_round_trips_tell_of_a_queue() {
    assert_eq!(loses_one(early()), [121, 97], "no queue: four fifths are kept");
    let mut flow = early();
    for i in 0..30 {
        let seq = flow.send(at(100 + 10 * i), 0);
        flow.ack(at(105 + 10 * i), seq, false);
    }
    assert_eq!(loses_one(flow), [151, 76], "round trips have become five times as long");
}

#[test]
fn loss_halves_the_window_where_nothing_is_answered() {
    let mut flow = early();
    let before = flow.window.size();
    for item in 1..=20 {
        flow.send(at(100), item);
    }
    // Two probes, and then all have timed out.
    again(&mut flow, at(111));
    assert_eq!((before, flow.window.size()), (114, 57));
}

#[test]
fn round_trips_that_never_vary_do_not_time_out() {
    let mut flow = Flow::new(Timing::default());
    for i in 0..50 {
        let seq = flow.send(at(20 * i), 0);
        let answer = at(20 * i + 20);
        assert_eq!(again(&mut flow, answer), [], "{i}");
        flow.ack(answer, seq, false);
    }
}

#[test]
fn without_early_recovery_only_time_outs_tell() {
    let mut flow = Flow { timing: Timing::default(), ..early() };
    flow.send(at(100), 1);
    assert_eq!(again(&mut flow, at(125)).first(), Some(&(10_000, 1)));
}

proptest! {
    /// Whatever is lost, repeated or reordered: each item arrives, and takes effect once.
    #[test]
    fn every_item_takes_effect_once(seed in any::<u64>(), loss in 0u64..60, items in 1u32..800, probes: bool) {
        let mut random = seed;
        let mut roll = move || { random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1); random >> 33 };
        let mut flow = Flow::new(Timing {
            give_up: Duration::from_secs(1_000_000),
            early: probes.then_some(Duration::from_micros(250)),
            ..Timing::default()
        });
        let mut seen = SeenSet::default();
        let mut effects = BTreeSet::new();
        let (mut next, mut now) = (0u32, at(0));
        let mut air: Vec<(u32, u32)> = Vec::new();
        let mut steps = 0;
        while next < items || flow.in_flight() > 0 {
            steps += 1;
            prop_assert!(steps < 200_000, "stuck at {next}");
            while next < items && flow.can_send() {
                let seq = flow.send(now, next);
                air.push((seq, next));
                next += 1;
            }
            while let Some(due) = flow.due(now) {
                match due {
                    Due::Again(seq, item) => air.push((seq, item)),
                    Due::GiveUp(item) => prop_assert!(false, "gave up {item}"),
                }
            }
            if air.is_empty() {
                now = now.max(flow.deadline().expect("something is in flight"));
                continue;
            }
            let index = (roll() % air.len() as u64) as usize;
            let (seq, item) = air[index];
            if roll() % 20 != 0 { air.swap_remove(index); }
            now = now + Duration::from_micros(50);
            if roll() % 100 < loss { continue; }
            if seen.meet(0, seq) == Seen::New { prop_assert!(effects.insert(item)); }
            if roll() % 100 < loss { continue; }
            flow.ack(now, seq, roll() % 10 == 0);
        }
        prop_assert_eq!(effects.len(), items as usize);
    }
}
