//! Shrinking of a scenario: removal of everything that the violation does not need.
//!
//! Calls in which all callers take part are removed at all of them.

use std::mem::discriminant;
use std::ops::Range;

use pathcall_endpoint::map::Operation;

use crate::link::Faults;
use crate::minimizer::{FailureTest, Minimizer};
use crate::scenario::{Purpose, StepWork};
use crate::{MapNodeId, Scenario, play};

/// Limit on the runs.
const RUNS_MAX: u32 = 3_000;

/// Shrinks a scenario to the smallest one with the same kind of violation; `None` if the scenario has none.
#[must_use]
pub fn shrink(scenario: &Scenario) -> Option<Scenario> {
    let failure = discriminant(&play(scenario).failure?.1);
    let alike = |scenario: &Scenario| play(scenario).failure.is_some_and(|(_, f)| discriminant(&f) == failure);
    Some(shrink_plan(scenario, &mut &alike))
}

/// Shrinks a scenario to the smallest one for which `fails` returns true.
pub(crate) fn shrink_plan(scenario: &Scenario, fails: FailureTest<'_, Scenario>) -> Scenario {
    let mut smaller = Minimizer::new(scenario, RUNS_MAX, fails);
    for change in CHANGES {
        smaller.try_change(change);
    }
    while pass(&mut smaller) {}
    smaller.best
}

/// List in a scenario from which elements may be removed.
#[derive(Debug, Clone, Copy)]
enum ScenarioList {
    Failures,
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
        any |= smaller.shorten_list(|scenario| list.len(scenario), |scenario, part| list.remove(scenario, part));
    }
    any
}

/// Lists of a scenario, the larger ones first.
fn lists(scenario: &Scenario) -> Vec<ScenarioList> {
    let mut lists = vec![
        ScenarioList::Failures,
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
    fn len(self, scenario: &Scenario) -> usize {
        let plan = |index: usize| &scenario.applications[index];
        match self {
            Self::Failures => scenario.failures.len(),
            Self::Moves => scenario.moves.len(),
            Self::Outages => scenario.outages.len(),
            Self::Detours => scenario.detours.len(),
            Self::WireChanges => scenario.wire_changes.len(),
            Self::Pauses(node) => scenario.hosts.get(&node).map_or(0, |host| host.pauses.len()),
            Self::Queries(index) => plan(index).queries.len(),
            Self::Rounds(index) => plan(index).callers.iter().map(|caller| caller.steps.len()).max().unwrap_or(0),
            Self::Steps(index, number) => plan(index).callers.get(number).map_or(0, |caller| caller.steps.len()),
            Self::Pairs(index, number, step) => {
                let caller = plan(index).callers.get(number);
                match caller.and_then(|caller| caller.steps.get(step)).map(|step| &step.work) {
                    Some(StepWork::Call(Operation::Add { pairs, .. })) => pairs.len(),
                    _ => 0,
                }
            }
        }
    }

    /// Removes a range of the list.
    fn remove(self, scenario: &mut Scenario, part: Range<usize>) {
        match self {
            Self::Failures => drop(scenario.failures.drain(part)),
            Self::Moves => drop(scenario.moves.drain(part)),
            Self::Outages => drop(scenario.outages.drain(part)),
            Self::Detours => drop(scenario.detours.drain(part)),
            Self::WireChanges => drop(scenario.wire_changes.drain(part)),
            Self::Pauses(node) => {
                if let Some(host) = scenario.hosts.get_mut(&node) {
                    host.pauses.drain(part);
                }
            }
            Self::Queries(index) => drop(scenario.applications[index].queries.drain(part)),
            Self::Rounds(index) => {
                for caller in &mut scenario.applications[index].callers {
                    let len = caller.steps.len();
                    caller.steps.drain(part.start.min(len)..part.end.min(len));
                }
            }
            Self::Steps(index, number) => {
                scenario.applications[index].callers[number].steps.drain(part);
            }
            Self::Pairs(index, number, step) => {
                let work = &mut scenario.applications[index].callers[number].steps[step].work;
                if let StepWork::Call(Operation::Add { pairs, .. }) = work {
                    pairs.drain(part);
                }
            }
        }
    }
}
