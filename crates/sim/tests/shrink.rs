//! Shrinking of scenarios.

use pathcall_endpoint::map::{Ack, Operation};
use pathcall_sim::Simulation;
use pathcall_sim::map::link::Faults;
use pathcall_sim::map::scenario::{Purpose, Scenario, Step};
use pathcall_sim::map::{MapSimulation, MapViolation, generate};
use pathcall_wire::ForwardTarget;

#[test]
fn passing_scenario_is_not_shrunk() {
    assert!(MapSimulation::shrink(&generate(3)).is_none());
}

#[test]
fn shrunk_scenario_has_only_needed_parts() {
    let fits = |scenario: &Scenario| {
        let [first, _, ..] = &scenario.applications[..] else { return false };
        first.purpose == Purpose::Add && first.callers.iter().all(|caller| caller.crash.is_none())
    };
    let mut scenario = (1..).map(generate).find(fits).expect("one seed in a few");
    // A call that waits for callers that do not exist.
    let keys = vec!["never".into()];
    let waiting = Operation::Count { keys, threshold: 99, to: ForwardTarget::All, ack: Ack::Element };
    scenario.applications[0].callers[0].steps.insert(0, Step::call(waiting));
    let smallest = MapSimulation::shrink(&scenario).expect("scenario fails");
    assert!(matches!(MapSimulation::play(&smallest).failure, Some((_, MapViolation::Stuck { waiting: 1, .. }))));
    let callers = smallest.applications.iter().flat_map(|plan| &plan.callers);
    assert_eq!(callers.map(|caller| caller.steps.len()).sum::<usize>(), 1);
    assert_eq!(smallest.faults, Faults::default());
    assert!(smallest.hosts.is_empty() && smallest.outages.is_empty() && smallest.failures.is_empty());
}
