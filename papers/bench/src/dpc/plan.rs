//! Work of real servers: shapes of the callers' requests, destination of each request, and payloads that identify a
//! request.
//!
//! ```text
//! shape 1 │ length 1 │ path from the root, one child index per step │ 0 … up to 100 bytes
//! ```

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use pathcall_models::delegate::cost::PAYLOAD;
use pathcall_models::delegate::shapes::RequestNode;

/// Longest path from a root.
const DEPTH_MAX: usize = 64;

/// Shape with its name in figures.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    pub(super) name: String,
    pub(super) roots: Vec<RequestNode>,
}

impl Pattern {
    pub(super) fn new(name: impl Into<String>, roots: Vec<RequestNode>) -> Self {
        Self { name: name.into(), roots }
    }

    /// Servers on the longest path.
    pub(super) fn depth(&self) -> usize {
        self.roots.iter().map(RequestNode::depth).max().unwrap_or_default()
    }

    /// Replies of a delegated call.
    pub(super) fn replies(&self) -> u64 {
        self.roots.iter().map(RequestNode::all_replies).sum()
    }

    /// Lower bound of delegated latency relative to the baseline: ratio of sequential messages.
    pub(super) fn bound(&self) -> f64 {
        (self.depth() + 1) as f64 / (2 * self.depth()) as f64
    }
}

/// Shapes shared by all parties; clones share the data.
#[derive(Debug, Clone)]
pub(super) struct WorkPlan(Arc<PlanData>);

#[derive(Debug)]
struct PlanData {
    patterns: Vec<Pattern>,
}

/// Identity of a request: shape, and path from the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestPath {
    pub(super) pattern: usize,
    pub(super) path: Vec<u8>,
}

impl RequestPath {
    /// Request number `next` that follows from this one.
    fn next(&self, next: usize) -> Self {
        Self { pattern: self.pattern, path: [&self.path[..], &[next as u8]].concat() }
    }

    /// Index of the server of this request; differs from the server of the request before.
    pub(super) fn server(&self, servers: usize) -> usize {
        self.path.iter().fold(0, |at, step| at + 1 + usize::from(*step) % (servers - 1)) % servers
    }

    /// Encodes the request as a payload.
    pub(super) fn payload(&self) -> Bytes {
        let mut payload = vec![0; PAYLOAD];
        (payload[0], payload[1]) = (self.pattern as u8, self.path.len() as u8);
        payload[2..][..self.path.len()].copy_from_slice(&self.path);
        payload.into()
    }

    /// Decodes a payload.
    pub(super) fn read(payload: &[u8]) -> Result<Self> {
        let [pattern, len, rest @ ..] = payload else {
            anyhow::bail!("payload of {} bytes is too short", payload.len())
        };
        let path = rest.get(..usize::from(*len)).context("truncated request path")?;
        Ok(Self { pattern: usize::from(*pattern), path: path.to_vec() })
    }
}

impl WorkPlan {
    /// Creates a plan with these shapes.
    pub(super) fn new(patterns: Vec<Pattern>) -> Result<Self> {
        let fits = |pattern: &Pattern| pattern.depth() <= DEPTH_MAX;
        ensure!(patterns.len() < 256 && patterns.iter().all(fits), "too many shapes, or one is too deep");
        Ok(Self(Arc::new(PlanData { patterns })))
    }

    pub(super) fn patterns(&self) -> &[Pattern] {
        &self.0.patterns
    }

    /// Requests of the client of a shape.
    pub(super) fn roots(&self, pattern: usize) -> Vec<RequestPath> {
        let roots = 0..self.0.patterns[pattern].roots.len();
        roots.map(|root| RequestPath { pattern, path: vec![root as u8] }).collect()
    }

    /// Requests that follow from a request, and number of its server's replies.
    pub(super) fn after(&self, place: &RequestPath) -> Result<(Vec<RequestPath>, u32)> {
        let pattern = self.0.patterns.get(place.pattern).context("unknown shape")?;
        let node = RequestNode::find(&pattern.roots, &place.path).context("path not in shape")?;
        Ok(((0..node.next.len()).map(|next| place.next(next)).collect(), node.replies))
    }
}

/// Servers, set once all have started; clones share the data.
#[derive(Debug, Clone)]
pub(super) struct Servers<A = SocketAddr>(Arc<OnceLock<Vec<A>>>);

impl<A> Default for Servers<A> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<A: Clone> Servers<A> {
    pub(super) fn set(&self, all: Vec<A>) {
        self.0.get_or_init(|| all);
    }

    /// All servers; empty before they are set.
    pub(super) fn all(&self) -> &[A] {
        self.0.get().map(Vec::as_slice).unwrap_or_default()
    }

    /// Server of a request.
    pub(super) fn of(&self, place: &RequestPath) -> Result<A> {
        let servers = self.0.get().context("servers have not started")?;
        Ok(servers[place.server(servers.len())].clone())
    }
}

#[cfg(test)]
mod tests {
    use pathcall_models::delegate::shapes::{hops, short_reads};

    use super::*;

    #[test]
    fn payload_encoding_round_trips() {
        let place = RequestPath { pattern: 3, path: vec![0, 9, 1] };
        assert_eq!(place.payload().len(), PAYLOAD);
        assert_eq!(RequestPath::read(&place.payload()).unwrap(), place);
        assert!(RequestPath::read(&[1]).is_err() && RequestPath::read(&[1, 5, 0]).is_err());
    }

    #[test]
    fn no_server_delegates_to_itself() {
        let patterns = short_reads().into_iter().map(|shape| Pattern::new(shape.name, shape.roots));
        let plan = WorkPlan::new(patterns.chain([Pattern::new("10 hops", hops(10))]).collect()).unwrap();
        for pattern in 0..plan.patterns().len() {
            let mut places = plan.roots(pattern);
            while let Some(place) = places.pop() {
                let (next, _) = plan.after(&place).unwrap();
                assert!(next.iter().all(|next| next.server(5) != place.server(5)), "{place:?}");
                places.extend(next);
            }
        }
        assert!(plan.after(&RequestPath { pattern: 0, path: vec![7] }).is_err());
    }

    #[test]
    fn latency_bound_is_message_ratio() {
        let bound = |n| Pattern::new("", hops(n)).bound();
        assert_eq!((bound(1), bound(2), bound(10)), (1.0, 0.75, 0.55));
    }
}
