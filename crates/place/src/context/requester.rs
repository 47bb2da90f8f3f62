//! Requester of a context: sends messages over the selected path, retries them over other paths, and receives
//! answers.

use std::time::{Duration, Instant as Clock};

use bytes::Bytes;
use crossbeam_channel::Select;
use pathcall_wire::Instant;
use pathcall_wire::place::HostTime;

use super::builder::JobOwner;
use super::comm::{AnswerError, CommEvent, CommFunction, RequestHead};
use super::device_queue::{DeviceQueue, FinishedWork, WorkError, WorkItem};
use super::pending::PendingRequest;
use super::window::WindowAccess;
use super::{Answer, Event, IncomingRequest, PendingWork, PlaceContext, RequestError, RequestMessage, SendError};
use crate::DeviceRole;
use crate::device::{AppError, JobError, MESSAGE_MAX};
use crate::path::KindId;
use crate::select::{Decision, Dispatch, Released, RequestOutcome, SelectionRequest};

/// Bit that marks the numbers of memory accesses.
const ACCESS: u64 = 1 << 63;
/// Time without processing of arrivals, in nanoseconds, after which `send` processes them first. Otherwise queued
/// answers would look like a silent path.
const POLL_INTERVAL_NS: u64 = 100_000;
/// Limit on the memory accesses in flight.
const ACCESSES_MAX: usize = 1 << 14;

impl PlaceContext {
    /// Sends a message over the selected path. The answer arrives by [`recv`](Self::recv).
    ///
    /// # Errors
    /// [`SendError`]; the message was not sent.
    pub fn send(&mut self, message: RequestMessage) -> Result<(), SendError> {
        let RequestMessage { kind, address, message, tag, payload } = message;
        if usize::from(kind.0) >= self.paths.kinds.len() {
            return Err(SendError::Kind(kind));
        }
        if payload.len() > MESSAGE_MAX {
            return Err(SendError::TooLong { got: payload.len(), max: MESSAGE_MAX });
        }
        let full = SendError::Full(self.limits.select.in_flight_max);
        if !self.entries.has_room() {
            return Err(full);
        }
        let mut now = (self.cpu_clock)();
        if now.0.saturating_sub(self.polled_at.0) > POLL_INTERVAL_NS {
            self.process_arrivals();
            now = (self.cpu_clock)();
        }
        self.telemetry.log.snapshot_paths(now, &self.paths, &self.selector, kind);
        let (ticket, dispatch) = match self.selector.select(now, &SelectionRequest { kind, address, message }) {
            Decision::Send(dispatch) => (dispatch.ticket, Some(dispatch)),
            Decision::Wait { ticket } => (ticket, None),
            Decision::Full => return Err(full),
        };
        let record = self.telemetry.log.record_request(now, tag, kind, dispatch.is_none());
        let entry = PendingRequest {
            tag,
            kind,
            payload,
            ticket,
            run_on_cpus: false,
            path: None,
            failed_path: None,
            trip: 0,
            attempts: 0,
            began: now,
            sent: now,
            from: now,
            intra_ns: Some(0),
            reason: String::new(),
            record,
        };
        let at = ticket.index() as u32;
        self.entries.insert(at, entry);
        match dispatch {
            Some(_) => self.start_attempt(now, at, dispatch),
            // A device may take another message now.
            None => self.release(now),
        }
        Ok(())
    }

    /// Next event, if there is one.
    pub fn recv(&mut self) -> Option<Event> {
        if self.events.is_empty() {
            self.process_arrivals();
        }
        self.events.pop_front()
    }

    /// Waits for the next event, at most for `timeout`.
    pub fn wait(&mut self, timeout: Duration) -> Option<Event> {
        let until = Clock::now() + timeout;
        loop {
            if let Some(event) = self.recv() {
                return Some(event);
            }
            let now = (self.cpu_clock)();
            let due = self.queues.iter().flatten().filter_map(|queue| queue.deadline()).min();
            let due = due.into_iter().chain(self.selector.poll_at()).min();
            let due = due.map_or(until, |due| until.min(Clock::now() + due.since(now)));
            let mut select = Select::new();
            select.recv(&self.arrivals.answers);
            select.recv(&self.arrivals.requests);
            for queue in self.queues.iter().flatten() {
                select.recv(&queue.completions);
            }
            #[cfg(unix)]
            if let Some(socket) = &self.admin_socket {
                select.recv(&socket.asked);
            }
            let ready = match self.stop.as_ref() {
                Some(stop) => {
                    let index = select.recv(stop);
                    let ready = select.ready_deadline(due);
                    if ready == Ok(index) {
                        return None;
                    }
                    ready
                }
                None => select.ready_deadline(due),
            };
            if ready.is_err() && Clock::now() >= until {
                return self.recv();
            }
        }
    }

    /// Writes into memory that the other side has registered (one-sided): by a message, or at once if the memory is
    /// [attached](super::Builder::attach_window).
    ///
    /// # Errors
    /// [`SendError::Full`], [`SendError::TooLong`].
    pub fn write(&mut self, window: &str, at: u64, bytes: Bytes, tag: u64) -> Result<(), SendError> {
        let got = bytes.len();
        self.access(window, &WindowAccess::Write { window: window.into(), at, bytes }, got, tag)
    }

    /// Reads memory that the other side has registered (one-sided), as [`write`](Self::write) does.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn read(&mut self, window: &str, at: u64, len: u64, tag: u64) -> Result<(), SendError> {
        let got = usize::try_from(len).unwrap_or(usize::MAX);
        self.access(window, &WindowAccess::Read { window: window.into(), at, len }, got, tag)
    }

    /// Request type with this name in the application's file.
    #[must_use]
    pub fn kind(&self, name: &str) -> Option<KindId> {
        self.paths.kind(name)
    }

    /// Number of requests and jobs in progress.
    #[must_use]
    pub fn held(&self) -> PendingWork {
        PendingWork { requests: self.entries.len(), jobs: self.queues.iter().flatten().map(|queue| queue.held()).sum() }
    }

    /// Processes arrivals and sends what can be sent.
    fn process_arrivals(&mut self) {
        while let Ok(arrival) = self.arrivals.answers.try_recv() {
            self.handle_event(arrival);
        }
        while let Ok(arrival) = self.arrivals.requests.try_recv() {
            self.handle_event(arrival);
        }
        let now = (self.cpu_clock)();
        loop {
            for &role in self.roles {
                while let Some(finished) = self.queues[role as usize].as_mut().and_then(|queue| queue.poll(now)) {
                    self.finished(role, finished);
                }
            }
            self.release(now);
            // A refusal by a device comes by no channel, so a waiting thread would not wake up for it.
            if !self.queues.iter().flatten().any(DeviceQueue::has_finished) {
                break;
            }
        }
        self.polled_at = now;
        #[cfg(unix)]
        self.answer_queries();
    }

    fn handle_event(&mut self, arrival: CommEvent) {
        match arrival {
            CommEvent::Request { head, payload, at, reply } => {
                let incoming = IncomingRequest { head, payload, at, reply };
                if self.handles_itself {
                    self.handle(incoming, head.role);
                } else {
                    self.events.push_back(Event::Request(incoming));
                }
            }
            CommEvent::Answer { id, result, .. } if id & ACCESS != 0 => {
                if let Some(tag) = self.accesses.remove(&id) {
                    let result =
                        result.map(|(_, bytes)| bytes).map_err(|reason| RequestError::Failed(reason.to_string()));
                    self.events.push_back(Event::Accessed { tag, result });
                }
            }
            CommEvent::Answer { id, at, result } => match (self.entries.find(id), result) {
                (Some(entry), Ok((time, payload))) => self.handle_answer(entry, at, time, payload),
                (Some(entry), Err(AnswerError::App(error))) => self.end_request(entry, Err(RequestError::App(error))),
                (Some(entry), Err(AnswerError::Failed(reason))) => self.failed(entry, reason),
                // The attempt was given up before.
                (None, _) => {}
            },
        }
    }

    fn finished(&mut self, role: DeviceRole, finished: FinishedWork<JobOwner>) {
        let FinishedWork { of, result, unpolled_ns } = finished;
        // If the CPU fails a request, no other path can succeed.
        let result = match result {
            Err(WorkError::Job(error)) if role == DeviceRole::Cpu => {
                Err(WorkError::Job(JobError::App(AppError(error.to_string()))))
            }
            result => result,
        };
        match of {
            JobOwner::Reply { reply, at, request } => {
                self.reply(reply, Instant(at.0.saturating_add(unpolled_ns)), request, result);
            }
            JobOwner::Request { id } => {
                let Some(entry) = self.entries.find(id) else { return };
                match result {
                    Ok(message) => {
                        if let Some(entry) = self.entries.get_mut(entry) {
                            entry.from.0 = entry.from.0.saturating_add(unpolled_ns);
                        }
                        self.post(entry, &message);
                    }
                    Err(WorkError::Job(JobError::App(error))) => self.end_request(entry, Err(RequestError::App(error))),
                    Err(error) => self.failed(entry, error.to_string()),
                }
            }
        }
    }

    /// Sends waiting requests and retries failed ones.
    fn release(&mut self, now: Instant) {
        while let Some(released) = self.selector.poll(now) {
            let (ticket, dispatch) = match released {
                Released::Send(dispatch) => (dispatch.ticket, Some(dispatch)),
                Released::GivenUp { ticket } => (ticket, None),
            };
            if let Some(at) = self.entries.of_ticket(ticket) {
                self.start_attempt(now, at, dispatch);
            }
        }
    }

    /// Begins an attempt over a path, or on the CPUs of both sides.
    fn start_attempt(&mut self, now: Instant, at: u32, dispatch: Option<Dispatch>) {
        self.entries.renew_id(at);
        let Some(entry) = self.entries.get_mut(at) else { return };
        let path = dispatch.map(|dispatch| dispatch.path);
        (entry.path, entry.trip, entry.sent, entry.from, entry.intra_ns) = (path, 0, now, now, Some(0));
        entry.run_on_cpus = path.is_none();
        entry.attempts += 1;
        let payload = entry.payload.clone();
        match dispatch {
            Some(Dispatch { path, reason, .. }) => self.telemetry.log.record_path(entry.record, path, reason),
            None => self.telemetry.record_cpu_run(entry),
        }
        self.stage(now, at, payload);
    }

    /// Runs the requester's task before a trip.
    fn stage(&mut self, now: Instant, at: u32, message: Bytes) {
        let id = self.entries.id(at);
        let Some(entry) = self.entries.get_mut(at) else { return };
        let trip = self.flows.trip(entry.kind, entry.path, entry.trip);
        let role = if entry.path.is_some() { trip.requester.role } else { DeviceRole::Cpu };
        let Some(task) = trip.requester.task else { return self.post(at, &message) };
        let loaded = self.tasks[task][role as usize];
        match (self.queues[role as usize].as_mut(), loaded) {
            (Some(queue), Some(task)) => {
                let is_continuation = entry.trip > 0;
                queue.start(now, WorkItem { task, input: message, is_continuation, of: JobOwner::Request { id } });
            }
            _ => self
                .failed(at, format!("no function is registered for `{}` on {role}", self.application.tasks[task].name)),
        }
    }

    /// Posts a message.
    fn post(&mut self, at: u32, message: &Bytes) {
        let id = self.entries.id(at);
        let Some(entry) = self.entries.get_mut(at) else { return };
        let trip = self.flows.trip(entry.kind, entry.path, entry.trip);
        let role = if entry.path.is_some() { trip.responder.role } else { DeviceRole::Cpu };
        let task = trip.responder.task.map(|task| task as u16);
        let head = RequestHead { kind: entry.kind.0, trip: entry.trip, task, role };
        let from = entry.from;
        // t2 − t1
        let spent = (self.nic_clock)().0.saturating_sub(from.0);
        entry.intra_ns = entry.intra_ns.map(|intra| intra.saturating_add(spent));
        let posted = self.comm(role).map_or_else(
            || Err("no communication function".into()),
            |comm| comm.post(id, head, message).map_err(|error| error.to_string()),
        );
        if let Err(reason) = posted {
            self.failed(at, reason);
        }
    }

    fn handle_answer(&mut self, at: u32, came: Instant, time: HostTime, payload: Bytes) {
        let Some(entry) = self.entries.get_mut(at) else { return };
        entry.intra_ns = entry.intra_ns.zip(time.0).map(|(intra, server)| intra.saturating_add(u64::from(server)));
        entry.from = came;
        if usize::from(entry.trip) + 1 < self.flows.trips(entry.kind, entry.path) {
            entry.trip += 1;
            let message = match &self.next[usize::from(entry.kind.0)] {
                Some(next) => next(usize::from(entry.trip), &entry.payload, &payload),
                None => payload,
            };
            let now = (self.cpu_clock)();
            return self.stage(now, at, message);
        }
        self.end_request(at, Ok(payload));
    }

    /// Reports the failure of an attempt; the request is retried.
    fn failed(&mut self, at: u32, reason: String) {
        let now = (self.cpu_clock)();
        self.entries.renew_id(at);
        let Some(entry) = self.entries.get_mut(at) else { return };
        self.telemetry.log.record_failure(entry.record, entry.path, &reason);
        entry.failed_path = entry.path;
        entry.reason.clone_from(&reason);
        if entry.run_on_cpus {
            self.end_request(at, Err(RequestError::Failed(reason)));
        } else {
            self.selector.done(now, entry.ticket, RequestOutcome::Failed);
        }
    }

    /// Ends a request.
    fn end_request(&mut self, at: u32, result: Result<Bytes, RequestError>) {
        let Some(entry) = self.entries.remove(at) else { return };
        // t6
        let now = (self.cpu_clock)();
        let intra_ns = entry.intra_ns.map(|intra| intra.saturating_add(now.0.saturating_sub(entry.from.0)));
        let total_ns = now.0.saturating_sub(entry.sent.0);
        // A refusal by the application counts as an answer of the path; this also ends a request that was given up.
        self.selector.done(now, entry.ticket, RequestOutcome::Done { intra_ns, total_ns });
        self.telemetry.ended(now, &entry, intra_ns, total_ns, &self.selector);
        let total_ns = now.0.saturating_sub(entry.began.0);
        let PendingRequest { tag, path, attempts, .. } = entry;
        self.events.push_back(Event::Answer(Answer { tag, result, path, attempts, intra_ns, total_ns }));
    }

    /// Communication function to a role: its own, or that of the first role that has one.
    fn comm(&mut self, role: DeviceRole) -> Option<&mut Box<dyn CommFunction>> {
        let at = match self.comms[role as usize] {
            Some(_) => role as usize,
            None => self.comms.iter().position(Option::is_some)?,
        };
        self.comms[at].as_mut()
    }

    fn access(&mut self, window: &str, access: &WindowAccess, got: usize, tag: u64) -> Result<(), SendError> {
        if got > MESSAGE_MAX {
            return Err(SendError::TooLong { got, max: MESSAGE_MAX });
        }
        // Accesses of attached memory are in flight until their event is taken.
        if self.accesses.len().max(self.events.len()) >= ACCESSES_MAX {
            return Err(SendError::Full(ACCESSES_MAX as u32));
        }
        if self.attached.contains(window) {
            let result = self.attached.access(access).map_err(|error| RequestError::Failed(error.to_string()));
            self.events.push_back(Event::Accessed { tag, result });
            return Ok(());
        }
        self.accessed += 1;
        let id = ACCESS | self.accessed;
        let posted = self.comm(DeviceRole::Cpu).map_or_else(
            || Err("no communication function".to_owned()),
            |comm| comm.access(id, access).map_err(|error| error.to_string()),
        );
        match posted {
            Ok(()) => drop(self.accesses.insert(id, tag)),
            Err(reason) => self.events.push_back(Event::Accessed { tag, result: Err(RequestError::Failed(reason)) }),
        }
        Ok(())
    }
}
