//! Execution of one request, with its outgoing messages.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use pathcall_wire::delegate::{DelegateFlags, RequestManifest};
use pathcall_wire::{Instant, Mutant, mutant};

use super::super::{CREDIT_BYTES, ContextId, MessageOutbox, RequestId, Status, failure, gc_time, micros};
use super::record::RecordedMessage;

/// Phase of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Waiting to be processed.
    Queued,
    /// A handler processes it.
    Working,
    /// The handler has finished; replies wait for a grant.
    Finished,
    /// Finished; its messages are held until its record is durable.
    Prepared,
    /// All messages were sent.
    Complete(ResultForm),
    /// All messages were recorded and sent, and are sent again when the request arrives again.
    Recorded,
    /// Failed with this code.
    Failed(u8),
    /// Aborted.
    Aborted,
}

/// Form of the result, as completion counts it (DPC §4.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResultForm {
    /// Two or more messages: there is a manifest.
    Manifest,
    /// A sole response.
    Sole,
    /// A sole request, which has inherited the branch.
    Chained,
}

/// Message that was not sent yet.
#[derive(Debug, Clone)]
pub(super) enum OutgoingMessage {
    /// An item for the caller.
    Reply(Bytes),
    /// A request for another server.
    Request(SocketAddr, Bytes),
}

/// Execution of one request.
#[derive(Debug)]
pub(super) struct Execution {
    pub(super) context: ContextId,
    pub(super) call: ContextId,
    pub(super) request: RequestId,
    pub(super) reply: SocketAddr,
    pub(super) depth: u8,
    pub(super) traced: bool,
    pub(super) once: bool,
    pub(super) gc: u8,
    pub(super) credit: u8,
    pub(super) ended_code: u8,
    pub(super) deadline: Option<Instant>,
    /// Age of the call when the request arrived, in microseconds.
    pub(super) age: u32,
    pub(super) arrived: Instant,
    pub(super) began: Option<Instant>,
    pub(super) ended: Option<Instant>,
    pub(super) payload: Bytes,
    pub(super) phase: Phase,
    /// Manifest of the parent request; leaves with the first message.
    pub(super) parents: Option<RequestManifest>,
    pub(super) outgoing: VecDeque<OutgoingMessage>,
    /// Servers to which requests were sent, in the order of their numbers.
    pub(super) sent_to: Vec<SocketAddr>,
    pub(super) responses: u32,
    /// Responses that may be sent.
    pub(super) granted: u32,
    /// Sizes of the sent responses that the caller has not taken, as far as known, and their sum.
    pub(super) in_flight: (VecDeque<usize>, usize),
    /// Time at which the held message leaves without a manifest.
    pub(super) flush_at: Option<Instant>,
    /// Time at which it is forgotten, or aborted if it is in progress.
    pub(super) expires: Instant,
    /// Time of its present timer.
    pub(super) timer: Option<Instant>,
    pub(super) stalled: bool,
    /// Time of the handler's last action, and the time of inactivity after which it counts as stalled.
    pub(super) active: Instant,
    pub(super) stall: Option<Duration>,
    pub(super) label: Bytes,
    /// Sent messages, if they are sent again when the request arrives again.
    pub(super) recorded: Vec<RecordedMessage>,
    pub(super) form: ResultForm,
}

impl Execution {
    /// Creates an execution of which only the ids are known.
    pub(super) fn idle(
        now: Instant,
        context: ContextId,
        call: ContextId,
        request: RequestId,
        reply: SocketAddr,
    ) -> Self {
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
            in_flight: (VecDeque::new(), 0),
            flush_at: None,
            expires: now,
            timer: None,
            stalled: false,
            active: now,
            stall: None,
            label: Bytes::new(),
            recorded: Vec::new(),
            form: ResultForm::Manifest,
        }
    }

    pub(super) fn begin(&mut self, now: Instant, stall: Option<Duration>) {
        (self.phase, self.began, self.active, self.stall) = (Phase::Working, Some(now), now, stall);
    }

    pub(super) fn in_progress(&self) -> bool {
        matches!(self.phase, Phase::Queued | Phase::Working | Phase::Finished | Phase::Prepared)
    }

    pub(super) fn gc_time(&self) -> Duration {
        if mutant::on(Mutant::DelegateGcTooSoon) { gc_time(self.gc) / 4 } else { gc_time(self.gc) }
    }

    /// Lower bound of the requests sent and to be sent.
    pub(super) fn requests_in_all(&self) -> u32 {
        (self.sent_to.len() + self.outgoing.len()) as u32
    }

    /// Lower bound of the responses sent and to be sent.
    pub(super) fn responses_in_all(&self) -> u32 {
        self.responses + self.outgoing.len() as u32
    }

    /// Index of the first message that may leave. One message is held for the manifest until the handler has finished.
    pub(super) fn next_sendable(&self, now: Instant) -> Option<usize> {
        let flush = self.flush_at.is_some_and(|at| at <= now);
        if self.outgoing.len() < 2 && self.phase != Phase::Finished && !flush {
            return None;
        }
        let granted = self.may_respond();
        self.outgoing.iter().position(|outgoing| granted || matches!(outgoing, OutgoingMessage::Request(..)))
    }

    /// Whether the credit of the caller, in responses and in bytes, allows another response.
    pub(super) fn may_respond(&self) -> bool {
        self.responses < self.granted && self.in_flight.1 < CREDIT_BYTES
    }

    /// Counts a sent response of this size.
    pub(super) fn count_response(&mut self, bytes: usize) {
        self.responses += 1;
        self.in_flight.0.push_back(bytes);
        self.in_flight.1 += bytes;
    }

    /// Records a grant; returns whether it is new. It shows how many responses the caller has taken.
    pub(super) fn record_grant(&mut self, responses: u32) -> bool {
        if responses <= self.granted {
            return false;
        }
        self.granted = responses;
        let taken = responses.saturating_sub(1 << self.credit);
        while self.responses.saturating_sub(self.in_flight.0.len() as u32) < taken
            && let Some(bytes) = self.in_flight.0.pop_front()
        {
            self.in_flight.1 -= bytes;
        }
        true
    }

    /// Forgets the responses: none was sent.
    pub(super) fn reset_responses(&mut self) {
        self.responses = 0;
        self.in_flight = Default::default();
    }

    /// Age of the call now, in microseconds.
    pub(super) fn age(&self, now: Instant) -> u32 {
        self.age.saturating_add(micros(self.arrived, now))
    }

    /// Sends a failure of the request to the caller.
    pub(super) fn send_failure(&self, status: &Status, unreachable: Option<SocketAddr>, out: &mut dyn MessageOutbox) {
        let (head, payload) = failure(self.call, self.request, status, unreachable);
        out.send(self.reply, &head, &payload);
    }

    /// Manifest of the sent messages, with one more response if `null`.
    pub(super) fn manifest(&self, server: SocketAddr, null: bool) -> RequestManifest {
        let (requests, responses) = (self.sent_to.len() as u32, self.responses + u32::from(null));
        RequestManifest { request: self.request.branch(), context: self.context, requests, responses, server }
    }

    /// Flags and failure code for a pong.
    pub(super) fn flags(&self, now: Instant) -> (u16, u16) {
        let idle = self.phase == Phase::Working && self.stall.is_some_and(|stall| now.since(self.active) > stall);
        let stalled = if self.stalled || idle { DelegateFlags::STALLED } else { 0 };
        match self.phase {
            Phase::Queued => (0, 0),
            // Stalled: it will never be known whether the record is durable.
            Phase::Prepared => (stalled, 0),
            Phase::Working | Phase::Finished => {
                let waits = !self.may_respond() && !self.outgoing.is_empty();
                (stalled | if waits { DelegateFlags::WAITING } else { 0 }, 0)
            }
            Phase::Complete(form) => (DelegateFlags::COMPLETE | form_flags(form), 0),
            Phase::Recorded => (DelegateFlags::COMPLETE | form_flags(self.form), 0),
            Phase::Failed(code) => (DelegateFlags::FAILED, code.into()),
            Phase::Aborted if mutant::on(Mutant::DelegateAbortNotSent) => (0, 0),
            Phase::Aborted => (DelegateFlags::ABORTED, 0),
        }
    }
}

fn form_flags(form: ResultForm) -> u16 {
    match form {
        ResultForm::Manifest => 0,
        ResultForm::Sole => DelegateFlags::SOLE,
        ResultForm::Chained => DelegateFlags::CHAINED,
    }
}
