//! Who did what for a call, and when (DPC §3.5.2).
//!
//! Each server sends one span for each request of a traced call; no clock is compared with another: a span
//! begins at the call's age that its request carried, which counts the time at servers but not on the way.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use pathcall_wire::Instant;
use pathcall_wire::delegate::parts::SpanPartRepr;

use super::super::{Context, RequestId};

/// Spans of a call that are kept at most.
const SPANS_MAX: usize = 1 << 16;

/// What one server did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The request that it worked on.
    pub request: RequestId,
    /// The context in which it did: the node is the server's.
    pub context: Context,
    /// Where the server is.
    pub server: SocketAddr,
    /// What the server calls it: the method, say.
    pub label: String,
    /// How old the call was when the request came, without the time on the way.
    pub begin: Duration,
    /// Time until work on it began.
    pub waited: Duration,
    /// Time of work on it.
    pub ran: Duration,
    /// Requests that it sent on.
    pub requests: u32,
    /// Responses that it sent.
    pub responses: u32,
    /// When the caller heard of it, after the call's begin.
    pub heard: Duration,
}

/// Who did what for a call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tree {
    /// Spans, each after the one whose request led to it, with its depth.
    pub spans: Vec<(usize, Span)>,
    /// Whether none is missing: spans are not sent again when they are lost.
    pub whole: bool,
}

/// The spans of a call that came.
#[derive(Debug)]
pub(super) struct Spans {
    opened: Instant,
    by_request: BTreeMap<RequestId, Span>,
    /// Requests that they say were sent on.
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
            let (begin, waited, ran) = (time(age), time(waited), time(ran));
            let (label, heard) = (label.to_owned(), now.since(self.opened));
            let span = Span { request, context, server, label, begin, waited, ran, requests, responses, heard };
            self.sent_on += u64::from(requests);
            if let Some(repeated) = self.by_request.insert(request, span) {
                self.sent_on -= u64::from(repeated.requests);
            }
        }
    }

    /// Whether none is missing.
    pub(super) fn all_there(&self, call: Context, requests: u32) -> bool {
        // As many as requests that were sent: that is soon seen, and nearly says it.
        self.by_request.len() as u64 >= u64::from(requests) + self.sent_on && self.tree(call, requests).whole
    }

    /// The tree under a call's own requests.
    pub(super) fn tree(&self, call: Context, requests: u32) -> Tree {
        let mut tree = Tree { spans: Vec::new(), whole: true };
        let mut next: Vec<_> = (1..=requests).rev().map(|number| (0, call.request(number).inherited(0))).collect();
        while let Some((depth, request)) = next.pop() {
            let Some(span) = self.by_request.get(&request) else {
                tree.whole = false;
                continue;
            };
            // One request and no response: it has inherited the branch, unless it left before that was known.
            let chained = request.branch().inherited(request.seq().saturating_add(1));
            let children = span.requests.min(SPANS_MAX as u32);
            if span.requests == 1 && self.by_request.contains_key(&chained) {
                next.push((depth + 1, chained));
            } else {
                next.extend((1..=children).rev().map(|n| (depth + 1, span.context.request(n).inherited(0))));
            }
            tree.spans.push((depth, span.clone()));
            if tree.spans.len() > SPANS_MAX {
                tree.whole = false;
                break;
            }
        }
        tree
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (depth, span) in &self.spans {
            let Span { server, label, begin, waited, ran, requests, responses, .. } = span;
            let indent = depth * 2;
            write!(f, "{:indent$}{begin:>10.3?} {server} {label}: waited {waited:.3?}, ran {ran:.3?}", "")?;
            writeln!(f, ", {requests} requests, {responses} replies")?;
        }
        if self.whole { Ok(()) } else { writeln!(f, "spans are missing") }
    }
}
