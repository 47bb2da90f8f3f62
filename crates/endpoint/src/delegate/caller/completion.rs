//! Which replies there are and which are there (DPC §4.3).
//!
//! Each context that a call went through says by its manifest how many requests and responses it sent; each
//! request has a manifest, or is done with one response. A call is complete when no request that anybody sent
//! lacks either, and no response is missing: counts of both are kept, so that nothing is looked through.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use pathcall_wire::delegate::{Branch, Ids, Manifest, Response};
use pathcall_wire::{Instant, Mutant, mutant};

use super::super::numbers::Numbers;
use super::super::{Context, Peer};

/// What one context sent, as far as it is known.
#[derive(Debug)]
pub(super) struct Sender {
    /// Requests and responses, once its manifest is there.
    declared: Option<(u32, u32)>,
    /// Its requests that are done.
    resolved: Numbers,
    /// Its responses that are there.
    got: Numbers,
    /// Where it is.
    pub(super) server: Option<SocketAddr>,
    /// When anything last came of it.
    heard: Instant,
    consumed: u32,
    granted: u32,
    /// Responses that it says it has sent, and since when it does.
    said: (u32, Instant),
    /// Its requests up to this number are looked after.
    watched: u32,
}

/// Why a response is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// It came before, or says what can't be.
    Ignored,
    /// More is missing than may be.
    TooLarge,
}

/// Requests that a response shows to be done: that which it answers, and that of its manifest.
pub(super) type Resolved = [Option<Branch>; 2];

/// What is known of a call's tree.
#[derive(Debug)]
pub(super) struct Completion {
    /// The call's own context, and what the caller sent.
    id: Context,
    own: Sender,
    /// The others.
    senders: BTreeMap<Context, Sender>,
    /// Requests that were declared and are not done.
    missing_requests: u64,
    /// Responses that were declared and are not there.
    missing_responses: u64,
    /// Requests answered by one response, which is awaited: since when, and from where.
    awaited: BTreeMap<Branch, (Instant, SocketAddr)>,
}

impl Completion {
    pub(super) fn new(now: Instant, id: Context) -> Self {
        let own = Sender { declared: Some((0, 0)), ..Sender::new(now) };
        let (senders, awaited) = (BTreeMap::new(), BTreeMap::new());
        Self { id, own, senders, missing_requests: 0, missing_responses: 0, awaited }
    }

    /// The caller sends its `number`th request.
    pub(super) fn expect_own(&mut self, number: u32) {
        self.own.declared = Some((number, 0));
        self.missing_requests += 1;
    }

    /// Whether everything is there.
    pub(super) fn is_complete(&self) -> bool {
        let responses = self.missing_responses == 0 || mutant::on(Mutant::DelegateResponsesUncounted);
        self.missing_requests == 0 && responses
    }

    /// Takes a response; which requests it shows to be done.
    pub(super) fn response(
        &mut self,
        now: Instant,
        from: Peer,
        response: &Response,
        once: bool,
        requests_max: u32,
    ) -> Result<Resolved, Refused> {
        let mut resolved = [None; 2];
        match response.id {
            Ids::Sole(branch) => {
                if !self.resolve(now, branch) {
                    return Err(Refused::Ignored);
                }
                resolved[0] = Some(branch);
            }
            Ids::Numbered(context, number) => {
                // A node answers under its own name; what is recorded has that of the process before a restart.
                let sender = response.again.filter(|_| once).unwrap_or(context.node());
                if sender != from.node && !mutant::on(Mutant::DelegateStrangerHeard) {
                    return Err(Refused::Ignored);
                }
                // More than it declared can't be; who has the caller's own context can't answer.
                if context == self.id {
                    return Err(Refused::Ignored);
                }
                let sender = self.senders.entry(context).or_insert_with(|| Sender::new(now));
                if sender.declared.is_some_and(|(_, responses)| number > responses) {
                    return Err(Refused::Ignored);
                }
                if !sender.got.insert(number) && !mutant::on(Mutant::DelegateResponseTwice) {
                    return Err(Refused::Ignored);
                }
                sender.heard = now;
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
        if self.is_larger_than(requests_max) { Err(Refused::TooLarge) } else { Ok(resolved) }
    }

    /// Whether more requests are not done, or more servers are known, than may be.
    pub(super) fn is_larger_than(&self, requests_max: u32) -> bool {
        self.missing_requests > u64::from(requests_max) || self.senders.len() as u64 >= 4 * u64::from(requests_max)
    }

    /// Takes a manifest; whether it says something new.
    pub(super) fn declare(&mut self, now: Instant, manifest: &Manifest) -> bool {
        let &Manifest { request, context, requests, responses, server } = manifest;
        let known = self.sender(context).is_some_and(|sender| sender.declared.is_some());
        if known || self.is_resolved(request) {
            return false;
        }
        let sender = self.senders.entry(context).or_insert_with(|| Sender::new(now));
        (sender.declared, sender.server, sender.heard) = (Some((requests, responses)), Some(server), now);
        self.missing_requests += u64::from(requests - sender.resolved.up_to(requests));
        self.missing_responses += u64::from(responses - sender.got.up_to(responses));
        self.resolve(now, request);
        true
    }

    /// A request is done; whether that is new.
    fn resolve(&mut self, now: Instant, branch: Branch) -> bool {
        let (context, number) = (branch.context(), branch.number());
        let sender = match context == self.id {
            true => &mut self.own,
            false => self.senders.entry(context).or_insert_with(|| Sender::new(now)),
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

    /// Whether a request is done.
    pub(super) fn is_resolved(&self, branch: Branch) -> bool {
        self.sender(branch.context()).is_some_and(|sender| sender.resolved.contains(branch.number()))
    }

    /// The server there has answered a request by one response, which is on its way.
    pub(super) fn answered(&mut self, now: Instant, branch: Branch, server: SocketAddr) {
        if !self.is_resolved(branch) {
            self.awaited.entry(branch).or_insert((now, server));
        }
    }

    /// A server says where it is, and how many responses it has sent.
    pub(super) fn said(&mut self, now: Instant, context: Context, server: SocketAddr, responses: u32) {
        if context == self.id || context.number() == 0 {
            return;
        }
        let sender = self.senders.entry(context).or_insert_with(|| Sender::new(now));
        sender.server = Some(server);
        if responses > sender.said.0 {
            sender.said = (responses, now);
        }
    }

    /// A server says that it sent so many requests; up to which number they are looked after already.
    pub(super) fn watched(&mut self, context: Context, requests: u32) -> u32 {
        let own = (context == self.id).then_some(&mut self.own);
        let Some(sender) = own.or_else(|| self.senders.get_mut(&context)) else { return 0 };
        let before = sender.watched;
        sender.watched = before.max(requests);
        before
    }

    /// Requests that were declared and are not done.
    pub(super) fn incomplete(&self) -> impl Iterator<Item = Branch> + '_ {
        std::iter::once((&self.id, &self.own)).chain(&self.senders).flat_map(|(context, sender)| {
            let requests = sender.declared.map_or(0, |(requests, _)| requests);
            sender.resolved.missing(requests).map(|number| context.request(number))
        })
    }

    /// Where the server is that has this context, if it is known.
    pub(super) fn server(&self, context: Context) -> Option<SocketAddr> {
        self.sender(context)?.server
    }

    fn sender(&self, context: Context) -> Option<&Sender> {
        if context == self.id { Some(&self.own) } else { self.senders.get(&context) }
    }

    /// Whether a response has been missing since before `since`.
    pub(super) fn lost(&self, since: Instant) -> bool {
        let missing = |sender: &Sender| {
            let (responses, at) = sender.declared.map_or(sender.said, |(_, responses)| (responses, sender.heard));
            sender.heard.max(at) < since && sender.got.up_to(responses) < responses
        };
        // Nobody answers in the caller's own context.
        self.senders.values().any(missing) || self.awaited.values().any(|(at, _)| *at < since)
    }

    /// The application has taken a response; up to which number its sender may send, if that changes.
    pub(super) fn consumed(&mut self, from: Context, initial: u32) -> Option<(SocketAddr, u32)> {
        let sender = self.senders.get_mut(&from)?;
        sender.consumed = sender.consumed.saturating_add(1);
        let granted = sender.granted.max(initial);
        if mutant::on(Mutant::DelegateGrantForgotten) {
            return None;
        }
        if sender.consumed.saturating_add(initial / 2) < granted {
            return None;
        }
        sender.granted = sender.consumed.saturating_add(initial);
        Some((sender.server?, sender.granted))
    }

    /// Up to which number a context may send, if it was granted more than the first few.
    pub(super) fn granted(&self, context: Context) -> Option<u32> {
        self.senders.get(&context).map(|sender| sender.granted).filter(|granted| *granted > 0)
    }

    /// A long message from there is on its way.
    pub(super) fn alive(&mut self, now: Instant, address: SocketAddr) {
        for sender in self.senders.values_mut().filter(|sender| sender.server == Some(address)) {
            sender.heard = now;
        }
        for (at, _) in self.awaited.values_mut().filter(|(_, server)| *server == address) {
            *at = now;
        }
    }

    /// For so long nobody heard anything.
    pub(super) fn stood_still(&mut self, now: Instant, time: Duration) {
        let senders = self.senders.values_mut().flat_map(|sender| [&mut sender.heard, &mut sender.said.1]);
        let awaited = self.awaited.values_mut().map(|(at, _)| at);
        senders.chain(awaited).for_each(|heard| *heard = now.min(*heard + time));
    }

    /// The call is made again: what is missing has time anew.
    pub(super) fn again(&mut self, now: Instant) {
        self.own.watched = 0;
        self.senders.values_mut().for_each(|sender| (sender.heard, sender.watched) = (now, 0));
        self.awaited.clear();
    }
}

impl Sender {
    fn new(now: Instant) -> Self {
        let (resolved, got) = (Numbers::default(), Numbers::default());
        Self {
            declared: None,
            resolved,
            got,
            server: None,
            heard: now,
            consumed: 0,
            granted: 0,
            said: (0, now),
            watched: 0,
        }
    }
}

/// The context that a response counts in.
pub(super) fn sender(response: &Response) -> Option<Context> {
    match response.id {
        Ids::Numbered(context, _) => Some(context),
        Ids::Sole(_) => None,
    }
}
