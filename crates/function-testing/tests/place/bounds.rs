//! Tests of placement limits: stay of entries, reuse of numbers, number of reports.

use super::*;

fn placer_with(config: Config) -> Placer {
    let facts = TableFacts { table: TABLE, widths: vec![8], capacity: 1, first_number: 10, has_values: false };
    let mut placer = Placer::new(config, vec![facts]);
    placer.handle(at(0), Input::ServerUp(0));
    placer
}

/// Processes a window with a report of `key` and one use of entry `used`; returns the inserted keys.
fn reported(placer: &mut Placer, now: Instant, (key, packets): (u32, u32), used: u32) -> Vec<u128> {
    placer.handle_timeout(now);
    apply_outputs(placer, now);
    placer.handle(now, heavy(key));
    placer.handle(now, window(&[(key, packets)], &[(used, 1)]));
    inserted(&apply_outputs(placer, now).0)
}

#[test]
fn returning_entry_stays_twice_as_long() {
    let config = Config { stay: Duration::from_secs(2), idle: Duration::from_secs(1_000), ..Config::default() };
    let mut placer = placer_with(config);
    assert_eq!(reported(&mut placer, at(1), (1, 100), 0), [1]);
    assert_eq!(reported(&mut placer, at(2), (2, 100), 10), [0; 0], "the entry has not stayed long enough");
    assert_eq!(reported(&mut placer, at(3), (2, 100), 10), [2]);
    // The first entry returns after the second has stayed, and then stays for four seconds.
    assert_eq!(reported(&mut placer, at(5), (1, 100), 11), [1]);
    assert_eq!(reported(&mut placer, at(8), (2, 100), 10), [0; 0]);
    assert_eq!(reported(&mut placer, at(9), (2, 100), 10), [2]);
}

#[test]
fn freed_number_is_reset_and_reused_after_waiting_time() {
    let config = Config { stay: Duration::ZERO, reuse_after: Duration::from_secs(3), ..Config::default() };
    let mut placer = placer_with(config);
    assert_eq!(reported(&mut placer, at(1), (1, 100), 0), [1]);
    placer.handle(at(2), Input::Recall { server: 0, number: 10 });
    apply_outputs(&mut placer, at(2));
    assert_eq!(placer.poll_timeout(), Some(at(5)));
    placer.handle_timeout(Instant(at(5).0 - 1));
    assert_eq!(apply_outputs(&mut placer, at(4)).0, [], "a packet in flight may still name the number");
    placer.handle_timeout(at(5));
    assert_eq!(apply_outputs(&mut placer, at(5)).0, [Command::Reset(10)]);
}

#[test]
fn reports_per_window_are_bounded_and_counted() {
    let mut placer = placer_with(Config { reports_max: 3, ..Config::default() });
    (1..=5).for_each(|key| placer.handle(at(1), heavy(key)));
    assert_eq!((placer.stats().reports, placer.stats().reports_dropped), (5, 2));
    // The largest report was dropped, so its flow is not placed.
    let flows: Vec<_> = (1..=5).map(|key| (key, 10 * key)).collect();
    placer.handle(at(1), window(&flows, &[]));
    assert_eq!(inserted(&apply_outputs(&mut placer, at(1)).0), [3]);
    placer.handle(at(2), heavy(5));
    assert_eq!(placer.stats().reports_dropped, 2, "the next window starts empty");
}

#[test]
fn forced_entry_becomes_active_after_first_match() {
    let mut placer = placer_with(Config { force_after: Some(Duration::from_secs(1)), ..Config::default() });
    assert_eq!(reported(&mut placer, at(1), (1, 100), 0), [1]);
    let modes = |placer: &mut Placer, now, used: &[(u32, u32)]| {
        placer.handle(now, window(&[(1, 50)], used));
        let mode = |command| match command {
            Command::Mode { number: 10, mode, .. } => Some(mode),
            _ => None,
        };
        apply_outputs(placer, now).0.into_iter().filter_map(mode).collect::<Vec<_>>()
    };
    assert_eq!(modes(&mut placer, at(2), &[]), [EntryMode::Forced], "a packet of the flow is always at a server");
    assert_eq!(modes(&mut placer, at(3), &[]), []);
    assert_eq!(modes(&mut placer, at(4), &[(10, 50)]), [EntryMode::Active]);
    assert_eq!(modes(&mut placer, at(5), &[(10, 50)]), []);
    assert_eq!(placer.stats().forced, 1);
}
