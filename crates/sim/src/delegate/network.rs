//! What is between hosts: delay, loss, connections that break, and a stranger who listens.

use std::time::Duration;

use bytes::Bytes;
use pathcall_endpoint::delegate::{Context, Peer};
use pathcall_wire::delegate::{Flags, Kind, parse};

use super::host::{Out, host_at};
use super::stranger;
use super::world::{Event, World};
use crate::random::Chance;

/// Time that a long request takes at most: many time-outs.
const LONG: Duration = Duration::from_millis(60);
/// How often its server sees that it gets on.
const GETS_ON: Duration = Duration::from_millis(1);

impl World<'_> {
    /// Puts messages on their way.
    pub(super) fn route(&mut self, from: usize, out: Out) {
        let (peer, incarnation) = (self.hosts[from].peer(), self.hosts[from].incarnation);
        for (to, message) in out.0 {
            self.tally.messages += 1;
            self.mix(message.len() as u64);
            let (shortest, longest) = self.plan.delay;
            let mut arrives = self.now + shortest + self.random.up_to(longest - shortest);
            let there = host_at(to).filter(|to| self.hosts.get(*to).is_some_and(|host| host.up));
            let Some(there) = there else {
                if self.plan.tells {
                    let host = (from, incarnation);
                    self.queue.push(arrives, Event::Undelivered { host, to, message });
                }
                continue;
            };
            let target = (there, self.hosts[there].incarnation);
            self.strangers(target, &message);
            let faulty = self.now < self.plan.faults_until;
            let broken = self.plan.breaks.iter().any(|(one, other, at)| {
                ((*one, *other) == (from, there) || (*other, *one) == (from, there))
                    && self.now <= *at
                    && *at <= arrives
            });
            let cut = self.around.is_cut(self.now, Some(from), Some(there));
            if broken || cut || faulty && self.random.happens(self.plan.loss) {
                self.tally.lost += 1;
                self.line(from, || format!("LOST to {there}: {:?}", parse(&message)));
                continue;
            }
            let request = message.get(1) == Some(&(Kind::Request as u8));
            if request && self.plan.long != Chance(0) && self.random.happens(self.plan.long) {
                let mut at = arrives;
                arrives = arrives + self.random.up_to(LONG);
                while at < arrives {
                    self.queue.push(at, Event::Arriving { to: target, message: message.clone() });
                    at = at + GETS_ON;
                }
            }
            self.queue.push(arrives, Event::Deliver { to: target, from: peer, message });
        }
    }

    /// What a stranger makes of a message that it has overheard.
    fn strangers(&mut self, to: (usize, u32), message: &Bytes) {
        if self.random.happens(self.plan.repeats) {
            let longest = self.random.pick(&[1, 20, 300]);
            let at = self.now + self.random.up_to(Duration::from_millis(longest));
            self.tally.repeated += 1;
            self.queue.push(at, Event::Deliver { to, from: stranger::stranger(), message: message.clone() });
        }
        if self.random.happens(self.plan.forged) {
            let message = stranger::forge(&mut self.random, message);
            let at = self.now + self.random.up_to(Duration::from_millis(1));
            self.tally.forged += 1;
            self.queue.push(at, Event::Deliver { to, from: stranger::stranger(), message });
        }
    }

    /// A long request is on its way: something happens to its call.
    pub(super) fn gets_on(&mut self, message: &Bytes) {
        let id = message.get(4..14).and_then(|id| id.first_chunk()).map(|id| Context::from_be_bytes(*id));
        if let Some(&call) = id.and_then(|id| self.ids.get(&id)) {
            self.judge.calls[call].active = self.now;
        }
    }

    /// What a delivered message means to the judge.
    pub(super) fn note(&mut self, from: Peer, message: &Bytes, host: (usize, u32)) {
        let Some((&kind, id)) = message.get(1).zip(message.get(4..14)) else { return };
        let id = Context::from_be_bytes(*id.first_chunk().expect("ten bytes"));
        let Some(&call) = self.ids.get(&id) else { return };
        if kind == Kind::Response as u8 {
            self.judge.calls[call].answered = self.now;
        }
        if from.node == stranger::stranger().node {
            return;
        }
        let flags = u16::from_be_bytes([message[2], message[3]]);
        if kind == Kind::Ping as u8 && flags & Flags::ABORT != 0 {
            self.judge.told(call, host);
        }
        if kind != Kind::Ping as u8 && kind != Kind::Pong as u8 {
            self.judge.calls[call].active = self.now;
        }
    }
}
