//! What choosing paths gains is what the paper saw.

use pathcall_models::place::beds::{self, Ycsb};
use pathcall_models::place::{Arrivals, Limit, Policy, Run, Spell, Trouble, measure, sustained};
use pathcall_place::{PathId, Strategy};
use pathcall_wire::Instant;

const LEO: Policy = Policy::Strategy(Strategy::Leo);

/// LEO §V-C: 1.18 times the greedy ones' throughput at least, and 0.97 of the exact optimum's, which knows all requests.
#[test]
fn paths_are_chosen_better_than_greedily_and_nearly_as_well_as_can_be() {
    let setting = beds::kvs(Ycsb::C);
    let limit = Limit { median_ns: 45_000, between: (2e6, 9e6), messages: 6_000, steps: 7 };
    let at = |policy| sustained(&setting, policy, &limit, 1);
    let leo = at(LEO);
    for greedy in [Strategy::GreedyE2e, Strategy::GreedyIntra] {
        let theirs = at(Policy::Strategy(greedy));
        assert!(leo >= 1.18 * theirs, "{greedy:?}: {leo} and {theirs}");
    }
    let optimum = at(Policy::Known);
    assert!(leo >= 0.97 * optimum, "{leo} and {optimum}");
}

/// A device ten times as slow gets no more than its new share within 100 requests.
#[test]
fn a_slow_device_is_left_in_time() {
    let (setting, rate) = (beds::kvs(Ycsb::C), 2e6);
    let station = setting.paths.resources.iter().rposition(|resource| resource.name == "acc").expect("there is one");
    let spell = Spell { from: Instant(2_000_000), until: Instant(u64::MAX), what: Trouble::Slow(10) };
    let run = Run { spells: vec![(station, spell)], ..Run::new(LEO, Arrivals::Poisson(rate), 10_000, 1) };
    let settles = measure(&setting, &run).settles(2_000_000, PathId(1));
    assert!(settles <= 100, "{settles}");
}
