//! Directory of nodes, by name and by key.

use std::collections::BTreeMap;
use std::hash::Hasher;
use std::net::SocketAddr;
use std::sync::Arc;

use pathcall_auth::{ConnectTargetError, Security};
use pathcall_driver::node::Node;
use pathcall_wire::link::LinkSecret;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::Status;

use super::registry::{DirectoryMember, controller, follow};

/// Destination of a delegated request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeTarget {
    /// Node at this address.
    Address(SocketAddr),
    /// Node with this name in the directory.
    Name(String),
    /// Node that owns a key, among the nodes whose names begin with `prefix`. When nodes join or leave, only the keys
    /// of these nodes move (highest random weight hashing, Thaler and Ravishankar 1998).
    Key {
        /// Prefix of the names; empty for all nodes.
        prefix: String,
        /// The key.
        key: Vec<u8>,
    },
}

impl NodeTarget {
    /// Node that owns `key`, among the nodes whose names begin with `prefix`.
    pub fn key(prefix: impl Into<String>, key: impl AsRef<[u8]>) -> Self {
        Self::Key { prefix: prefix.into(), key: key.as_ref().to_vec() }
    }
}

impl From<SocketAddr> for NodeTarget {
    fn from(address: SocketAddr) -> Self {
        Self::Address(address)
    }
}

impl From<&str> for NodeTarget {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

impl From<String> for NodeTarget {
    fn from(name: String) -> Self {
        Self::Name(name)
    }
}

/// Directory of nodes by name. Clones share its content.
#[derive(Debug, Clone, Default)]
pub struct Directory {
    nodes: Arc<watch::Sender<BTreeMap<String, SocketAddr>>>,
    /// Task that updates the directory; it ends with the last clone.
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
    /// Directory with these nodes.
    pub fn of<N: Into<String>>(nodes: impl IntoIterator<Item = (N, SocketAddr)>) -> Self {
        let directory = Self::default();
        directory.set(nodes);
        directory
    }

    /// Replaces the content with these nodes.
    pub fn set<N: Into<String>>(&self, nodes: impl IntoIterator<Item = (N, SocketAddr)>) {
        let nodes = nodes.into_iter().map(|(name, address)| (name.into(), address)).collect();
        self.nodes.send_if_modified(|known| {
            let other = *known != nodes;
            *known = nodes;
            other
        });
    }

    /// Copy of the directory of the controller at `http://host:port`, kept up to date while a clone of it exists. It is
    /// empty until the controller has answered, and stays unchanged while the controller is unreachable.
    ///
    /// # Errors
    /// The address is invalid.
    pub fn of_controller(address: &str) -> Result<Self, ConnectTargetError> {
        Self::secured(address, &Security::default())
    }

    /// Copy of a directory as [`of_controller`](Self::of_controller), at `https://host:port`, with this party's
    /// certificate.
    ///
    /// # Errors
    /// The address is invalid.
    pub fn secured(address: &str, security: &Security) -> Result<Self, ConnectTargetError> {
        Ok(Self::of_target(controller(address, security)?, DirectoryMember::observer()))
    }

    /// Copy of a directory whose nodes [authenticate](super::Handlers::authenticate_frames) their messages: `node` gets
    /// the directory's key before the directory has any nodes.
    ///
    /// # Errors
    /// The address is invalid.
    pub fn authenticated(address: &str, security: &Security, node: &Node) -> Result<Self, ConnectTargetError> {
        Ok(Self::of_target(controller(address, security)?, DirectoryMember::key_holder(node)))
    }

    /// Copy of a controller's directory, in which `member` may be registered.
    pub(super) fn of_target(controller: pathcall_auth::ConnectTarget, member: DirectoryMember) -> Self {
        let directory = Self::default();
        let feed = tokio::spawn(follow(controller, member, directory.clone()));
        Self { _feed: Some(Arc::new(Feed(feed))), ..directory }
    }

    /// Waits until the directory has a node for this target.
    pub async fn wait_for(&self, target: &NodeTarget) {
        // The sender is in `self`, so the wait does not fail.
        let _ = self.nodes.subscribe().wait_for(|nodes| look_up(nodes, target).is_some()).await;
    }

    /// Address of a target.
    ///
    /// # Errors
    /// UNAVAILABLE, with the name or prefix that the directory does not have.
    pub fn find(&self, target: &NodeTarget) -> Result<SocketAddr, Status> {
        look_up(&self.nodes.borrow(), target).ok_or_else(|| {
            let what = match target {
                NodeTarget::Address(address) => address.to_string(),
                NodeTarget::Name(name) => format!("a node named {name:?}"),
                NodeTarget::Key { prefix, .. } => format!("a node whose name begins with {prefix:?}"),
            };
            Status::unavailable(format!("the directory does not have {what}"))
        })
    }
}

fn look_up(nodes: &BTreeMap<String, SocketAddr>, target: &NodeTarget) -> Option<SocketAddr> {
    match target {
        NodeTarget::Address(address) => Some(*address),
        NodeTarget::Name(name) => nodes.get(name).copied(),
        NodeTarget::Key { prefix, key } => {
            let those = nodes.range(prefix.clone()..).take_while(|(name, _)| name.starts_with(prefix));
            those.max_by_key(|(name, _)| weight(name, key)).map(|(_, address)| *address)
        }
    }
}

/// Weight of a key at a node: the same on every host.
fn weight(name: &str, key: &[u8]) -> u64 {
    let mut hasher = LinkSecret::hasher();
    hasher.write(name.as_bytes());
    // No name contains this byte.
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
    fn names_and_addresses_are_found() {
        let directory = nodes(3);
        assert_eq!(directory.find(&"docs-1".into()).unwrap(), at(1));
        assert_eq!(directory.find(&at(7).into()).unwrap(), at(7));
        let missing = directory.find(&"docs-9".into()).unwrap_err();
        assert_eq!(missing.message(), "the directory does not have a node named \"docs-9\"");
        assert!(directory.find(&NodeTarget::key("nobody-", "k")).is_err());
    }

    #[test]
    fn new_node_takes_its_share_of_keys_only() {
        let (before, after) = (nodes(9), nodes(10));
        let (mut moved, mut counts) = (0, [0; 10]);
        for key in 0..10_000u32 {
            let target = NodeTarget::key("docs-", key.to_be_bytes());
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
