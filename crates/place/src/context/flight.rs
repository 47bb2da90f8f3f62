//! The requester's end: from a message to its answer, over the path that the selector says, and over others if it fails.

use std::time::{Duration, Instant as Clock};

use bytes::Bytes;
use crossbeam_channel::Select;
use pathcall_wire::Instant;
use pathcall_wire::place::HostTime;

use super::bench::{Bench, Finished, Order, WorkError};
use super::builder::Owner;
use super::comm::{Arrival, Fault, Head};
use super::held::Entry;
use super::window::Access;
use super::{Answer, Context, Event, Failure, Held, Incoming, Message, SendError};
use crate::Role;
use crate::device::{AppError, JobError, MESSAGE_MAX};
use crate::path::KindId;
use crate::select::{Decision, Go, Outcome, Released, Request};

/// Marks numbers of accesses to windows.
const ACCESS: u64 = 1 << 63;
/// Who has not looked at what has come for so long, nanoseconds, looks before it chooses: what lay there meanwhile is no
/// sign of a path from which nothing comes.
const LOOK_NS: u64 = 100_000;
/// Accesses in flight at most.
const ACCESSES_MAX: usize = 1 << 14;

impl Context {
    /// Sends a message: it chooses the path, and posts. Its answer comes by [`recv`](Self::recv).
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent then.
    pub fn send(&mut self, message: Message) -> Result<(), SendError> {
        let Message { kind, address, message, tag, payload } = message;
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
        if now.0.saturating_sub(self.turned.0) > LOOK_NS {
            self.turn();
            now = (self.cpu_clock)();
        }
        self.telemetry.log.before(now, &self.paths, &self.selector, kind);
        let (ticket, go) = match self.selector.select(now, &Request { kind, address, message }) {
            Decision::Go(go) => (go.ticket, Some(go)),
            Decision::Wait { ticket } => (ticket, None),
            Decision::Full => return Err(full),
        };
        let record = self.telemetry.log.asked(now, tag, kind, go.is_none());
        let entry = Entry {
            tag,
            kind,
            payload,
            ticket,
            resorted: false,
            path: None,
            failed_path: None,
            trip: 0,
            attempts: 0,
            began: now,
            sent: now,
            from: now,
            intra_ns: Some(0),
            why: String::new(),
            record,
        };
        self.entries.insert(entry).ok_or(full)?;
        if let Some(go) = go {
            self.launch(now, go);
        }
        Ok(())
    }

    /// The next thing that has happened, if there is one now.
    pub fn recv(&mut self) -> Option<Event> {
        if self.events.is_empty() {
            self.turn();
        }
        self.events.pop_front()
    }

    /// As [`recv`](Self::recv), and waits for as long as that.
    pub fn wait(&mut self, timeout: Duration) -> Option<Event> {
        let until = Clock::now() + timeout;
        loop {
            if let Some(event) = self.recv() {
                return Some(event);
            }
            let now = (self.cpu_clock)();
            let due = self.benches.iter().flatten().filter_map(|bench| bench.deadline()).min();
            let due = due.map_or(until, |due| until.min(Clock::now() + due.since(now)));
            let mut select = Select::new();
            select.recv(&self.arrivals.answers);
            select.recv(&self.arrivals.requests);
            for bench in self.benches.iter().flatten() {
                select.recv(&bench.completions);
            }
            #[cfg(unix)]
            if let Some(door) = &self.door {
                select.recv(&door.asked);
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

    /// Writes into memory that the other side has registered: nobody there is asked (one-sided).
    ///
    /// # Errors
    /// [`SendError::Full`], [`SendError::TooLong`].
    pub fn write(&mut self, window: &str, at: u64, bytes: Bytes, tag: u64) -> Result<(), SendError> {
        let got = bytes.len();
        self.access(&Access::Write { window: window.into(), at, bytes }, got, tag)
    }

    /// Reads memory that the other side has registered (one-sided).
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn read(&mut self, window: &str, at: u64, len: u64, tag: u64) -> Result<(), SendError> {
        let got = usize::try_from(len).unwrap_or(usize::MAX);
        self.access(&Access::Read { window: window.into(), at, len }, got, tag)
    }

    /// A type of request by its name in the application's file.
    #[must_use]
    pub fn kind(&self, name: &str) -> Option<KindId> {
        self.paths.kind(name)
    }

    /// What it holds now.
    #[must_use]
    pub fn held(&self) -> Held {
        Held { requests: self.entries.len(), jobs: self.benches.iter().flatten().map(|bench| bench.held()).sum() }
    }

    /// Takes what has come, and sends what may go.
    fn turn(&mut self) {
        while let Ok(arrival) = self.arrivals.answers.try_recv() {
            self.arrived(arrival);
        }
        while let Ok(arrival) = self.arrivals.requests.try_recv() {
            self.arrived(arrival);
        }
        let now = (self.cpu_clock)();
        loop {
            for role in Role::ALL {
                while let Some(finished) = self.benches[role as usize].as_mut().and_then(|bench| bench.poll(now)) {
                    self.finished(role, finished);
                }
            }
            self.release(now);
            // What a device refuses at once comes by no channel: who waits would not be woken for it.
            if !self.benches.iter().flatten().any(Bench::has_finished) {
                break;
            }
        }
        self.turned = now;
        #[cfg(unix)]
        self.tell();
    }

    fn arrived(&mut self, arrival: Arrival) {
        match arrival {
            Arrival::Request { head, payload, at, reply } => {
                let incoming = Incoming { head, payload, at, reply };
                if self.handles_itself {
                    self.handle(incoming, head.role);
                } else {
                    self.events.push_back(Event::Request(incoming));
                }
            }
            Arrival::Answer { id, result, .. } if id & ACCESS != 0 => {
                if let Some(tag) = self.accesses.remove(&id) {
                    let result = result.map(|(_, bytes)| bytes).map_err(|why| Failure::Failed(why.to_string()));
                    self.events.push_back(Event::Accessed { tag, result });
                }
            }
            Arrival::Answer { id, at, result } => match (self.entries.find(id), result) {
                (Some(entry), Ok((time, payload))) => self.answered(entry, at, time, payload),
                (Some(entry), Err(Fault::App(error))) => self.end(entry, Err(Failure::App(error))),
                (Some(entry), Err(Fault::Failed(why))) => self.failed(entry, why),
                // Of an attempt that was given up.
                (None, _) => {}
            },
        }
    }

    fn finished(&mut self, role: Role, finished: Finished<Owner>) {
        let Finished { of, result, lay_ns } = finished;
        // What the CPU can't do nobody can.
        let result = match result {
            Err(WorkError::Job(error)) if role == Role::Cpu => {
                Err(WorkError::Job(JobError::App(AppError(error.to_string()))))
            }
            result => result,
        };
        match of {
            Owner::Reply { reply, at, request } => {
                self.reply(reply, Instant(at.0.saturating_add(lay_ns)), request, result);
            }
            Owner::Request { id } => {
                let Some(entry) = self.entries.find(id) else { return };
                match result {
                    Ok(message) => {
                        if let Some(entry) = self.entries.get_mut(entry) {
                            entry.from.0 = entry.from.0.saturating_add(lay_ns);
                        }
                        self.post(entry, &message);
                    }
                    Err(WorkError::Job(JobError::App(error))) => self.end(entry, Err(Failure::App(error))),
                    Err(error) => self.failed(entry, error.to_string()),
                }
            }
        }
    }

    /// Sends what was waiting, and again what has failed.
    fn release(&mut self, now: Instant) {
        while let Some(released) = self.selector.poll(now) {
            match released {
                Released::Go(go) => self.launch(now, go),
                Released::GivenUp { ticket } => {
                    if let Some(at) = self.entries.of_ticket(ticket) {
                        self.last_resort(now, at);
                    }
                }
            }
        }
    }

    /// Begins an attempt over a path.
    fn launch(&mut self, now: Instant, go: Go) {
        let Some(at) = self.entries.of_ticket(go.ticket) else { return };
        self.entries.attempt(at);
        let Some(entry) = self.entries.get_mut(at) else { return };
        (entry.path, entry.trip, entry.sent, entry.from, entry.intra_ns) = (Some(go.path), 0, now, now, Some(0));
        entry.attempts += 1;
        let (record, payload) = (entry.record, entry.payload.clone());
        self.telemetry.log.chose(record, go.path, go.why);
        self.stage(now, at, payload);
    }

    /// Has the CPUs of both sides do it, whatever paths there are.
    fn last_resort(&mut self, now: Instant, at: u32) {
        self.entries.attempt(at);
        let Some(entry) = self.entries.get_mut(at) else { return };
        (entry.path, entry.trip, entry.sent, entry.from, entry.intra_ns) = (None, 0, now, now, Some(0));
        entry.resorted = true;
        entry.attempts += 1;
        let payload = entry.payload.clone();
        self.telemetry.resorted(entry);
        self.stage(now, at, payload);
    }

    /// What the requester does before a trip.
    fn stage(&mut self, now: Instant, at: u32, message: Bytes) {
        let id = self.entries.id(at);
        let Some(entry) = self.entries.get_mut(at) else { return };
        let trip = self.flows.trip(entry.kind, entry.path, entry.trip);
        let role = if entry.path.is_some() { trip.requester.role } else { Role::Cpu };
        let Some(task) = trip.requester.task else { return self.post(at, &message) };
        let loaded = self.tasks[task][role as usize];
        match (self.benches[role as usize].as_mut(), loaded) {
            (Some(bench), Some(task)) => {
                let goes_on = entry.trip > 0;
                bench.start(now, Order { task, input: message, goes_on, of: Owner::Request { id } });
            }
            _ => {
                self.failed(at, format!("nothing is registered for `{}` on {role}", self.application.tasks[task].name))
            }
        }
    }

    /// Hands a message to the network.
    fn post(&mut self, at: u32, message: &Bytes) {
        let id = self.entries.id(at);
        let Some(entry) = self.entries.get_mut(at) else { return };
        let trip = self.flows.trip(entry.kind, entry.path, entry.trip);
        let role = if entry.path.is_some() { trip.responder.role } else { Role::Cpu };
        let task = trip.responder.task.map(|task| task as u16);
        let head = Head { kind: entry.kind.0, trip: entry.trip, task, role };
        let from = entry.from;
        // t2 − t1
        let spent = (self.nic_clock)().0.saturating_sub(from.0);
        entry.intra_ns = entry.intra_ns.map(|intra| intra.saturating_add(spent));
        let comm = self.comms[role as usize].as_mut().or(self.spare_comm.as_mut());
        let posted = comm.map_or_else(
            || Err("no communication function".into()),
            |comm| comm.post(id, head, message).map_err(|error| error.to_string()),
        );
        if let Err(why) = posted {
            self.failed(at, why);
        }
    }

    fn answered(&mut self, at: u32, came: Instant, time: HostTime, payload: Bytes) {
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
        self.end(at, Ok(payload));
    }

    /// A path has failed a request: it is sent again.
    fn failed(&mut self, at: u32, why: String) {
        let now = (self.cpu_clock)();
        self.entries.attempt(at);
        let Some(entry) = self.entries.get_mut(at) else { return };
        self.telemetry.log.failed(entry.record, entry.path, &why);
        entry.failed_path = entry.path;
        entry.why.clone_from(&why);
        if entry.resorted {
            self.end(at, Err(Failure::Failed(why)));
        } else {
            self.selector.done(now, entry.ticket, Outcome::Failed);
        }
    }

    /// It is over.
    fn end(&mut self, at: u32, result: Result<Bytes, Failure>) {
        let Some(entry) = self.entries.remove(at) else { return };
        // t6
        let now = (self.cpu_clock)();
        let intra_ns = entry.intra_ns.map(|intra| intra.saturating_add(now.0.saturating_sub(entry.from.0)));
        let total_ns = now.0.saturating_sub(entry.sent.0);
        // What the application refuses was answered by its path; what was given up is over.
        self.selector.done(now, entry.ticket, Outcome::Done { intra_ns, total_ns });
        self.telemetry.ended(now, &entry, intra_ns, total_ns, &self.selector);
        let total_ns = now.0.saturating_sub(entry.began.0);
        let Entry { tag, path, attempts, .. } = entry;
        self.events.push_back(Event::Answer(Answer { tag, result, path, attempts, intra_ns, total_ns }));
    }

    fn access(&mut self, access: &Access, got: usize, tag: u64) -> Result<(), SendError> {
        if got > MESSAGE_MAX {
            return Err(SendError::TooLong { got, max: MESSAGE_MAX });
        }
        if self.accesses.len() >= ACCESSES_MAX {
            return Err(SendError::Full(ACCESSES_MAX as u32));
        }
        self.accessed += 1;
        let id = ACCESS | self.accessed;
        let comm = self.comms[Role::Cpu as usize].as_mut().or(self.spare_comm.as_mut());
        let posted = comm.map_or_else(
            || Err("no communication function".to_owned()),
            |comm| comm.access(id, access).map_err(|error| error.to_string()),
        );
        match posted {
            Ok(()) => drop(self.accesses.insert(id, tag)),
            Err(why) => self.events.push_back(Event::Accessed { tag, result: Err(Failure::Failed(why)) }),
        }
        Ok(())
    }
}
