//! Network of the delegate simulation: delay, loss, broken connections, and messages of the attacker.

use std::time::Duration;

use bytes::Bytes;
use pathcall_endpoint::delegate::{ContextId, PeerNode};
use pathcall_wire::delegate::{DelegateFlags, DelegateKind, parse};

use super::attacker;
use super::host::{OutgoingMessages, host_at};
use super::world::{DelegateEvent, DelegateWorld};
use crate::random::{Chance, Random};

/// Limit on the transfer time of a long request; many timeouts long.
const LONG_TRANSFER_MAX: Duration = Duration::from_millis(60);
/// Interval at which the server sees progress of a long request.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(1);

impl DelegateWorld<'_> {
    /// Sends messages of a host.
    pub(super) fn route(&mut self, from: usize, out: OutgoingMessages) {
        let (incarnation, plan) = (self.hosts[from].incarnation, self.plan);
        for (shard, to, message) in out.messages {
            self.counts.messages += 1;
            self.time.trace.mix(message.len() as u64);
            let mut arrives = self.time.now + self.random_of(from).between(plan.delay);
            let there = host_at(to).filter(|to| self.hosts.get(*to).is_some_and(|host| host.up));
            let Some(there) = there else {
                if self.plan.tells {
                    let host = (from, incarnation);
                    self.time.push(arrives, DelegateEvent::Undelivered { host, shard, to, message });
                }
                continue;
            };
            let target = (there, self.hosts[there].incarnation);
            self.send_attacks(from, target, &message);
            let (loss, until, breaks) = match plan.services_of(from) {
                Some(services) => (services.loss, services.faults_until, &services.breaks),
                None => (plan.loss, plan.faults_until, &plan.breaks),
            };
            let faulty = self.time.now < until;
            let broken = breaks.iter().any(|(one, other, at)| {
                ((*one, *other) == (from, there) || (*other, *one) == (from, there))
                    && self.time.now <= *at
                    && *at <= arrives
            });
            let cut = self.environment.is_cut(self.time.now, Some(from), Some(there));
            if broken || cut || faulty && self.random_of(from).happens(loss) {
                self.counts.lost += 1;
                self.line(from, || format!("LOST to {there}: {:?}", parse(&message)));
                continue;
            }
            let request = message.get(1) == Some(&(DelegateKind::Request as u8));
            if request && plan.long != Chance(0) && self.random_of(from).happens(plan.long) {
                let mut at = arrives;
                arrives = arrives + self.random_of(from).up_to(LONG_TRANSFER_MAX);
                while at < arrives {
                    self.time.push(at, DelegateEvent::Arriving { to: target, message: message.clone() });
                    at = at + PROGRESS_INTERVAL;
                }
            }
            let from = self.hosts[from].peer(shard);
            self.time.push(arrives, DelegateEvent::Deliver { to: target, from, message });
        }
    }

    /// Sends replayed or forged versions of an overheard message.
    fn send_attacks(&mut self, from: usize, to: (usize, u32), message: &Bytes) {
        let plan = self.plan;
        if self.random_of(from).happens(plan.repeats) {
            let longest = self.random_of(from).pick(&[1, 20, 300]);
            let after = self.random_of(from).up_to(Duration::from_millis(longest));
            self.counts.repeated += 1;
            self.time.after(after, DelegateEvent::Deliver { to, from: attacker::attacker(), message: message.clone() });
        }
        if self.random_of(from).happens(plan.forged) {
            let message = attacker::forge(self.random_of(from), message);
            let after = self.random_of(from).up_to(Duration::from_millis(1));
            self.counts.forged += 1;
            self.time.after(after, DelegateEvent::Deliver { to, from: attacker::attacker(), message });
        }
    }

    /// Random numbers of the messages of a host.
    fn random_of(&mut self, host: usize) -> &mut Random {
        match &mut self.services {
            Some(services) if host >= services.plan.first_host => &mut services.random,
            _ => &mut self.random,
        }
    }

    /// Records progress of a long request as activity of its call.
    pub(super) fn record_progress(&mut self, message: &Bytes) {
        let id = message.get(4..14).and_then(|id| id.first_chunk()).map(|id| ContextId::from_be_bytes(*id));
        if let Some(&call) = id.and_then(|id| self.ids.get(&id)) {
            self.checker.calls[call].active = self.time.now;
        }
    }

    /// Records a delivered message in the checker.
    pub(super) fn note(&mut self, from: PeerNode, message: &Bytes, host: (usize, u32)) {
        let Some((&kind, id)) = message.get(1).zip(message.get(4..14)) else { return };
        let id = ContextId::from_be_bytes(*id.first_chunk().expect("ten bytes"));
        let Some(&call) = self.ids.get(&id) else { return };
        if kind == DelegateKind::Response as u8 {
            self.checker.calls[call].answered = self.time.now;
        }
        if from.node == attacker::attacker().node {
            return;
        }
        let flags = u16::from_be_bytes([message[2], message[3]]);
        if kind == DelegateKind::Ping as u8 && flags & DelegateFlags::ABORT != 0 {
            self.checker.record_abort(call, host);
        }
        if kind != DelegateKind::Ping as u8 && kind != DelegateKind::Pong as u8 {
            self.checker.calls[call].active = self.time.now;
        }
    }
}
