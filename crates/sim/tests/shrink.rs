//! Scenarios without what their failure does not need.

use pathcall_endpoint::map::Operation;
use pathcall_sim::link::Faults;
use pathcall_sim::scenario::{Purpose, Scenario, Step};
use pathcall_sim::{Failure, generate, play, shrink};
use pathcall_wire::Target;

#[test]
fn a_scenario_that_is_right_is_not_shrunk() {
    assert!(shrink(&generate(3)).is_none());
}

#[test]
fn what_a_failure_does_not_need_is_left_out() {
    let fits = |scenario: &Scenario| {
        let [first, _, ..] = &scenario.applications[..] else { return false };
        first.purpose == Purpose::Add && first.callers.iter().all(|caller| caller.dies.is_none())
    };
    let mut scenario = (1..).map(generate).find(fits).expect("one in a few");
    // One call that waits for callers that there are not.
    let keys = vec!["never".into()];
    let waiting = Operation::Count { keys, threshold: 99, to: Target::All };
    scenario.applications[0].callers[0].steps.insert(0, Step::call(waiting));
    let smallest = shrink(&scenario).expect("it fails");
    assert!(matches!(play(&smallest).failure, Some((_, Failure::Stuck { waiting: 1, .. }))));
    let callers = smallest.applications.iter().flat_map(|plan| &plan.callers);
    assert_eq!(callers.map(|caller| caller.steps.len()).sum::<usize>(), 1);
    assert_eq!(smallest.faults, Faults::default());
    assert!(smallest.hosts.is_empty() && smallest.outages.is_empty() && smallest.failures.is_empty());
}
