//! The trees of requests that the thesis measured: hops (Fig. 6.1), fan-out (Fig. 6.2), rays (Fig. 6.4) and the LDBC
//! short reads with the sizes that Table 6.2 assumes.

/// A request: what it leads to, in the order in which its server says it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Node {
    /// Replies of its server.
    pub replies: u32,
    /// Requests that it leads to.
    pub next: Vec<Node>,
}

/// One of the short reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Its name.
    pub name: &'static str,
    /// The client's requests.
    pub roots: Vec<Node>,
    /// Messages with delegated requests: in all, and at the client (Table 6.3).
    pub dpc: (u64, u64),
    /// Messages with plain calls, all of them at the client.
    pub rpc: u64,
}

impl Node {
    fn leaf() -> Self {
        Self { replies: 1, next: Vec::new() }
    }

    /// A server that only sends on.
    fn to(next: Vec<Self>) -> Self {
        Self { replies: 0, next }
    }

    /// The longest way from this one to a reply, in requests, this one included.
    #[must_use]
    pub fn depth(&self) -> usize {
        1 + self.next.iter().map(Self::depth).max().unwrap_or_default()
    }

    /// The one that is this way from the roots: the place of each among its parent's.
    #[must_use]
    pub fn find<'a>(roots: &'a [Self], way: &[u8]) -> Option<&'a Self> {
        let (first, rest) = way.split_first()?;
        let node = roots.get(usize::from(*first))?;
        if rest.is_empty() { Some(node) } else { Self::find(&node.next, rest) }
    }

    /// Requests of this one and of all that it leads to.
    #[must_use]
    pub fn requests(&self) -> u64 {
        1 + self.next.iter().map(Self::requests).sum::<u64>()
    }

    /// Replies of it and of all that it leads to.
    #[must_use]
    pub fn all_replies(&self) -> u64 {
        u64::from(self.replies) + self.next.iter().map(Self::all_replies).sum::<u64>()
    }
}

/// `n` servers one after the other.
#[must_use]
pub fn hops(n: usize) -> Vec<Node> {
    vec![(1..n).fold(Node::leaf(), |next, _| Node::to(vec![next]))]
}

/// A server that sends on to `n` at once (Fig. 6.2).
#[must_use]
pub fn fan_out(n: usize) -> Vec<Node> {
    vec![Node::to(vec![Node::leaf(); n])]
}

/// A ray with `n` bounces: each is looked for, and when it is found, lighted, while the next is looked for
/// (Fig. 6.3).
#[must_use]
pub fn rays(n: usize) -> Vec<Node> {
    // The next bounce is on the critical path, so it leaves first.
    let last = Node::to(vec![Node::leaf()]);
    vec![(1..n).fold(last, |next, _| Node::to(vec![next, Node::leaf()]))]
}

/// IS1 to IS7 with Table 6.3.
#[must_use]
pub fn short_reads() -> Vec<Shape> {
    let leaves = |n: usize| vec![Node::leaf(); n];
    // A person's message: the message, and the post that its conversation began with, whose author is asked.
    let message = Node::to(vec![Node::to(leaves(1)), Node::leaf()]);
    // A person's friends, on ten servers; the person's own server tells of itself.
    let friends = Node { replies: 1, next: leaves(10) };
    // A comment, whose author is asked.
    let comment = Node::to(leaves(1));
    let shape = |name, roots, dpc, rpc| Shape { name, roots, dpc, rpc };
    vec![
        shape("IS1", leaves(2), (4, 4), 4),
        shape("IS2", vec![Node::to(vec![message; 10])], (61, 21), 82),
        shape("IS3", vec![friends.clone()], (22, 12), 22),
        shape("IS4", leaves(1), (2, 2), 2),
        shape("IS5", hops(2), (3, 2), 4),
        shape("IS6A", vec![Node::to(vec![Node::to(leaves(2))])], (6, 3), 8),
        shape("IS6B", vec![Node::to(vec![Node::to(vec![Node::to(leaves(2))])])], (7, 3), 10),
        shape("IS7", vec![Node::to(vec![comment; 10]), Node::to(vec![friends])], (54, 23), 66),
    ]
}
