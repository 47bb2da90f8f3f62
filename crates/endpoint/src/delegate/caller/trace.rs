//! Trace of a call: the spans of its requests (DPC §3.5.2).
//!
//! Each server sends one span for each request of a traced call. No two clocks are compared: a span begins at the age
//! of the call that its request carried, which includes the time at servers but not the time in flight.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use pathcall_wire::Instant;
use pathcall_wire::delegate::parts::SpanPartRepr;

use super::super::{ContextId, RequestId};

/// Most spans of a call in memory.
const SPANS_MAX: usize = 1 << 16;

/// Span of one request at one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallSpan {
    /// Request that the server processed.
    pub request: RequestId,
    /// Context of the execution; its node is the server.
    pub context: ContextId,
    /// Address of the server.
    pub server: SocketAddr,
    /// Label by the server: the method, for example.
    pub label: String,
    /// Age of the call when the request arrived, without the time in flight.
    pub begin: Duration,
    /// Time until the request was begun.
    pub waited: Duration,
    /// Run time of the handler.
    pub run_time: Duration,
    /// Requests that it delegated.
    pub requests: u32,
    /// Responses that it sent.
    pub responses: u32,
    /// Time from the start of the call until the span arrived.
    pub arrived_after: Duration,
}

/// Tree of the spans of a call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallTree {
    /// Spans with their depths, each after the span whose request led to it.
    pub spans: Vec<(usize, CallSpan)>,
    /// Whether no span is missing: lost spans are not sent again.
    pub complete: bool,
}

/// Spans of a call that have arrived.
#[derive(Debug)]
pub(super) struct Spans {
    opened: Instant,
    by_request: BTreeMap<RequestId, CallSpan>,
    /// Number of requests that the spans report as delegated.
    sent_on: u64,
}

impl Spans {
    pub(super) fn new(opened: Instant) -> Self {
        Self { opened, by_request: BTreeMap::new(), sent_on: 0 }
    }

    pub(super) fn add(&mut self, now: Instant, span: SpanPartRepr, server: SocketAddr, label: &str) {
        let SpanPartRepr { request, context, age, waited, ran, requests, responses } = span;
        let time = |micros: u32| Duration::from_micros(micros.into());
        if self.by_request.len() < SPANS_MAX {
            let (begin, waited, run_time) = (time(age), time(waited), time(ran));
            let (label, arrived_after) = (label.to_owned(), now.since(self.opened));
            let span = CallSpan {
                request,
                context,
                server,
                label,
                begin,
                waited,
                run_time,
                requests,
                responses,
                arrived_after,
            };
            self.sent_on += u64::from(requests);
            if let Some(repeated) = self.by_request.insert(request, span) {
                self.sent_on -= u64::from(repeated.requests);
            }
        }
    }

    /// Returns whether no span is missing.
    pub(super) fn is_complete(&self, call: ContextId, requests: u32) -> bool {
        // The count of spans equals the count of sent requests: a cheap check that is nearly sufficient.
        self.by_request.len() as u64 >= u64::from(requests) + self.sent_on && self.tree(call, requests).complete
    }

    /// Builds the tree under the call's own requests.
    pub(super) fn tree(&self, call: ContextId, requests: u32) -> CallTree {
        let mut tree = CallTree { spans: Vec::new(), complete: true };
        let mut next: Vec<_> = (1..=requests).rev().map(|number| (0, call.request(number).inherited(0))).collect();
        while let Some((depth, request)) = next.pop() {
            let Some(span) = self.by_request.get(&request) else {
                tree.complete = false;
                continue;
            };
            // One request and no response: it inherited the branch, unless it left before that was known.
            let chained = request.branch().inherited(request.seq().saturating_add(1));
            let children = span.requests.min(SPANS_MAX as u32);
            if span.requests == 1 && self.by_request.contains_key(&chained) {
                next.push((depth + 1, chained));
            } else {
                next.extend((1..=children).rev().map(|n| (depth + 1, span.context.request(n).inherited(0))));
            }
            tree.spans.push((depth, span.clone()));
            if tree.spans.len() > SPANS_MAX {
                tree.complete = false;
                break;
            }
        }
        tree
    }
}

impl fmt::Display for CallTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (depth, span) in &self.spans {
            let CallSpan { server, label, begin, waited, run_time, requests, responses, .. } = span;
            let indent = depth * 2;
            write!(f, "{:indent$}{begin:>10.3?} {server} {label}: waited {waited:.3?}, ran {run_time:.3?}", "")?;
            writeln!(f, ", {requests} requests, {responses} replies")?;
        }
        if self.complete { Ok(()) } else { writeln!(f, "spans are missing") }
    }
}
