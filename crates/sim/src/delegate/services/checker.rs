//! Invariant checks of calls to services: attempts, budget, circuits, loads, and one end with the replies of one
//! execution.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use pathcall_endpoint::clone::Pushback;
use pathcall_endpoint::delegate::Status;
use pathcall_endpoint::delegate::attempts::{ATTEMPTS_MAX, PAUSE};
use pathcall_endpoint::delegate::caller::CallFailure;
use pathcall_wire::Instant;

use super::super::host::address;
use super::super::plan::{DelegatePlan, RequestTarget};
use super::model::HostModel;
use super::plan::ServicePlan;

/// Violation of an invariant of services.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServiceViolation {
    /// A call that is not idempotent was made again.
    #[error("service call {0} is not idempotent and was made again")]
    Repeated(usize),
    /// A call has too many attempts.
    #[error("service call {0} has {1} attempts")]
    TooMany(usize, u32),
    /// A call was made again after the application had a reply.
    #[error("service call {0} was made again although the application has a reply")]
    AfterReply(usize),
    /// A call was made again without budget.
    #[error("service call {0} was made again without budget")]
    Budget(usize),
    /// A call was made again earlier than a server asked, or the usual pause is.
    #[error("service call {0} was made again too soon")]
    TooSoon(usize),
    /// A call was made again after its deadline.
    #[error("service call {0} was made again after its deadline")]
    Late(usize),
    /// A request went to a replica that has failed, although there are others.
    #[error("a request of service call {0} went to {1}, which has failed, and not to one of {2:?}")]
    Avoided(usize, SocketAddr, Vec<SocketAddr>),
    /// A request went to the replica with the highest load.
    #[error("a request of service call {0} went to {1}, which has the highest load of {2:?}")]
    Loaded(usize, SocketAddr, Vec<SocketAddr>),
    /// A failure does not name a server that has died.
    #[error("an attempt of service call {call} failed, and the failure names no server that has died: {failure}")]
    Blamed {
        /// Index of the call.
        call: usize,
        /// The failure.
        failure: CallFailure,
    },
    /// Requests of one key went to different replicas.
    #[error("a request of service call {0} with a key went to {1}, and an earlier one to {2}")]
    Key(usize, SocketAddr, SocketAddr),
    /// A unary call received several replies, or none.
    #[error("service call {0} is unary and has {1} replies")]
    Replies(usize, usize),
    /// The application received replies of several attempts.
    #[error("service call {0} delivered replies of several attempts")]
    Mixed(usize),
    /// A call ended twice.
    #[error("service call {0} ended twice")]
    EndedTwice(usize),
    /// An idempotent call failed although healthy replicas were there.
    #[error(
        "service call {call} failed after {attempts} attempts although each service had a healthy replica: {failure}"
    )]
    Failed {
        /// Index of the call.
        call: usize,
        /// Number of attempts.
        attempts: u32,
        /// Failure of the last one.
        failure: CallFailure,
    },
}

/// Record of a call.
#[derive(Debug, Clone, Default)]
struct ServiceRecord {
    /// True time of the start.
    began: Instant,
    /// Deadline by the caller's clock.
    deadline: Option<Instant>,
    attempts: u32,
    /// Servers that have failed in this call, with the attempt.
    failed: Vec<(usize, SocketAddr)>,
    /// Time by the caller's clock before which it is not made again; `None`: never.
    earliest: Option<Instant>,
    /// Attempts whose replies the application received.
    delivered: Vec<usize>,
    ended: bool,
    orphaned: bool,
}

/// Choice of a replica by a host.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReplicaChoice<'a> {
    pub(super) host: usize,
    pub(super) call: usize,
    pub(super) attempt: usize,
    pub(super) service: usize,
    pub(super) key: Option<u64>,
    /// Servers that the host was asked to avoid.
    pub(super) avoided: &'a [SocketAddr],
    pub(super) chosen: SocketAddr,
}

/// Checker of the services of a run.
#[derive(Debug)]
pub(super) struct ServiceChecker<'a> {
    plan: &'a DelegatePlan,
    services: &'a ServicePlan,
    calls: Vec<ServiceRecord>,
    /// What each host should know, by host.
    hosts: BTreeMap<usize, HostModel>,
    /// Replicas by service, key and the replicas that were not avoided.
    keys: BTreeMap<(usize, u64, Vec<SocketAddr>), SocketAddr>,
}

impl<'a> ServiceChecker<'a> {
    pub(super) fn new(plan: &'a DelegatePlan, services: &'a ServicePlan) -> Self {
        let calls = vec![ServiceRecord::default(); services.calls.len()];
        let hosts = (services.first_host..plan.hosts.len()).map(|host| (host, HostModel::new(services.burst)));
        Self { plan, services, calls, hosts: hosts.collect(), keys: BTreeMap::new() }
    }

    /// Model of what a host knows.
    pub(super) fn host(&mut self, host: usize) -> &mut HostModel {
        self.hosts.entry(host).or_insert_with(|| HostModel::new(self.services.burst))
    }

    /// Records the start of a call at `now`, which is `local` by the caller's clock.
    pub(super) fn begin(&mut self, now: Instant, local: Instant, call: usize) {
        let plan = &self.services.calls[call];
        let deadline = plan.attempts[0].options.deadline.map(|time| local + time);
        self.calls[call] = ServiceRecord { began: now, deadline, ..ServiceRecord::default() };
        if plan.idempotent {
            self.host(plan.host()).add_call();
        }
    }

    /// Checks that another attempt may begin, at this time of the caller's clock.
    pub(super) fn check_attempt(&mut self, local: Instant, call: usize) -> Result<(), ServiceViolation> {
        let idempotent = self.services.calls[call].idempotent;
        let known = &mut self.calls[call];
        known.attempts += 1;
        if known.attempts == 1 {
            return Ok(());
        }
        if !idempotent {
            return Err(ServiceViolation::Repeated(call));
        }
        if known.attempts > ATTEMPTS_MAX {
            return Err(ServiceViolation::TooMany(call, known.attempts));
        }
        if !known.delivered.is_empty() {
            return Err(ServiceViolation::AfterReply(call));
        }
        if known.earliest.is_none_or(|earliest| local < earliest) {
            return Err(ServiceViolation::TooSoon(call));
        }
        if known.deadline.is_some_and(|deadline| deadline < local) {
            return Err(ServiceViolation::Late(call));
        }
        Ok(())
    }

    /// Records that another attempt is paid.
    pub(super) fn check_budget(&mut self, call: usize) -> Result<(), ServiceViolation> {
        let host = self.services.calls[call].host();
        if self.host(host).spend() { Ok(()) } else { Err(ServiceViolation::Budget(call)) }
    }

    /// Checks the choice of a replica, at this time of its host's clock.
    pub(super) fn check_choice(&mut self, local: Instant, choice: &ReplicaChoice<'_>) -> Result<(), ServiceViolation> {
        let &ReplicaChoice { host, call, attempt, service, key, avoided, chosen } = choice;
        let failed = self.calls[call].failed.iter().filter(|(before, _)| *before < attempt);
        let failed: Vec<_> = failed.map(|(_, server)| *server).collect();
        let model = self.hosts.get_mut(&host).expect("host of the services");
        let is_bad = |server: &SocketAddr| {
            failed.contains(server) || avoided.contains(server) || model.is_avoided(local, *server)
        };
        let replicas = self.services.replicas[service].iter().map(|replica| address(*replica));
        let better: Vec<_> = replicas.filter(|server| !is_bad(server)).collect();
        if !better.is_empty() && !better.contains(&chosen) {
            return Err(ServiceViolation::Avoided(call, chosen, better));
        }
        match key {
            Some(key) => {
                let known = *self.keys.entry((service, key, better)).or_insert(chosen);
                // If all are avoided, those that failed in the call are avoided first.
                if known != chosen && !is_bad(&chosen) {
                    return Err(ServiceViolation::Key(call, chosen, known));
                }
            }
            // Of any two, the less loaded one is chosen: never the one with the highest load.
            None if better.len() > 1 && model.has_highest_load(local, chosen, &better) => {
                return Err(ServiceViolation::Loaded(call, chosen, better));
            }
            None => {}
        }
        model.record_sent(local, chosen);
        Ok(())
    }

    /// Checks the failure of an attempt at `now`, which is `local` by the caller's clock.
    pub(super) fn check_failure(
        &mut self,
        now: Instant,
        local: Instant,
        call: usize,
        failure: &CallFailure,
    ) -> Result<(), ServiceViolation> {
        let died = self.died(now, call);
        let blames = failure.server().is_some_and(|server| died.contains(&server));
        let by_server = matches!(failure, CallFailure::Server(_) | CallFailure::Deadline);
        if self.is_lossless() && !blames && !by_server {
            return Err(ServiceViolation::Blamed { call, failure: failure.clone() });
        }
        let plan = &self.services.calls[call];
        self.host(plan.host()).record_call_failure(local, failure);
        let known = &mut self.calls[call];
        let attempt = known.attempts as usize - 1;
        known.failed.extend(failure.server().map(|server| (attempt, server)));
        let usual = PAUSE * (1 << attempt.min(ATTEMPTS_MAX as usize));
        known.earliest = match failure {
            CallFailure::Server(Status { code: Status::UNAVAILABLE, .. }) => {
                // Another server may have failed first: then it did not ask for a pause.
                match plan.pushbacks.get(attempt).copied().flatten().filter(|_| has_pushback(failure)) {
                    Some(Pushback::Never) => None,
                    Some(Pushback::After(pause)) => Some(local + pause),
                    None => Some(local + usual),
                }
            }
            CallFailure::Server(_) | CallFailure::Deadline | CallFailure::TooLarge(_) => None,
            _ => Some(local),
        };
        Ok(())
    }

    /// Checks a reply that the application receives.
    pub(super) fn check_delivery(&mut self, call: usize, attempt: usize) -> Result<(), ServiceViolation> {
        let unary = self.services.calls[call].unary;
        let known = &mut self.calls[call];
        if known.ended {
            return Err(ServiceViolation::EndedTwice(call));
        }
        known.delivered.push(attempt);
        if known.delivered.iter().any(|other| *other != attempt) {
            return Err(ServiceViolation::Mixed(call));
        }
        if unary && known.delivered.len() > 1 {
            return Err(ServiceViolation::Replies(call, known.delivered.len()));
        }
        Ok(())
    }

    /// Checks the end of a call.
    pub(super) fn check_end(
        &mut self,
        now: Instant,
        call: usize,
        failure: Option<&CallFailure>,
    ) -> Result<(), ServiceViolation> {
        let unary = self.services.calls[call].unary;
        let known = &mut self.calls[call];
        if std::mem::replace(&mut known.ended, true) {
            return Err(ServiceViolation::EndedTwice(call));
        }
        match failure {
            None if unary && known.delivered.len() != 1 => Err(ServiceViolation::Replies(call, known.delivered.len())),
            Some(failure) if self.must_succeed(now, call) => {
                let attempts = self.calls[call].attempts;
                Err(ServiceViolation::Failed { call, attempts, failure: failure.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Whether a call had to succeed: it is idempotent, has no deadline and budget, no message was lost, and at most as
    /// many processes died as there are further attempts, so that each service had a healthy replica.
    fn must_succeed(&self, now: Instant, call: usize) -> bool {
        let (plan, known, services) = (&self.services.calls[call], &self.calls[call], self.services);
        if !(self.is_lossless() && plan.idempotent && plan.can_complete() && known.deadline.is_none()) {
            return false;
        }
        let died = self.died(now, call);
        let has_healthy =
            |service: usize| services.replicas[service].iter().any(|host| !died.contains(&address(*host)));
        let healthy = plan.attempts[0].requests.iter().all(|request| match request.target {
            RequestTarget::Service { service, .. } => has_healthy(service),
            RequestTarget::Host(_) => true,
        });
        let paid = known.attempts == ATTEMPTS_MAX || self.hosts.get(&plan.host()).is_some_and(HostModel::has_budget);
        healthy && died.len() < ATTEMPTS_MAX as usize && paid && known.delivered.is_empty()
    }

    /// Whether no message between living hosts is lost.
    fn is_lossless(&self) -> bool {
        !self.plan.disturbed && self.services.loss.0 == 0 && self.services.breaks.is_empty()
    }

    /// Hosts that were dead at some time of a call.
    fn died(&self, now: Instant, call: usize) -> BTreeSet<SocketAddr> {
        let began = self.calls[call].began;
        let crashes = self.services.crashes.iter().filter(|crash| crash.at <= now && crash.back >= began);
        crashes.map(|crash| address(crash.host)).collect()
    }

    /// Records that the process of a host has died, with all that it knew.
    pub(super) fn crash(&mut self, host: usize) {
        *self.host(host) = HostModel::new(self.services.burst);
        for (plan, known) in self.services.calls.iter().zip(&mut self.calls) {
            known.orphaned |= plan.host() == host && known.attempts > 0 && !known.ended;
        }
    }

    /// Records that the caller of a call is down when the call should start.
    pub(super) fn skip(&mut self, call: usize) {
        self.calls[call].orphaned = true;
    }

    /// Whether all calls have ended.
    pub(super) fn all_over(&self) -> bool {
        self.calls.iter().all(|known| known.ended || known.orphaned)
    }
}

/// Whether a failing handler of the plan asked for a pause.
fn has_pushback(failure: &CallFailure) -> bool {
    matches!(failure, CallFailure::Server(status) if !status.details.is_empty())
}

/// Details of a status that ask for a pause.
pub(super) fn encode_pushback(pushback: Option<Pushback>) -> Vec<u8> {
    match pushback {
        None => Vec::new(),
        Some(Pushback::Never) => vec![0],
        Some(Pushback::After(pause)) => (pause.as_nanos() as u64).to_be_bytes().to_vec(),
    }
}

/// Pause that the details of a status ask for.
pub(super) fn decode_pushback(status: &Status) -> Option<Pushback> {
    match status.details.first_chunk() {
        Some(nanos) => Some(Pushback::After(Duration::from_nanos(u64::from_be_bytes(*nanos)))),
        None => (!status.details.is_empty()).then_some(Pushback::Never),
    }
}
