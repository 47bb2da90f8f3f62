//! Communication functions, which carry messages between contexts (LEO Table II).

use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use crossbeam_channel::{Receiver, SendError, Sender, bounded, unbounded};
use pathcall_wire::Instant;
use pathcall_wire::place::HostTime;

use super::window::{WindowAccess, Windows};
use crate::DeviceRole;
use crate::device::AppError;

/// Clock function; see [`reg_ts_func`](super::Builder::reg_ts_func).
pub type TsFn = Arc<dyn Fn() -> Instant + Send + Sync>;

/// Header of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHead {
    /// Request type, as its index in the application's file.
    pub kind: u16,
    /// Number of the trip in its dataflow.
    pub trip: u8,
    /// Task, as its index among the application's tasks.
    pub task: Option<u16>,
    /// Role that runs the task.
    pub role: DeviceRole,
}

/// Error in place of an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// The application refused the request, which is not retried.
    #[error("{0}")]
    App(AppError),
    /// The path failed.
    #[error("{0}")]
    Failed(String),
}

/// Incoming message.
#[derive(Debug)]
pub enum CommEvent {
    /// Request.
    Request {
        /// Header of the request.
        head: RequestHead,
        /// Its bytes.
        payload: Bytes,
        /// Time of arrival (`t3`).
        at: Instant,
        /// Handle for the answer.
        reply: ReplyTo,
    },
    /// Answer, or error.
    Answer {
        /// Number of the request.
        id: u64,
        /// Time of arrival (`t5`).
        at: Instant,
        /// Time at the other host (`t4 − t3`) and payload.
        result: Result<(HostTime, Bytes), AnswerError>,
    },
}

impl CommEvent {
    /// Drops a request without failing it; the sender gets another error.
    fn forget(self) {
        if let Self::Request { mut reply, .. } = self {
            reply.0 = None;
        }
    }
}

/// Queue for incoming messages.
#[derive(Debug, Clone)]
pub struct Inbox {
    pub(super) requests: Sender<CommEvent>,
    pub(super) answers: Sender<CommEvent>,
}

/// Receivers of an [`Inbox`].
#[derive(Debug)]
pub(crate) struct InboxReceivers {
    pub(crate) requests: Receiver<CommEvent>,
    pub(crate) answers: Receiver<CommEvent>,
}

impl Inbox {
    /// Creates the queue. Its length is limited by its senders: requesters have
    /// [`Config::in_flight_max`](crate::Config) requests, other hosts [`REQUESTS_MAX`](super::remote::REQUESTS_MAX).
    pub(crate) fn new() -> (Self, InboxReceivers) {
        let ((to_requests, requests), (to_answers, answers)) = (unbounded(), unbounded());
        (Self { requests: to_requests, answers: to_answers }, InboxReceivers { requests, answers })
    }

    /// Queues a request. If the receiver has ended, the request is dropped and fails.
    pub fn request(&self, arrival: CommEvent) {
        let _ = self.requests.send(arrival);
    }

    /// Queues an answer, or an error.
    pub fn answer(&self, arrival: CommEvent) {
        let _ = self.answers.send(arrival);
    }
}

/// Arguments of [`CommFunction::start`].
#[derive(Clone)]
pub struct CommStart {
    /// Queue for incoming messages.
    pub inbox: Inbox,
    /// Memory that the other side may read and write.
    pub windows: Arc<Windows>,
    /// Clock for the arrival of messages (`t3`, `t5`).
    pub clock: TsFn,
}

impl fmt::Debug for CommStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommStart").field("inbox", &self.inbox).finish_non_exhaustive()
    }
}

/// Communication function. No method blocks.
pub trait CommFunction: fmt::Debug + Send {
    /// Whether requests arrive in the order in which they were posted.
    fn is_ordered(&self) -> bool;

    /// Starts the communication.
    ///
    /// # Errors
    /// The reason of a failure, as one line.
    fn start(&mut self, start: CommStart) -> Result<(), String>;

    /// Posts a request; its answer or error arrives in the inbox under `id`.
    ///
    /// # Errors
    /// [`PostError`]; no answer arrives then.
    fn post(&mut self, id: u64, head: RequestHead, payload: &Bytes) -> Result<(), PostError>;

    /// Posts an access to memory of the other side; its result arrives in the inbox under `id`.
    ///
    /// # Errors
    /// [`PostError`]; no answer arrives then.
    fn access(&mut self, id: u64, access: &WindowAccess) -> Result<(), PostError>;
}

/// Error of a message that was not posted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PostError(pub String);

/// Handle for the answer of a request. The request fails if the handle is dropped.
#[derive(Debug)]
pub struct ReplyTo(pub(super) Option<ReplyRoute>);

#[derive(Debug)]
pub(super) enum ReplyRoute {
    Local(LocalPeer, u64),
    Remote(Box<super::remote::RemoteRequest>),
}

impl ReplyTo {
    /// Sends an answer: the time at this host, and the payload.
    pub(crate) fn answer(mut self, time: HostTime, payload: Bytes) {
        match self.0.take() {
            Some(ReplyRoute::Local(local, id)) => local.answers(id, Ok((time, payload))),
            Some(ReplyRoute::Remote(held)) => super::remote::answer(&held.request, time, &payload),
            None => {}
        }
    }

    /// Sends an error.
    pub(super) fn fail(mut self, reason: AnswerError) {
        self.fails(reason);
    }

    fn fails(&mut self, reason: AnswerError) {
        match self.0.take() {
            Some(ReplyRoute::Local(local, id)) => local.answers(id, Err(reason)),
            Some(ReplyRoute::Remote(held)) => super::remote::fail(&held.request, &reason),
            None => {}
        }
    }
}

impl Drop for ReplyTo {
    fn drop(&mut self) {
        self.fails(AnswerError::Failed("the server dropped the request".into()));
    }
}

/// Communication within one process, without copies; also of a context with itself.
#[derive(Debug)]
pub struct InProcess {
    /// Announces this side to the other one.
    here: Sender<Arc<CommStart>>,
    /// The other side, once it has started.
    there: Receiver<Arc<CommStart>>,
    local: Option<LocalPeer>,
    peer: Option<Arc<CommStart>>,
    /// Thread for accesses that may wait; it starts with the first one.
    waiting: Option<Sender<WaitingAccess>>,
}

/// Access that may wait, with its number.
type WaitingAccess = (u64, WindowAccess);

/// Receiver of the answers, with the clock for their arrival.
#[derive(Debug, Clone)]
pub(super) struct LocalPeer(Arc<CommStart>);

impl LocalPeer {
    fn answers(&self, id: u64, result: Result<(HostTime, Bytes), AnswerError>) {
        self.0.inbox.answer(CommEvent::Answer { id, at: (self.0.clock)(), result });
    }

    /// Executes an access of the other side's memory.
    fn accesses(&self, id: u64, windows: &Windows, access: &WindowAccess) {
        let result = windows.access(access).map(|bytes| (HostTime::default(), bytes));
        self.answers(id, result.map_err(|error| AnswerError::Failed(error.to_string())));
    }
}

impl InProcess {
    /// Connects a context to itself, as requester and responder.
    #[must_use]
    pub fn itself() -> Self {
        let (here, there) = bounded(1);
        Self::new(here, there)
    }

    /// Creates two connected ends.
    #[must_use]
    pub fn pair() -> (Self, Self) {
        let ((to_one, one), (to_other, other)) = (bounded(1), bounded(1));
        (Self::new(to_other, one), Self::new(to_one, other))
    }

    fn new(here: Sender<Arc<CommStart>>, there: Receiver<Arc<CommStart>>) -> Self {
        Self { here, there, local: None, peer: None, waiting: None }
    }

    /// The other side, which may start later.
    fn peer(&mut self) -> Result<(&LocalPeer, &CommStart), PostError> {
        if self.peer.is_none() {
            self.peer = self.there.try_recv().ok();
        }
        let missing = |who: &str| PostError(format!("{who} has not started"));
        let local = self.local.as_ref().ok_or_else(|| missing("this side"))?;
        Ok((local, self.peer.as_deref().ok_or_else(|| missing("the other side"))?))
    }
}

impl CommFunction for InProcess {
    fn is_ordered(&self) -> bool {
        true
    }

    fn start(&mut self, start: CommStart) -> Result<(), String> {
        let start = Arc::new(start);
        self.local = Some(LocalPeer(Arc::clone(&start)));
        let _ = self.here.try_send(start);
        Ok(())
    }

    fn post(&mut self, id: u64, head: RequestHead, payload: &Bytes) -> Result<(), PostError> {
        let (local, there) = self.peer()?;
        let reply = ReplyTo(Some(ReplyRoute::Local(local.clone(), id)));
        let arrival = CommEvent::Request { head, payload: payload.clone(), at: (there.clock)(), reply };
        there.inbox.requests.send(arrival).map_err(|SendError(arrival)| {
            arrival.forget();
            PostError("the other side has ended".into())
        })
    }

    fn access(&mut self, id: u64, access: &WindowAccess) -> Result<(), PostError> {
        let (local, there) = self.peer()?;
        if !there.windows.may_wait(access) {
            local.accesses(id, &there.windows, access);
            return Ok(());
        }
        let (local, windows) = (local.clone(), Arc::clone(&there.windows));
        let waiting = match &self.waiting {
            Some(waiting) => waiting,
            None => self.waiting.insert(access_thread(local, windows).map_err(|error| PostError(error.to_string()))?),
        };
        waiting.send((id, access.clone())).map_err(|_| PostError("the thread for accesses has ended".into()))
    }
}

/// Starts a thread that executes accesses in their order, until the sender is dropped. The context limits their number.
fn access_thread(local: LocalPeer, windows: Arc<Windows>) -> io::Result<Sender<WaitingAccess>> {
    let (waiting, accesses) = unbounded();
    thread::Builder::new().name("place-access".into()).spawn(move || {
        for (id, access) in accesses {
            local.accesses(id, &windows, &access);
        }
    })?;
    Ok(waiting)
}
