//! What real servers do: the shapes that callers ask for, where each request of them goes, and payloads that say
//! which one it is.
//!
//! ```text
//! shape 1 │ length 1 │ way from the root, one place a step │ 0 … up to 100 bytes
//! ```

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use pathcall_models::delegate::cost::PAYLOAD;
use pathcall_models::delegate::shapes::Node;

/// Longest way from a root.
const DEPTH_MAX: usize = 64;

/// A shape with what figures call it.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    pub(super) name: String,
    pub(super) roots: Vec<Node>,
}

impl Pattern {
    pub(super) fn new(name: impl Into<String>, roots: Vec<Node>) -> Self {
        Self { name: name.into(), roots }
    }

    /// Servers one after the other on the longest way.
    pub(super) fn depth(&self) -> usize {
        self.roots.iter().map(Node::depth).max().unwrap_or_default()
    }

    /// Replies of a call whose servers pass it on.
    pub(super) fn replies(&self) -> u64 {
        self.roots.iter().map(Node::all_replies).sum()
    }

    /// What delegated calls take at least, as a share of the twin's: messages one after the other.
    pub(super) fn bound(&self) -> f64 {
        (self.depth() + 1) as f64 / (2 * self.depth()) as f64
    }
}

/// What all parties know; clones share it.
#[derive(Debug, Clone)]
pub(super) struct Plan(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    patterns: Vec<Pattern>,
}

/// A request: of which shape, and which of that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) pattern: usize,
    pub(super) way: Vec<u8>,
}

impl Place {
    /// The `next`th request that this one leads to.
    fn next(&self, next: usize) -> Self {
        Self { pattern: self.pattern, way: [&self.way[..], &[next as u8]].concat() }
    }

    /// Which of some servers it goes to: another one than the request before.
    pub(super) fn server(&self, servers: usize) -> usize {
        self.way.iter().fold(0, |at, step| at + 1 + usize::from(*step) % (servers - 1)) % servers
    }

    /// As it travels.
    pub(super) fn payload(&self) -> Bytes {
        let mut payload = vec![0; PAYLOAD];
        (payload[0], payload[1]) = (self.pattern as u8, self.way.len() as u8);
        payload[2..][..self.way.len()].copy_from_slice(&self.way);
        payload.into()
    }

    /// The one that a payload names.
    pub(super) fn read(payload: &[u8]) -> Result<Self> {
        let [pattern, len, rest @ ..] = payload else { anyhow::bail!("a payload of {} bytes", payload.len()) };
        let way = rest.get(..usize::from(*len)).context("a way that is cut off")?;
        Ok(Self { pattern: usize::from(*pattern), way: way.to_vec() })
    }
}

impl Plan {
    /// Of these shapes.
    pub(super) fn new(patterns: Vec<Pattern>) -> Result<Self> {
        let fits = |pattern: &Pattern| pattern.depth() <= DEPTH_MAX;
        ensure!(patterns.len() < 256 && patterns.iter().all(fits), "too many shapes, or one is too deep");
        Ok(Self(Arc::new(Inner { patterns })))
    }

    pub(super) fn patterns(&self) -> &[Pattern] {
        &self.0.patterns
    }

    /// What a shape's client asks for.
    pub(super) fn roots(&self, pattern: usize) -> Vec<Place> {
        let roots = 0..self.0.patterns[pattern].roots.len();
        roots.map(|root| Place { pattern, way: vec![root as u8] }).collect()
    }

    /// What a request leads to, and how often its server replies.
    pub(super) fn after(&self, place: &Place) -> Result<(Vec<Place>, u32)> {
        let pattern = self.0.patterns.get(place.pattern).context("a shape that there is not")?;
        let node = Node::find(&pattern.roots, &place.way).context("a way that the shape does not have")?;
        Ok(((0..node.next.len()).map(|next| place.next(next)).collect(), node.replies))
    }
}

/// Servers, when all have started; clones share it.
#[derive(Debug, Clone)]
pub(super) struct Servers<A = SocketAddr>(Arc<OnceLock<Vec<A>>>);

impl<A> Default for Servers<A> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<A: Clone> Servers<A> {
    pub(super) fn are(&self, all: Vec<A>) {
        self.0.get_or_init(|| all);
    }

    /// All of them; none before they are known.
    pub(super) fn all(&self) -> &[A] {
        self.0.get().map(Vec::as_slice).unwrap_or_default()
    }

    /// Where a request goes.
    pub(super) fn of(&self, place: &Place) -> Result<A> {
        let servers = self.0.get().context("servers have not started")?;
        Ok(servers[place.server(servers.len())].clone())
    }
}

#[cfg(test)]
mod tests {
    use pathcall_models::delegate::shapes::{hops, short_reads};

    use super::*;

    #[test]
    fn a_payload_names_its_request() {
        let place = Place { pattern: 3, way: vec![0, 9, 1] };
        assert_eq!(place.payload().len(), PAYLOAD);
        assert_eq!(Place::read(&place.payload()).unwrap(), place);
        assert!(Place::read(&[1]).is_err() && Place::read(&[1, 5, 0]).is_err());
    }

    #[test]
    fn no_server_passes_a_request_on_to_itself() {
        let patterns = short_reads().into_iter().map(|shape| Pattern::new(shape.name, shape.roots));
        let plan = Plan::new(patterns.chain([Pattern::new("10 hops", hops(10))]).collect()).unwrap();
        for pattern in 0..plan.patterns().len() {
            let mut places = plan.roots(pattern);
            while let Some(place) = places.pop() {
                let (next, _) = plan.after(&place).unwrap();
                assert!(next.iter().all(|next| next.server(5) != place.server(5)), "{place:?}");
                places.extend(next);
            }
        }
        assert!(plan.after(&Place { pattern: 0, way: vec![7] }).is_err());
    }

    #[test]
    fn the_bound_is_that_of_messages() {
        let bound = |n| Pattern::new("", hops(n)).bound();
        assert_eq!((bound(1), bound(2), bound(10)), (1.0, 0.75, 0.55));
    }
}
