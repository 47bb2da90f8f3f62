//! Comparison of strategies on simple hosts.

use crate::host_model::{Dice, Load, play};
use pathcall_place::model::Preset;
use pathcall_place::{
    Application, Config, Decision, DeviceRole, Hardware, Path, PathId, Paths, Released, RequestOutcome,
    SelectionRequest, SelectionStrategy, Selector,
};
use pathcall_wire::Instant;

fn paths(preset: Preset, application: &str) -> Paths {
    let hardware = Hardware::preset(preset);
    let application = Application::parse("a.yaml", application).expect("an application");
    Paths::of(&hardware, &hardware, &application).expect("paths")
}

const KVS: &str = include_str!("../models/applications/kvs.yaml");
const EBS: &str = include_str!("../models/applications/ebs.yaml");

/// Mean time of reads within the hosts at a rate, in nanoseconds, with a network delay of 3 to 9 µs.
fn mean_ns(paths: &Paths, kind: &str, strategy: SelectionStrategy, gap_ns: f64, network_ns: (f64, f64)) -> f64 {
    let kind = paths.kind(kind).expect("a type");
    let mut selector = Selector::new(paths, strategy, Config::default().in_flight_max(1 << 15));
    let request = |dice: &mut Dice| (kind, (dice.roll() * 1e6) as u64);
    play(paths, &mut selector, &Load { count: 20_000, gap_ns, network_ns, request: &request, slower: None, seed: 1 })
        .mean_ns()
}

#[test]
fn leo_is_near_horizon_and_better_than_greedy() {
    for (preset, text, kind, gap_ns) in [
        (Preset::OffPath, KVS, "GET", 130.0),
        (Preset::OnPath, EBS, "READ4K", 320.0),
        (Preset::Direct, KVS, "GET", 150.0),
    ] {
        let paths = paths(preset, text);
        let of = |strategy| mean_ns(&paths, kind, strategy, gap_ns, (3_000.0, 9_000.0));
        let leo = of(SelectionStrategy::Leo);
        println!("{} on {}: leo {leo:.0} ns", paths.application, preset.name());
        let horizon = of(SelectionStrategy::Horizon { depth: 8 });
        assert!(leo < 1.2 * horizon, "horizon {horizon:.0} ns");
        for worse in [
            SelectionStrategy::GreedyE2e,
            SelectionStrategy::GreedyIntra,
            SelectionStrategy::AllCpu,
            SelectionStrategy::AllAcc,
            SelectionStrategy::Migration,
        ] {
            let other = of(worse);
            assert!(other > 1.18 * leo, "{}: {other:.0} ns", worse.name());
        }
    }
}

#[test]
fn network_delay_does_not_affect_selection() {
    let paths = paths(Preset::OffPath, KVS);
    let [steady, varying] =
        [(6_000.0, 6_000.0), (1_000.0, 40_000.0)].map(|net| mean_ns(&paths, "GET", SelectionStrategy::Leo, 130.0, net));
    println!("leo {steady:.0} ns, {varying:.0} ns where the network's delay varies");
    assert!(varying < 1.2 * steady);
}

#[test]
fn tenfold_slower_device_is_detected_in_hundred_requests() {
    const FROM: usize = 5_000;
    for (preset, text, kind, gap_ns) in [(Preset::OffPath, KVS, "GET", 400.0), (Preset::OnPath, EBS, "READ4K", 500.0)] {
        let paths = paths(preset, text);
        let kind = paths.kind(kind).expect("a type");
        let first = paths.kinds[usize::from(kind.0)].first.0;
        let fast = paths.of_kind(kind).iter().enumerate().min_by_key(|(_, path)| path.traverse_ns).expect("a path").0;
        let fast = PathId(first + fast as u16);
        let mut selector = Selector::new(&paths, SelectionStrategy::Leo, Config::default());
        let load = Load {
            count: 20_000,
            gap_ns,
            network_ns: (3_000.0, 9_000.0),
            request: &|dice| (kind, (dice.roll() * 1e6) as u64),
            slower: Some((fast, FROM, 10)),
            seed: 2,
        };
        let result = play(&paths, &mut selector, &load);
        let share = |range: std::ops::Range<usize>| {
            result.paths[range.clone()].iter().filter(|path| **path == fast).count() as f64 / range.len() as f64
        };
        let (before, after) = (share(FROM - 1_000..FROM), share(FROM + 100..FROM + 600));
        println!(
            "{}: {before:.2} of requests before, {after:.2} after, {:.2} later",
            paths.application,
            share(15_000..20_000)
        );
        assert!(before > 0.5 && after < 0.1 * before);
    }
}

#[test]
fn all_cpu_uses_no_accelerator_however_slow_or_broken_the_processor_is() {
    let paths = paths(Preset::OffPath, KVS);
    let kind = paths.kind("GET").expect("a type");
    for outcome in
        [RequestOutcome::Done { intra_ns: Some(1_000_000_000), total_ns: 1_000_000_000 }, RequestOutcome::Failed]
    {
        let mut selector = Selector::new(&paths, SelectionStrategy::AllCpu, Config::default());
        let fewest = paths.of_kind(kind).iter().map(accelerators).min();
        let mut now = Instant(0);
        for address in 0..1_000 {
            now = Instant(now.0 + 1_000_000);
            let mut next = Some(selector.select(now, &SelectionRequest { kind, address, message: address }));
            while let Some(Decision::Send(dispatch)) = next {
                assert_eq!(Some(accelerators(paths.path(dispatch.path))), fewest, "{outcome:?}, request {address}");
                assert!(selector.done(now, dispatch.ticket, outcome));
                next = selector.poll(now).and_then(|released| match released {
                    Released::Send(dispatch) => Some(Decision::Send(dispatch)),
                    Released::GivenUp { ticket } => {
                        selector.done(now, ticket, RequestOutcome::Abandoned);
                        None
                    }
                });
            }
        }
    }
}

fn accelerators(path: &Path) -> usize {
    [path.role, path.requester_role].into_iter().filter(|role| *role == DeviceRole::Acc).count()
}
