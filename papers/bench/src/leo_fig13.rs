//! `leo-fig13`: the selector compared with two greedy ones, a shortest queue, and the exact optimum with knowledge of
//! all requests (LEO Fig. 13): throughput at a latency limit, number of path changes, and reaction to a slow device. In
//! virtual time, on off-path hosts.

use anyhow::{Context, Result};
use pathcall_models::place::testbeds::{self, Ycsb};
use pathcall_models::place::{Arrivals, PlaceRun, PlaceSetup, StationFault, StationFaultKind, measure};
use pathcall_place::path::PathSide;
use pathcall_place::{DeviceRole, PathId, Resource};
use pathcall_wire::Instant;

use crate::harness::{Bench, Better, Figure, Kind, Metric, Panel, Panels};
use crate::leo::{
    AS_PRINTED, GREEDY_E2E, GREEDY_INTRA, LEO, MESSAGES, MESSAGES_QUICK, MIGRATION, NamedPolicy, OPTIMUM, SHORTEST,
    latencies, run as once, seeds, within,
};
use crate::leo_fig9::{LIMIT_US, MOST};

pub(crate) const FIGURE: Figure = Figure {
    name: "leo-fig13",
    about: "simulated: paths chosen by the selector, greedily, by the shortest queue, and at best",
    kind: Kind::Modelled,
    run,
};

/// Expected ratios to the peers: the paper's gains over the greedy ones lie between 1.18 and 2.17.
const PEERS: [(NamedPolicy, Option<f64>); 5] =
    [(GREEDY_E2E, Some(1.18)), (GREEDY_INTRA, Some(1.18)), (SHORTEST, None), (AS_PRINTED, None), (OPTIMUM, Some(0.97))];
/// Load at which the better path suffices.
const CALM: f64 = 0.25;
/// Maximum ratio of path changes with a varying network to those with a constant one.
const STABLE: f64 = 1.1;
/// Factors by which a device becomes slower, and number of requests until it is down to its new share.
const SLOWER: [u32; 2] = [10, 100];
const REACTION: f64 = 100.0;
const WORDS: &str = "The paper (§V-C, Fig. 13): \"Greedy-E2E performs the worst as it can misselect paths due to network fluctuation \
    between hosts. […] LEO demonstrates 1.18–2.17× performance gain over the two greedy algorithms […]. LEO achieves \
    comparable performance to the optimal solution, which knows the whole request sequence in advance.\"";

fn run(bench: &mut Bench) -> Result<()> {
    let mut panels = Vec::new();
    for (title, workload) in [("YCSB-C", Ycsb::C), ("YCSB-B", Ycsb::B)] {
        let setting = testbeds::kvs(workload);
        panels.push(plot(bench, title, &setting));
    }
    let setting = testbeds::kvs(Ycsb::C);
    change_rows(bench, &setting);
    reaction_rows(bench, &setting)?;
    bench.show_panels(Panels { name: "latency", words: WORDS, panels });
    Ok(())
}

/// Throughput at the latency limit.
fn plot(bench: &mut Bench, title: &str, setting: &PlaceSetup) -> Panel {
    let leo = within(bench, setting, LEO, LIMIT_US, MOST);
    for (peer, expected) in PEERS {
        let theirs = within(bench, setting, peer, LIMIT_US, MOST);
        let case = format!("{title}: median within {LIMIT_US} us");
        let metric = Metric::new(case, peer.0, "requests/s", Better::Higher);
        bench.row(expected.map_or(metric.clone(), |ratio| metric.expect(ratio)), &leo, &theirs);
    }
    let policies = [LEO, GREEDY_E2E, GREEDY_INTRA, SHORTEST, OPTIMUM];
    latencies(bench, setting, title, &policies, MOST)
}

/// Rows of path changes, at a load at which one path suffices: a network with varying delay, compared with a network
/// whose delay is constantly the mean.
fn change_rows(bench: &mut Bench, setting: &PlaceSetup) {
    let mut still = setting.clone();
    let (from, to) = still.network.network_ns;
    still.network.network_ns = ((from + to) / 2, (from + to) / 2);
    for ((name, policy), expected) in
        [(LEO, Some(STABLE)), (GREEDY_E2E, None), (GREEDY_INTRA, None), (MIGRATION, None), (SHORTEST, None)]
    {
        let of = |setting: &PlaceSetup| -> Vec<f64> {
            let run = |seed| once(bench, setting, policy, Arrivals::Poisson(CALM * MOST), seed);
            // One change in a thousand requests is negligible.
            seeds(bench).map(|seed| run(seed).changes_in_thousand().max(1.0)).collect()
        };
        let (varying, constant) = (of(setting), of(&still));
        let case = format!("load {CALM}: {name}, changes of path in 1000 requests, network of 3 to 9 us");
        let metric = Metric::new(case, "network of 6 us", "changes", Better::Lower);
        bench.row(expected.map_or(metric.clone(), |ratio| metric.expect(ratio)), &varying, &constant);
    }
}

/// Rows of requests that still take a device after it has become slow.
fn reaction_rows(bench: &mut Bench, setting: &PlaceSetup) -> Result<()> {
    let answers = |resource: &Resource| resource.side == PathSide::Responder && resource.node == Some(DeviceRole::Acc);
    let station = setting.paths.resources.iter().position(answers).context("no accelerator answers")?;
    let path =
        setting.paths.paths.iter().position(|path| path.hops.iter().any(|hop| usize::from(hop.resource.0) == station));
    let path = PathId(path.context("no path takes the accelerator")? as u16);
    let (messages, rate, seeds) = (bench.size(MESSAGES, MESSAGES_QUICK), CALM * MOST, seeds(bench));
    for times in SLOWER {
        let of = |policy| -> Vec<f64> {
            let one = |seed| {
                // From the middle of the run on.
                let from = (messages as f64 / 2.0 / rate * 1e9) as u64;
                let fault =
                    StationFault { from: Instant(from), until: Instant(u64::MAX), what: StationFaultKind::Slow(times) };
                let run = PlaceRun::new(policy, Arrivals::Poisson(rate), messages, seed);
                measure(setting, &PlaceRun { faults: vec![(station, fault)], ..run }).requests_until_settled(from, path)
                    as f64
            };
            seeds.clone().map(one).collect()
        };
        let leo = of(LEO.1);
        let case = |name| format!("load {CALM}: {name}, requests until an accelerator {times} times as slow is left");
        let asked = |name| Metric::new(case(name), "asked", "requests", Better::Lower);
        let bar = vec![REACTION; leo.len()];
        bench.row(if times == SLOWER[0] { asked(LEO.0).expect(1.0) } else { asked(LEO.0) }, &leo, &bar);
        for (name, policy) in [SHORTEST, GREEDY_INTRA, GREEDY_E2E, AS_PRINTED] {
            bench.row(asked(name), &of(policy), &bar);
        }
    }
    Ok(())
}
