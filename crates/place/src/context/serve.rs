//! The responder's end: requests that come are worked on by the device of their role.

use std::io;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use crossbeam_channel::{Sender, TryRecvError, bounded};
use pathcall_wire::Instant;
use pathcall_wire::place::HostTime;

use super::bench::{Order, WorkError};
use super::builder::Owner;
use super::comm::{Fault, Head, ReplyTo};
use super::{Context, Event, Incoming};
use crate::Role;
use crate::device::JobError;

/// Between looks at whether it is to stop, where nothing says so.
const LONG: Duration = Duration::from_secs(3600);

impl Context {
    /// Has the function that is registered for a request work on it, on the device of that role. The answer leaves
    /// when it is done, and [`Event::Handled`] says so where requests are given out.
    pub fn handle(&mut self, incoming: Incoming, role: Role) {
        let Incoming { head, payload, at, reply } = incoming;
        let head = Head { role, ..head };
        let (input, request) = match &self.around {
            None => (payload, None),
            Some(around) => match around.before(head, &payload) {
                Ok(input) => (input, Some(Box::new((head, payload)))),
                Err(fault) => return self.answer(reply, at, Err(fault)),
            },
        };
        let Some(task) = head.task else {
            // Nothing is done here: what came goes back.
            return self.reply(reply, at, request, Ok(input));
        };
        let now = (self.cpu_clock)();
        let loaded = self.tasks.get(usize::from(task)).and_then(|roles| roles[role as usize]);
        match (self.benches[role as usize].as_mut(), loaded) {
            (Some(bench), Some(task)) => {
                let goes_on = head.trip > 0;
                bench.start(now, Order { task, input, goes_on, of: Owner::Reply { reply, at, request } });
            }
            _ => {
                let said = format!("nothing is registered for task {task} on {role}");
                self.answer(reply, at, Err(Fault::Failed(said)));
            }
        }
    }

    /// Answers, with how long this host had the request.
    pub(super) fn reply(
        &mut self,
        reply: ReplyTo,
        at: Instant,
        request: Option<Box<(Head, Bytes)>>,
        result: Result<Bytes, WorkError>,
    ) {
        let made = result.map_err(|error| match error {
            WorkError::Job(JobError::App(error)) => Fault::App(error),
            error => Fault::Failed(error.to_string()),
        });
        let answer = match (&self.around, request) {
            (Some(around), Some(request)) => around.after(request.0, &request.1, made),
            _ => made,
        };
        self.answer(reply, at, answer);
    }

    fn answer(&mut self, reply: ReplyTo, at: Instant, answer: Result<Bytes, Fault>) {
        if !self.handles_itself {
            self.events.push_back(Event::Handled);
        }
        match answer {
            Ok(payload) => {
                // t4
                let now = (self.cpu_clock)();
                reply.answer(HostTime::of(now.0.saturating_sub(at.0)), payload);
            }
            Err(fault) => reply.fail(fault),
        }
    }

    /// Works on what comes, in a thread of its own, until it is stopped.
    ///
    /// # Errors
    /// What the system says when the thread does not start.
    pub fn spawn(mut self) -> io::Result<Server> {
        let (stop, stopped) = bounded::<()>(0);
        self.stop = Some(stopped);
        self.handles_itself = true;
        let thread = thread::Builder::new().name("place-serve".into()).spawn(move || {
            while self.stop.as_ref().is_some_and(|stop| stop.try_recv() != Err(TryRecvError::Disconnected)) {
                // Answers are nobody's here: what comes is worked on within.
                let _ = self.wait(LONG);
            }
            self
        })?;
        Ok(Server { stop: Some(stop), thread: Some(thread) })
    }
}

/// A context at work in a thread of its own. Dropped, it stops; what it had not answered fails.
#[derive(Debug)]
pub struct Server {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<Context>>,
}

impl Server {
    /// Stops it, and gives the context back; none if its thread has panicked.
    #[must_use]
    pub fn stop(mut self) -> Option<Context> {
        self.stop = None;
        let mut context = self.thread.take()?.join().ok()?;
        context.stop = None;
        Some(context)
    }
}
