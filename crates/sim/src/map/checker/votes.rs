//! Model of ballots: each has one winner, and no vote is lost, whenever a ballot is cleared.
//!
//! Votes and clears take effect at some time between their start and their end. Between clears a ballot has a quiet
//! period. At most one vote that lies within the period may win. If the votes within it reach the threshold, some
//! vote that took effect after the previous clear must have won.
//!
//! The server has each decision that waiting callers got: with `ack: server` before the first of them, otherwise at the
//! end, unless a caller was killed.

use std::collections::BTreeMap;

use pathcall_endpoint::map::client::CallId;
use pathcall_endpoint::map::{Ack, Key, Operation, Output};
use pathcall_wire::ForwardTarget;

use super::{MapChecker, MapViolation, step_of};
use crate::map::node::{MapNodeId, NodeReport};
use crate::map::scenario::{Purpose, StepWork};

/// Number of a report; the order of events.
type EventIndex = u64;

/// Start and end of a vote or a clear.
#[derive(Debug, Clone, Copy)]
struct VoteSpan {
    from: EventIndex,
    /// `None`: it has not ended, or never will.
    to: Option<EventIndex>,
    won: bool,
}

#[derive(Default)]
struct Ballot {
    votes: BTreeMap<(MapNodeId, CallId), VoteSpan>,
    clears: BTreeMap<(MapNodeId, CallId), VoteSpan>,
}

/// Ballots of an application.
#[derive(Default)]
pub(super) struct Votes {
    ballots: BTreeMap<Key, Ballot>,
    now: EventIndex,
}

impl Votes {
    /// Records the start of a vote for these keys, or of a clear.
    pub(super) fn begin(&mut self, node: MapNodeId, id: CallId, keys: &[Key], clears: bool) {
        self.now += 1;
        let span = VoteSpan { from: self.now, to: None, won: false };
        for key in keys {
            let ballot = self.ballots.entry(key.clone()).or_default();
            let spans = if clears { &mut ballot.clears } else { &mut ballot.votes };
            spans.insert((node, id), span);
        }
    }

    /// Records the end of a clear.
    pub(super) fn cleared(&mut self, node: MapNodeId, id: CallId, keys: &[Key]) {
        self.now += 1;
        for key in keys {
            if let Some(span) = self.ballots.get_mut(key).and_then(|ballot| ballot.clears.get_mut(&(node, id))) {
                span.to = Some(self.now);
            }
        }
    }

    /// Records the end of votes for these keys. `forwarded`: which of them reached the threshold.
    pub(super) fn counted(
        &mut self,
        node: MapNodeId,
        id: CallId,
        (keys, forwarded): (&[Key], &[bool]),
        threshold: u32,
    ) -> Result<(), MapViolation> {
        self.now += 1;
        for (key, &forwarded) in keys.iter().zip(forwarded) {
            let Some(ballot) = self.ballots.get_mut(key) else { continue };
            let Some(span) = ballot.votes.get_mut(&(node, id)) else { continue };
            (span.to, span.won) = (Some(self.now), forwarded);
            let span = *span;
            // Votes that had ended before the last clear before this vote are gone.
            let cleared = ballot.clears.values().filter(|clear| clear.to.is_some_and(|to| to < span.from));
            let since = cleared.map(|clear| clear.from).max().unwrap_or(0);
            let counted = ballot.votes.values().filter(|vote| vote.to.is_none_or(|to| to > since)).count() as u32;
            if forwarded && counted < threshold {
                return Err(MapViolation::CountedEarly { node, key: key.clone(), counted, threshold });
            }
        }
        Ok(())
    }

    /// Checks that each quiet period has exactly one winner, if it has enough votes. `may_lose`: the result of a
    /// killed caller may be lost with the element.
    pub(super) fn check_end(&self, threshold: u32, may_lose: bool) -> Result<(), MapViolation> {
        self.ballots.iter().try_for_each(|(key, ballot)| {
            ballot.quiet_periods().into_iter().try_for_each(|QuietPeriod { since, from, to }| {
                let votes = || ballot.votes.values();
                let inside = |vote: &&VoteSpan| vote.from > from && vote.to.is_some_and(|end| end < to);
                let won = votes().filter(inside).filter(|vote| vote.won).count() as u32;
                // A vote that never ended may be the one that decided.
                let under_way = |vote: &&VoteSpan| vote.from < to && vote.to.is_none_or(|end| end > since);
                let found = votes().filter(under_way).any(|vote| vote.won || vote.to.is_none());
                let enough = votes().filter(inside).count() >= threshold as usize;
                let lost = enough && !found && !may_lose;
                if won > 1 || lost {
                    return Err(MapViolation::Forwarded { key: key.clone(), times: won });
                }
                Ok(())
            })
        })
    }
}

impl MapChecker<'_> {
    /// Checks that the server has the decision that a caller got with `ack: server`. `has`: whether the owner of an
    /// application has recorded that a ballot has reached its threshold.
    pub(crate) fn check_recorded(
        &self,
        node: MapNodeId,
        report: &NodeReport,
        has: impl Fn(usize, &Key, u32) -> bool,
    ) -> Result<(), MapViolation> {
        let (MapNodeId::Caller(application, caller), NodeReport::Finished(id, Ok(Output::Counted { .. }))) =
            (node, report)
        else {
            return Ok(());
        };
        match &self.applications[application].plan.callers[caller].steps[step_of(*id).0].work {
            StepWork::Call(Operation::Count { keys, threshold, to, ack: Ack::Server })
                if *to != ForwardTarget::Server =>
            {
                let lacking = keys.iter().find(|key| !has(application, key, *threshold));
                lacking.map_or(Ok(()), |key| Err(MapViolation::DecisionUnrecorded { node, key: key.clone() }))
            }
            _ => Ok(()),
        }
    }

    /// Checks at the end that the server has all decisions that waiting callers got.
    pub(crate) fn check_end_of_votes(&self, has: impl Fn(usize, &Key, u32) -> bool) -> Result<(), MapViolation> {
        for (index, application) in self.applications.iter().enumerate() {
            let Purpose::Count { threshold, to: ForwardTarget::All | ForwardTarget::Src } = application.plan.purpose
            else {
                continue;
            };
            let may_lose = application.plan.ack == Ack::Element
                && application.plan.callers.iter().any(|caller| caller.crash.is_some());
            let decided =
                application.votes.ballots.iter().filter(|(_, ballot)| ballot.votes.values().any(|vote| vote.won));
            if let Some((key, _)) = decided.filter(|_| !may_lose).find(|(key, _)| !has(index, key, threshold)) {
                let node = MapNodeId::Owner(index);
                return Err(MapViolation::DecisionUnrecorded { node, key: key.clone() });
            }
        }
        Ok(())
    }
}

/// Time without a clear in progress.
struct QuietPeriod {
    /// Start of the clears just before the period: earlier votes do not count in it.
    since: EventIndex,
    from: EventIndex,
    to: EventIndex,
}

impl Ballot {
    fn quiet_periods(&self) -> Vec<QuietPeriod> {
        let clears = self.clears.values().map(|clear| (clear.from, clear.to.unwrap_or(EventIndex::MAX)));
        let mut clears: Vec<_> = clears.collect();
        clears.sort_unstable();
        let (mut since, mut from, mut periods) = (0, 0, Vec::new());
        for (begins, ends) in clears {
            if begins > from {
                periods.push(QuietPeriod { since, from, to: begins });
                since = begins;
            }
            from = from.max(ends);
        }
        periods.push(QuietPeriod { since, from, to: EventIndex::MAX });
        periods
    }
}
