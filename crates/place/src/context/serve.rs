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
use super::comm::{Fault, ReplyTo};
use super::{Context, Incoming};
use crate::Role;
use crate::device::JobError;

/// Between looks at whether it is to stop, where nothing says so.
const LONG: Duration = Duration::from_secs(3600);

impl Context {
    /// Has the function that is registered for a request work on it, on the device of that role. The answer leaves
    /// when it is done.
    pub fn handle(&mut self, incoming: Incoming, role: Role) {
        let Incoming { head, payload, at, reply } = incoming;
        let now = (self.cpu_clock)();
        let Some(task) = head.task else {
            // Nothing is done here: what came goes back.
            return reply.answer(HostTime::of(now.0.saturating_sub(at.0)), payload);
        };
        let loaded = self.tasks.get(usize::from(task)).and_then(|roles| roles[role as usize]);
        match (self.benches[role as usize].as_mut(), loaded) {
            (Some(bench), Some(task)) => {
                let goes_on = head.trip > 0;
                bench.start(now, Order { task, input: payload, goes_on, of: Owner::Reply { reply, at } });
            }
            _ => reply.fail(Fault::Failed(format!("nothing is registered for task {task} on {role}"))),
        }
    }

    /// Answers, with how long this host had the request.
    pub(super) fn reply(&mut self, reply: ReplyTo, at: Instant, result: Result<Bytes, WorkError>) {
        match result {
            Ok(payload) => {
                // t4
                let now = (self.cpu_clock)();
                reply.answer(HostTime::of(now.0.saturating_sub(at.0)), payload);
            }
            Err(WorkError::Job(JobError::App(error))) => reply.fail(Fault::App(error)),
            Err(error) => reply.fail(Fault::Failed(error.to_string())),
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
