//! Request trees of the thesis: hops (Fig. 6.1), fan-out (Fig. 6.2), rays (Fig. 6.4) and the LDBC short reads with the
//! sizes assumed in Table 6.2.

/// Request, with the requests that follow from it in the order in which its server sends them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestNode {
    /// Replies of the server.
    pub replies: u32,
    /// Requests that follow from this request.
    pub next: Vec<RequestNode>,
}

/// Short read of LDBC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShortRead {
    /// Name of the read.
    pub name: &'static str,
    /// Requests of the client.
    pub roots: Vec<RequestNode>,
    /// Messages with delegated requests: in total, and at the client (Table 6.3).
    pub dpc: (u64, u64),
    /// Messages with plain calls, all at the client.
    pub rpc: u64,
}

impl RequestNode {
    fn leaf() -> Self {
        Self { replies: 1, next: Vec::new() }
    }

    /// Server that only delegates.
    fn to(next: Vec<Self>) -> Self {
        Self { replies: 0, next }
    }

    /// Requests on the longest path from this request to a reply, this request included.
    #[must_use]
    pub fn depth(&self) -> usize {
        1 + self.next.iter().map(Self::depth).max().unwrap_or_default()
    }

    /// Node at `tree_path`: the child index at each level, from the roots.
    #[must_use]
    pub fn find<'a>(roots: &'a [Self], tree_path: &[u8]) -> Option<&'a Self> {
        let (first, rest) = tree_path.split_first()?;
        let node = roots.get(usize::from(*first))?;
        if rest.is_empty() { Some(node) } else { Self::find(&node.next, rest) }
    }

    /// Requests of the subtree, this request included.
    #[must_use]
    pub fn requests(&self) -> u64 {
        1 + self.next.iter().map(Self::requests).sum::<u64>()
    }

    /// Replies of the subtree.
    #[must_use]
    pub fn all_replies(&self) -> u64 {
        u64::from(self.replies) + self.next.iter().map(Self::all_replies).sum::<u64>()
    }
}

/// `n` servers one after the other.
#[must_use]
pub fn hops(n: usize) -> Vec<RequestNode> {
    vec![(1..n).fold(RequestNode::leaf(), |next, _| RequestNode::to(vec![next]))]
}

/// Server that delegates to `n` servers at once (Fig. 6.2).
#[must_use]
pub fn fan_out(n: usize) -> Vec<RequestNode> {
    vec![RequestNode::to(vec![RequestNode::leaf(); n])]
}

/// Ray with `n` bounces. Each bounce is searched for, then lit while the search for the next bounce runs (Fig. 6.3).
#[must_use]
pub fn rays(n: usize) -> Vec<RequestNode> {
    // The next bounce is on the critical path, so its request leaves first.
    let last = RequestNode::to(vec![RequestNode::leaf()]);
    vec![(1..n).fold(last, |next, _| RequestNode::to(vec![next, RequestNode::leaf()]))]
}

/// IS1 to IS7 of Table 6.3.
#[must_use]
pub fn short_reads() -> Vec<ShortRead> {
    let leaves = |n: usize| vec![RequestNode::leaf(); n];
    // Message of a person: the message, and the first post of its conversation, with the author of the post.
    let message = RequestNode::to(vec![RequestNode::to(leaves(1)), RequestNode::leaf()]);
    // Friends of a person, on ten servers; the person's own server replies for itself.
    let friends = RequestNode { replies: 1, next: leaves(10) };
    // Comment, with its author.
    let comment = RequestNode::to(leaves(1));
    let shape = |name, roots, dpc, rpc| ShortRead { name, roots, dpc, rpc };
    vec![
        shape("IS1", leaves(2), (4, 4), 4),
        shape("IS2", vec![RequestNode::to(vec![message; 10])], (61, 21), 82),
        shape("IS3", vec![friends.clone()], (22, 12), 22),
        shape("IS4", leaves(1), (2, 2), 2),
        shape("IS5", hops(2), (3, 2), 4),
        shape("IS6A", vec![RequestNode::to(vec![RequestNode::to(leaves(2))])], (6, 3), 8),
        shape("IS6B", vec![RequestNode::to(vec![RequestNode::to(vec![RequestNode::to(leaves(2))])])], (7, 3), 10),
        shape("IS7", vec![RequestNode::to(vec![comment; 10]), RequestNode::to(vec![friends])], (54, 23), 66),
    ]
}
