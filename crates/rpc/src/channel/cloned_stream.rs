//! Streaming calls to a pool: by gRPC to one of its servers, and to others until one has sent its first message.
//!
//! ```text
//! request ─┬─▶ server 1 ─ no message within the delay ─▶ dropped: its stream is reset
//!          └─▶ server 2 ─ first message ────────────────▶ its stream is the call's
//! ```
//!
//! [`StreamHedges`] decide when another server is asked; there is one for each method.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full};
use pathcall_endpoint::clone::{
    Balance, Pushback, StreamCallEnd, StreamCallId, StreamHedges, StreamOptions, StreamStep,
};
use pathcall_proto::manifest::Cloned;
use rand::seq::SliceRandom;
use tokio::time::Instant;
use tonic::body::Body;
use tonic::{Code, Status};

use super::Inner;
use super::cloned::{self, GRPC_RETRIES_MAX, GRPC_RETRY_PAUSE, NO_DEADLINE};
use super::pool::{PoolMembership, lock, sum};
use super::stats::CloneCallerStats;
use super::transport::Transport;
use crate::deadline::Deadline;
use crate::headers;

type CallResult = Result<http::Response<Body>, Status>;

/// Streaming methods of a channel's pool.
#[derive(Debug)]
pub(super) struct ClonedStreams(Vec<StreamingMethod>);

/// Streaming method, with the hedges of its calls.
#[derive(Debug)]
struct StreamingMethod {
    method: &'static Cloned,
    /// Start of its clock.
    origin: Instant,
    hedges: Mutex<StreamHedges>,
    /// Number of calls, which is the position of the first server in turn.
    turn: AtomicUsize,
}

impl ClonedStreams {
    /// Streaming methods among these.
    pub(super) fn of(methods: &[&'static Cloned]) -> Self {
        let streaming = methods.iter().copied().filter(|method| method.streaming);
        Self(streaming.map(StreamingMethod::new).collect())
    }

    /// Counters of all methods, added to those of the calls in frames.
    pub(super) fn stats(&self, pool: CloneCallerStats) -> CloneCallerStats {
        self.0.iter().fold(pool, |all, method| sum(all, lock(&method.hedges).stats()))
    }

    fn find(&self, method: &'static Cloned) -> Option<&StreamingMethod> {
        self.0.iter().find(|known| std::ptr::eq(known.method, method))
    }
}

impl StreamingMethod {
    fn new(method: &'static Cloned) -> Self {
        let hedges = StreamHedges::new(pathcall_wire::Instant(0), method.budget);
        Self { method, origin: Instant::now(), hedges: Mutex::new(hedges), turn: AtomicUsize::new(0) }
    }

    /// Hedges and the time now; no code that panics or waits holds them.
    fn hedges(&self) -> (MutexGuard<'_, StreamHedges>, pathcall_wire::Instant) {
        let hedges = lock(&self.hedges);
        let elapsed = u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        (hedges, pathcall_wire::Instant(elapsed))
    }

    fn start_call(&self, options: StreamOptions, deadline: Deadline) -> Result<StreamCallId, Status> {
        let (mut hedges, now) = self.hedges();
        // The time left is read after the time now, so that the call is not taken for a dropped one at its deadline.
        let id = hedges.start_call(now, StreamOptions { deadline: deadline.left(), ..options });
        id.map_err(|error| Status::resource_exhausted(format!("{}: {error}", self.method.path)))
    }

    /// Servers of the pool in the order in which they are asked.
    fn order(&self, balance: Balance, mut servers: Vec<Transport>) -> Vec<Transport> {
        match balance {
            Balance::RoundRobin if !servers.is_empty() => {
                let first = self.turn.fetch_add(1, Ordering::Relaxed) % servers.len();
                servers.rotate_left(first);
            }
            _ => servers.shuffle(&mut rand::rng()),
        }
        servers
    }
}

impl Inner {
    /// Makes a call of a streaming method with the option `clone`.
    pub(super) async fn cloned_stream(
        self: Arc<Self>,
        method: &'static Cloned,
        request: http::Request<Body>,
        deadline: Deadline,
    ) -> CallResult {
        let (Some(pool), Some(streaming)) = (&self.pool, self.streams.find(method)) else {
            return self.plain(request).await;
        };
        self.counters.plain.add();
        let (parts, body) = request.into_parts();
        pool.note_call(method, &parts.headers);
        let cost = headers::decode_cost(&parts.headers)?.unwrap_or(method.cost);
        let body = body.collect().await?.to_bytes();
        // Until it is known, the pool has only the servers that the user gave.
        pool.state().await;
        let options = cloned::options(method, self.override_cloned, NO_DEADLINE);
        let servers = match pool.members() {
            // Servers without a pool: the first one answers.
            none if none.is_empty() => pool.transports(),
            members => streaming.order(options.balance, members),
        };
        let options = StreamOptions { hedge: options.hedge, cost, servers: servers.len(), deadline: None };
        let id = streaming.start_call(options, deadline)?;
        let call = StreamingCall {
            streaming,
            id,
            parts,
            body,
            deadline,
            servers: servers.into_iter(),
            sent: 0,
            attempts: Vec::new(),
            failed: None,
            unreached: None,
        };
        Box::pin(call.make(pool)).await
    }
}

/// Call without a first message. Dropping it drops its attempts, which resets their streams.
struct StreamingCall<'a> {
    streaming: &'a StreamingMethod,
    id: StreamCallId,
    parts: http::request::Parts,
    body: Bytes,
    deadline: Deadline,
    /// Servers that have not been asked.
    servers: std::vec::IntoIter<Transport>,
    sent: u32,
    /// Requests without an answer.
    attempts: Vec<Attempt>,
    /// Last failed answer: the call's result if no server gives a better one.
    failed: Option<CallResult>,
    /// Error of a server that was not reached.
    unreached: Option<Status>,
}

/// Request to one server, with its number.
type Attempt = (u32, Pin<Box<dyn Future<Output = Answer> + Send>>);

/// Answer of a server.
enum Answer {
    /// Stream with its first message, or status that ends the call.
    Final(CallResult),
    /// Status that another server may better.
    Failed(CallResult, Option<Pushback>),
    /// The server was not reached, or the connection broke.
    Unreached(Status),
}

impl StreamingCall<'_> {
    async fn make(mut self, pool: &PoolMembership) -> CallResult {
        let mut retries = 0;
        loop {
            match self.next_step() {
                StreamStep::Ask => self.ask(),
                StreamStep::Wait(until) => match self.next_answer(until).await {
                    None => {}
                    Some((request, Answer::Final(result))) => {
                        let (mut hedges, now) = self.streaming.hedges();
                        hedges.record_first_message(now, self.id, request);
                        return result;
                    }
                    Some((_, Answer::Failed(result, pushback))) => {
                        self.failed = Some(result);
                        let (mut hedges, now) = self.streaming.hedges();
                        hedges.record_failure(now, self.id, pushback);
                    }
                    Some((_, Answer::Unreached(status))) => {
                        self.unreached = Some(status);
                        self.streaming.hedges().0.record_unreached(self.id);
                    }
                },
                StreamStep::End => {
                    if let Some(result) = self.failed.take() {
                        self.end(StreamCallEnd::Failed);
                        return result;
                    }
                    let status = self.unreached.take();
                    let status = status.unwrap_or_else(|| Status::unavailable("no server of the pool is known"));
                    retries += 1;
                    // A server whose connection breaks may do so at each request.
                    if retries > GRPC_RETRIES_MAX || status.code() != Code::Unavailable {
                        self.end(StreamCallEnd::Unreached);
                        return Err(status);
                    }
                    tokio::time::sleep(GRPC_RETRY_PAUSE * retries).await;
                    self.servers = pool.transports().into_iter();
                    self.streaming.hedges().0.retry(self.id, self.servers.len());
                }
            }
        }
    }

    fn next_step(&self) -> StreamStep {
        let (mut hedges, now) = self.streaming.hedges();
        hedges.next_step(now, self.id)
    }

    /// Sends the call to the next server.
    fn ask(&mut self) {
        let Some(transport) = self.servers.next() else { return };
        let mut request = http::Request::from_parts(self.parts.clone(), Body::new(Full::new(self.body.clone())));
        self.deadline.write_to(request.headers_mut());
        let method = self.streaming.method;
        let answer = async move {
            match transport.call(request).await {
                Ok(response) => first_answer(method, response).await,
                Err(status) => Answer::of_error(method, status),
            }
        };
        self.attempts.push((self.sent, Box::pin(answer)));
        self.sent += 1;
    }

    /// Next answer of a server, with the number of its request; `None` at this time.
    async fn next_answer(&mut self, until: Option<pathcall_wire::Instant>) -> Option<(u32, Answer)> {
        let attempts = &mut self.attempts;
        let answer = poll_fn(|cx| poll_any(attempts, cx));
        let until = until.and_then(|at| self.streaming.origin.checked_add(Duration::from_nanos(at.0)));
        match until {
            Some(until) => tokio::time::timeout_at(until, answer).await.ok(),
            None => Some(answer.await),
        }
    }

    fn end(&self, end: StreamCallEnd) {
        let (mut hedges, now) = self.streaming.hedges();
        hedges.end_call(now, self.id, end);
    }
}

impl Drop for StreamingCall<'_> {
    fn drop(&mut self) {
        self.end(StreamCallEnd::Dropped);
    }
}

/// Polls all attempts; removes the one that is answered.
fn poll_any(attempts: &mut Vec<Attempt>, cx: &mut Context<'_>) -> Poll<(u32, Answer)> {
    for nth in 0..attempts.len() {
        if let Poll::Ready(answer) = attempts[nth].1.as_mut().poll(cx) {
            return Poll::Ready((attempts.remove(nth).0, answer));
        }
    }
    Poll::Pending
}

impl Answer {
    /// Answer with a status. The hedging policy decides whether another server may better it (gRPC A6).
    fn of_status(method: &Cloned, result: CallResult, status: &Status, trailers: &HeaderMap) -> Self {
        let code = status.code() as i32 as u8;
        if method.hedging.is_some_and(|hedging| hedging.is_non_fatal(code)) {
            return Self::Failed(result, headers::pushback(trailers));
        }
        Self::Final(result)
    }

    /// Answer of a transport that failed.
    fn of_error(method: &Cloned, status: Status) -> Self {
        match status.code() {
            Code::Unavailable | Code::Unknown | Code::Cancelled => Self::Unreached(status),
            _ => Self::of_status(method, Err(status.clone()), &status, &HeaderMap::new()),
        }
    }
}

/// Waits for the first message of a response, or for its status.
async fn first_answer(method: &Cloned, response: http::Response<Body>) -> Answer {
    if let Some(status) = Status::from_header_map(response.headers()) {
        let trailers = response.headers().clone();
        return Answer::of_status(method, Ok(response), &status, &trailers);
    }
    if response.status() != StatusCode::OK {
        return Answer::Final(Ok(response));
    }
    let (parts, mut rest) = response.into_parts();
    let first = loop {
        match rest.frame().await {
            Some(Ok(frame)) if frame.data_ref().is_some_and(Bytes::is_empty) => {}
            Some(Ok(frame)) => break Some(frame),
            Some(Err(status)) => return Answer::of_error(method, status),
            None => break None,
        }
    };
    let trailers = first.as_ref().and_then(Frame::trailers_ref).cloned();
    let response = http::Response::from_parts(parts, Body::new(StartedBody { first, rest }));
    match trailers.and_then(|trailers| Some((Status::from_header_map(&trailers)?, trailers))) {
        Some((status, trailers)) => Answer::of_status(method, Ok(response), &status, &trailers),
        None => Answer::Final(Ok(response)),
    }
}

/// Body of which the first frame has been read. All others stay in the connection until they are asked for.
struct StartedBody {
    first: Option<Frame<Bytes>>,
    rest: Body,
}

impl http_body::Body for StartedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(first))),
            None => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.rest.is_end_stream()
    }
}
