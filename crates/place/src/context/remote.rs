//! Communication between hosts: requests and answers as delegated calls over UDP flows.
//!
//! ```text
//! request:  ver · op · kind 2 · trip · role · task 2 │ payload
//! answer:   t4 − t3, 4 bytes (LEO Fig. 7)            │ payload
//! ```
//!
//! The nodes handle loss, repeats and reordering; requests to a peer that is gone fail. One runtime runs the threads.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pathcall_driver::node::{Node, NodeCall, NodeConfig, NodeReply, NodeRequest, NodeRequests};
use pathcall_endpoint::delegate::Status;
use pathcall_endpoint::delegate::caller::{CallFailure, CallOptions, CallOutcome};
use pathcall_wire::place::HostTime;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;

use super::comm::{AnswerError, CommEvent, CommFunction, CommStart, PostError, ReplyRoute, ReplyTo, RequestHead};
use super::window::{WindowAccess, Windows};
use crate::DeviceRole;
use crate::device::AppError;

/// Limit on the requests of other hosts that wait or are executed; further ones wait in the network's buffers.
pub const REQUESTS_MAX: usize = 1 << 14;
/// First byte of each request.
const VERSION: u8 = 1;
const HEAD: usize = 8;
/// Encoding of "no task".
const NO_TASK: u16 = u16::MAX;

/// Values of a request's second byte.
mod op {
    pub(super) const REQUEST: u8 = 0;
    pub(super) const READ: u8 = 1;
    pub(super) const WRITE: u8 = 2;
}

/// Communication function of one host.
#[derive(Debug)]
pub struct Remote {
    node: Node,
    requests: Option<NodeRequests>,
    to: Option<SocketAddr>,
    start: Option<Arc<CommStart>>,
    options: CallOptions,
    runtime: Option<Runtime>,
}

impl Remote {
    /// Binds to `listen`; `to` is the address of the other side, if this side sends requests.
    ///
    /// # Errors
    /// An error of the system, for example that the address is in use.
    pub fn bind(listen: SocketAddr, to: Option<SocketAddr>) -> std::io::Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("place-net").enable_all().build()?;
        let config = NodeConfig::default().listen(listen);
        let (node, requests) = runtime.block_on(Node::start(&config))?;
        let options = CallOptions::default().timeout(Duration::from_secs(1));
        Ok(Self { node, requests: Some(requests), to, start: None, options, runtime: Some(runtime) })
    }

    /// Sets the time after which a silent peer counts as gone; the default is one second.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = timeout;
        self
    }

    /// Local address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.node.address()
    }

    fn call(&mut self, id: u64, message: Vec<u8>) -> Result<(), PostError> {
        let gone = |reason: &str| PostError(reason.into());
        let to = self.to.ok_or_else(|| gone("the address of the other side is unknown"))?;
        let (Some(start), Some(runtime)) = (&self.start, &self.runtime) else {
            return Err(gone("communication has not started"));
        };
        let call =
            self.node.call(self.options, [(to, message.into())]).map_err(|error| PostError(error.to_string()))?;
        runtime.spawn(wait_for_answer(call, id, Arc::clone(start)));
        Ok(())
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A context may be dropped where blocking is not allowed.
            runtime.shutdown_background();
        }
    }
}

impl CommFunction for Remote {
    fn is_ordered(&self) -> bool {
        false
    }

    fn start(&mut self, start: CommStart) -> Result<(), String> {
        let start = Arc::new(start);
        let (Some(requests), Some(runtime)) = (self.requests.take(), &self.runtime) else {
            return Err("it has started before".into());
        };
        self.start = Some(Arc::clone(&start));
        runtime.spawn(receive(requests, start));
        Ok(())
    }

    fn post(&mut self, id: u64, head: RequestHead, payload: &Bytes) -> Result<(), PostError> {
        let RequestHead { kind, trip, task, role } = head;
        let mut message = Vec::with_capacity(HEAD + payload.len());
        message.extend([VERSION, op::REQUEST]);
        message.extend(kind.to_be_bytes());
        message.extend([trip, role as u8]);
        message.extend(task.unwrap_or(NO_TASK).to_be_bytes());
        message.extend_from_slice(payload);
        self.call(id, message)
    }

    fn access(&mut self, id: u64, access: &WindowAccess) -> Result<(), PostError> {
        let (op, window, at, rest) = match access {
            WindowAccess::Read { window, at, len } => (op::READ, window, at, &len.to_be_bytes()[..]),
            WindowAccess::Write { window, at, bytes } => (op::WRITE, window, at, &bytes[..]),
        };
        let name = u16::try_from(window.len()).map_err(|_| PostError("the memory's name is too long".into()))?;
        let mut message = vec![VERSION, op];
        message.extend(name.to_be_bytes());
        message.extend_from_slice(window.as_bytes());
        message.extend(at.to_be_bytes());
        message.extend_from_slice(rest);
        self.call(id, message)
    }
}

/// Waits for an answer.
async fn wait_for_answer(mut call: NodeCall, id: u64, start: Arc<CommStart>) {
    let result = match call.receive().await {
        NodeReply::Item(answer) => match HostTime::split(&answer) {
            Some((time, rest)) => Ok((time, answer.slice_ref(rest))),
            None => Err(AnswerError::Failed("the answer is none".into())),
        },
        NodeReply::Ended(CallOutcome::Failed(CallFailure::Server(Status {
            code: Status::FAILED_PRECONDITION,
            message,
            ..
        }))) => Err(AnswerError::App(AppError(message))),
        NodeReply::Ended(CallOutcome::Failed(CallFailure::Server(Status { message, .. }))) => {
            Err(AnswerError::Failed(message))
        }
        NodeReply::Ended(outcome) => Err(AnswerError::Failed(format!("no answer from the other side: {outcome:?}"))),
    };
    start.inbox.answer(CommEvent::Answer { id, at: (start.clock)(), result });
    // Wait for the end of the call, because dropping it earlier would abort it.
    while let NodeReply::Item(_) = call.receive().await {}
}

/// Receives requests until the node ends.
async fn receive(requests: NodeRequests, start: Arc<CommStart>) {
    let room = Arc::new(Semaphore::new(REQUESTS_MAX));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        let request = requests.receive().await;
        let at = (start.clock)();
        match parse(request.payload()) {
            Some(ParsedRequest::Request(head, payload)) => {
                let reply = ReplyTo(Some(ReplyRoute::Remote(Box::new(RemoteRequest { request, _permit: permit }))));
                start.inbox.request(CommEvent::Request { head, payload, at, reply });
            }
            // One-sided: the application is not involved.
            Some(ParsedRequest::Access(access)) if start.windows.may_wait(&access) => {
                let windows = Arc::clone(&start.windows);
                tokio::task::spawn_blocking(move || {
                    let _permit = permit;
                    answer_access(&request, &windows, &access);
                });
            }
            Some(ParsedRequest::Access(access)) => answer_access(&request, &start.windows, &access),
            None => fail(&request, &AnswerError::Failed("the request is none".into())),
        }
    }
}

/// Executes an access and sends the answer.
fn answer_access(request: &NodeRequest, windows: &Windows, access: &WindowAccess) {
    match windows.access(access) {
        Ok(bytes) => answer(request, HostTime::default(), &bytes),
        Err(error) => fail(request, &AnswerError::Failed(error.to_string())),
    }
}

/// Received request, with its permit.
#[derive(Debug)]
pub(super) struct RemoteRequest {
    pub(super) request: NodeRequest,
    _permit: tokio::sync::OwnedSemaphorePermit,
}

#[derive(Debug, PartialEq, Eq)]
enum ParsedRequest {
    Request(RequestHead, Bytes),
    Access(WindowAccess),
}

/// Parses a request.
fn parse(message: &Bytes) -> Option<ParsedRequest> {
    let [version, op, rest @ ..] = &message[..] else { return None };
    let (first, rest) = rest.split_first_chunk().map(|(bytes, rest)| (u16::from_be_bytes(*bytes), rest))?;
    if *version != VERSION {
        return None;
    }
    match *op {
        op::REQUEST => {
            let [trip, role, high, low, payload @ ..] = rest else { return None };
            let role = *DeviceRole::ALL.get(usize::from(*role))?;
            let task = Some(u16::from_be_bytes([*high, *low])).filter(|task| *task != NO_TASK);
            Some(ParsedRequest::Request(
                RequestHead { kind: first, trip: *trip, task, role },
                message.slice_ref(payload),
            ))
        }
        op::READ | op::WRITE => {
            let (window, rest) = rest.split_at_checked(usize::from(first))?;
            let window = str::from_utf8(window).ok()?.to_owned();
            let (at, rest) = rest.split_first_chunk().map(|(bytes, rest)| (u64::from_be_bytes(*bytes), rest))?;
            Some(ParsedRequest::Access(match *op {
                op::READ => WindowAccess::Read { window, at, len: u64::from_be_bytes(rest.try_into().ok()?) },
                _ => WindowAccess::Write { window, at, bytes: message.slice_ref(rest) },
            }))
        }
        _ => None,
    }
}

/// Sends an answer. The peer may no longer wait for it, so errors are ignored.
pub(super) fn answer(request: &NodeRequest, time: HostTime, payload: &Bytes) {
    let mut message = Vec::with_capacity(payload.len() + pathcall_wire::place::LEN);
    message.extend(time.bytes());
    message.extend_from_slice(payload);
    let _ = request.reply_now(message.into()).and_then(|()| request.finish());
}

/// Sends an error.
pub(super) fn fail(request: &NodeRequest, reason: &AnswerError) {
    let code = if matches!(reason, AnswerError::App(_)) { Status::FAILED_PRECONDITION } else { Status::ABORTED };
    request.fail(&Status::new(code, reason.to_string()));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn random_bytes_parse_to_whole_request_or_none(
            bytes in proptest::collection::vec(any::<u8>(), 0..40),
            op in 0..4_u8,
        ) {
            let mut message = vec![VERSION, op];
            message.extend(bytes);
            let message = Bytes::from(message);
            // A parsed request has no trailing bytes.
            if let Some(ParsedRequest::Request(head, payload)) = parse(&message) {
                prop_assert_eq!(payload.len() + HEAD, message.len());
                prop_assert!(DeviceRole::ALL.contains(&head.role));
            }
        }
    }
}
