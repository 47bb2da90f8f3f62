//! Where servers are, by name and by key.

use std::collections::BTreeMap;
use std::hash::Hasher;
use std::net::SocketAddr;
use std::sync::Arc;

use pathcall_auth::{Security, TargetError};
use pathcall_endpoint::driver::node::Node;
use pathcall_wire::link::Secret;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::Status;

use super::registry::{Member, controller, follow};

/// Whom a request is passed on to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The node at this address.
    Address(SocketAddr),
    /// The one with this name in the directory.
    Name(String),
    /// The one that a key belongs to, among those whose names begin with `prefix`. When nodes come or go, only
    /// keys of these change places (highest random weight hashing, Thaler and Ravishankar 1998).
    Key {
        /// What the names begin with; all, if it is empty.
        prefix: String,
        /// The key.
        key: Vec<u8>,
    },
}

impl Target {
    /// The node that a key belongs to, among those whose names begin with `prefix`.
    pub fn key(prefix: impl Into<String>, key: impl AsRef<[u8]>) -> Self {
        Self::Key { prefix: prefix.into(), key: key.as_ref().to_vec() }
    }
}

impl From<SocketAddr> for Target {
    fn from(address: SocketAddr) -> Self {
        Self::Address(address)
    }
}

impl From<&str> for Target {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

/// Names of nodes; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Directory {
    nodes: Arc<watch::Sender<BTreeMap<String, SocketAddr>>>,
    /// What feeds it, as long as there is a clone.
    _feed: Option<Arc<Feed>>,
}

#[derive(Debug)]
struct Feed(JoinHandle<()>);

impl Drop for Feed {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Directory {
    /// A directory with these nodes.
    pub fn of<N: Into<String>>(nodes: impl IntoIterator<Item = (N, SocketAddr)>) -> Self {
        let directory = Self::default();
        directory.set(nodes);
        directory
    }

    /// Has these nodes, and no others, from now on.
    pub fn set<N: Into<String>>(&self, nodes: impl IntoIterator<Item = (N, SocketAddr)>) {
        let nodes = nodes.into_iter().map(|(name, address)| (name.into(), address)).collect();
        self.nodes.send_if_modified(|known| {
            let other = *known != nodes;
            *known = nodes;
            other
        });
    }

    /// A copy of a controller's directory, at `http://host:port`, for as long as there is a clone of it.
    /// Empty until the controller has answered, and as it was while it can't be reached.
    ///
    /// # Errors
    /// When this is no address.
    pub fn of_controller(address: &str) -> Result<Self, TargetError> {
        Self::secured(address, &Security::default())
    }

    /// As [`of_controller`](Self::of_controller), at `https://host:port`, with this party's certificate.
    ///
    /// # Errors
    /// When this is no address.
    pub fn secured(address: &str, security: &Security) -> Result<Self, TargetError> {
        Ok(Self::followed(controller(address, security)?, Member::nobody()))
    }

    /// The same of one whose nodes [authenticate](super::Handlers::authenticate_frames) their messages: this node has its
    /// key, as soon as it has any nodes.
    ///
    /// # Errors
    /// When this is no address.
    pub fn authenticated(address: &str, security: &Security, node: &Node) -> Result<Self, TargetError> {
        Ok(Self::followed(controller(address, security)?, Member::watching(node)))
    }

    /// The same, and it may be that a node has a place in it.
    pub(super) fn followed(controller: pathcall_auth::Target, member: Member) -> Self {
        let directory = Self::default();
        let feed = tokio::spawn(follow(controller, member, directory.clone()));
        Self { _feed: Some(Arc::new(Feed(feed))), ..directory }
    }

    /// Waits until it has a target; returns at once if it does.
    pub async fn has(&self, target: &Target) {
        // The sender is here: it does not end.
        let _ = self.nodes.subscribe().wait_for(|nodes| look(nodes, target).is_some()).await;
    }

    /// Where a target is.
    ///
    /// # Errors
    /// UNAVAILABLE with what was looked for.
    pub fn find(&self, target: &Target) -> Result<SocketAddr, Status> {
        look(&self.nodes.borrow(), target).ok_or_else(|| {
            let what = match target {
                Target::Address(address) => address.to_string(),
                Target::Name(name) => format!("a node named {name:?}"),
                Target::Key { prefix, .. } => format!("a node whose name begins with {prefix:?}"),
            };
            Status::unavailable(format!("the directory does not have {what}"))
        })
    }
}

fn look(nodes: &BTreeMap<String, SocketAddr>, target: &Target) -> Option<SocketAddr> {
    match target {
        Target::Address(address) => Some(*address),
        Target::Name(name) => nodes.get(name).copied(),
        Target::Key { prefix, key } => {
            let those = nodes.range(prefix.clone()..).take_while(|(name, _)| name.starts_with(prefix));
            those.max_by_key(|(name, _)| weight(name, key)).map(|(_, address)| *address)
        }
    }
}

/// The weight of a key at a node: the same on every host.
fn weight(name: &str, key: &[u8]) -> u64 {
    let mut hasher = Secret::hasher();
    hasher.write(name.as_bytes());
    // No name contains it.
    hasher.write_u8(0xff);
    hasher.write(key);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    fn nodes(count: u16) -> Directory {
        Directory::of((0..count).map(|i| (format!("docs-{i}"), at(i))).chain([("other".to_owned(), at(99))]))
    }

    #[test]
    fn names_are_found() {
        let directory = nodes(3);
        assert_eq!(directory.find(&"docs-1".into()).unwrap(), at(1));
        assert_eq!(directory.find(&at(7).into()).unwrap(), at(7));
        let missing = directory.find(&"docs-9".into()).unwrap_err();
        assert_eq!(missing.message(), "the directory does not have a node named \"docs-9\"");
        assert!(directory.find(&Target::key("nobody-", "k")).is_err());
    }

    #[test]
    fn keys_spread_and_few_move_when_a_node_comes() {
        let (before, after) = (nodes(9), nodes(10));
        let (mut moved, mut counts) = (0, [0; 10]);
        for key in 0..10_000u32 {
            let target = Target::key("docs-", key.to_be_bytes());
            let (old, new) = (before.find(&target).unwrap(), after.find(&target).unwrap());
            counts[usize::from(new.port())] += 1;
            if old != new {
                assert_eq!(new, at(9), "keys go to who has come, to nobody else");
                moved += 1;
            }
        }
        assert!((800..1200).contains(&moved), "{moved}");
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
    }
}
