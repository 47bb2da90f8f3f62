//! Tests of scaling: reports go in, an element does what it is told.

use std::collections::BTreeSet;
use std::time::Duration;

use pathcall_wire::Instant;

use pathcall_function::scale::{Command, Config, Event, Input, Load, Output, Scaler, ServerId, Version};

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

/// Applies all batches; what else was said.
fn settle(scaler: &mut Scaler, now: Instant) -> (Vec<Command>, Vec<Output>) {
    let (mut all, mut said) = (Vec::new(), Vec::new());
    while let Some(output) = scaler.poll() {
        match output {
            Output::Element { batch, commands } => {
                all.extend(commands);
                scaler.handle(now, Input::Applied { batch });
            }
            other => said.push(other),
        }
    }
    (all, said)
}

fn versions(commands: &[Command]) -> Vec<(Version, bool)> {
    let of = |command: &Command| match command {
        Command::Version { version, previous } => Some((*version, *previous)),
        _ => None,
    };
    commands.iter().filter_map(of).collect()
}

#[test]
fn a_version_comes_after_its_buckets_and_a_third_waits() {
    let mut scaler = Scaler::new(config(), &[]);
    scaler.handle(ms(0), Input::Want(vec![0]));
    report(&mut scaler, ms(0), 0, 0.5, 0);
    report(&mut scaler, ms(0), 1, 0.0, 0);
    let (commands, _) = settle(&mut scaler, ms(1));
    assert_eq!(versions(&commands), [(1, false)]);
    assert!(matches!(commands.last(), Some(Command::Version { .. })), "{commands:?}");
    scaler.handle(ms(2), Input::Want(vec![0, 1]));
    let (commands, _) = settle(&mut scaler, ms(2));
    assert_eq!(versions(&commands), [(2, true)], "old flows are looked for");
    let staying = |command: &&Command| matches!(command, Command::Group { version: 1, stays: true, .. });
    assert_eq!(commands.iter().filter(staying).count(), 4, "half of the buckets stay");
    scaler.handle(ms(3), Input::Want(vec![1]));
    for at in 1..10 {
        report(&mut scaler, ms(3 + 10 * at), 0, 0.5, 1);
        report(&mut scaler, ms(3 + 10 * at), 1, 0.5, 0);
    }
    assert_eq!(versions(&settle(&mut scaler, ms(99)).0), [], "a flow needs the first group");
    for at in 10..12 {
        report(&mut scaler, ms(10 * at), 0, 0.5, 0);
        report(&mut scaler, ms(10 * at), 1, 0.5, 0);
    }
    assert_eq!(versions(&settle(&mut scaler, ms(130)).0), [(2, false), (3, true)]);
    assert_eq!(scaler.group(), [1].into());
}

#[test]
fn the_group_grows_and_shrinks_with_its_load() {
    let mut scaler = Scaler::new(config(), &[]);
    for server in 0..3 {
        report(&mut scaler, ms(0), server, 0.1, 0);
    }
    settle(&mut scaler, ms(0));
    assert_eq!(scaler.group(), [0].into());
    report(&mut scaler, ms(50), 0, 0.9, 0);
    settle(&mut scaler, ms(50));
    assert_eq!(scaler.group().len(), 2);
    for at in [60, 80, 100] {
        (0..3).for_each(|server| report(&mut scaler, ms(at), server, 0.1, 0));
        settle(&mut scaler, ms(at));
    }
    assert_eq!((scaler.group().len(), scaler.stats().by_load), (1, 2));
}

#[test]
fn a_silent_servers_flows_and_values_go_to_others() {
    let config = Config { quarantine: Duration::from_millis(500), ..config() };
    let mut scaler = Scaler::new(config, &[(0, 63)]);
    scaler.handle(ms(0), Input::Want(vec![0, 1]));
    let owned = |scaler: &Scaler, by: Option<ServerId>| {
        let ranges = &scaler.partitions()[0];
        ranges.blocks().filter(|block| ranges.owner(*block) == by).count()
    };
    // Whoever was there first was given them all, and gives half of them back.
    for at in [0, 10, 20] {
        (0..2).for_each(|server| report(&mut scaler, ms(at), server, 0.5, 0));
        for output in settle(&mut scaler, ms(at)).1 {
            if let Output::Take { server, block } = output {
                scaler.handle(ms(at), Input::Returned { server, block });
            }
        }
        settle(&mut scaler, ms(at));
    }
    assert_eq!((owned(&scaler, Some(0)), owned(&scaler, Some(1))), (32, 32));
    let version = scaler.version();
    report(&mut scaler, ms(100), 1, 0.5, 0);
    assert_eq!(scaler.poll_timeout(), Some(ms(120)), "the other one was last heard of at 20 ms");
    scaler.handle_timeout(ms(120));
    let (commands, said) = settle(&mut scaler, ms(120));
    assert!(said.contains(&Output::Event(Event::Down { server: 0, flows: 5 })), "{said:?}");
    assert_eq!((scaler.group(), scaler.version()), ([1].into(), version), "others' flows stay where they are");
    let moved = |command: &&Command| matches!(command, Command::Group { server: Some(1), .. });
    assert_eq!(commands.iter().filter(moved).count(), 4, "{commands:?}");
    assert_eq!((owned(&scaler, None), owned(&scaler, Some(1))), (32, 32), "its values are still used by others");
    report(&mut scaler, ms(619), 1, 0.5, 0);
    settle(&mut scaler, ms(619));
    assert_eq!(owned(&scaler, Some(1)), 32);
    report(&mut scaler, ms(620), 1, 0.5, 0);
    settle(&mut scaler, ms(620));
    assert_eq!(owned(&scaler, Some(1)), 64);
    assert_eq!((scaler.stats().deaths, scaler.stats().flows_lost), (1, 5));
}

/// Where the machine stands still nobody reports: a server is dead only if it says nothing afterwards either.
#[test]
fn late_look_holds_no_server_for_dead_at_once() {
    let mut scaler = Scaler::new(config(), &[]);
    scaler.handle(ms(0), Input::Want(vec![0, 1]));
    (0..2).for_each(|server| report(&mut scaler, ms(10), server, 0.5, 0));
    settle(&mut scaler, ms(10));
    assert_eq!(scaler.poll_timeout(), Some(ms(110)));
    scaler.handle_timeout(ms(5_000));
    assert_eq!((scaler.alive().count(), scaler.poll_timeout()), (2, Some(ms(5_050))));
    report(&mut scaler, ms(5_020), 1, 0.5, 0);
    scaler.handle_timeout(ms(5_060));
    assert_eq!(scaler.alive().collect::<Vec<_>>(), [1]);
    // One that looks late each time still finds out.
    scaler.handle_timeout(ms(6_000));
    assert_eq!(scaler.alive().count(), 1);
    scaler.handle_timeout(ms(7_000));
    assert_eq!(scaler.alive().count(), 0);
}

/// A scaler whose servers 0 and 1 are the second group, and whose first was server 0 alone, with three old flows.
fn with_old_flows(config: Config) -> Scaler {
    let mut scaler = Scaler::new(config, &[]);
    scaler.handle(ms(0), Input::Want(vec![0]));
    (0..2).for_each(|server| report(&mut scaler, ms(0), server, 0.5, 0));
    settle(&mut scaler, ms(0));
    scaler.handle(ms(1), Input::Want(vec![0, 1]));
    settle(&mut scaler, ms(1));
    report(&mut scaler, ms(2), 0, 0.5, 3);
    report(&mut scaler, ms(2), 1, 0.5, 0);
    settle(&mut scaler, ms(2));
    scaler
}

#[test]
fn group_before_goes_when_the_last_of_its_servers_had_no_flow_of_it_for_long_enough() {
    let mut scaler = Scaler::new(config(), &[]);
    // Server 1 has an old flow until so late, the others have none; when a group goes.
    let drained = |scaler: &mut Scaler, from: u64, until: u64| {
        (from..from + 100).find_map(|at| {
            for (server, old_flows) in [(0, 0), (1, u64::from(at < until)), (2, 0)] {
                report(scaler, ms(at), server, 0.5, old_flows);
            }
            if scaler.poll_timeout().is_some_and(|due| due <= ms(at)) {
                scaler.handle_timeout(ms(at));
            }
            settle(scaler, ms(at)).1.into_iter().find_map(|output| match output {
                Output::Event(Event::Drained(version)) => Some((at, version)),
                _ => None,
            })
        })
    };
    scaler.handle(ms(0), Input::Want(vec![0, 1]));
    // The first server that came was the whole of the first group.
    assert_eq!(drained(&mut scaler, 0, 0).map(|(_, version)| version), Some(1));
    assert_eq!((scaler.version(), scaler.group()), (2, [0, 1].into()));
    scaler.handle(ms(200), Input::Want(vec![0, 1, 2]));
    settle(&mut scaler, ms(200));
    assert_eq!(drained(&mut scaler, 201, 250), Some((260, 2)));
}

/// What is said in so many milliseconds, and when; server 0 says each time that it has so many old flows.
fn over(scaler: &mut Scaler, from: u64, to: u64, old_flows: u64) -> Vec<(u64, Output)> {
    let mut said = Vec::new();
    for at in from..to {
        if at.is_multiple_of(5) {
            report(scaler, ms(at), 0, 0.5, old_flows);
            report(scaler, ms(at), 1, 0.5, 0);
        }
        if scaler.poll_timeout().is_some_and(|due| due <= ms(at)) {
            scaler.handle_timeout(ms(at));
        }
        said.extend(settle(scaler, ms(at)).1.into_iter().map(|output| (at, output)));
    }
    said.retain(|(_, output)| !matches!(output, Output::Group { .. }));
    said
}

fn hasty() -> Config {
    let ms = Duration::from_millis;
    Config { drain_after: ms(50), drain_every: ms(20), drain_idle: Some(ms(7)), ..config() }
}

#[test]
fn who_waits_for_long_has_servers_hurry() {
    let mut scaler = with_old_flows(hasty());
    assert_eq!(over(&mut scaler, 3, 200, 3), [], "nobody waits");
    scaler.handle(ms(200), Input::Want(vec![1]));
    let drain = Output::Drain { server: 0, idle: Some(Duration::from_millis(7)) };
    let waits = Output::Event(Event::Waits { version: 1, servers: vec![(0, 3)] });
    let said = over(&mut scaler, 200, 275, 3);
    assert_eq!(said, [(250, drain.clone()), (250, waits), (270, drain)]);
    let said: Vec<Output> = over(&mut scaler, 275, 330, 0).into_iter().map(|(_, output)| output).collect();
    assert!(matches!(said[..2], [Output::Event(Event::Drained(1)), Output::Event(Event::Changed { .. })]), "{said:?}");
    assert_eq!((scaler.group(), scaler.stats().flows_lost), ([1].into(), 0));
}

#[test]
fn a_server_that_is_to_go_hurries_too() {
    let mut scaler = with_old_flows(hasty());
    over(&mut scaler, 3, 20, 0);
    scaler.handle(ms(20), Input::Want(vec![1]));
    settle(&mut scaler, ms(20));
    let said = over(&mut scaler, 20, 80, 2);
    assert!(matches!(said[0], (70..=71, Output::Drain { server: 0, .. })), "{said:?}");
}

#[test]
fn waiting_ends_when_the_operator_has_said_so() {
    let mut scaler = with_old_flows(Config { drain_within: Some(Duration::from_millis(100)), ..hasty() });
    scaler.handle(ms(3), Input::Want(vec![1]));
    let said = over(&mut scaler, 3, 120, 3);
    let overdue = (103, Output::Event(Event::Overdue { version: 1, flows: 3 }));
    assert!(said.contains(&overdue), "{said:?}");
    assert_eq!((scaler.group(), scaler.stats().flows_lost, scaler.stats().overdue), ([1].into(), 3, 1));
}

#[test]
fn what_an_element_that_began_anew_does_not_remember_is_waited_for() {
    let mut scaler = with_old_flows(config());
    over(&mut scaler, 3, 20, 0);
    assert_eq!(scaler.version(), 2);
    scaler.handle(ms(20), Input::ElementRestarted);
    let (commands, _) = settle(&mut scaler, ms(20));
    assert_eq!(versions(&commands), [(3, false)], "its filters are empty");
    assert_eq!(commands.iter().filter(|command| matches!(command, Command::Group { version: 3, .. })).count(), 8);
    // A flow that came before is where its bucket is; in another group it would not be.
    scaler.handle(ms(21), Input::Want(vec![1]));
    assert!(over(&mut scaler, 21, 60, 1).iter().all(|(_, output)| !matches!(output, Output::Event(_))));
    over(&mut scaler, 60, 80, 0);
    assert_eq!((scaler.version(), scaler.group()), (4, [1].into()));
}

#[test]
fn batch_not_polled_before_the_element_restarts_is_dropped() {
    let mut scaler = with_old_flows(config());
    over(&mut scaler, 3, 20, 0);
    scaler.handle(ms(20), Input::Want(vec![1]));
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
    assert_eq!(groups, [scaler.version()].into(), "nothing of the group before");
}
