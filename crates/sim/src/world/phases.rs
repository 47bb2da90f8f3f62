//! The phases of a run: faults, none any more, late repeats, and the last questions.

use std::time::Duration;

use pathcall_wire::Instant;

use super::{Event, LAST_QUERY, World};
use crate::judge::Failure;
use crate::party::{Node, Report};

/// Once there are no faults, all calls end within it.
const BOUND: Duration = Duration::from_secs(60);
/// Late repeats arrive, and what was cancelled comes to its end, within it.
const SETTLE: Duration = Duration::from_secs(30);

impl World<'_> {
    /// Plays the scenario to its end, or to the first thing that is wrong.
    pub(crate) fn play(&mut self) -> Result<(), Failure> {
        let bound = self.scenario.faults_until + BOUND;
        if !self.advance(bound, |world| world.judge.all_ended())? {
            return Err(self.judge.stuck());
        }
        self.advance(self.bound(SETTLE), Self::is_quiet)?;
        for (to, datagram) in self.network.release() {
            self.in_air += 1;
            self.queue.push(self.now, Event::Arrive(to, datagram));
        }
        self.advance(self.bound(SETTLE), Self::is_quiet)?;
        if let Some(node) = self.parties.busy_caller(self.scenario) {
            return Err(Failure::NotIdle { node });
        }
        self.judge.at_end()?;
        self.last_queries()
    }

    fn is_quiet(&self) -> bool {
        self.in_air == 0 && self.parties.busy_caller(self.scenario).is_none()
    }

    /// So long after now, and after the faults.
    fn bound(&self, time: Duration) -> Instant {
        self.now.max(self.scenario.faults_until) + time
    }

    /// Asks for the values of every application that has some, and compares them.
    fn last_queries(&mut self) -> Result<(), Failure> {
        for application in 0..self.parties.owners.len() {
            if !self.judge.has_values(application) {
                continue;
            }
            self.ask(application, LAST_QUERY, None)?;
            if !self.advance(self.bound(BOUND), |world| world.answers.contains_key(&application))? {
                return Err(Failure::Unanswered { node: Node::Owner(application) });
            }
            if let Some(Report::Answered(_, Ok(values))) = self.answers.get(&application) {
                self.judge.final_values(application, values)?;
            }
        }
        Ok(())
    }
}
