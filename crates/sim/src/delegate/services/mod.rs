//! Services of the delegate simulation: calls that choose replicas and may be made again, on replicas that die, return,
//! answer slowly and report wrong loads.
//!
//! ```text
//! plan ─► call ─► attempt: requests to the replicas that the real ServerStates chooses ─► call of DelegateWorld
//!           ▲                                                                              │ reply, end
//!           └── pause ◄─ again ── the real CallAttempts, with a RetryBudget ◄──────────────┘
//! ```
//!
//! Each attempt is a call of its own in the world of delegated calls, with all its checks.

mod checker;
mod model;
pub mod plan;

use std::net::SocketAddr;

use bytes::Bytes;

use pathcall_endpoint::delegate::attempts::CallAttempts;
use pathcall_endpoint::delegate::caller::CallOutcome;
use pathcall_endpoint::delegate::servers::ServiceReplica;
use pathcall_endpoint::delegate::{MessageOutbox, PeerNode};
use pathcall_wire::Instant;
use pathcall_wire::delegate::{DelegateKind, DelegateMessage, LoadReport, parse};

pub use checker::ServiceViolation;
use checker::{ReplicaChoice, ServiceChecker, decode_pushback, encode_pushback};
use plan::{ATTEMPTS, ServicePlan};

use super::checker::{DelegateViolation, MessageTag};
use super::host::{OutgoingMessages, address, request_payload};
use super::plan::{DelegatePlan, RequestTarget};
use super::world::{DelegateEvent, DelegateWorld};
use crate::random::Random;

/// XOR mask of the seed for messages and choices.
const SEED_MASK: u64 = 0x6d65_7373_6167_6573;

/// Services of a run.
pub(super) struct Services<'a> {
    pub(super) plan: &'a ServicePlan,
    /// Random numbers of their messages and choices.
    pub(super) random: Random,
    checker: ServiceChecker<'a>,
    calls: Vec<ServiceCall>,
    /// Names of all hosts.
    names: Vec<String>,
}

/// Call to services.
#[derive(Debug, Default)]
struct ServiceCall {
    /// Attempts of a call in progress.
    attempts: Option<CallAttempts>,
    made: usize,
}

impl<'a> Services<'a> {
    pub(super) fn new(plan: &'a DelegatePlan) -> Option<Self> {
        let services = plan.services.as_ref()?;
        Some(Self {
            plan: services,
            random: Random::new(plan.seed ^ SEED_MASK),
            checker: ServiceChecker::new(plan, services),
            calls: services.calls.iter().map(|_| ServiceCall::default()).collect(),
            names: (0..plan.hosts.len()).map(|host| format!("host/{host}")).collect(),
        })
    }

    /// Whether all faults and all calls have ended.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        let back = self.plan.crashes.iter().map(|crash| crash.back).max().unwrap_or_default();
        now >= self.plan.faults_until.max(back) && self.checker.all_over()
    }
}

impl DelegateWorld<'_> {
    pub(super) fn start_service(&mut self, call: usize) -> Result<(), DelegateViolation> {
        let Some(services) = &mut self.services else { return Ok(()) };
        let plan = &services.plan.calls[call];
        let host = &self.hosts[plan.host()];
        if !host.up {
            services.checker.skip(call);
            return Ok(());
        }
        self.counts.service_calls += 1;
        let (now, deadline) = (host.local(self.time.now), plan.attempts[0].options.deadline);
        let attempts = CallAttempts::new(now, deadline, plan.unary, plan.idempotent, &host.retries);
        services.calls[call].attempts = Some(attempts);
        services.checker.begin(self.time.now, now, call);
        self.make_attempt(call)
    }

    /// Makes the next attempt of a call.
    pub(super) fn make_attempt(&mut self, call: usize) -> Result<(), DelegateViolation> {
        let Some(services) = &mut self.services else { return Ok(()) };
        let host = services.plan.calls[call].host();
        let now = self.hosts[host].local(self.time.now);
        services.checker.check_attempt(now, call)?;
        let ServiceCall { attempts: Some(attempts), made } = &mut services.calls[call] else { return Ok(()) };
        let index = self.plan.index_of_attempt(call, *made);
        *made += 1;
        self.counts.repeats += u64::from(*made > 1);
        let (left, avoided) = (attempts.time_left(now), attempts.avoided().to_vec());
        self.start(index, self.plan.call(index).options.deadline(left), &avoided)
    }

    /// Address and payload of a request that a host sends now; it should avoid these servers.
    pub(super) fn address_request(
        &mut self,
        host: usize,
        call: usize,
        request: usize,
        avoided: &[SocketAddr],
    ) -> Result<(SocketAddr, Bytes), DelegateViolation> {
        let tag = MessageTag { call, request, reply: 0 };
        let (service, key) = match self.plan.call(call).requests[request].target {
            RequestTarget::Host(host) => return Ok((address(host), request_payload(tag, &[]))),
            RequestTarget::Service { service, key } => (service, key),
        };
        let (now, sender) = (self.hosts[host].local(self.time.now), &mut self.hosts[host]);
        let (Some(services), Some((call, attempt))) = (&mut self.services, self.plan.attempt(call)) else {
            return Ok((address(host), request_payload(tag, &[])));
        };
        let named = sender.servers.with_avoided(now, avoided);
        let names = &services.names;
        let replica = |host: &usize| ServiceReplica { name: &names[*host], address: address(*host), in_zone: false };
        let replicas = services.plan.replicas[service].iter().map(replica);
        let key_bytes = key.map(u64::to_be_bytes);
        let draw = |below| services.random.index(below);
        let chosen = sender.servers.choose(now, replicas, key_bytes.as_ref().map(|key| &key[..]), &named, draw);
        let chosen = chosen.expect("a service has replicas");
        sender.servers.record_sent(now, chosen);
        self.counts.avoided += u64::from(!named.is_empty());
        services.checker.check_choice(now, &ReplicaChoice { host, call, attempt, service, key, avoided, chosen })?;
        Ok((chosen, request_payload(tag, &named)))
    }

    /// Takes a reply of an attempt.
    pub(super) fn take_service_reply(
        &mut self,
        host: usize,
        index: usize,
        item: &Bytes,
    ) -> Result<(), DelegateViolation> {
        let (Some(services), Some((call, attempt))) = (&mut self.services, self.plan.attempt(index)) else {
            return Ok(());
        };
        let Some(attempts) = &mut services.calls[call].attempts else { return Ok(()) };
        match attempts.take_reply(item.clone()) {
            Ok(Some(_)) => services.checker.check_delivery(call, attempt)?,
            Ok(None) => {}
            Err(_) => return Err(ServiceViolation::Replies(call, 2).into()),
        }
        self.line(host, || format!("service call {call} has a reply of attempt {attempt}"));
        Ok(())
    }

    /// Ends an attempt: the call ends, or is made again.
    pub(super) fn end_attempt(
        &mut self,
        host: usize,
        index: usize,
        outcome: &CallOutcome,
    ) -> Result<(), DelegateViolation> {
        let (Some(services), Some((call, attempt))) = (&mut self.services, self.plan.attempt(index)) else {
            return Ok(());
        };
        let ServiceCall { attempts: slot, made } = &mut services.calls[call];
        let Some(attempts) = slot else { return Ok(()) };
        let caller = &mut self.hosts[host];
        let now = caller.local(self.time.now);
        let CallOutcome::Failed(failure) = outcome else {
            if let Some(reply) = attempts.take_held() {
                let of = super::host::tag(&reply).and_then(|tag| self.plan.attempt(tag.call));
                services.checker.check_delivery(call, of.map_or(attempt, |(_, attempt)| attempt))?;
            }
            *slot = None;
            self.counts.repaired += u64::from(*made > 1);
            return Ok(services.checker.check_end(self.time.now, call, None)?);
        };
        caller.servers.record_call_failure(now, failure);
        services.checker.check_failure(self.time.now, now, call, failure)?;
        let Some(pause) = attempts.next(now, failure, decode_pushback) else {
            *slot = None;
            return Ok(services.checker.check_end(self.time.now, call, Some(failure))?);
        };
        services.checker.check_budget(call)?;
        if *made == ATTEMPTS {
            return Err(ServiceViolation::TooMany(call, ATTEMPTS as u32 + 1).into());
        }
        let (at, host) = (caller.global(now + pause), (host, caller.incarnation));
        self.time.push(at, DelegateEvent::Repeat { host, call });
        Ok(())
    }

    /// Details of the status with which a handler of a call fails.
    pub(super) fn failure_details(&self, index: usize) -> Bytes {
        let (Some(services), Some((call, attempt))) = (&self.services, self.plan.attempt(index)) else {
            return Bytes::new();
        };
        encode_pushback(services.plan.calls[call].pushbacks[attempt]).into()
    }

    /// Records that a host learns that its message did not reach a server.
    pub(super) fn record_undelivered(&mut self, host: usize, to: SocketAddr, message: &[u8]) {
        let Some(services) = &mut self.services else { return };
        if host >= services.plan.first_host && DelegateKind::of(message) == Some(DelegateKind::Request) {
            let now = self.hosts[host].local(self.time.now);
            self.hosts[host].servers.record_unreachable(now, to);
            services.checker.host(host).record_failure(now, to);
        }
    }

    /// Handles a load report; false if the message is none.
    pub(super) fn handle_load(&mut self, host: usize, from: PeerNode, message: &[u8]) -> bool {
        let Ok((DelegateMessage::Load(LoadReport { load }), _)) = parse(message) else { return false };
        let Some(services) = &mut self.services else { return true };
        let now = self.hosts[host].local(self.time.now);
        self.counts.load_reports += 1;
        self.hosts[host].servers.record_load(now, from.address, load);
        services.checker.host(host).record_load(now, from.address, load);
        true
    }

    /// Reports the load to the sender of a request, if it does not know the load.
    pub(super) fn report_load(&mut self, host: usize, to: SocketAddr, message: &[u8]) {
        let Some(services) = &mut self.services else { return };
        let request = DelegateKind::of(message) == Some(DelegateKind::Request);
        if host < services.plan.first_host || !request || !self.hosts[host].up {
            return;
        }
        let now = self.hosts[host].local(self.time.now);
        let server = &mut self.hosts[host];
        let load = server.handlers.len() + server.worker.waiting_requests();
        let Some(mut load) = server.load_reports.due(now, to, load) else { return };
        if services.plan.liars.contains(&host) {
            let high = 1 << services.random.below(32);
            load = services.random.pick(&[0, 1, high]);
        }
        let mut out = OutgoingMessages::default();
        out.send(to, &LoadReport { load }.encode(), &Bytes::new());
        self.route(host, out);
    }

    /// Records that a process has died, with its calls and all that it knew.
    pub(super) fn crash_of_service(&mut self, host: usize) {
        let Some(services) = &mut self.services else { return };
        if host < services.plan.first_host {
            return;
        }
        services.checker.crash(host);
        for (plan, call) in services.plan.calls.iter().zip(&mut services.calls) {
            if plan.host() == host {
                call.attempts = None;
            }
        }
    }
}
