//! Ballots: one winner each, none lost, whatever was cleared when.
//!
//! A vote takes effect some time between its start and its end, and so does a clearing. Between
//! clearings there is a quiet period of a ballot: of votes that lie in it, no two may win; and if
//! as many as the threshold lie in it, one that took effect after the clearing before must have won.

use std::collections::BTreeMap;

use pathcall_endpoint::map::Key;
use pathcall_endpoint::map::client::CallId;

use super::Failure;
use crate::party::Node;

/// Counts what is heard: the order of events.
type Moment = u64;

/// One caller's vote, or clearing.
#[derive(Debug, Clone, Copy)]
struct Span {
    from: Moment,
    /// `None`: it has not ended, or never will.
    to: Option<Moment>,
    won: bool,
}

#[derive(Default)]
struct Ballot {
    votes: BTreeMap<(Node, CallId), Span>,
    clears: BTreeMap<(Node, CallId), Span>,
}

/// All ballots of an application.
#[derive(Default)]
pub(super) struct Votes {
    ballots: BTreeMap<Key, Ballot>,
    now: Moment,
}

impl Votes {
    /// A caller begins to vote for these keys, or to clear them.
    pub(super) fn begin(&mut self, node: Node, id: CallId, keys: &[Key], clears: bool) {
        self.now += 1;
        let span = Span { from: self.now, to: None, won: false };
        for key in keys {
            let ballot = self.ballots.entry(key.clone()).or_default();
            let spans = if clears { &mut ballot.clears } else { &mut ballot.votes };
            spans.insert((node, id), span);
        }
    }

    /// A clearing is done.
    pub(super) fn cleared(&mut self, node: Node, id: CallId, keys: &[Key]) {
        self.now += 1;
        for key in keys {
            if let Some(span) = self.ballots.get_mut(key).and_then(|ballot| ballot.clears.get_mut(&(node, id))) {
                span.to = Some(self.now);
            }
        }
    }

    /// A caller was told what became of its votes: `forwarded`, that the threshold is reached by them.
    pub(super) fn counted(
        &mut self,
        node: Node,
        id: CallId,
        keys: &[Key],
        (threshold, forwarded): (u32, bool),
    ) -> Result<(), Failure> {
        self.now += 1;
        for key in keys {
            let Some(ballot) = self.ballots.get_mut(key) else { continue };
            let Some(span) = ballot.votes.get_mut(&(node, id)) else { continue };
            (span.to, span.won) = (Some(self.now), forwarded);
            let span = *span;
            // What had ended when the last clearing before this vote began is gone.
            let cleared = ballot.clears.values().filter(|clear| clear.to.is_some_and(|to| to < span.from));
            let since = cleared.map(|clear| clear.from).max().unwrap_or(0);
            let counted = ballot.votes.values().filter(|vote| vote.to.is_none_or(|to| to > since)).count() as u32;
            if forwarded && counted < threshold {
                return Err(Failure::CountedEarly { node, key: key.clone(), counted, threshold });
            }
        }
        Ok(())
    }

    /// Every quiet period of a ballot has its winner, if there were votes enough, and not two.
    /// `may_lose`: what a killed caller was told may be gone with the element.
    pub(super) fn at_end(&self, threshold: u32, may_lose: bool) -> Result<(), Failure> {
        self.ballots.iter().try_for_each(|(key, ballot)| {
            ballot.quiet_periods().into_iter().try_for_each(|Quiet { since, from, to }| {
                let votes = || ballot.votes.values();
                let inside = |vote: &&Span| vote.from > from && vote.to.is_some_and(|end| end < to);
                let won = votes().filter(inside).filter(|vote| vote.won).count() as u32;
                // One that never ended may be the one that decided.
                let under_way = |vote: &&Span| vote.from < to && vote.to.is_none_or(|end| end > since);
                let found = votes().filter(under_way).any(|vote| vote.won || vote.to.is_none());
                let enough = votes().filter(inside).count() >= threshold as usize;
                let lost = enough && !found && !may_lose;
                if won > 1 || lost {
                    return Err(Failure::Forwarded { key: key.clone(), times: won });
                }
                Ok(())
            })
        })
    }
}

/// A time without a clearing under way.
struct Quiet {
    /// When the clearings just before it began: what ended earlier does not count in it.
    since: Moment,
    from: Moment,
    to: Moment,
}

impl Ballot {
    fn quiet_periods(&self) -> Vec<Quiet> {
        let clears = self.clears.values().map(|clear| (clear.from, clear.to.unwrap_or(Moment::MAX)));
        let mut clears: Vec<_> = clears.collect();
        clears.sort_unstable();
        let (mut since, mut from, mut periods) = (0, 0, Vec::new());
        for (begins, ends) in clears {
            if begins > from {
                periods.push(Quiet { since, from, to: begins });
                since = begins;
            }
            from = from.max(ends);
        }
        periods.push(Quiet { since, from, to: Moment::MAX });
        periods
    }
}
