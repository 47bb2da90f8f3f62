//! One call: how far it is, and what is known of it.

use std::net::SocketAddr;

use bytes::Bytes;
use pathcall_wire::delegate::message::ended_code;
use pathcall_wire::delegate::{Flags, Request};
use pathcall_wire::{Instant, Mutant, mutant};

use super::super::table::Timers;
use super::super::{Context, NodeId, micros};
use super::CallOptions;
use super::completion::Completion;
use super::rounds::Rounds;
use super::trace::Spans;

/// How far a call is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    Open,
    /// It has failed and may be made again.
    Retryable,
    /// Servers are being told to stop; `told`: the application knows that the call has ended.
    Aborting {
        since: Instant,
        told: bool,
    },
    /// Over; spans may come until then.
    Traced {
        until: Instant,
    },
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) id: Context,
    pub(super) options: CallOptions,
    /// See [`CallOptions::gc_code`].
    pub(super) gc: u8,
    pub(super) opened: Instant,
    pub(super) deadline: Option<Instant>,
    pub(super) state: State,
    pub(super) completion: Completion,
    pub(super) rounds: Rounds,
    pub(super) spans: Option<Spans>,
    /// The caller's own requests, kept if they may be sent again.
    pub(super) sent: Vec<(SocketAddr, Bytes)>,
    pub(super) requests: u32,
    /// What it is set for among the timers.
    pub(super) timer: Option<Instant>,
}

impl Call {
    /// Has itself looked at in time.
    pub(super) fn arm(&mut self, timers: &mut Timers) {
        let next = match self.state {
            State::Open => self.deadline.into_iter().fold(self.rounds.next(), Instant::min),
            State::Aborting { since, .. } => self.rounds.next().min(since + self.options.timeout),
            State::Traced { until } => until,
            State::Retryable => return,
        };
        timers.set(&mut self.timer, self.id, next);
    }

    /// The head of the `number`th request.
    pub(super) fn request(&self, now: Instant, number: u32, oldest: u32, reply: SocketAddr, node: NodeId) -> Request {
        let (traced, once) = (self.options.traced, self.options.once);
        let oldest = if mutant::on(Mutant::DelegateEndedTooSoon) { self.id.number() } else { oldest };
        Request {
            flags: if traced { Flags::TRACED } else { 0 } | if once { Flags::ONCE } else { 0 },
            call: self.id,
            request: self.id.request(number).inherited(0),
            depth: 0,
            gc: self.gc,
            credit: self.options.credit_code(),
            ended: ended_code(self.id.number(), oldest),
            deadline: self.deadline.map_or(u32::MAX, |at| micros(now, at)),
            age: micros(self.opened, now),
            reply,
            sender: node,
            manifest: None,
        }
    }
}
