//! The phases of a run: faults, none any more, late repeats, and the last questions.

use std::time::Duration;

use pathcall_endpoint::map::Operation;
use pathcall_endpoint::map::server::SOFTWARE_ROWS;
use pathcall_wire::Instant;

use super::{EVENTS_MAX, Event, LAST_QUERY, World};
use crate::judge::Failure;
use crate::link::WireSpec;
use crate::part::Part;
use crate::party::{Node, Report};
use crate::scenario::{ApplicationPlan, CallerPlan, Scenario, Step, Work};

/// Once there are no faults, all calls end within it, and within the time that as many take one after the other.
const BOUND: Duration = Duration::from_secs(60);
/// Ways over a link that such a call takes at most: what it adds is the server's before it ends.
const WAYS: u32 = 16;
/// Late repeats arrive, and what was cancelled comes to its end, within it.
const SETTLE: Duration = Duration::from_secs(30);

/// What is waited for, and until when at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// All calls end.
    Calls(Instant),
    /// Everything is quiet.
    Settles(Instant),
    /// The same once late repeats are there.
    Late(Instant),
    /// The values of an application that are asked for.
    Values(usize, Instant),
    /// Nothing more.
    Over,
}

impl Phase {
    pub(super) fn first(scenario: &Scenario) -> Self {
        Self::Calls(scenario.faults_until + BOUND + one_by_one(scenario))
    }
}

/// The time that a caller's calls take one after the other.
fn one_by_one(scenario: &Scenario) -> Duration {
    let of = |application| move |caller| rounds(application, caller);
    let all = scenario.applications.iter().flat_map(|application| application.callers.iter().map(of(application)));
    let way = |wire: &WireSpec| wire.delay + wire.jitter;
    let changed = scenario.wire_changes.iter().map(|change| way(&change.wire));
    let longest = u32::try_from(all.max().unwrap_or(0)).unwrap_or(u32::MAX);
    changed.fold(way(&scenario.wire), Duration::max).saturating_mul(WAYS).saturating_mul(longest)
}

/// How often a caller waits for answers, one after the other: for each call, and for arrays that are longer than the rows
/// of the element, with clear policy *shadow* than half of them.
fn rounds(application: &ApplicationPlan, caller: &CallerPlan) -> usize {
    let ahead = application.memory.map_or(SOFTWARE_ROWS, |memory| memory.rows).div_ceil(2) as usize;
    let chunks = |step: &Step| match &step.work {
        Work::Call(Operation::Sum { lanes, .. }) => lanes.len().div_ceil(application.width.into()),
        _ => 0,
    };
    let calls = caller.steps.len().div_ceil(caller.outstanding.max(1));
    calls + caller.steps.iter().map(chunks).sum::<usize>() / ahead.max(1)
}

impl Part for World<'_> {
    type Wrong = Failure;

    fn next(&self) -> Option<Instant> {
        let (done, bound) = self.awaited()?;
        let next = self.queue.next_at().filter(|at| *at <= bound);
        // What comes next is that nothing does: all that was waited for is there, or will not be.
        next.filter(|_| !done).or(Some(self.now))
    }

    fn step(&mut self) -> Result<(), Failure> {
        let Some((done, bound)) = self.awaited() else { return Ok(()) };
        if done {
            return self.goes_on(true);
        }
        let Some((at, event)) = self.queue.pop() else { return self.goes_on(false) };
        if at > bound {
            self.queue.push(at, event);
            return self.goes_on(false);
        }
        self.now = at;
        self.events += 1;
        if self.events > EVENTS_MAX {
            return Err(Failure::Endless { events: self.events });
        }
        self.happen(event)
    }

    fn host(&self) -> Option<usize> {
        None
    }

    fn wait(&mut self, until: Instant) {
        self.queue.postpone(until);
    }

    fn over(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

impl World<'_> {
    /// Whether what is waited for is there, and until when that is waited for.
    fn awaited(&self) -> Option<(bool, Instant)> {
        Some(match self.phase {
            Phase::Calls(bound) => (self.judge.all_ended(), bound),
            Phase::Settles(bound) | Phase::Late(bound) => (self.is_quiet(), bound),
            Phase::Values(application, bound) => (self.answers.contains_key(&application), bound),
            Phase::Over => return None,
        })
    }

    /// To the next phase: what was waited for is there, or not in time.
    fn goes_on(&mut self, done: bool) -> Result<(), Failure> {
        match self.phase {
            Phase::Calls(_) if !done => return Err(self.judge.stuck()),
            Phase::Calls(_) => self.phase = Phase::Settles(self.bound(SETTLE)),
            Phase::Settles(_) => {
                for (to, datagram) in self.network.release() {
                    self.in_air += 1;
                    self.queue.push(self.now, Event::Arrive(to, datagram));
                }
                self.phase = Phase::Late(self.bound(SETTLE));
            }
            Phase::Late(_) => {
                if let Some(node) = self.parties.busy_caller(self.scenario) {
                    return Err(Failure::NotIdle { node });
                }
                self.judge.at_end()?;
                self.last_query(0)?;
            }
            Phase::Values(application, _) if !done => {
                return Err(Failure::Unanswered { node: Node::Owner(application) });
            }
            Phase::Values(application, _) => {
                if let Some(Report::Answered(_, Ok(values))) = self.answers.get(&application) {
                    self.judge.final_values(application, values)?;
                }
                self.last_query(application + 1)?;
            }
            Phase::Over => {}
        }
        Ok(())
    }

    fn is_quiet(&self) -> bool {
        self.in_air == 0 && self.parties.busy_caller(self.scenario).is_none()
    }

    /// So long after now, and after the faults.
    fn bound(&self, time: Duration) -> Instant {
        self.now.max(self.scenario.faults_until) + time
    }

    /// Asks for the values of the next application that has some, from `first` on.
    fn last_query(&mut self, first: usize) -> Result<(), Failure> {
        let Some(application) = (first..self.parties.owners.len()).find(|index| self.judge.has_values(*index)) else {
            self.phase = Phase::Over;
            return Ok(());
        };
        self.ask(application, LAST_QUERY, None)?;
        self.phase = Phase::Values(application, self.bound(BOUND));
        Ok(())
    }
}
