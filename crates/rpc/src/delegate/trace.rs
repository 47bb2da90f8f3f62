//! Who did what for a call, and when: for whoever asks (DPC §3.5.2).
//!
//! ```text
//! Trace::of(&mut request) ─┐
//! channel's or server's sink ┴▶ Report ─ the call is traced, ends ─▶ spans come ─▶ Traced: text, or OpenTelemetry
//! ```
//!
//! Spans come by themselves, after what they tell of: a stub's stream ends when the call does, its trace is
//! complete somewhat later, in a task of its own.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use http::HeaderMap;
use pathcall_endpoint::delegate::caller::trace::Tree;
use tokio::sync::oneshot;
use tonic::{Code, Status};

/// A call and what servers did for it.
///
/// It prints as a text tree, a line for each request that a server worked on, under the one that led to it.
/// No clock is compared with another: a time is a sum of durations, each by the clock of the server where it
/// passed. So a span never begins before the one whose request led to it, however the clocks run; times of two
/// branches compare as well as the rates of their clocks do. Time on the way is not in it: what is missing of
/// [`took`](Self::took).
#[derive(Debug, Clone)]
pub struct Traced {
    /// The method that was called, or the first one.
    pub method: String,
    /// When the call began, by the caller's clock.
    pub began: SystemTime,
    /// Time until its end, at the caller.
    pub took: Duration,
    /// How it ended.
    pub status: Code,
    /// What the caller's `traceparent` said (W3C Trace Context), if there was one.
    pub traceparent: Option<String>,
    /// Who did what. Each span begins after its predecessor has, `begin` after the call's begin.
    pub tree: Tree,
}

impl fmt::Display for Traced {
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

/// Where traces of calls go: each call of a channel, or each that a server makes for its callers, is traced. A closure
/// that takes a [`Traced`] is one.
pub trait Traces: Send + Sync + 'static {
    /// Whether to trace a call with this metadata; all, unless said otherwise.
    fn wants(&self, metadata: &HeaderMap) -> bool {
        let _ = metadata;
        true
    }

    /// Takes a trace, in a task of the caller's runtime; it should not wait.
    fn take(&self, traced: &Traced);
}

impl<F: Fn(&Traced) + Send + Sync + 'static> Traces for F {
    fn take(&self, traced: &Traced) {
        self(traced);
    }
}

/// Where traces go, shared.
#[derive(Clone)]
pub(crate) struct Sink(Arc<dyn Traces>);

impl Sink {
    pub(crate) fn new(traces: impl Traces) -> Self {
        Self(Arc::new(traces))
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sink")
    }
}

/// The trace of one call, by any tonic stub over a [`Channel`](crate::Channel):
///
/// ```ignore
/// let mut request = Request::new(query);
/// let trace = Trace::of(&mut request);
/// let mut docs = client.lookup(request).await?.into_inner();
/// while let Some(doc) = docs.message().await? { show(doc); }
/// println!("{}", trace.finished().await.expect("traced"));
/// ```
#[derive(Debug)]
pub struct Trace(oneshot::Receiver<Traced>);

impl Trace {
    /// Asks for the trace of a call that is about to be made.
    pub fn of<T>(request: &mut tonic::Request<T>) -> Self {
        let (ask, trace) = Self::new();
        request.extensions_mut().insert(ask);
        trace
    }

    pub(super) fn new() -> (Ask, Self) {
        let (tell, told) = oneshot::channel();
        (Ask(Arc::new(Mutex::new(Some(tell)))), Self(told))
    }

    /// The trace, once the call has ended and its spans have come, or a time-out has passed. `None`: the call was not
    /// begun, or went where nobody traces: as plain gRPC.
    pub async fn finished(self) -> Option<Traced> {
        self.0.await.ok()
    }
}

/// That somebody waits for the trace: an extension of the request.
#[derive(Debug, Clone)]
pub(super) struct Ask(Arc<Mutex<Option<oneshot::Sender<Traced>>>>);

/// What is known of a call that is traced before it ends.
#[derive(Debug)]
pub(super) struct Report {
    method: String,
    began: (SystemTime, Instant),
    traceparent: Option<String>,
    ask: Option<Ask>,
    sink: Option<Sink>,
}

impl Report {
    /// `None`: nobody asks for it.
    pub(super) fn of(method: &str, metadata: &HeaderMap, ask: Option<Ask>, sink: Option<&Sink>) -> Option<Self> {
        let sink = sink.filter(|sink| sink.0.wants(metadata)).cloned();
        if ask.is_none() && sink.is_none() {
            return None;
        }
        let traceparent = metadata.get("traceparent").and_then(|value| value.to_str().ok());
        let began = (SystemTime::now(), Instant::now());
        Some(Self { method: method.to_owned(), began, traceparent: traceparent.map(str::to_owned), ask, sink })
    }

    /// The call has ended.
    pub(super) fn ended(self, status: &Status) -> Ended {
        Ended { took: self.began.1.elapsed(), status: status.code(), report: self }
    }
}

/// A call that has ended; its spans may still come.
pub(super) struct Ended {
    report: Report,
    took: Duration,
    status: Code,
}

impl Ended {
    pub(super) fn tell(self, tree: Tree) {
        let Self { report: Report { method, began, traceparent, ask, sink }, took, status } = self;
        let traced = Traced { method, began: began.0, took, status, traceparent, tree };
        if let Some(sink) = sink {
            sink.0.take(&traced);
        }
        let tell = ask.and_then(|ask| ask.0.lock().unwrap_or_else(PoisonError::into_inner).take());
        // Whoever asked may not wait any more.
        let _ = tell.map(|tell| tell.send(traced));
    }
}
