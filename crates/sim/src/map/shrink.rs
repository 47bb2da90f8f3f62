//! Shrinking of a scenario: removal of everything that the violation does not need.
//!
//! Calls in which all callers take part are removed at all of them.

use std::ops::Range;

use pathcall_endpoint::map::Operation;

use super::link::Faults;
use super::node::MapNodeId;
use super::scenario::{Purpose, Scenario, StepWork};
use crate::minimizer::{FailureTest, Minimizer, remove_range};

/// Limit on the runs.
const RUNS_MAX: u32 = 3_000;

/// Shrinks a scenario to the smallest one for which `fails` returns true.
pub(super) fn shrink_plan(scenario: &Scenario, fails: FailureTest<'_, Scenario>) -> Scenario {
    let mut smaller = Minimizer::new(scenario, RUNS_MAX, fails);
    smaller.minimize(&CHANGES, &[]);
    while pass(&mut smaller) {}
    smaller.best
}

/// List in a scenario from which elements may be removed.
#[derive(Debug, Clone, Copy)]
enum ScenarioList {
    Failures,
    OwnerCrashes,
    Moves,
    Outages,
    Detours,
    WireChanges,
    Pauses(MapNodeId),
    /// Queries of an application.
    Queries(usize),
    /// Calls of an application in which all callers take part.
    Rounds(usize),
    /// Calls of a caller.
    Steps(usize, usize),
    /// Pairs of a call.
    Pairs(usize, usize, usize),
}

/// Changes that remove one feature.
const CHANGES: [fn(&mut Scenario); 14] = [
    |scenario| scenario.faults = Faults::default(),
    |scenario| scenario.faults.loss = Default::default(),
    |scenario| scenario.faults.burst = Default::default(),
    |scenario| scenario.faults.repeat = Default::default(),
    |scenario| scenario.faults.reorder = Default::default(),
    |scenario| scenario.faults.late = Default::default(),
    |scenario| scenario.faults.hostile = Default::default(),
    |scenario| scenario.inline = false,
    |scenario| scenario.hosts.clear(),
    |scenario| scenario.wire.jitter = Default::default(),
    |scenario| scenario.applications.iter_mut().for_each(|plan| plan.token_key = None),
    |scenario| scenario.applications.iter_mut().for_each(|plan| plan.eviction = None),
    |scenario| {
        let callers = scenario.applications.iter_mut().flat_map(|plan| &mut plan.callers);
        callers.for_each(|caller| caller.leaves = None);
    },
    |scenario| {
        for plan in &mut scenario.applications {
            // A replacement is the last of the callers.
            if let Some(before) = plan.callers.pop_if(|caller| caller.succeeds.is_some()).and_then(|c| c.succeeds) {
                plan.callers[before].crash = None;
            }
        }
    },
];

/// Tries to remove each element once; whether any was removed.
fn pass(smaller: &mut Minimizer<'_, Scenario>) -> bool {
    let mut any = false;
    for application in 0..smaller.best.applications.len() {
        any |= smaller.try_change(|scenario| {
            let plan = &mut scenario.applications[application];
            plan.queries.clear();
            plan.callers.iter_mut().for_each(|caller| caller.steps.clear());
        });
    }
    for list in lists(&smaller.best) {
        any |= smaller.shorten_list(|scenario, part| list.remove_range(scenario, part));
    }
    any
}

/// Lists of a scenario, the larger ones first.
fn lists(scenario: &Scenario) -> Vec<ScenarioList> {
    let mut lists = vec![
        ScenarioList::Failures,
        ScenarioList::OwnerCrashes,
        ScenarioList::Moves,
        ScenarioList::Outages,
        ScenarioList::Detours,
        ScenarioList::WireChanges,
    ];
    lists.extend(scenario.hosts.keys().map(|node| ScenarioList::Pauses(*node)));
    for (index, plan) in scenario.applications.iter().enumerate() {
        lists.push(ScenarioList::Queries(index));
        if matches!(plan.purpose, Purpose::Sum | Purpose::Count { .. }) {
            lists.push(ScenarioList::Rounds(index));
            continue;
        }
        for (number, caller) in plan.callers.iter().enumerate() {
            lists.push(ScenarioList::Steps(index, number));
            lists.extend((0..caller.steps.len()).map(|step| ScenarioList::Pairs(index, number, step)));
        }
    }
    lists
}

impl ScenarioList {
    /// Removes a range of the list and returns the length of the rest.
    fn remove_range(self, scenario: &mut Scenario, part: Range<usize>) -> usize {
        let applications = &mut scenario.applications;
        match self {
            Self::Failures => remove_range(&mut scenario.failures, part),
            Self::OwnerCrashes => remove_range(&mut scenario.owner_crashes, part),
            Self::Moves => remove_range(&mut scenario.moves, part),
            Self::Outages => remove_range(&mut scenario.outages, part),
            Self::Detours => remove_range(&mut scenario.detours, part),
            Self::WireChanges => remove_range(&mut scenario.wire_changes, part),
            Self::Pauses(node) => scenario.hosts.get_mut(&node).map_or(0, |host| remove_range(&mut host.pauses, part)),
            Self::Queries(index) => remove_range(&mut applications[index].queries, part),
            Self::Rounds(index) => {
                let rests = applications[index].callers.iter_mut().map(|caller| {
                    let len = caller.steps.len();
                    remove_range(&mut caller.steps, part.start.min(len)..part.end.min(len))
                });
                rests.max().unwrap_or(0)
            }
            Self::Steps(index, number) => {
                let caller = applications[index].callers.get_mut(number);
                caller.map_or(0, |caller| remove_range(&mut caller.steps, part))
            }
            Self::Pairs(index, number, step) => {
                let caller = applications[index].callers.get_mut(number);
                match caller.and_then(|caller| caller.steps.get_mut(step)).map(|step| &mut step.work) {
                    Some(StepWork::Call(Operation::Add { pairs, .. })) => remove_range(pairs, part),
                    Some(StepWork::Call(Operation::Read { keys, .. })) => remove_range(keys, part),
                    _ => 0,
                }
            }
        }
    }
}
