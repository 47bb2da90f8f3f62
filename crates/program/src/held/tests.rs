//! Tests of held hedges: single cases, and a comparison with a plain model.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const SIZE: HeldHedgesSize = HeldHedgesSize { copies: 4, calls: 8 };

fn name(seq: u32) -> CallName {
    CallName { gaid: 7, caller: 5, incarnation: 1, seq }
}

fn at(us: u64) -> Instant {
    Instant(us * 1_000)
}

/// Sends what is due to server 9; returns the copies with the servers of their requests.
fn sent(held: &mut HeldHedges, now: u64) -> Vec<(Vec<u8>, u32)> {
    let mut all = Vec::new();
    held.send_due(at(now), |bytes, first| {
        all.push((bytes.to_vec(), first));
        Some(9)
    });
    all
}

#[test]
fn copies_leave_in_order_of_their_times() {
    let mut held = HeldHedges::new(SIZE);
    assert!(held.is_empty() && held.deadline().is_none());
    assert!(held.hold(at(0), name(1), 30, 3, b"one") && held.hold(at(1), name(2), 10, 4, b"two"));
    assert_eq!((held.deadline(), held.held()), (Some(at(11)), 2));
    assert!(sent(&mut held, 10).is_empty());
    assert_eq!(sent(&mut held, 11), [(b"two".to_vec(), 4)]);
    assert_eq!(sent(&mut held, 40), [(b"one".to_vec(), 3)]);
    assert_eq!((held.deadline(), held.held()), (None, 0));
    assert_eq!(held.counters_of(7), HedgeCounters { hedges_held: 2, hedges_sent: 2, ..HedgeCounters::default() });
}

#[test]
fn answered_copy_is_dropped_and_says_so() {
    let mut held = HeldHedges::new(SIZE);
    assert!(!held.answer(name(1)), "an unknown call may have been sent");
    held.hold(at(0), name(1), 10, 3, b"one");
    held.hold(at(0), name(2), 10, 3, b"two");
    assert!(held.answer(name(1)) && held.answer(name(1)), "each part of the answer says so");
    assert_eq!(sent(&mut held, 10).len(), 1);
    assert!(!held.answer(name(2)), "the copy was sent");
}

#[test]
fn repeated_request_is_not_held_again() {
    let mut held = HeldHedges::new(SIZE);
    for _ in 0..2 {
        assert!(held.hold(at(0), name(1), 10, 3, b"one"));
    }
    assert_eq!((held.held(), sent(&mut held, 10).len()), (1, 1));
    assert!(held.hold(at(11), name(1), 10, 3, b"one"), "it may have a second answer");
    assert_eq!(held.held(), 0);
    held.hold(at(11), name(2), 10, 3, b"two");
    held.answer(name(2));
    assert!(held.hold(at(12), name(2), 10, 3, b"two") && held.held() == 0);
}

#[test]
fn cancellation_drops_copy_or_finds_other_server() {
    let mut held = HeldHedges::new(SIZE);
    held.hold(at(0), name(1), 10, 3, b"one");
    held.hold(at(0), name(2), 10, 3, b"two");
    assert_eq!((held.cancel(name(1), 3), held.held()), (None, 1));
    sent(&mut held, 10);
    let others = [3, 9, 4].map(|server| held.cancel(name(2), server));
    assert_eq!(others, [Some(9), Some(3), None]);
    assert_eq!(held.cancel(name(3), 3), None, "an unknown call");
}

#[test]
fn pool_gets_at_most_as_many_copies_as_are_left() {
    let mut held = HeldHedges::new(SIZE);
    let of = |gaid, seq| CallName { gaid, ..name(seq) };
    let all = [(1, 1), (1, 2), (1, 3), (2, 4), (2, 5)];
    let taken = all.map(|(gaid, seq)| held.hold(at(0), of(gaid, seq), 10, 3, b"one"));
    assert_eq!(taken, [true, true, false, true, false]);
    assert_eq!((held.counters_of(1).hedges_full, held.counters_of(2).hedges_full), (1, 1));
    held.forget_pool(1);
    assert_eq!((held.held(), held.counters_of(1)), (1, HedgeCounters::default()));
}

#[test]
fn copy_without_other_server_is_lost() {
    let mut held = HeldHedges::new(SIZE);
    held.hold(at(0), name(1), 10, 3, b"one");
    held.send_due(at(10), |_, _| None);
    assert_eq!(held.counters_of(7).hedges_lost, 1);
    assert!(held.answer(name(1)), "no copy was sent");
}

#[test]
fn too_long_request_is_not_held() {
    let mut held = HeldHedges::new(SIZE);
    assert!(!held.hold(at(0), name(1), 10, 3, &[0; MAX_FRAME + 1]) && held.held() == 0);
}

/// The same in a map without places and buffers.
#[derive(Default)]
struct Model {
    calls: BTreeMap<CallName, (u32, ModelState)>,
    over: VecDeque<CallName>,
    inserted: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum ModelState {
    Held { due: Instant, order: u64 },
    Refused,
    Dropped,
    Sent(u32),
}

impl Model {
    fn held(&self, matches: impl Fn(&CallName) -> bool) -> usize {
        let is_held = |(name, (_, state)): &(&CallName, &(u32, ModelState))| {
            matches(name) && matches!(state, ModelState::Held { .. })
        };
        self.calls.iter().filter(is_held).count()
    }

    fn hold(&mut self, now: Instant, name: CallName, delay: u32, first: u32) -> bool {
        if let Some((_, state)) = self.calls.get(&name) {
            return *state != ModelState::Refused;
        }
        let fits = self.held(|other| other.gaid == name.gaid) < SIZE.copies - self.held(|_| true);
        if self.calls.len() == SIZE.calls {
            let oldest = self.over.pop_front().expect("half of the calls have no copy");
            self.calls.remove(&oldest);
        }
        let due = now + Duration::from_micros(delay.into());
        let state = if fits { ModelState::Held { due, order: self.inserted } } else { ModelState::Refused };
        self.calls.insert(name, (first, state));
        self.over.extend((!fits).then_some(name));
        self.inserted += 1;
        fits
    }

    fn end(&mut self, name: CallName, end: ModelState) {
        if let Some((_, state @ ModelState::Held { .. })) = self.calls.get_mut(&name) {
            *state = end;
            self.over.push_back(name);
        }
    }

    fn answer(&mut self, name: CallName) -> bool {
        self.end(name, ModelState::Dropped);
        self.calls.get(&name).is_some_and(|(_, state)| *state == ModelState::Dropped)
    }

    fn cancel(&mut self, name: CallName, server: u32) -> Option<u32> {
        self.end(name, ModelState::Dropped);
        match *self.calls.get(&name)? {
            (first, ModelState::Sent(second)) if server == first => Some(second),
            (first, ModelState::Sent(second)) if server == second => Some(first),
            _ => None,
        }
    }

    fn send_due(&mut self, now: Instant, to: u32) -> Vec<(CallName, u32)> {
        let due = |(name, (first, state)): (&CallName, &(u32, ModelState))| match *state {
            ModelState::Held { due, order } if due <= now => Some((due, order, *name, *first)),
            _ => None,
        };
        let mut all: Vec<_> = self.calls.iter().filter_map(due).collect();
        all.sort_unstable();
        all.iter().for_each(|(.., name, _)| self.end(*name, ModelState::Sent(to)));
        all.into_iter().map(|(.., name, first)| (name, first)).collect()
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Hold(CallName, u32, u32),
    Answer(CallName),
    Cancel(CallName, u32),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let call = (1..4_u32, 1..3_u32, 0..12_u32).prop_map(|(gaid, caller, seq)| CallName { gaid, caller, ..name(seq) });
    prop_oneof![
        4 => (call.clone(), 1..40_u32, 1..4_u32).prop_map(|(call, delay, first)| Step::Hold(call, delay, first)),
        2 => call.clone().prop_map(Step::Answer),
        1 => (call, 1..5_u32).prop_map(|(call, server)| Step::Cancel(call, server)),
        2 => (0..30_u64).prop_map(Step::Pass),
    ]
}

proptest! {
    #[test]
    fn held_hedges_match_model(steps in prop::collection::vec(step(), 0..200)) {
        let (mut held, mut model, mut now) = (HeldHedges::new(SIZE), Model::default(), 0);
        for step in steps {
            match step {
                Step::Hold(call, delay, first) => {
                    let bytes = format!("{call:?}");
                    prop_assert_eq!(
                        held.hold(at(now), call, delay, first, bytes.as_bytes()),
                        model.hold(at(now), call, delay, first)
                    );
                }
                Step::Answer(call) => prop_assert_eq!(held.answer(call), model.answer(call)),
                Step::Cancel(call, server) => {
                    prop_assert_eq!(held.cancel(call, server), model.cancel(call, server));
                }
                Step::Pass(time) => {
                    now += time;
                    let expected: Vec<_> = model.send_due(at(now), 4).into_iter()
                        .map(|(call, first)| (format!("{call:?}").into_bytes(), first)).collect();
                    let mut all = Vec::new();
                    held.send_due(at(now), |bytes, first| { all.push((bytes.to_vec(), first)); Some(4) });
                    prop_assert_eq!(all, expected);
                }
            }
            prop_assert_eq!(held.held(), model.held(|_| true));
            let next = model.calls.values().filter_map(|(_, state)| match state {
                ModelState::Held { due, .. } => Some(*due),
                _ => None,
            });
            prop_assert_eq!(held.deadline(), next.min());
        }
        let all: Vec<_> = held.counters().map(|(_, counters)| counters).collect();
        let ended: u64 = all.iter().map(|one| one.hedges_sent + one.hedges_dropped + one.hedges_lost).sum();
        prop_assert_eq!(all.iter().map(|one| one.hedges_held).sum::<u64>(), ended + held.held() as u64);
    }
}
