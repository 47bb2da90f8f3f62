//! The smallest scenario that still fails as one did: without whatever the failure does not need.
//!
//! Calls in which all callers take part are left out at all of them.

use std::mem::discriminant;
use std::ops::Range;

use pathcall_endpoint::map::Operation;

use crate::link::Faults;
use crate::scenario::{Purpose, Work};
use crate::smaller::{Fails, Smaller};
use crate::{Node, Scenario, play};

/// Runs at most.
const RUNS_MAX: u32 = 3_000;

/// The smallest scenario found that fails as this one does; `None` when this one does not fail.
#[must_use]
pub fn shrink(scenario: &Scenario) -> Option<Scenario> {
    let failure = discriminant(&play(scenario).failure?.1);
    let alike = |scenario: &Scenario| play(scenario).failure.is_some_and(|(_, f)| discriminant(&f) == failure);
    Some(smallest(scenario, &mut &alike))
}

/// The smallest scenario found of which `fails` says that it fails as this one does.
pub(crate) fn smallest(scenario: &Scenario, fails: Fails<'_, Scenario>) -> Scenario {
    let mut smaller = Smaller::new(scenario, RUNS_MAX, fails);
    for change in CHANGES {
        smaller.attempt(change);
    }
    while pass(&mut smaller) {}
    smaller.best
}

/// A list in a scenario of which some may be left out.
#[derive(Debug, Clone, Copy)]
enum List {
    Failures,
    Moves,
    Outages,
    Detours,
    WireChanges,
    Pauses(Node),
    /// Of an application.
    Queries(usize),
    /// Calls of an application in which all callers take part.
    Rounds(usize),
    /// Calls of a caller.
    Steps(usize, usize),
    /// Pairs of a call.
    Pairs(usize, usize, usize),
}

/// Changes that leave out one thing.
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
            // A successor is the last of the callers.
            if let Some(before) = plan.callers.pop_if(|caller| caller.succeeds.is_some()).and_then(|c| c.succeeds) {
                plan.callers[before].dies = None;
            }
        }
    },
];

/// Tries to leave out each part once; whether something could be.
fn pass(smaller: &mut Smaller<'_, Scenario>) -> bool {
    let mut any = false;
    for application in 0..smaller.best.applications.len() {
        any |= smaller.attempt(|scenario| {
            let plan = &mut scenario.applications[application];
            plan.queries.clear();
            plan.callers.iter_mut().for_each(|caller| caller.steps.clear());
        });
    }
    for list in lists(&smaller.best) {
        any |= smaller.leave_out(|scenario| list.len(scenario), |scenario, part| list.leave_out(scenario, part));
    }
    any
}

/// The lists of a scenario, the larger things first.
fn lists(scenario: &Scenario) -> Vec<List> {
    let mut lists = vec![List::Failures, List::Moves, List::Outages, List::Detours, List::WireChanges];
    lists.extend(scenario.hosts.keys().map(|node| List::Pauses(*node)));
    for (index, plan) in scenario.applications.iter().enumerate() {
        lists.push(List::Queries(index));
        if matches!(plan.purpose, Purpose::Sum | Purpose::Count { .. }) {
            lists.push(List::Rounds(index));
            continue;
        }
        for (number, caller) in plan.callers.iter().enumerate() {
            lists.push(List::Steps(index, number));
            lists.extend((0..caller.steps.len()).map(|step| List::Pairs(index, number, step)));
        }
    }
    lists
}

impl List {
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
                    Some(Work::Call(Operation::Add { pairs, .. })) => pairs.len(),
                    _ => 0,
                }
            }
        }
    }

    /// Leaves out a part of it.
    fn leave_out(self, scenario: &mut Scenario, part: Range<usize>) {
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
                if let Work::Call(Operation::Add { pairs, .. }) = work {
                    pairs.drain(part);
                }
            }
        }
    }
}
