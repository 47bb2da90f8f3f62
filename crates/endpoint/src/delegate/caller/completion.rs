//! Completion of a call: expected and received requests and replies (DPC §4.3).
//!
//! Each context that a call passed through reports in its manifest how many requests and responses it sent; a request
//! is done when its manifest or its sole response has arrived. A call is complete when no request and no response is
//! missing. Both are counted, so that completion needs no search.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use pathcall_wire::delegate::{Branch, DelegateResponse, RequestManifest, ResponseId};
use pathcall_wire::{Instant, Mutant, mutant};

use super::super::number_set::NumberSet;
use super::super::{ContextId, GRANT_BYTES, PeerNode};

/// Messages of one context, as far as they are known.
#[derive(Debug)]
pub(super) struct ContextProgress {
    /// Numbers of requests and responses, once the manifest has arrived.
    declared: Option<(u32, u32)>,
    /// Requests that are done.
    resolved: NumberSet,
    /// Responses that have arrived.
    received: NumberSet,
    /// Address of the server.
    pub(super) server: Option<SocketAddr>,
    /// Time of its last message.
    last_message_at: Instant,
    consumed: u32,
    /// Bytes of the responses that were consumed since the last grant.
    consumed_bytes: usize,
    granted: u32,
    /// Number of responses that it reported as sent, and the time of the report.
    reported: (u32, Instant),
    /// Requests up to this number are watched by the ping rounds.
    watched_up_to: u32,
}

/// Reason for refusing a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseError {
    /// The response is a repeat, or inconsistent.
    Ignored,
    /// More requests are missing than a call may have.
    TooLarge,
}

/// Requests that a response completes: the one that it answers, and the one of its manifest.
pub(super) type Resolved = [Option<Branch>; 2];

/// Requests and responses of a call, by context.
#[derive(Debug)]
pub(super) struct Completion {
    /// Context of the call itself, and the messages of the caller.
    id: ContextId,
    own: ContextProgress,
    /// Messages of the other contexts.
    senders: BTreeMap<ContextId, ContextProgress>,
    /// Declared requests that are not done.
    missing_requests: u64,
    /// Declared responses that have not arrived.
    missing_responses: u64,
    /// Requests with a sole response that has not arrived: time of the report, and server.
    awaited: BTreeMap<Branch, (Instant, SocketAddr)>,
}

impl Completion {
    pub(super) fn new(now: Instant, id: ContextId) -> Self {
        let own = ContextProgress { declared: Some((0, 0)), ..ContextProgress::new(now) };
        let (senders, awaited) = (BTreeMap::new(), BTreeMap::new());
        Self { id, own, senders, missing_requests: 0, missing_responses: 0, awaited }
    }

    /// Expects the `number`th request of the caller to be done.
    pub(super) fn expect_own(&mut self, number: u32) {
        self.own.declared = Some((number, 0));
        self.missing_requests += 1;
    }

    /// Returns whether all requests are done and all responses have arrived.
    pub(super) fn is_complete(&self) -> bool {
        let responses = self.missing_responses == 0 || mutant::on(Mutant::DelegateResponsesUncounted);
        self.missing_requests == 0 && responses
    }

    /// Handles a response; returns the requests that it completes.
    pub(super) fn response(
        &mut self,
        now: Instant,
        from: PeerNode,
        response: &DelegateResponse,
        once: bool,
        requests_max: u32,
    ) -> Result<Resolved, ResponseError> {
        let mut resolved = [None; 2];
        match response.id {
            ResponseId::Sole(branch) => {
                if !self.resolve(now, branch) {
                    return Err(ResponseError::Ignored);
                }
                resolved[0] = Some(branch);
            }
            ResponseId::Numbered(context, number) => {
                // A node uses its own id; a recorded response has the id of the process before a restart.
                let sender = response.again.filter(|_| once).unwrap_or(context.node());
                if sender != from.node && !mutant::on(Mutant::DelegateStrangerHeard) {
                    return Err(ResponseError::Ignored);
                }
                // No response exceeds the declared number, and none comes from the caller's own context.
                if context == self.id {
                    return Err(ResponseError::Ignored);
                }
                let sender = self.senders.entry(context).or_insert_with(|| ContextProgress::new(now));
                if sender.declared.is_some_and(|(_, responses)| number > responses) {
                    return Err(ResponseError::Ignored);
                }
                if !sender.received.insert(number) && !mutant::on(Mutant::DelegateResponseTwice) {
                    return Err(ResponseError::Ignored);
                }
                sender.last_message_at = now;
                sender.server = Some(from.address);
                if sender.declared.is_some() {
                    self.missing_responses = self.missing_responses.saturating_sub(1);
                }
            }
        }
        if let Some(manifest) = &response.manifest
            && self.declare(now, manifest)
        {
            resolved[1] = Some(manifest.request);
        }
        if self.exceeds_request_limit(requests_max) { Err(ResponseError::TooLarge) } else { Ok(resolved) }
    }

    /// Returns whether more requests are unfinished, or more servers known, than a call may have.
    pub(super) fn exceeds_request_limit(&self, requests_max: u32) -> bool {
        self.missing_requests > u64::from(requests_max) || self.senders.len() as u64 >= 4 * u64::from(requests_max)
    }

    /// Handles a manifest; returns whether it is new.
    pub(super) fn declare(&mut self, now: Instant, manifest: &RequestManifest) -> bool {
        let &RequestManifest { request, context, requests, responses, server } = manifest;
        let known = self.sender(context).is_some_and(|sender| sender.declared.is_some());
        if known || self.is_resolved(request) {
            return false;
        }
        let sender = self.senders.entry(context).or_insert_with(|| ContextProgress::new(now));
        (sender.declared, sender.server, sender.last_message_at) = (Some((requests, responses)), Some(server), now);
        self.missing_requests += u64::from(requests - sender.resolved.up_to(requests));
        self.missing_responses += u64::from(responses - sender.received.up_to(responses));
        self.resolve(now, request);
        true
    }

    /// Marks a request as done; returns whether that is new.
    fn resolve(&mut self, now: Instant, branch: Branch) -> bool {
        let (context, number) = (branch.context(), branch.number());
        let sender = match context == self.id {
            true => &mut self.own,
            false => self.senders.entry(context).or_insert_with(|| ContextProgress::new(now)),
        };
        if sender.declared.is_some_and(|(requests, _)| number > requests) || !sender.resolved.insert(number) {
            return false;
        }
        if sender.declared.is_some() {
            self.missing_requests = self.missing_requests.saturating_sub(1);
        }
        self.awaited.remove(&branch);
        true
    }

    /// Returns whether a request is done.
    pub(super) fn is_resolved(&self, branch: Branch) -> bool {
        self.sender(branch.context()).is_some_and(|sender| sender.resolved.contains(branch.number()))
    }

    /// Records that a server has answered a request by a sole response, which is in flight.
    pub(super) fn await_sole_response(&mut self, now: Instant, branch: Branch, server: SocketAddr) {
        if !self.is_resolved(branch) {
            self.awaited.entry(branch).or_insert((now, server));
        }
    }

    /// Records the address of a server, and how many responses it has sent.
    pub(super) fn record_report(&mut self, now: Instant, context: ContextId, server: SocketAddr, responses: u32) {
        if context == self.id || context.number() == 0 {
            return;
        }
        let sender = self.senders.entry(context).or_insert_with(|| ContextProgress::new(now));
        sender.server = Some(server);
        if responses > sender.reported.0 {
            sender.reported = (responses, now);
        }
    }

    /// Records the number of requests that a server sent; returns up to which number they were watched before.
    pub(super) fn mark_watched(&mut self, context: ContextId, requests: u32) -> u32 {
        let own = (context == self.id).then_some(&mut self.own);
        let Some(sender) = own.or_else(|| self.senders.get_mut(&context)) else { return 0 };
        let before = sender.watched_up_to;
        sender.watched_up_to = before.max(requests);
        before
    }

    /// Declared requests that are not done.
    pub(super) fn incomplete(&self) -> impl Iterator<Item = Branch> + '_ {
        std::iter::once((&self.id, &self.own)).chain(&self.senders).flat_map(|(context, sender)| {
            let requests = sender.declared.map_or(0, |(requests, _)| requests);
            sender.resolved.missing(requests).map(|number| context.request(number))
        })
    }

    /// Address of the server with this context, if it is known.
    pub(super) fn server(&self, context: ContextId) -> Option<SocketAddr> {
        self.sender(context)?.server
    }

    fn sender(&self, context: ContextId) -> Option<&ContextProgress> {
        if context == self.id { Some(&self.own) } else { self.senders.get(&context) }
    }

    /// Server of a response that has been missing since before `since`; the server may be unknown.
    pub(super) fn lost_response(&self, since: Instant) -> Option<Option<SocketAddr>> {
        let missing = |sender: &&ContextProgress| {
            let (responses, at) =
                sender.declared.map_or(sender.reported, |(_, responses)| (responses, sender.last_message_at));
            sender.last_message_at.max(at) < since && sender.received.up_to(responses) < responses
        };
        // No server answers in the caller's own context.
        let numbered = self.senders.values().find(missing).map(|sender| sender.server);
        let sole = || self.awaited.values().find(|(at, _)| *at < since).map(|(_, server)| Some(*server));
        numbered.or_else(sole)
    }

    /// Records that the application took a response of this size; returns up to which number its sender may send, if
    /// that changes.
    pub(super) fn record_consumed(&mut self, from: ContextId, bytes: usize, initial: u32) -> Option<(SocketAddr, u32)> {
        let sender = self.senders.get_mut(&from)?;
        sender.consumed = sender.consumed.saturating_add(1);
        sender.consumed_bytes = sender.consumed_bytes.saturating_add(bytes);
        let granted = sender.granted.max(initial);
        if mutant::on(Mutant::DelegateGrantForgotten) {
            return None;
        }
        if sender.consumed.saturating_add(initial / 2) < granted && sender.consumed_bytes < GRANT_BYTES {
            return None;
        }
        sender.consumed_bytes = 0;
        sender.granted = sender.consumed.saturating_add(initial);
        Some((sender.server?, sender.granted))
    }

    /// Number up to which a context may send, if it was granted more than the initial credit.
    pub(super) fn granted(&self, context: ContextId) -> Option<u32> {
        self.senders.get(&context).map(|sender| sender.granted).filter(|granted| *granted > 0)
    }

    /// Restarts the timeouts of a server, because a long message from it is in flight.
    pub(super) fn restart_timeouts(&mut self, now: Instant, address: SocketAddr) {
        for sender in self.senders.values_mut().filter(|sender| sender.server == Some(address)) {
            sender.last_message_at = now;
        }
        for (at, _) in self.awaited.values_mut().filter(|(_, server)| *server == address) {
            *at = now;
        }
    }

    /// Moves the times of last messages forward by the time in which this process stood still.
    pub(super) fn exclude_standstill(&mut self, now: Instant, time: Duration) {
        let senders =
            self.senders.values_mut().flat_map(|sender| [&mut sender.last_message_at, &mut sender.reported.1]);
        let awaited = self.awaited.values_mut().map(|(at, _)| at);
        senders.chain(awaited).for_each(|last_message_at| *last_message_at = now.min(*last_message_at + time));
    }

    /// Restarts all timeouts, because the call is repeated.
    pub(super) fn restart(&mut self, now: Instant) {
        self.own.watched_up_to = 0;
        self.senders.values_mut().for_each(|sender| (sender.last_message_at, sender.watched_up_to) = (now, 0));
        self.awaited.clear();
    }
}

impl ContextProgress {
    fn new(now: Instant) -> Self {
        let (resolved, received) = (NumberSet::default(), NumberSet::default());
        Self {
            declared: None,
            resolved,
            received,
            server: None,
            last_message_at: now,
            consumed: 0,
            consumed_bytes: 0,
            granted: 0,
            reported: (0, now),
            watched_up_to: 0,
        }
    }
}

/// Context in which a response is counted.
pub(super) fn sender(response: &DelegateResponse) -> Option<ContextId> {
    match response.id {
        ResponseId::Numbered(context, _) => Some(context),
        ResponseId::Sole(_) => None,
    }
}
