//! Whether what is missing can still come (DPC §4.4), and stopping those who work on it (§4.5).
//!
//! A call that takes longer than a ping period is looked into, round after round: each request that is not
//! done is asked about, where it is; who sent it is asked where that is, if it is not known. A pong tells of
//! further requests, which are asked about at once. A request that nobody confirmed for the call's time-out
//! fails the call. To stop a call, the same pings say so.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use pathcall_wire::delegate::{Addresses, Branch, Context, Flags, Grant, Manifest, Ping, Pong, Subject};
use pathcall_wire::{Instant, Mutant, mutant};

use super::super::{Outbox, Peer, Status};
use super::completion::Completion;
use super::{CallFailure, CallOptions, Caller, State};

/// Rounds whose pongs still count.
const ROUNDS_KEPT: usize = 64;

/// A request that is not done.
#[derive(Debug, Clone, Copy)]
struct Watched {
    /// How often its branch was inherited, as far as it is known.
    seq: u8,
    address: Option<SocketAddr>,
    /// When the ping was sent that it was last confirmed to be in progress by, or when it became known.
    heard: Instant,
    /// It leads to nothing more.
    stopped: bool,
    /// It is done; its one response is on its way.
    answered: bool,
}

impl Watched {
    /// A request that is known, but not where it is.
    fn unlocated(now: Instant) -> Self {
        Self { seq: 0, address: None, heard: now, stopped: false, answered: false }
    }
}

/// The rounds of a call.
#[derive(Debug)]
pub(super) struct Rounds {
    period: Duration,
    timeout: Duration,
    next: Instant,
    /// Number of the last round, and when the last ones began, that one last.
    number: u32,
    began: VecDeque<Instant>,
    /// The caller's own requests that no round has looked at yet: what most calls end with.
    fresh: Vec<(Branch, SocketAddr, Instant)>,
    watched: BTreeMap<Branch, Watched>,
    /// A server could not be told to stop.
    given_up: bool,
}

impl Rounds {
    pub(super) fn new(now: Instant, options: &CallOptions) -> Self {
        let &CallOptions { ping_period: period, timeout, .. } = options;
        let (began, fresh, watched) = Default::default();
        Self { period, timeout, next: now + period, number: 0, began, fresh, watched, given_up: false }
    }

    /// When the next round is due.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// The caller has sent a request.
    pub(super) fn sent(&mut self, now: Instant, branch: Branch, to: SocketAddr) {
        self.fresh.push((branch, to, now));
    }

    /// A request is known, and where it is; whether that is new.
    pub(super) fn watch(&mut self, now: Instant, branch: Branch, seq: u8, address: SocketAddr) -> bool {
        let new = Watched { seq, address: Some(address), ..Watched::unlocated(now) };
        let watched = self.watched.entry(branch).or_insert(Watched::unlocated(now));
        if watched.seq > seq || watched.seq == seq && watched.address.is_some() {
            return false;
        }
        *watched = new;
        true
    }

    /// A request is done.
    pub(super) fn done(&mut self, branch: Branch) {
        self.watched.remove(&branch);
    }

    /// Whether everybody has stopped as far as is known, and whether all have said so.
    pub(super) fn stopped(&self, completion: &Completion) -> (bool, bool) {
        let stopped = self.watched.values().all(|watched| watched.stopped || watched.answered)
            && completion.incomplete().all(|branch| self.watched.contains_key(&branch));
        (stopped, !self.given_up)
    }

    /// Everybody gets a time-out to stop, also who was silent for long.
    pub(super) fn begin_to_stop(&mut self, now: Instant) {
        self.fresh.iter_mut().for_each(|(.., sent)| *sent = now);
        self.watched.values_mut().for_each(|watched| watched.heard = now);
    }

    /// A long message from or to there is on its way.
    pub(super) fn alive(&mut self, now: Instant, address: SocketAddr) {
        for (.., sent) in self.fresh.iter_mut().filter(|(_, to, _)| *to == address) {
            *sent = now;
        }
        for watched in self.watched.values_mut().filter(|watched| watched.address == Some(address)) {
            watched.heard = now;
        }
    }

    /// For so long nobody was asked, and nobody heard.
    fn stood_still(&mut self, now: Instant, time: Duration) {
        let fresh = self.fresh.iter_mut().map(|(.., sent)| sent);
        let watched = self.watched.values_mut().map(|watched| &mut watched.heard);
        fresh.chain(watched).for_each(|heard| *heard = now.min(*heard + time));
    }

    /// When the round with this number, from 1, began, if it counts.
    fn begun(&self, number: u32) -> Option<Instant> {
        let back = self.number.checked_sub(number)? as usize;
        self.began.len().checked_sub(back + 1).map(|at| self.began[at])
    }

    fn begin(&mut self, now: Instant, completion: &Completion) {
        for (branch, to, sent) in std::mem::take(&mut self.fresh) {
            if !completion.is_resolved(branch) {
                self.watch(sent, branch, 0, to);
            }
        }
        self.number += 1;
        self.began.push_back(now);
        if self.began.len() > ROUNDS_KEPT {
            self.began.pop_front();
        }
        self.next = now + self.period;
    }
}

impl Caller {
    /// A round of pings, or the call's failure if it is due.
    pub(super) fn round(&mut self, now: Instant, id: Context, out: &mut dyn Outbox) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        let rounds = &mut call.rounds;
        // Whoever stood still itself, a process that was stopped, a machine that slept, has neither asked nor heard.
        let stood_still = now.since(rounds.next);
        if stood_still > rounds.period {
            rounds.stood_still(now, stood_still);
            call.completion.stood_still(now, stood_still);
            if let State::Aborting { since, .. } = &mut call.state {
                *since = now.min(*since + stood_still);
            }
        }
        rounds.begin(now, &call.completion);
        // More fail the call; nothing is kept of what a manifest only announces.
        for branch in call.completion.incomplete().take(self.config.requests_max as usize) {
            rounds.watched.entry(branch).or_insert(Watched::unlocated(now));
        }
        let (aborting, timeout) = (call.state != State::Open, rounds.timeout);
        let late = |watched: &Watched| now.since(watched.heard) > timeout && !watched.answered;
        let millis = timeout.as_millis() as u64;
        if aborting {
            let before = rounds.watched.len();
            rounds.watched.retain(|_, watched| watched.stopped || !late(watched));
            rounds.given_up |= rounds.watched.len() < before;
        } else if rounds.watched.values().any(late) && !mutant::on(Mutant::DelegateNeverFails) {
            return self.fail(now, id, CallFailure::Unconfirmed { millis }, out);
        } else if now.0 > timeout.as_nanos() as u64
            && call.completion.lost(Instant(now.0 - timeout.as_nanos() as u64))
            && !mutant::on(Mutant::DelegateLossUnnoticed)
        {
            return self.fail(now, id, CallFailure::Lost { millis }, out);
        }
        let mut pings = Pings { call: id, abort: aborting, round: rounds.number, sent: 0, out };
        let mut asked = None;
        for (branch, watched) in &rounds.watched {
            let source = branch.context();
            match watched.address {
                Some(_) if watched.stopped || watched.answered => {}
                Some(address) => pings.ping(address, Subject::Request(branch.inherited(watched.seq)), 1),
                // Who sent it knows where it is (§4.4.1), and says that of many at a time.
                None if asked == Some(source) => {}
                None => {
                    asked = Some(source);
                    if let Some(server) = call.completion.server(source) {
                        pings.ping(server, Subject::Context(source), branch.number());
                    }
                }
            }
        }
        self.stats.pings += pings.sent;
        self.arm(id);
    }

    /// A server's answer to a ping.
    pub(super) fn pong(
        &mut self,
        now: Instant,
        from: Peer,
        pong: &Pong,
        addresses: Addresses<'_>,
        out: &mut dyn Outbox,
    ) {
        let Some(call) = self.calls.get_mut(&pong.call) else { return };
        let has = |flag| pong.flags & flag != 0;
        let rounds = &mut call.rounds;
        // An old pong says nothing about now, however late it comes or how often (a stranger may repeat it).
        let Some(asked) = rounds.begun(pong.round) else { return };
        let once = call.options.once;
        let forged = pong.sender != from.node || pong.context.node() != from.node && !once;
        if forged || matches!(call.state, State::Retryable | State::Traced { .. }) {
            self.stats.ignored += 1;
            return;
        }
        let aborting = matches!(call.state, State::Aborting { .. });
        let mut pings = Pings { call: pong.call, abort: aborting, round: rounds.number, sent: 0, out };
        let mut new = BTreeSet::new();
        if let Subject::Request(request) = pong.subject {
            let (branch, seq) = (request.branch(), request.seq());
            let watched = rounds.watched.get_mut(&branch).filter(|watched| watched.seq == seq);
            // Its manifest may overtake the pong: then it is done, but what it led to may be news.
            if watched.is_none() && !call.completion.is_resolved(branch) {
                return;
            }
            if let Some(watched) = watched {
                if has(Flags::FAILED) && !aborting {
                    let status = Status::new(pong.code as u8, "a server failed; what it said about it was lost");
                    return self.fail(now, pong.call, CallFailure::Server(status), out);
                }
                if has(Flags::ABORTED) && !aborting {
                    let status = Status::new(Status::ABORTED, "a server gave the call up");
                    return self.fail(now, pong.call, CallFailure::Server(status), out);
                }
                watched.stopped |= has(Flags::ABORTED | Flags::FAILED);
                if !has(Flags::STALLED) || mutant::on(Mutant::DelegateStallIgnored) {
                    watched.heard = watched.heard.max(asked);
                }
                if has(Flags::COMPLETE) {
                    if has(Flags::CHAINED) {
                        if let Some(next) = addresses.clone().next()
                            && rounds.watch(now, branch, seq.saturating_add(1), next)
                        {
                            new.insert(branch);
                        }
                    } else if has(Flags::SOLE) {
                        watched.answered = true;
                        call.completion.answered(now, branch, from.address);
                    } else {
                        // All that its manifest will say.
                        let manifest = Manifest {
                            request: branch,
                            context: pong.context,
                            requests: pong.requests,
                            responses: pong.responses,
                            server: from.address,
                        };
                        call.completion.declare(now, &manifest);
                        rounds.done(branch);
                    }
                }
            }
        }
        // A sole response does not count in its context.
        let responses = if has(Flags::SOLE) { 0 } else { pong.responses };
        call.completion.said(now, pong.context, from.address, responses);
        let mut listed = 0;
        if !has(Flags::CHAINED) {
            for (number, address) in (pong.first..=pong.requests).zip(addresses) {
                listed += 1;
                let branch = pong.context.request(number);
                if !call.completion.is_resolved(branch) && rounds.watch(now, branch, 0, address) {
                    new.insert(branch);
                }
            }
        }
        // Newly discovered requests are asked about at once (DPC §4.4.2), and so is who else there is.
        for branch in new {
            let Some(watched) = rounds.watched.get(&branch) else { continue };
            if let Some(address) = watched.address {
                pings.ping(address, Subject::Request(branch.inherited(watched.seq)), 1);
            }
        }
        let next = pong.first.saturating_add(listed);
        if listed > 0 && next <= pong.requests && pong.requests <= self.config.requests_max {
            // Once for each, not for each page of them.
            let watched = call.completion.watched(pong.context, pong.requests);
            for number in next.max(watched.saturating_add(1))..=pong.requests {
                let branch = pong.context.request(number);
                if !call.completion.is_resolved(branch) {
                    rounds.watched.entry(branch).or_insert(Watched::unlocated(now));
                }
            }
            pings.ping(from.address, Subject::Context(pong.context), next);
        }
        if has(Flags::WAITING)
            && let Some(responses) = call.completion.granted(pong.context)
        {
            let grant = Grant { call: pong.call, context: pong.context, responses };
            pings.out.send(from.address, &grant.encode(), &Bytes::new());
        }
        self.stats.pings += pings.sent;
        let requests_max = self.config.requests_max;
        if pong.requests > requests_max || call.completion.is_larger_than(requests_max) {
            self.fail(now, pong.call, CallFailure::TooLarge(requests_max), out);
        }
    }
}

/// Sends pings of one call.
struct Pings<'a> {
    call: Context,
    abort: bool,
    round: u32,
    sent: u64,
    out: &'a mut dyn Outbox,
}

impl Pings<'_> {
    fn ping(&mut self, to: SocketAddr, subject: Subject, first: u32) {
        let &mut Self { call, abort, round, .. } = self;
        self.sent += 1;
        self.out.send(to, &Ping { call, subject, abort, round, first }.encode(), &Bytes::new());
    }
}
