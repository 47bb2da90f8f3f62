//! Tests of the scaling: load reports, and an element that applies all commands.

use std::collections::BTreeSet;
use std::time::Duration;

use pathcall_wire::Instant;

use pathcall_netfn::scale::{Command, Config, Event, Input, Load, Output, Scaler, ServerId, Version};

fn ms(at: u64) -> Instant {
    Instant(at * 1_000_000)
}

fn config() -> Config {
    let short = Duration::from_millis(10);
    Config { buckets: 8, quiet: short, report_within: Duration::from_millis(100), calm: short, ..Config::default() }
}

fn report(scaler: &mut Scaler, now: Instant, server: ServerId, load: f64, old_flows: u64) {
    let version = scaler.version();
    scaler.handle(now, Input::Load(Load { server, incarnation: 1, load, flows: 5, old_flows, version }));
}

/// Applies all batches; returns the commands and the other outputs.
fn apply_outputs(scaler: &mut Scaler, now: Instant) -> (Vec<Command>, Vec<Output>) {
    let (mut all, mut outputs) = (Vec::new(), Vec::new());
    while let Some(output) = scaler.poll() {
        match output {
            Output::Element { batch, commands } => {
                all.extend(commands);
                scaler.handle(now, Input::Applied { batch });
            }
            other => outputs.push(other),
        }
    }
    (all, outputs)
}

fn versions(commands: &[Command]) -> Vec<(Version, bool)> {
    let of = |command: &Command| match command {
        Command::Version { version, previous } => Some((*version, *previous)),
        _ => None,
    };
    commands.iter().filter_map(of).collect()
}

#[test]
fn version_follows_its_buckets_and_third_version_waits() {
    let mut scaler = Scaler::new(config(), &[]);
    scaler.handle(ms(0), Input::SetWanted(vec![0]));
    report(&mut scaler, ms(0), 0, 0.5, 0);
    report(&mut scaler, ms(0), 1, 0.0, 0);
    let (commands, _) = apply_outputs(&mut scaler, ms(1));
    assert_eq!(versions(&commands), [(1, false)]);
    assert!(matches!(commands.last(), Some(Command::Version { .. })), "{commands:?}");
    scaler.handle(ms(2), Input::SetWanted(vec![0, 1]));
    let (commands, _) = apply_outputs(&mut scaler, ms(2));
    assert_eq!(versions(&commands), [(2, true)], "old flows are looked up");
    let staying = |command: &&Command| matches!(command, Command::Group { version: 1, stays: true, .. });
    assert_eq!(commands.iter().filter(staying).count(), 4, "half of the buckets stay");
    scaler.handle(ms(3), Input::SetWanted(vec![1]));
    for at in 1..10 {
        report(&mut scaler, ms(3 + 10 * at), 0, 0.5, 1);
        report(&mut scaler, ms(3 + 10 * at), 1, 0.5, 0);
    }
    assert_eq!(versions(&apply_outputs(&mut scaler, ms(99)).0), [], "an old flow needs the first group");
    for at in 10..12 {
        report(&mut scaler, ms(10 * at), 0, 0.5, 0);
        report(&mut scaler, ms(10 * at), 1, 0.5, 0);
    }
    assert_eq!(versions(&apply_outputs(&mut scaler, ms(130)).0), [(2, false), (3, true)]);
    assert_eq!(scaler.group(), [1].into());
}

#[test]
fn group_grows_and_shrinks_with_load() {
    let mut scaler = Scaler::new(config(), &[]);
    for server in 0..3 {
        report(&mut scaler, ms(0), server, 0.1, 0);
    }
    apply_outputs(&mut scaler, ms(0));
    assert_eq!(scaler.group(), [0].into());
    report(&mut scaler, ms(50), 0, 0.9, 0);
    apply_outputs(&mut scaler, ms(50));
    assert_eq!(scaler.group().len(), 2);
    for at in [60, 80, 100] {
        (0..3).for_each(|server| report(&mut scaler, ms(at), server, 0.1, 0));
        apply_outputs(&mut scaler, ms(at));
    }
    assert_eq!((scaler.group().len(), scaler.stats().by_load), (1, 2));
}

#[test]
fn flows_and_values_of_silent_server_move() {
    let config = Config { quarantine: Duration::from_millis(500), ..config() };
    let mut scaler = Scaler::new(config, &[(0, 63)]);
    scaler.handle(ms(0), Input::SetWanted(vec![0, 1]));
    let owned = |scaler: &Scaler, by: Option<ServerId>| {
        let ranges = &scaler.partitions()[0];
        ranges.blocks().filter(|block| ranges.owner(*block) == by).count()
    };
    // The first server owns all blocks, and gives half of them back.
    for at in [0, 10, 20] {
        (0..2).for_each(|server| report(&mut scaler, ms(at), server, 0.5, 0));
        for output in apply_outputs(&mut scaler, ms(at)).1 {
            if let Output::Take { server, block } = output {
                scaler.handle(ms(at), Input::Returned { server, block });
            }
        }
        apply_outputs(&mut scaler, ms(at));
    }
    assert_eq!((owned(&scaler, Some(0)), owned(&scaler, Some(1))), (32, 32));
    let version = scaler.version();
    report(&mut scaler, ms(100), 1, 0.5, 0);
    assert_eq!(scaler.poll_timeout(), Some(ms(120)), "the other server reported last at 20 ms");
    scaler.handle_timeout(ms(120));
    let (commands, outputs) = apply_outputs(&mut scaler, ms(120));
    assert!(outputs.contains(&Output::Event(Event::Down { server: 0, flows: 5 })), "{outputs:?}");
    assert_eq!((scaler.group(), scaler.version()), ([1].into(), version), "flows of other servers do not move");
    let moved = |command: &&Command| matches!(command, Command::Group { server: Some(1), .. });
    assert_eq!(commands.iter().filter(moved).count(), 4, "{commands:?}");
    assert_eq!((owned(&scaler, None), owned(&scaler, Some(1))), (32, 32), "its values are in quarantine");
    report(&mut scaler, ms(619), 1, 0.5, 0);
    apply_outputs(&mut scaler, ms(619));
    assert_eq!(owned(&scaler, Some(1)), 32);
    report(&mut scaler, ms(620), 1, 0.5, 0);
    apply_outputs(&mut scaler, ms(620));
    assert_eq!(owned(&scaler, Some(1)), 64);
    assert_eq!((scaler.stats().deaths, scaler.stats().flows_lost), (1, 5));
}

/// Reports stop when the whole machine stands still: a server is dead only if its reports do not resume.
#[test]
fn late_timeout_extends_report_deadline_once() {
    let mut scaler = Scaler::new(config(), &[]);
    scaler.handle(ms(0), Input::SetWanted(vec![0, 1]));
    (0..2).for_each(|server| report(&mut scaler, ms(10), server, 0.5, 0));
    apply_outputs(&mut scaler, ms(10));
    assert_eq!(scaler.poll_timeout(), Some(ms(110)));
    scaler.handle_timeout(ms(5_000));
    assert_eq!((scaler.alive().count(), scaler.poll_timeout()), (2, Some(ms(5_050))));
    report(&mut scaler, ms(5_020), 1, 0.5, 0);
    scaler.handle_timeout(ms(5_060));
    assert_eq!(scaler.alive().collect::<Vec<_>>(), [1]);
    // Repeated late timeouts still detect a dead server.
    scaler.handle_timeout(ms(6_000));
    assert_eq!(scaler.alive().count(), 1);
    scaler.handle_timeout(ms(7_000));
    assert_eq!(scaler.alive().count(), 0);
}

/// Scaler with servers 0 and 1 in the second group, server 0 alone in the first, and three old flows.
fn with_old_flows(config: Config) -> Scaler {
    let mut scaler = Scaler::new(config, &[]);
    scaler.handle(ms(0), Input::SetWanted(vec![0]));
    (0..2).for_each(|server| report(&mut scaler, ms(0), server, 0.5, 0));
    apply_outputs(&mut scaler, ms(0));
    scaler.handle(ms(1), Input::SetWanted(vec![0, 1]));
    apply_outputs(&mut scaler, ms(1));
    report(&mut scaler, ms(2), 0, 0.5, 3);
    report(&mut scaler, ms(2), 1, 0.5, 0);
    apply_outputs(&mut scaler, ms(2));
    scaler
}

#[test]
fn previous_group_ends_after_quiet_time_of_all_servers() {
    let mut scaler = Scaler::new(config(), &[]);
    // Server 1 reports an old flow until the given time, the others none; returns the time at which the group ends.
    let drained = |scaler: &mut Scaler, from: u64, until: u64| {
        (from..from + 100).find_map(|at| {
            for (server, old_flows) in [(0, 0), (1, u64::from(at < until)), (2, 0)] {
                report(scaler, ms(at), server, 0.5, old_flows);
            }
            if scaler.poll_timeout().is_some_and(|deadline| deadline <= ms(at)) {
                scaler.handle_timeout(ms(at));
            }
            apply_outputs(scaler, ms(at)).1.into_iter().find_map(|output| match output {
                Output::Event(Event::Drained(version)) => Some((at, version)),
                _ => None,
            })
        })
    };
    scaler.handle(ms(0), Input::SetWanted(vec![0, 1]));
    // The first server was the only one of the first group.
    assert_eq!(drained(&mut scaler, 0, 0).map(|(_, version)| version), Some(1));
    assert_eq!((scaler.version(), scaler.group()), (2, [0, 1].into()));
    scaler.handle(ms(200), Input::SetWanted(vec![0, 1, 2]));
    apply_outputs(&mut scaler, ms(200));
    assert_eq!(drained(&mut scaler, 201, 250), Some((260, 2)));
}

/// Outputs between two times, with their times; server 0 reports this number of old flows each time.
fn over(scaler: &mut Scaler, from: u64, to: u64, old_flows: u64) -> Vec<(u64, Output)> {
    let mut outputs = Vec::new();
    for at in from..to {
        if at.is_multiple_of(5) {
            report(scaler, ms(at), 0, 0.5, old_flows);
            report(scaler, ms(at), 1, 0.5, 0);
        }
        if scaler.poll_timeout().is_some_and(|deadline| deadline <= ms(at)) {
            scaler.handle_timeout(ms(at));
        }
        outputs.extend(apply_outputs(scaler, ms(at)).1.into_iter().map(|output| (at, output)));
    }
    outputs.retain(|(_, output)| !matches!(output, Output::Group { .. }));
    outputs
}

fn hasty() -> Config {
    let ms = Duration::from_millis;
    Config { drain_after: ms(50), drain_every: ms(20), drain_idle: Some(ms(7)), ..config() }
}

#[test]
fn long_wait_for_old_flows_starts_drain() {
    let mut scaler = with_old_flows(hasty());
    assert_eq!(over(&mut scaler, 3, 200, 3), [], "no change waits");
    scaler.handle(ms(200), Input::SetWanted(vec![1]));
    let drain = Output::Drain { server: 0, idle: Some(Duration::from_millis(7)) };
    let waiting = Output::Event(Event::Waits { version: 1, servers: vec![(0, 3)] });
    let outputs = over(&mut scaler, 200, 275, 3);
    assert_eq!(outputs, [(250, drain.clone()), (250, waiting), (270, drain)]);
    let outputs: Vec<Output> = over(&mut scaler, 275, 330, 0).into_iter().map(|(_, output)| output).collect();
    assert!(
        matches!(outputs[..2], [Output::Event(Event::Drained(1)), Output::Event(Event::Changed { .. })]),
        "{outputs:?}"
    );
    assert_eq!((scaler.group(), scaler.stats().flows_lost), ([1].into(), 0));
}

#[test]
fn server_to_be_removed_is_drained() {
    let mut scaler = with_old_flows(hasty());
    over(&mut scaler, 3, 20, 0);
    scaler.handle(ms(20), Input::SetWanted(vec![1]));
    apply_outputs(&mut scaler, ms(20));
    let outputs = over(&mut scaler, 20, 80, 2);
    assert!(matches!(outputs[0], (70..=71, Output::Drain { server: 0, .. })), "{outputs:?}");
}

#[test]
fn drain_within_ends_wait_for_old_flows() {
    let mut scaler = with_old_flows(Config { drain_within: Some(Duration::from_millis(100)), ..hasty() });
    scaler.handle(ms(3), Input::SetWanted(vec![1]));
    let outputs = over(&mut scaler, 3, 120, 3);
    let overdue = (103, Output::Event(Event::Overdue { version: 1, flows: 3 }));
    assert!(outputs.contains(&overdue), "{outputs:?}");
    assert_eq!((scaler.group(), scaler.stats().flows_lost, scaler.stats().overdue), ([1].into(), 3, 1));
}

#[test]
fn flows_unknown_to_restarted_element_are_waited_for() {
    let mut scaler = with_old_flows(config());
    over(&mut scaler, 3, 20, 0);
    assert_eq!(scaler.version(), 2);
    scaler.handle(ms(20), Input::ElementRestarted);
    let (commands, _) = apply_outputs(&mut scaler, ms(20));
    assert_eq!(versions(&commands), [(3, false)], "the element's filters are empty");
    assert_eq!(commands.iter().filter(|command| matches!(command, Command::Group { version: 3, .. })).count(), 8);
    // A flow that existed before the restart is at the server of its bucket, until the group changes.
    scaler.handle(ms(21), Input::SetWanted(vec![1]));
    assert!(over(&mut scaler, 21, 60, 1).iter().all(|(_, output)| !matches!(output, Output::Event(_))));
    over(&mut scaler, 60, 80, 0);
    assert_eq!((scaler.version(), scaler.group()), (4, [1].into()));
}

#[test]
fn batch_not_polled_before_element_restart_is_dropped() {
    let mut scaler = with_old_flows(config());
    over(&mut scaler, 3, 20, 0);
    scaler.handle(ms(20), Input::SetWanted(vec![1]));
    scaler.handle(ms(20), Input::ElementRestarted);
    let mut groups = BTreeSet::new();
    while let Some(output) = scaler.poll() {
        if let Output::Element { commands, .. } = output {
            groups.extend(commands.iter().filter_map(|command| match command {
                Command::Group { version, .. } => Some(*version),
                _ => None,
            }));
        }
    }
    assert_eq!(groups, [scaler.version()].into(), "no command of the previous group");
}
