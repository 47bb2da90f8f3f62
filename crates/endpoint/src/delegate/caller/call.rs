//! State of one delegated call.

use std::net::SocketAddr;

use bytes::Bytes;
use pathcall_wire::delegate::message::ended_code;
use pathcall_wire::delegate::{DelegateFlags, DelegateRequest};
use pathcall_wire::{Instant, Mutant, mutant};

use super::super::context_map::Timers;
use super::super::{ContextId, NodeId, micros};
use super::CallOptions;
use super::completion::Completion;
use super::ping_rounds::PingRounds;
use super::trace::Spans;

/// Phase of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    Open,
    /// Failed, and can be repeated.
    Retryable,
    /// The servers are being stopped; `reported`: the end of the call was reported to the application.
    Aborting {
        since: Instant,
        reported: bool,
    },
    /// Ended; spans may arrive until this time.
    Traced {
        until: Instant,
    },
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) id: ContextId,
    pub(super) options: CallOptions,
    /// Code of the time for which servers remember requests, see [`CallOptions::gc_code`].
    pub(super) gc: u8,
    pub(super) opened: Instant,
    pub(super) deadline: Option<Instant>,
    pub(super) state: State,
    pub(super) completion: Completion,
    pub(super) rounds: PingRounds,
    pub(super) spans: Option<Spans>,
    /// Requests of the caller itself, kept if they may be sent again.
    pub(super) sent: Vec<(SocketAddr, Bytes)>,
    pub(super) requests: u32,
    /// Time of its present timer.
    pub(super) timer: Option<Instant>,
}

impl Call {
    /// Sets the timer for the next action.
    pub(super) fn arm(&mut self, timers: &mut Timers) {
        let next = match self.state {
            State::Open => self.deadline.into_iter().fold(self.rounds.next(), Instant::min),
            State::Aborting { since, .. } => self.rounds.next().min(since + self.options.timeout),
            State::Traced { until } => until,
            State::Retryable => return,
        };
        timers.set(&mut self.timer, self.id, next);
    }

    /// Head of the `number`th request.
    pub(super) fn request(
        &self,
        now: Instant,
        number: u32,
        oldest: u32,
        reply: SocketAddr,
        node: NodeId,
    ) -> DelegateRequest {
        let (traced, once) = (self.options.traced, self.options.once);
        let oldest = if mutant::on(Mutant::DelegateEndedTooSoon) { self.id.number() } else { oldest };
        DelegateRequest {
            flags: if traced { DelegateFlags::TRACED } else { 0 } | if once { DelegateFlags::ONCE } else { 0 },
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
