//! Tests of scaling: reports go in, an element does what it is told.

use pathcall_wire::Instant;

use super::*;

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
