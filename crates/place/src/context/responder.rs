//! Responder of a context: runs incoming requests on the device of their role.

use std::io;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use crossbeam_channel::{Sender, TryRecvError, bounded};
use pathcall_wire::Instant;
use pathcall_wire::place::HostTime;

use super::builder::JobOwner;
use super::comm::{AnswerError, ReplyTo, RequestHead};
use super::device_queue::{WorkError, WorkItem};
use super::{Event, IncomingRequest, PlaceContext};
use crate::DeviceRole;
use crate::device::JobError;

/// Wait between two checks of the stop signal.
const STOP_CHECK_INTERVAL: Duration = Duration::from_secs(3600);

impl PlaceContext {
    /// Runs the registered function of a request on the device of `role`. The answer is sent when the function is
    /// done; [`Event::Handled`] reports that if requests are returned as events.
    pub fn handle(&mut self, incoming: IncomingRequest, role: DeviceRole) {
        let IncomingRequest { head, payload, at, reply } = incoming;
        let head = RequestHead { role, ..head };
        let (input, request) = match &self.hooks {
            None => (payload, None),
            Some(hooks) => match hooks.before(head, &payload) {
                Ok(input) => (input, Some(Box::new((head, payload)))),
                Err(fault) => return self.answer(reply, at, Err(fault)),
            },
        };
        let Some(task) = head.task else {
            // Without a task the input is the answer.
            return self.reply(reply, at, request, Ok(input));
        };
        let now = (self.cpu_clock)();
        let loaded = self.tasks.get(usize::from(task)).and_then(|roles| roles[role as usize]);
        match (self.queues[role as usize].as_mut(), loaded) {
            (Some(queue), Some(task)) => {
                let is_continuation = head.trip > 0;
                queue.start(now, WorkItem { task, input, is_continuation, of: JobOwner::Reply { reply, at, request } });
            }
            _ => {
                let message = format!("no function is registered for task {task} on {role}");
                self.answer(reply, at, Err(AnswerError::Failed(message)));
            }
        }
    }

    /// Sends an answer, with the time at this host.
    pub(super) fn reply(
        &mut self,
        reply: ReplyTo,
        at: Instant,
        request: Option<Box<(RequestHead, Bytes)>>,
        result: Result<Bytes, WorkError>,
    ) {
        let made = result.map_err(|error| match error {
            WorkError::Job(JobError::App(error)) => AnswerError::App(error),
            error => AnswerError::Failed(error.to_string()),
        });
        let answer = match (&self.hooks, request) {
            (Some(hooks), Some(request)) => hooks.after(request.0, &request.1, made),
            _ => made,
        };
        self.answer(reply, at, answer);
    }

    fn answer(&mut self, reply: ReplyTo, at: Instant, answer: Result<Bytes, AnswerError>) {
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

    /// Runs the context in a thread of its own until it is stopped.
    ///
    /// # Errors
    /// An error of the system if the thread does not start.
    pub fn spawn(mut self) -> io::Result<ContextThread> {
        let (stop, stopped) = bounded::<()>(0);
        self.stop = Some(stopped);
        self.handles_itself = true;
        let thread = thread::Builder::new().name("place-serve".into()).spawn(move || {
            while self.stop.as_ref().is_some_and(|stop| stop.try_recv() != Err(TryRecvError::Disconnected)) {
                // A serving context sends no requests, so there are no events to handle.
                let _ = self.wait(STOP_CHECK_INTERVAL);
            }
            self
        })?;
        Ok(ContextThread { stop: Some(stop), thread: Some(thread) })
    }
}

/// Running thread of a context. Dropping it stops the thread; unanswered requests fail.
#[derive(Debug)]
pub struct ContextThread {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<PlaceContext>>,
}

impl ContextThread {
    /// Stops the thread and returns the context; `None` if the thread panicked.
    #[must_use]
    pub fn stop(mut self) -> Option<PlaceContext> {
        self.stop = None;
        let mut context = self.thread.take()?.join().ok()?;
        context.stop = None;
        Some(context)
    }
}
