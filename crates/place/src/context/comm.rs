//! What carries messages between contexts: the communication function (LEO Table II).

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use crossbeam_channel::{Receiver, SendError, Sender, bounded, unbounded};
use pathcall_wire::Instant;
use pathcall_wire::place::HostTime;

use super::window::{Access, Windows};
use crate::Role;
use crate::device::AppError;

/// Tells the time; see [`reg_ts_func`](super::Builder::reg_ts_func).
pub type TsFn = Arc<dyn Fn() -> Instant + Send + Sync>;

/// What a request is, besides its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Type of request, as its place in the application's file.
    pub kind: u16,
    /// Which trip of its dataflow.
    pub trip: u8,
    /// What is to be done there, as its place among the application's tasks.
    pub task: Option<u16>,
    /// By what.
    pub role: Role,
}

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The application refuses it: it is not sent again.
    #[error("{0}")]
    App(AppError),
    /// Its path has failed.
    #[error("{0}")]
    Failed(String),
}

/// What comes in.
#[derive(Debug)]
pub enum Arrival {
    /// A request, to be worked on.
    Request {
        /// What it is.
        head: Head,
        /// Its bytes.
        payload: Bytes,
        /// When it came (`t3`).
        at: Instant,
        /// Where its answer goes.
        reply: ReplyTo,
    },
    /// An answer, or why there is none.
    Answer {
        /// The request's number.
        id: u64,
        /// When it came (`t5`).
        at: Instant,
        /// How long the other host had it (`t4 − t3`), and its bytes.
        result: Result<(HostTime, Bytes), Fault>,
    },
}

impl Arrival {
    /// Drops it, and its request does not fail: whoever posted it learns it otherwise.
    fn forget(self) {
        if let Self::Request { mut reply, .. } = self {
            reply.0 = None;
        }
    }
}

/// Where a communication function puts what comes in.
#[derive(Debug, Clone)]
pub struct Inbox {
    pub(super) requests: Sender<Arrival>,
    pub(super) answers: Sender<Arrival>,
}

/// The other ends of an [`Inbox`].
#[derive(Debug)]
pub(crate) struct Arrivals {
    pub(crate) requests: Receiver<Arrival>,
    pub(crate) answers: Receiver<Arrival>,
}

impl Inbox {
    /// What is in it is bounded by who may put something in: requesters by [`Config::in_flight_max`](crate::Config),
    /// strangers by [`REQUESTS_MAX`](super::remote::REQUESTS_MAX).
    pub(crate) fn new() -> (Self, Arrivals) {
        let ((to_requests, requests), (to_answers, answers)) = (unbounded(), unbounded());
        (Self { requests: to_requests, answers: to_answers }, Arrivals { requests, answers })
    }

    /// Takes a request. Where nobody works any more it is dropped, and so fails.
    pub fn request(&self, arrival: Arrival) {
        let _ = self.requests.send(arrival);
    }

    /// Takes an answer, or a failure.
    pub fn answer(&self, arrival: Arrival) {
        let _ = self.answers.send(arrival);
    }
}

/// What a communication function is given at the start.
#[derive(Clone)]
pub struct Start {
    /// Where what comes in is put.
    pub inbox: Inbox,
    /// Memory that others may read and write.
    pub windows: Arc<Windows>,
    /// The time at which a message comes from the network (`t3`, `t5`).
    pub clock: TsFn,
}

impl fmt::Debug for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Start").field("inbox", &self.inbox).finish_non_exhaustive()
    }
}

/// Carries messages. None of its methods waits.
pub trait Comm: fmt::Debug + Send {
    /// Whether requests come there in the order in which they were posted.
    fn is_ordered(&self) -> bool;

    /// Begins.
    ///
    /// # Errors
    /// What keeps it from that, as one line.
    fn start(&mut self, start: Start) -> Result<(), String>;

    /// Posts a request; its answer, or its failure, comes to the inbox under this number.
    ///
    /// # Errors
    /// [`PostError`]; then nothing comes.
    fn post(&mut self, id: u64, head: Head, payload: &Bytes) -> Result<(), PostError>;

    /// Posts an access to a window of the other side; what comes of it comes to the inbox under this number.
    ///
    /// # Errors
    /// [`PostError`]; then nothing comes.
    fn access(&mut self, id: u64, access: &Access) -> Result<(), PostError>;
}

/// Why nothing was posted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PostError(pub String);

/// Where an answer goes. Dropped without one, its request fails.
#[derive(Debug)]
pub struct ReplyTo(pub(super) Option<Reply>);

#[derive(Debug)]
pub(super) enum Reply {
    Local(Local, u64),
    Remote(Box<super::remote::Held>),
}

impl ReplyTo {
    /// Answers: how long this host had the request, and the bytes.
    pub(crate) fn answer(mut self, time: HostTime, payload: Bytes) {
        match self.0.take() {
            Some(Reply::Local(local, id)) => local.answers(id, Ok((time, payload))),
            Some(Reply::Remote(held)) => super::remote::answer(&held.request, time, &payload),
            None => {}
        }
    }

    /// Says that there is no answer, and why.
    pub(super) fn fail(mut self, why: Fault) {
        self.fails(why);
    }

    fn fails(&mut self, why: Fault) {
        match self.0.take() {
            Some(Reply::Local(local, id)) => local.answers(id, Err(why)),
            Some(Reply::Remote(held)) => super::remote::fail(&held.request, &why),
            None => {}
        }
    }
}

impl Drop for ReplyTo {
    fn drop(&mut self) {
        self.fails(Fault::Failed("the server dropped the request".into()));
    }
}

/// Between contexts of one process: bytes are handed over, not copied. Also from a context to itself.
#[derive(Debug)]
pub struct InProcess {
    /// Where this side is made known to the other one.
    here: Sender<Arc<Start>>,
    /// The other side, when it has started.
    there: Receiver<Arc<Start>>,
    local: Option<Local>,
    peer: Option<Arc<Start>>,
}

/// Who gets the answers, and when they come.
#[derive(Debug, Clone)]
pub(super) struct Local(Arc<Start>);

impl Local {
    fn answers(&self, id: u64, result: Result<(HostTime, Bytes), Fault>) {
        self.0.inbox.answer(Arrival::Answer { id, at: (self.0.clock)(), result });
    }
}

impl InProcess {
    /// From a context to itself: it is requester and responder.
    #[must_use]
    pub fn itself() -> Self {
        let (here, there) = bounded(1);
        Self { here, there, local: None, peer: None }
    }

    /// Two that are each other's other side.
    #[must_use]
    pub fn pair() -> (Self, Self) {
        let ((to_one, one), (to_other, other)) = (bounded(1), bounded(1));
        let first = Self { here: to_other, there: one, local: None, peer: None };
        (first, Self { here: to_one, there: other, local: None, peer: None })
    }

    /// The other side: it may start later than this one.
    fn peer(&mut self) -> Result<(&Local, &Start), PostError> {
        if self.peer.is_none() {
            self.peer = self.there.try_recv().ok();
        }
        let lacking = |who: &str| PostError(format!("{who} has not started"));
        let local = self.local.as_ref().ok_or_else(|| lacking("this side"))?;
        Ok((local, self.peer.as_deref().ok_or_else(|| lacking("the other side"))?))
    }
}

impl Comm for InProcess {
    fn is_ordered(&self) -> bool {
        true
    }

    fn start(&mut self, start: Start) -> Result<(), String> {
        let start = Arc::new(start);
        self.local = Some(Local(Arc::clone(&start)));
        let _ = self.here.try_send(start);
        Ok(())
    }

    fn post(&mut self, id: u64, head: Head, payload: &Bytes) -> Result<(), PostError> {
        let (local, there) = self.peer()?;
        let reply = ReplyTo(Some(Reply::Local(local.clone(), id)));
        let arrival = Arrival::Request { head, payload: payload.clone(), at: (there.clock)(), reply };
        there.inbox.requests.send(arrival).map_err(|SendError(arrival)| {
            arrival.forget();
            PostError("the other side has ended".into())
        })
    }

    fn access(&mut self, id: u64, access: &Access) -> Result<(), PostError> {
        let (local, there) = self.peer()?;
        let result = there.windows.access(access).map(|bytes| (HostTime::default(), bytes));
        local.answers(id, result.map_err(|error| Fault::Failed(error.to_string())));
        Ok(())
    }
}
