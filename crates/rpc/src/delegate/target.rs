//! Targets of delegated requests.

use std::net::SocketAddr;

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
    /// Replica of a service. Replicas that have just failed, and those that failed in the same call, are chosen only if
    /// there is no other; those in the [directory's zone](super::Directory::in_zone) are preferred.
    Service {
        /// Name of the service.
        name: String,
        /// Key whose requests go to the same replica while the replicas do not change; without a key, the less loaded
        /// of two replicas that are drawn at random.
        key: Option<Vec<u8>>,
    },
}

impl NodeTarget {
    /// Node that owns `key`, among the nodes whose names begin with `prefix`.
    pub fn key(prefix: impl Into<String>, key: impl AsRef<[u8]>) -> Self {
        Self::Key { prefix: prefix.into(), key: key.as_ref().to_vec() }
    }

    /// Any replica of a service.
    pub fn service(name: impl Into<String>) -> Self {
        Self::Service { name: name.into(), key: None }
    }

    /// Replica of a service that requests with this key prefer: its cache, for example, has the key.
    pub fn service_key(name: impl Into<String>, key: impl AsRef<[u8]>) -> Self {
        Self::Service { name: name.into(), key: Some(key.as_ref().to_vec()) }
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
