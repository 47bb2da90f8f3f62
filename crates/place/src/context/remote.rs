//! Between hosts: requests and answers as calls of *delegate*'s nodes, over flows of UDP.
//!
//! ```text
//! request:  ver · op · kind 2 · trip · role · task 2 │ payload
//! answer:   t4 − t3, 4 bytes (LEO Fig. 7)            │ payload
//! ```
//!
//! What is lost, comes twice or out of order below is the node's business; a peer that is gone fails its requests. One
//! runtime's threads carry what comes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pathcall_endpoint::delegate::Status;
use pathcall_endpoint::delegate::caller::{CallFailure, CallOptions, Outcome};
use pathcall_endpoint::driver::node::{Call, Node, NodeConfig, Reply as Item, Request, Requests};
use pathcall_wire::place::HostTime;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;

use super::comm::{Arrival, Comm, Fault, Head, PostError, Reply, ReplyTo, Start};
use super::window::Access;
use crate::Role;
use crate::device::AppError;

/// Requests of others that wait or are worked on, at most; further ones wait in the network's memory.
pub const REQUESTS_MAX: usize = 1 << 14;
/// First byte of each request.
const VERSION: u8 = 1;
const HEAD: usize = 8;
/// In place of a task.
const NO_TASK: u16 = u16::MAX;

/// What a request's second byte says.
mod op {
    pub(super) const REQUEST: u8 = 0;
    pub(super) const READ: u8 = 1;
    pub(super) const WRITE: u8 = 2;
}

/// One host's end.
#[derive(Debug)]
pub struct Remote {
    node: Node,
    requests: Option<Requests>,
    to: Option<SocketAddr>,
    start: Option<Arc<Start>>,
    options: CallOptions,
    runtime: Option<Runtime>,
}

impl Remote {
    /// Listens; `to`: where the other side listens, if this side sends requests.
    ///
    /// # Errors
    /// What the system says, as that the address is in use.
    pub fn bind(listen: SocketAddr, to: Option<SocketAddr>) -> std::io::Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("place-net").enable_all().build()?;
        let config = NodeConfig::default().listen(listen);
        let (node, requests) = runtime.block_on(Node::start(&config))?;
        let options = CallOptions::default().timeout(Duration::from_secs(1));
        Ok(Self { node, requests: Some(requests), to, start: None, options, runtime: Some(runtime) })
    }

    /// How long it waits for a peer that says nothing before it takes it for gone; a second, unless this is said.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = timeout;
        self
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.node.address()
    }

    fn call(&mut self, id: u64, message: Vec<u8>) -> Result<(), PostError> {
        let gone = |why: &str| PostError(why.into());
        let to = self.to.ok_or_else(|| gone("it was not said where the other side is"))?;
        let (Some(start), Some(runtime)) = (&self.start, &self.runtime) else { return Err(gone("it has not started")) };
        let call =
            self.node.call(self.options, [(to, message.into())]).map_err(|error| PostError(error.to_string()))?;
        runtime.spawn(answered(call, id, Arc::clone(start)));
        Ok(())
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A context may be dropped where nothing may wait.
            runtime.shutdown_background();
        }
    }
}

impl Comm for Remote {
    fn is_ordered(&self) -> bool {
        false
    }

    fn start(&mut self, start: Start) -> Result<(), String> {
        let start = Arc::new(start);
        let (Some(requests), Some(runtime)) = (self.requests.take(), &self.runtime) else {
            return Err("it has started before".into());
        };
        self.start = Some(Arc::clone(&start));
        runtime.spawn(receive(requests, start));
        Ok(())
    }

    fn post(&mut self, id: u64, head: Head, payload: &Bytes) -> Result<(), PostError> {
        let Head { kind, trip, task, role } = head;
        let mut message = Vec::with_capacity(HEAD + payload.len());
        message.extend([VERSION, op::REQUEST]);
        message.extend(kind.to_be_bytes());
        message.extend([trip, role as u8]);
        message.extend(task.unwrap_or(NO_TASK).to_be_bytes());
        message.extend_from_slice(payload);
        self.call(id, message)
    }

    fn access(&mut self, id: u64, access: &Access) -> Result<(), PostError> {
        let (op, window, at, rest) = match access {
            Access::Read { window, at, len } => (op::READ, window, at, &len.to_be_bytes()[..]),
            Access::Write { window, at, bytes } => (op::WRITE, window, at, &bytes[..]),
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
async fn answered(mut call: Call, id: u64, start: Arc<Start>) {
    let result = match call.receive().await {
        Item::Item(answer) => match HostTime::split(&answer) {
            Some((time, rest)) => Ok((time, answer.slice_ref(rest))),
            None => Err(Fault::Failed("the answer is none".into())),
        },
        Item::Ended(Outcome::Failed(CallFailure::Server(Status { code: Status::FAILED_PRECONDITION, message }))) => {
            Err(Fault::App(AppError(message)))
        }
        Item::Ended(Outcome::Failed(CallFailure::Server(Status { message, .. }))) => Err(Fault::Failed(message)),
        Item::Ended(outcome) => Err(Fault::Failed(format!("the other side does not answer: {outcome:?}"))),
    };
    start.inbox.answer(Arrival::Answer { id, at: (start.clock)(), result });
    // The end, so that nothing is aborted that has gone well.
    while let Item::Item(_) = call.receive().await {}
}

/// Takes requests for as long as the node is there.
async fn receive(requests: Requests, start: Arc<Start>) {
    let room = Arc::new(Semaphore::new(REQUESTS_MAX));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        let request = requests.receive().await;
        let at = (start.clock)();
        match parse(request.payload()) {
            Some(Asked::Request(head, payload)) => {
                let reply = ReplyTo(Some(Reply::Remote(Box::new(Held { request, _permit: permit }))));
                start.inbox.request(Arrival::Request { head, payload, at, reply });
            }
            // Nobody is asked: one-sided.
            Some(Asked::Access(access)) => match start.windows.access(&access) {
                Ok(bytes) => answer(&request, HostTime::default(), &bytes),
                Err(error) => fail(&request, &Fault::Failed(error.to_string())),
            },
            None => fail(&request, &Fault::Failed("the request is none".into())),
        }
    }
}

/// A request that has come, and its room.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) request: Request,
    _permit: tokio::sync::OwnedSemaphorePermit,
}

#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Request(Head, Bytes),
    Access(Access),
}

/// A request, if it is one.
fn parse(message: &Bytes) -> Option<Asked> {
    let [version, op, rest @ ..] = &message[..] else { return None };
    let (first, rest) = rest.split_first_chunk().map(|(bytes, rest)| (u16::from_be_bytes(*bytes), rest))?;
    if *version != VERSION {
        return None;
    }
    match *op {
        op::REQUEST => {
            let [trip, role, high, low, payload @ ..] = rest else { return None };
            let role = *Role::ALL.get(usize::from(*role))?;
            let task = Some(u16::from_be_bytes([*high, *low])).filter(|task| *task != NO_TASK);
            Some(Asked::Request(Head { kind: first, trip: *trip, task, role }, message.slice_ref(payload)))
        }
        op::READ | op::WRITE => {
            let (window, rest) = rest.split_at_checked(usize::from(first))?;
            let window = str::from_utf8(window).ok()?.to_owned();
            let (at, rest) = rest.split_first_chunk().map(|(bytes, rest)| (u64::from_be_bytes(*bytes), rest))?;
            Some(Asked::Access(match *op {
                op::READ => Access::Read { window, at, len: u64::from_be_bytes(rest.try_into().ok()?) },
                _ => Access::Write { window, at, bytes: message.slice_ref(rest) },
            }))
        }
        _ => None,
    }
}

/// Sends an answer; nobody may want it any more.
pub(super) fn answer(request: &Request, time: HostTime, payload: &Bytes) {
    let mut message = Vec::with_capacity(payload.len() + pathcall_wire::place::LEN);
    message.extend(time.bytes());
    message.extend_from_slice(payload);
    let _ = request.reply_now(message.into()).and_then(|()| request.finish());
}

/// Says that there is none.
pub(super) fn fail(request: &Request, why: &Fault) {
    let code = if matches!(why, Fault::App(_)) { Status::FAILED_PRECONDITION } else { Status::ABORTED };
    request.fail(&Status::new(code, why.to_string()));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_a_request_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..40), op in 0..4_u8) {
            let mut message = vec![VERSION, op];
            message.extend(bytes);
            let message = Bytes::from(message);
            // What is read is what was written, with nothing left over.
            if let Some(Asked::Request(head, payload)) = parse(&message) {
                prop_assert_eq!(payload.len() + HEAD, message.len());
                prop_assert!(Role::ALL.contains(&head.role));
            }
        }
    }
}
