//! Ping rounds of a call: they check that missing requests are in progress (DPC §4.4), and stop servers (§4.5).
//!
//! A call that takes longer than a ping period is checked round after round: each unfinished request is pinged at its
//! server; if the server is unknown, the context that sent the request is asked for it. A pong may report further
//! requests, which are pinged at once. A request that is not confirmed within the call's timeout fails the call. Pings
//! with the abort flag stop a call.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use pathcall_wire::delegate::{
    Branch, ContextId, DelegateFlags, Ping, PingSubject, Pong, PongAddresses, RequestManifest, ResponseGrant,
};
use pathcall_wire::{Instant, Mutant, mutant};

use super::super::{MessageOutbox, PeerNode, Status};
use super::completion::Completion;
use super::{CallFailure, CallOptions, DelegateCaller, State};

/// Rounds whose pongs are still accepted.
const ROUNDS_KEPT: usize = 64;

/// Unfinished request.
#[derive(Debug, Clone, Copy)]
struct PendingRequest {
    /// Number of times that its branch was inherited, as far as known.
    seq: u8,
    address: Option<SocketAddr>,
    /// Time at which the last confirmed ping was sent, or at which the request became known.
    last_confirmed_at: Instant,
    /// The request was aborted or has failed.
    stopped: bool,
    /// The request is done; its sole response is in flight.
    answered: bool,
}

impl PendingRequest {
    /// Request whose server is unknown.
    fn without_server(now: Instant) -> Self {
        Self { seq: 0, address: None, last_confirmed_at: now, stopped: false, answered: false }
    }
}

/// Ping rounds of a call.
#[derive(Debug)]
pub(super) struct PingRounds {
    period: Duration,
    timeout: Duration,
    next: Instant,
    /// Number of the last round, and the start times of the last rounds, latest last.
    number: u32,
    round_starts: VecDeque<Instant>,
    /// The caller's own requests since the last round: most calls end before they are pinged.
    unpinged: Vec<(Branch, SocketAddr, Instant)>,
    pending: BTreeMap<Branch, PendingRequest>,
    /// Whether a stop message could not be delivered to a server.
    unreachable: bool,
}

impl PingRounds {
    pub(super) fn new(now: Instant, options: &CallOptions) -> Self {
        let &CallOptions { ping_period: period, timeout, .. } = options;
        let (round_starts, unpinged, pending) = Default::default();
        Self { period, timeout, next: now + period, number: 0, round_starts, unpinged, pending, unreachable: false }
    }

    /// Time of the next round.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// Records a request of the caller.
    pub(super) fn add_request(&mut self, now: Instant, branch: Branch, to: SocketAddr) {
        self.unpinged.push((branch, to, now));
    }

    /// Records a request and its server; returns whether that is new.
    pub(super) fn locate(&mut self, now: Instant, branch: Branch, seq: u8, address: SocketAddr) -> bool {
        let new = PendingRequest { seq, address: Some(address), ..PendingRequest::without_server(now) };
        let pending = self.pending.entry(branch).or_insert(PendingRequest::without_server(now));
        if pending.seq > seq || pending.seq == seq && pending.address.is_some() {
            return false;
        }
        *pending = new;
        true
    }

    /// Removes a request that is done.
    pub(super) fn remove(&mut self, branch: Branch) {
        self.pending.remove(&branch);
    }

    /// Returns whether all known servers have stopped, and whether all have confirmed.
    pub(super) fn stopped(&self, completion: &Completion) -> (bool, bool) {
        let stopped = self.pending.values().all(|pending| pending.stopped || pending.answered)
            && completion.incomplete().all(|branch| self.pending.contains_key(&branch));
        (stopped, !self.unreachable)
    }

    /// Restarts all timeouts, so that every server gets a full timeout to stop.
    pub(super) fn start_stopping(&mut self, now: Instant) {
        self.unpinged.iter_mut().for_each(|(.., sent)| *sent = now);
        self.pending.values_mut().for_each(|pending| pending.last_confirmed_at = now);
    }

    /// Restarts the timeouts of requests at an address, because a long message from or to it is in flight.
    pub(super) fn restart_timeouts(&mut self, now: Instant, address: SocketAddr) {
        for (.., sent) in self.unpinged.iter_mut().filter(|(_, to, _)| *to == address) {
            *sent = now;
        }
        for pending in self.pending.values_mut().filter(|pending| pending.address == Some(address)) {
            pending.last_confirmed_at = now;
        }
    }

    /// Moves the times of confirmation forward by the time in which this process stood still.
    fn exclude_standstill(&mut self, now: Instant, time: Duration) {
        let unpinged = self.unpinged.iter_mut().map(|(.., sent)| sent);
        let pending = self.pending.values_mut().map(|pending| &mut pending.last_confirmed_at);
        unpinged.chain(pending).for_each(|last_confirmed_at| *last_confirmed_at = now.min(*last_confirmed_at + time));
    }

    /// Start time of a round, if its pongs are still accepted; rounds count from 1.
    fn started_at(&self, number: u32) -> Option<Instant> {
        let back = self.number.checked_sub(number)? as usize;
        self.round_starts.len().checked_sub(back + 1).map(|at| self.round_starts[at])
    }

    fn begin(&mut self, now: Instant, completion: &Completion) {
        for (branch, to, sent) in std::mem::take(&mut self.unpinged) {
            if !completion.is_resolved(branch) {
                self.locate(sent, branch, 0, to);
            }
        }
        self.number += 1;
        self.round_starts.push_back(now);
        if self.round_starts.len() > ROUNDS_KEPT {
            self.round_starts.pop_front();
        }
        self.next = now + self.period;
    }
}

impl DelegateCaller {
    /// Starts a round of pings, or fails the call if a request was not confirmed.
    pub(super) fn round(&mut self, now: Instant, id: ContextId, out: &mut dyn MessageOutbox) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        let rounds = &mut call.rounds;
        // A process that stood still (it was stopped, or the machine slept) has neither asked nor received answers.
        let standstill = now.since(rounds.next);
        if standstill > rounds.period {
            rounds.exclude_standstill(now, standstill);
            call.completion.exclude_standstill(now, standstill);
            if let State::Aborting { since, .. } = &mut call.state {
                *since = now.min(*since + standstill);
            }
        }
        rounds.begin(now, &call.completion);
        // Further requests fail the call; nothing is stored for requests that a manifest only announces.
        for branch in call.completion.incomplete().take(self.config.requests_max as usize) {
            rounds.pending.entry(branch).or_insert(PendingRequest::without_server(now));
        }
        let (aborting, timeout) = (call.state != State::Open, rounds.timeout);
        let late = |pending: &PendingRequest| now.since(pending.last_confirmed_at) > timeout && !pending.answered;
        let millis = timeout.as_millis() as u64;
        if aborting {
            let before = rounds.pending.len();
            rounds.pending.retain(|_, pending| pending.stopped || !late(pending));
            rounds.unreachable |= rounds.pending.len() < before;
        } else if let Some((branch, pending)) = rounds.pending.iter().find(|(_, pending)| late(pending))
            && !mutant::on(Mutant::DelegateNeverFails)
        {
            // If the request's server is unknown, the one that sent it was asked for it.
            let server = pending.address.or_else(|| call.completion.server(branch.context()));
            return self.fail(now, id, CallFailure::Unconfirmed { server, millis }, out);
        } else if now.0 > timeout.as_nanos() as u64
            && let Some(server) = call.completion.lost_response(Instant(now.0 - timeout.as_nanos() as u64))
            && !mutant::on(Mutant::DelegateLossUnnoticed)
        {
            return self.fail(now, id, CallFailure::Lost { server, millis }, out);
        }
        let mut pings = PingSender { call: id, abort: aborting, round: rounds.number, sent: 0, out };
        let mut asked = None;
        for (branch, pending) in &rounds.pending {
            let source = branch.context();
            match pending.address {
                Some(_) if pending.stopped || pending.answered => {}
                Some(address) => pings.ping(address, PingSubject::Request(branch.inherited(pending.seq)), 1),
                // The context that sent a request knows its server (§4.4.1), and lists many at a time.
                None if asked == Some(source) => {}
                None => {
                    asked = Some(source);
                    if let Some(server) = call.completion.server(source) {
                        pings.ping(server, PingSubject::Context(source), branch.number());
                    }
                }
            }
        }
        self.stats.pings += pings.sent;
        self.arm(id);
    }

    /// Handles a server's answer to a ping.
    pub(super) fn pong(
        &mut self,
        now: Instant,
        from: PeerNode,
        pong: &Pong,
        addresses: PongAddresses<'_>,
        out: &mut dyn MessageOutbox,
    ) {
        let Some(call) = self.calls.get_mut(&pong.call) else { return };
        let has = |flag| pong.flags & flag != 0;
        let rounds = &mut call.rounds;
        // A pong of an old round proves nothing about now, however late or often it arrives (a stranger may replay it).
        let Some(asked) = rounds.started_at(pong.round) else { return };
        let once = call.options.once;
        let forged = pong.sender != from.node || pong.context.node() != from.node && !once;
        if forged || matches!(call.state, State::Retryable | State::Traced { .. }) {
            self.stats.ignored += 1;
            return;
        }
        let aborting = matches!(call.state, State::Aborting { .. });
        let mut pings = PingSender { call: pong.call, abort: aborting, round: rounds.number, sent: 0, out };
        let mut new = BTreeSet::new();
        if let PingSubject::Request(request) = pong.subject {
            let (branch, seq) = (request.branch(), request.seq());
            let pending = rounds.pending.get_mut(&branch).filter(|pending| pending.seq == seq);
            // The manifest may overtake the pong: then the request is done, but the pong may list new requests.
            if pending.is_none() && !call.completion.is_resolved(branch) {
                return;
            }
            if let Some(pending) = pending {
                if has(DelegateFlags::FAILED) && !aborting {
                    let status = Status::new(pong.code as u8, "a server failed; its error message was lost");
                    return self.fail(now, pong.call, CallFailure::Server(status), out);
                }
                if has(DelegateFlags::ABORTED) && !aborting {
                    let status = Status::new(Status::ABORTED, "a server aborted the call");
                    return self.fail(now, pong.call, CallFailure::Server(status), out);
                }
                pending.stopped |= has(DelegateFlags::ABORTED | DelegateFlags::FAILED);
                if !has(DelegateFlags::STALLED) || mutant::on(Mutant::DelegateStallIgnored) {
                    pending.last_confirmed_at = pending.last_confirmed_at.max(asked);
                }
                if has(DelegateFlags::COMPLETE) {
                    if has(DelegateFlags::CHAINED) {
                        if let Some(next) = addresses.clone().next()
                            && rounds.locate(now, branch, seq.saturating_add(1), next)
                        {
                            new.insert(branch);
                        }
                    } else if has(DelegateFlags::SOLE) {
                        pending.answered = true;
                        call.completion.await_sole_response(now, branch, from.address);
                    } else {
                        // The pong contains everything that the manifest will contain.
                        let manifest = RequestManifest {
                            request: branch,
                            context: pong.context,
                            requests: pong.requests,
                            responses: pong.responses,
                            server: from.address,
                        };
                        call.completion.declare(now, &manifest);
                        rounds.remove(branch);
                    }
                }
            }
        }
        // A sole response is not counted in its context.
        let responses = if has(DelegateFlags::SOLE) { 0 } else { pong.responses };
        call.completion.record_report(now, pong.context, from.address, responses);
        let mut listed = 0;
        if !has(DelegateFlags::CHAINED) {
            for (number, address) in (pong.first..=pong.requests).zip(addresses) {
                listed += 1;
                let branch = pong.context.request(number);
                if !call.completion.is_resolved(branch) && rounds.locate(now, branch, 0, address) {
                    new.insert(branch);
                }
            }
        }
        // Newly discovered requests are pinged at once (DPC §4.4.2), and the server is asked for further ones.
        for branch in new {
            let Some(pending) = rounds.pending.get(&branch) else { continue };
            if let Some(address) = pending.address {
                pings.ping(address, PingSubject::Request(branch.inherited(pending.seq)), 1);
            }
        }
        let next = pong.first.saturating_add(listed);
        if listed > 0 && next <= pong.requests && pong.requests <= self.config.requests_max {
            // Once for each request, not for each page of requests.
            let watched = call.completion.mark_watched(pong.context, pong.requests);
            for number in next.max(watched.saturating_add(1))..=pong.requests {
                let branch = pong.context.request(number);
                if !call.completion.is_resolved(branch) {
                    rounds.pending.entry(branch).or_insert(PendingRequest::without_server(now));
                }
            }
            pings.ping(from.address, PingSubject::Context(pong.context), next);
        }
        if has(DelegateFlags::WAITING)
            && let Some(responses) = call.completion.granted(pong.context)
        {
            let grant = ResponseGrant { call: pong.call, context: pong.context, responses };
            pings.out.send(from.address, &grant.encode(), &Bytes::new());
        }
        self.stats.pings += pings.sent;
        let requests_max = self.config.requests_max;
        if pong.requests > requests_max || call.completion.exceeds_request_limit(requests_max) {
            self.fail(now, pong.call, CallFailure::TooLarge(requests_max), out);
        }
    }
}

/// Sender of the pings of one call.
struct PingSender<'a> {
    call: ContextId,
    abort: bool,
    round: u32,
    sent: u64,
    out: &'a mut dyn MessageOutbox,
}

impl PingSender<'_> {
    fn ping(&mut self, to: SocketAddr, subject: PingSubject, first: u32) {
        let &mut Self { call, abort, round, .. } = self;
        self.sent += 1;
        self.out.send(to, &Ping { call, subject, abort, round, first }.encode(), &Bytes::new());
    }
}
