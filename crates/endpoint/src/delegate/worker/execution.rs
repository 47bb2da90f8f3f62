//! One request and what came of it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use pathcall_wire::delegate::{Fault, Flags, Manifest};
use pathcall_wire::{Instant, Mutant, mutant};

use super::super::{Context, RequestId, gc_time, micros};
use super::record::Packet;

/// How far a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// It waits to be worked on.
    Queued,
    /// A handler works on it.
    Working,
    /// The handler has finished; replies wait for a grant.
    Finished,
    /// Finished; what it led to is not sent before it is durable.
    Sealed,
    /// All was sent.
    Complete(Form),
    /// All was recorded and sent, and is sent again when the request comes again.
    Recorded,
    /// It failed, with this code.
    Failed(u8),
    /// Work on it was stopped.
    Aborted,
}

/// What came of a request, as completion counts (DPC §4.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Two messages or more: there is a manifest.
    Manifest,
    /// One response.
    Sole,
    /// One request, which has inherited its branch.
    Chained,
}

/// A message that was not sent yet.
#[derive(Debug, Clone)]
pub(super) enum Outgoing {
    /// An item for the caller.
    Reply(Bytes),
    /// A request for another server.
    Request(SocketAddr, Bytes),
}

/// One request and what came of it.
#[derive(Debug)]
pub(super) struct Execution {
    pub(super) context: Context,
    pub(super) call: Context,
    pub(super) request: RequestId,
    pub(super) reply: SocketAddr,
    pub(super) depth: u8,
    pub(super) traced: bool,
    pub(super) once: bool,
    pub(super) gc: u8,
    pub(super) credit: u8,
    pub(super) ended_code: u8,
    pub(super) deadline: Option<Instant>,
    /// The call's age when the request came, in microseconds.
    pub(super) age: u32,
    pub(super) arrived: Instant,
    pub(super) began: Option<Instant>,
    pub(super) ended: Option<Instant>,
    pub(super) payload: Bytes,
    pub(super) phase: Phase,
    /// Of the request before it; leaves with the first message.
    pub(super) parents: Option<Manifest>,
    pub(super) outgoing: VecDeque<Outgoing>,
    /// Where requests were sent, in the order of their numbers.
    pub(super) sent_to: Vec<SocketAddr>,
    pub(super) responses: u32,
    /// Responses that may be sent.
    pub(super) granted: u32,
    /// When the message that is held leaves without a manifest.
    pub(super) flush_at: Option<Instant>,
    /// When it is forgotten, or given up if it is in progress.
    pub(super) expires: Instant,
    /// What it is set for among the timers.
    pub(super) timer: Option<Instant>,
    pub(super) stalled: bool,
    /// When the handler last did something, and after how long without it counts as stalled.
    pub(super) active: Instant,
    pub(super) stall: Option<Duration>,
    pub(super) label: Bytes,
    /// What was sent, if it is sent again when the request comes again.
    pub(super) packets: Vec<Packet>,
    pub(super) form: Form,
}

impl Execution {
    /// An execution of which nothing is known but its names.
    pub(super) fn idle(now: Instant, context: Context, call: Context, request: RequestId, reply: SocketAddr) -> Self {
        Self {
            context,
            call,
            request,
            reply,
            depth: 0,
            traced: false,
            once: true,
            gc: 0,
            credit: 0,
            ended_code: u8::MAX,
            deadline: None,
            age: 0,
            arrived: now,
            began: None,
            ended: None,
            payload: Bytes::new(),
            phase: Phase::Queued,
            parents: None,
            outgoing: VecDeque::new(),
            sent_to: Vec::new(),
            responses: 0,
            granted: 0,
            flush_at: None,
            expires: now,
            timer: None,
            stalled: false,
            active: now,
            stall: None,
            label: Bytes::new(),
            packets: Vec::new(),
            form: Form::Manifest,
        }
    }

    pub(super) fn begin(&mut self, now: Instant, stall: Option<Duration>) {
        (self.phase, self.began, self.active, self.stall) = (Phase::Working, Some(now), now, stall);
    }

    pub(super) fn in_progress(&self) -> bool {
        matches!(self.phase, Phase::Queued | Phase::Working | Phase::Finished | Phase::Sealed)
    }

    pub(super) fn gc_time(&self) -> Duration {
        if mutant::on(Mutant::DelegateGcTooSoon) { gc_time(self.gc) / 4 } else { gc_time(self.gc) }
    }

    /// At least the requests sent, and to be sent.
    pub(super) fn requests_in_all(&self) -> u32 {
        (self.sent_to.len() + self.outgoing.len()) as u32
    }

    /// At least the responses sent, and to be sent.
    pub(super) fn responses_in_all(&self) -> u32 {
        self.responses + self.outgoing.len() as u32
    }

    /// The first message that may leave. One is held for the manifest until the handler has finished.
    pub(super) fn may_leave(&self, now: Instant) -> Option<usize> {
        let flush = self.flush_at.is_some_and(|at| at <= now);
        if self.outgoing.len() < 2 && self.phase != Phase::Finished && !flush {
            return None;
        }
        let granted = self.responses < self.granted;
        self.outgoing.iter().position(|outgoing| granted || matches!(outgoing, Outgoing::Request(..)))
    }

    /// The call's age now, in microseconds.
    pub(super) fn age(&self, now: Instant) -> u32 {
        self.age.saturating_add(micros(self.arrived, now))
    }

    pub(super) fn fault(&self, code: u8) -> Fault {
        Fault { call: self.call, request: self.request, code }
    }

    /// The manifest of what was sent, with one response more if `null`.
    pub(super) fn manifest(&self, server: SocketAddr, null: bool) -> Manifest {
        let (requests, responses) = (self.sent_to.len() as u32, self.responses + u32::from(null));
        Manifest { request: self.request.branch(), context: self.context, requests, responses, server }
    }

    /// What a pong says of it.
    pub(super) fn flags(&self, now: Instant) -> (u16, u16) {
        let idle = self.phase == Phase::Working && self.stall.is_some_and(|stall| now.since(self.active) > stall);
        let stalled = if self.stalled || idle { Flags::STALLED } else { 0 };
        match self.phase {
            Phase::Queued => (0, 0),
            // Stalled: nobody will say any more whether it is durable.
            Phase::Sealed => (stalled, 0),
            Phase::Working | Phase::Finished => {
                let waits = self.responses >= self.granted && !self.outgoing.is_empty();
                (stalled | if waits { Flags::WAITING } else { 0 }, 0)
            }
            Phase::Complete(form) => (Flags::COMPLETE | form_flags(form), 0),
            Phase::Recorded => (Flags::COMPLETE | form_flags(self.form), 0),
            Phase::Failed(code) => (Flags::FAILED, code.into()),
            Phase::Aborted if mutant::on(Mutant::DelegateAbortUnsaid) => (0, 0),
            Phase::Aborted => (Flags::ABORTED, 0),
        }
    }
}

fn form_flags(form: Form) -> u16 {
    match form {
        Form::Manifest => 0,
        Form::Sole => Flags::SOLE,
        Form::Chained => Flags::CHAINED,
    }
}
