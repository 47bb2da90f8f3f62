use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const AGE_MAX: Duration = Duration::from_millis(100);

fn loads() -> ServerLoads {
    ServerLoads::new(KnownLoads::default(), AGE_MAX)
}

fn report(number: u32, state: u16) -> ServerReport {
    ServerReport { number, state }
}

const fn ms(ms: u64) -> Instant {
    Instant(ms * 1_000_000)
}

#[test]
fn burst_after_report_is_spread_over_servers() {
    let mut loads = loads();
    loads.record_report(ms(0), 1, 7, report(1, 2));
    loads.record_report(ms(0), 2, 7, report(1, 0));
    let chosen: Vec<u32> = (0..6)
        .map(|_| {
            let chosen = if loads.is_second_shorter(ms(1), 1, 2) { 2 } else { 1 };
            loads.record_sent(chosen);
            chosen
        })
        .collect();
    assert_eq!(chosen, [2, 2, 1, 2, 1, 2]);
}

#[test]
fn report_of_new_process_replaces_one_with_greater_number() {
    let mut loads = loads();
    loads.record_report(ms(0), 1, 7, report(900, 5));
    loads.record_report(ms(0), 2, 7, report(1, 3));
    assert!(loads.is_second_shorter(ms(0), 1, 2));
    loads.record_report(ms(1), 1, 8, report(1, 0));
    assert!(!loads.is_second_shorter(ms(1), 1, 2));
}

#[test]
fn server_that_left_is_forgotten() {
    let mut loads = loads();
    loads.record_sent(1);
    loads.record_sent(2);
    loads.retain(&[2]);
    assert_eq!(loads.servers.keys().collect::<Vec<_>>(), [&2]);
    loads.record_answered(1);
    assert!(!loads.servers.contains_key(&1));
}

/// Step of the model test; servers are 0 to 2.
#[derive(Debug, Clone)]
enum Step {
    Report { server: u32, number: u32, state: u16 },
    Sent(u32),
    Answered(u32),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let server = 0..3u32;
    // Numbers around the wrap: 1 follows u32::MAX.
    let number = (0..40u32).prop_map(|n| if n < 20 { u32::MAX - 20 + n } else { n - 18 });
    prop_oneof![
        (server.clone(), number, 0..4u16).prop_map(|(server, number, state)| Step::Report { server, number, state }),
        server.clone().prop_map(Step::Sent),
        server.prop_map(Step::Answered),
        (0..80u64).prop_map(Step::Wait),
    ]
}

/// Position of a number in the order in which a server gives them.
fn position(number: u32) -> i64 {
    if number > u32::MAX / 2 { i64::from(number) - i64::from(u32::MAX) - 1 } else { i64::from(number) }
}

proptest! {
    /// The model: each server's newest report in the order of their numbers, and the number of requests without answer.
    #[test]
    fn choice_matches_newest_reports_and_open_requests(steps in proptest::collection::vec(step(), 1..200)) {
        let mut loads = loads();
        let mut now = 0;
        let mut newest = BTreeMap::<u32, (i64, u16, u64)>::new();
        let mut open = [0_i64; 3];
        for step in steps {
            match step {
                Step::Report { server, number, state } => {
                    loads.record_report(ms(now), server, 1, report(number, state));
                    let position = position(number);
                    if newest.get(&server).is_none_or(|(known, ..)| *known <= position) {
                        newest.insert(server, (position, state, now));
                    }
                }
                Step::Sent(server) => {
                    loads.record_sent(server);
                    open[server as usize] += 1;
                }
                Step::Answered(server) => {
                    loads.record_answered(server);
                    open[server as usize] = (open[server as usize] - 1).max(0);
                }
                Step::Wait(time) => now += time,
            }
            for (first, second) in [(0, 1), (1, 2), (2, 0)] {
                let fresh = |server| newest.get(&server).filter(|(.., at)| now - at <= 100).map(|(_, state, _)| i64::from(*state));
                let (one, other) = fresh(first).zip(fresh(second)).unwrap_or((0, 0));
                let expected = other + open[second as usize] < one + open[first as usize];
                prop_assert_eq!(loads.is_second_shorter(ms(now), first, second), expected);
            }
        }
    }
}
