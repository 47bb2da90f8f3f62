//! Traces of delegated calls (DPC §3.5.2).
//!
//! ```text
//! PendingTrace::of(&mut request) ─┐
//! sink of a channel or server ────┴▶ TraceReport ─ the call ends ─▶ spans arrive ─▶ CallTrace: text, or OpenTelemetry
//! ```
//!
//! Spans arrive separately from replies: a stub's stream ends with the call; its trace is complete somewhat later, in a
//! task of its own.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use http::HeaderMap;
use pathcall_endpoint::delegate::caller::trace::CallTree;
use tokio::sync::oneshot;
use tonic::{Code, Status};

/// Trace of a call: the requests that servers worked on, with times.
///
/// It prints as a text tree, with one line for each request, below the request that led to it. Clocks of two hosts are
/// never compared: a time is a sum of durations, each by the clock of the server where it passed. So a span never
/// begins before the span that led to it, even if clocks differ; times of two branches are comparable as far as clock
/// rates agree. Network time is not part of the spans: it is the rest of [`took`](Self::took).
#[derive(Debug, Clone)]
pub struct CallTrace {
    /// Method that was called, or the first of them.
    pub method: String,
    /// Begin of the call, by the caller's clock.
    pub began: SystemTime,
    /// Duration of the call, at the caller.
    pub took: Duration,
    /// Status of the call.
    pub status: Code,
    /// `traceparent` of the caller's metadata (W3C Trace Context), if any.
    pub traceparent: Option<String>,
    /// Tree of spans. Each span begins after its parent did, `begin` after the begin of the call.
    pub tree: CallTree,
}

impl fmt::Display for CallTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, took, status, tree, .. } = self;
        let servers = tree.spans.len();
        match status {
            Code::Ok => writeln!(f, "{method}: {took:.3?}, {servers} requests")?,
            code => writeln!(f, "{method}: {code:?} after {took:.3?}, {servers} requests")?,
        }
        tree.fmt(f)
    }
}

/// Receiver of the traces of all calls of a channel, or of all calls that a server makes for its callers. A closure
/// that takes a [`CallTrace`] is one.
pub trait TraceSink: Send + Sync + 'static {
    /// Whether to trace a call with this metadata; the default is true.
    fn wants(&self, metadata: &HeaderMap) -> bool {
        let _ = metadata;
        true
    }

    /// Takes a trace, in a task of the caller's runtime. It should not block.
    fn take(&self, traced: &CallTrace);
}

impl<F: Fn(&CallTrace) + Send + Sync + 'static> TraceSink for F {
    fn take(&self, traced: &CallTrace) {
        self(traced);
    }
}

/// Shared receiver of traces.
#[derive(Clone)]
pub(crate) struct SharedTraceSink(Arc<dyn TraceSink>);

impl SharedTraceSink {
    pub(crate) fn new(traces: impl TraceSink) -> Self {
        Self(Arc::new(traces))
    }
}

impl fmt::Debug for SharedTraceSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedTraceSink")
    }
}

/// Trace of one call that is not complete yet, for any tonic stub over a [`Channel`](crate::Channel):
///
/// ```no_run
/// # use pathcall_rpc as pathcall;
/// # use pathcall_test_support::stubs as pb;
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// # use pathcall::delegate::PendingTrace;
/// # let channel = pathcall::Channel::connect("http://127.0.0.1:50051", &pb::PATHCALL).await?;
/// let mut client = pb::docs_client::DocsClient::new(channel);
/// let mut request = tonic::Request::new(pb::Wish { names: vec!["a".to_owned()] });
/// let trace = PendingTrace::of(&mut request);
/// let mut docs = client.lookup(request).await?.into_inner();
/// while let Some(doc) = docs.message().await? {
///     println!("{}", doc.text);
/// }
/// println!("{}", trace.finished().await.expect("traced"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct PendingTrace(oneshot::Receiver<CallTrace>);

impl PendingTrace {
    /// Requests the trace of a call that is about to be made.
    pub fn of<T>(request: &mut tonic::Request<T>) -> Self {
        let (ask, trace) = Self::new();
        request.extensions_mut().insert(ask);
        trace
    }

    pub(super) fn new() -> (TraceRequest, Self) {
        let (deliver, told) = oneshot::channel();
        (TraceRequest(Arc::new(Mutex::new(Some(deliver)))), Self(told))
    }

    /// Waits for the trace: until the call has ended and its spans have arrived, or a timeout has passed. `None` if the
    /// call was not made, or was made as plain gRPC.
    pub async fn finished(self) -> Option<CallTrace> {
        self.0.await.ok()
    }
}

/// Extension of the request that asks for its trace.
#[derive(Debug, Clone)]
pub(super) struct TraceRequest(Arc<Mutex<Option<oneshot::Sender<CallTrace>>>>);

/// Data of a traced call before its end.
#[derive(Debug)]
pub(super) struct TraceReport {
    method: String,
    began: (SystemTime, Instant),
    /// Time from then to the last attempt, if the call was made again.
    repeated_after: Option<Duration>,
    traceparent: Option<String>,
    ask: Option<TraceRequest>,
    sink: Option<SharedTraceSink>,
}

impl TraceReport {
    /// `None` if no party asked for the trace.
    pub(super) fn of(
        method: &str,
        metadata: &HeaderMap,
        ask: Option<TraceRequest>,
        sink: Option<&SharedTraceSink>,
    ) -> Option<Self> {
        let sink = sink.filter(|sink| sink.0.wants(metadata)).cloned();
        if ask.is_none() && sink.is_none() {
            return None;
        }
        let traceparent = metadata.get("traceparent").and_then(|value| value.to_str().ok());
        let began = (SystemTime::now(), Instant::now());
        let (method, traceparent) = (method.to_owned(), traceparent.map(str::to_owned));
        Some(Self { method, began, repeated_after: None, traceparent, ask, sink })
    }

    /// Records that the call is made again: the spans of the attempts before this one are left out.
    pub(super) fn repeat(&mut self, elapsed: Duration) {
        self.repeated_after = Some(elapsed);
    }

    /// Records the end of the call.
    pub(super) fn ended(self, status: &Status) -> Ended {
        Ended { took: self.began.1.elapsed(), status: status.code(), report: self }
    }
}

/// Traced call that has ended; spans may still arrive.
pub(super) struct Ended {
    report: TraceReport,
    took: Duration,
    status: Code,
}

impl Ended {
    pub(super) fn deliver(self, mut tree: CallTree) {
        let Self { report: TraceReport { method, began, repeated_after, traceparent, ask, sink }, took, status } = self;
        if let Some(later) = repeated_after {
            tree.complete = false;
            tree.spans.iter_mut().for_each(|(_, span)| span.begin += later);
        }
        let traced = CallTrace { method, began: began.0, took, status, traceparent, tree };
        if let Some(sink) = sink {
            sink.0.take(&traced);
        }
        let deliver = ask.and_then(|ask| ask.0.lock().unwrap_or_else(PoisonError::into_inner).take());
        // The receiver may have been dropped.
        let _ = deliver.map(|deliver| deliver.send(traced));
    }
}
