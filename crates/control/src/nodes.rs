//! Directory of nodes for delegated calls: addresses by name.
//!
//! A name is in the directory while the registration stream of its node is open. The directory is not stored: after a
//! controller's restart nodes register again, and watchers give them time for this.
//!
//! Either all nodes of the directory sign their messages, or none does; the first node decides. The key belongs to the
//! directory and is stored.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use pathcall_proto::v1::{NodeEntry, NodeList, TokenKey};
use tokio::sync::watch;
use tokio_stream::Stream;
use tokio_stream::wrappers::WatchStream;
use tonic::Status;

/// Maximum length of a node's name, bytes.
pub const NODE_NAME_MAX: usize = 255;
/// Maximum length of an invalid address in an error message, characters.
const ADDRESS_CHARS_MAX: usize = 80;
/// Maximum number of nodes of a controller.
pub const NODES_MAX: usize = 1 << 14;

/// Directory of all nodes, with their registrations.
#[derive(Debug)]
pub(crate) struct NodeDirectory {
    boot_id: u64,
    /// Key of messages; `None` if the system has no random bytes.
    key: Option<TokenKey>,
    table: watch::Sender<NodeTable>,
}

#[derive(Debug, Clone, Default)]
struct NodeTable {
    nodes: BTreeMap<String, (SocketAddr, u64)>,
    registrations: u64,
    /// Whether the nodes sign their messages.
    signed: bool,
}

impl NodeDirectory {
    pub(crate) fn new(boot_id: u64, key: Option<TokenKey>) -> Arc<Self> {
        Arc::new(Self { boot_id, key, table: watch::Sender::default() })
    }

    /// Registers a node, if given, and returns the directory and its changes, with the key if messages are signed.
    pub(crate) fn join(self: &Arc<Self>, entry: Option<NodeEntry>, signs: bool) -> Result<DirectoryStream, Status> {
        let key = match signs {
            true => Some(self.key.ok_or_else(|| Status::internal("no random bytes for the key of the nodes"))?),
            false => None,
        };
        let registration = match entry {
            None => None,
            Some(NodeEntry { name, address }) => {
                let address = check(&name, &address)?;
                Some(self.enter(name, address, signs)?)
            }
        };
        Ok(DirectoryStream {
            boot_id: self.boot_id,
            key,
            table: WatchStream::new(self.table.subscribe()),
            _registration: registration,
        })
    }

    fn enter(self: &Arc<Self>, name: String, address: SocketAddr, signs: bool) -> Result<NodeRegistration, Status> {
        let mut entered = Err(Status::internal(""));
        self.table.send_if_modified(|table| {
            entered = table.admits(&name, signs).map(|()| {
                table.registrations += 1;
                table.signed = signs;
                // The last registration of a name counts: an earlier one may be of a process that has ended.
                table.nodes.insert(name.clone(), (address, table.registrations));
                table.registrations
            });
            entered.is_ok()
        });
        Ok(NodeRegistration { registration: entered?, nodes: Arc::downgrade(self), name })
    }

    fn leave(&self, name: &str, registration: u64) {
        self.table.send_if_modified(|table| {
            let its_own = table.nodes.get(name).is_some_and(|(_, of)| *of == registration);
            its_own && table.nodes.remove(name).is_some()
        });
    }

    /// All nodes, by name.
    pub(crate) fn list(&self) -> Vec<NodeEntry> {
        self.table.borrow().list()
    }
}

impl NodeTable {
    /// Whether a node with this name may register.
    fn admits(&self, name: &str, signs: bool) -> Result<(), Status> {
        if self.signed != signs
            && let Some(other) = self.nodes.keys().find(|other| *other != name)
        {
            let differs = match self.signed {
                true => format!(
                    "messages of {other} and all other nodes in the directory carry tokens, and those of {name} do not"
                ),
                false => format!(
                    "messages of {other} and all other nodes in the directory carry no tokens, and those of {name} do"
                ),
            };
            let what = format!("{differs}: set the same authenticate_frames on all servers of the directory");
            return Err(Status::failed_precondition(what));
        }
        if self.nodes.len() >= NODES_MAX && !self.nodes.contains_key(name) {
            let what = format!("the directory has {NODES_MAX} nodes, the maximum");
            return Err(Status::resource_exhausted(what));
        }
        Ok(())
    }

    fn list(&self) -> Vec<NodeEntry> {
        let entry = |(name, (address, _)): (&String, &(SocketAddr, u64))| NodeEntry {
            name: name.clone(),
            address: address.to_string(),
        };
        self.nodes.iter().map(entry).collect()
    }
}

fn check(name: &str, address: &str) -> Result<SocketAddr, Status> {
    if name.is_empty() || name.len() > NODE_NAME_MAX {
        let len = name.len();
        return Err(Status::invalid_argument(format!("invalid node name of {len} bytes (1 to {NODE_NAME_MAX})")));
    }
    let reachable = address.parse::<SocketAddr>().ok().filter(|at| !at.ip().is_unspecified() && at.port() != 0);
    reachable.ok_or_else(|| {
        let address: String = address.chars().take(ADDRESS_CHARS_MAX).collect();
        Status::invalid_argument(format!(
            "{name}: expected the IP address and port where others reach it, got {address:?}"
        ))
    })
}

/// Registration of a node in the directory; ends when it is dropped.
#[derive(Debug)]
struct NodeRegistration {
    /// Weak, so that streams end when the controller does.
    nodes: Weak<NodeDirectory>,
    name: String,
    registration: u64,
}

impl Drop for NodeRegistration {
    fn drop(&mut self) {
        if let Some(nodes) = self.nodes.upgrade() {
            nodes.leave(&self.name, self.registration);
        }
    }
}

/// Stream of the directory's content, now and after each change.
#[derive(Debug)]
pub(crate) struct DirectoryStream {
    boot_id: u64,
    key: Option<TokenKey>,
    table: WatchStream<NodeTable>,
    _registration: Option<NodeRegistration>,
}

impl Stream for DirectoryStream {
    type Item = Result<NodeList, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let (boot_id, token_key) = (self.boot_id, self.key);
        let table = Pin::new(&mut self.table).poll_next(cx);
        table.map(|table| table.map(|table| Ok(NodeList { boot_id, nodes: table.list(), token_key })))
    }
}

#[cfg(test)]
mod tests {
    use tokio_stream::StreamExt;

    use super::*;

    fn entry(name: &str, address: &str) -> Option<NodeEntry> {
        Some(NodeEntry { name: name.to_owned(), address: address.to_owned() })
    }

    async fn names(listing: &mut DirectoryStream) -> String {
        let NodeList { nodes, .. } = listing.next().await.expect("open").expect("no error");
        nodes.into_iter().map(|node| format!("{}@{} ", node.name, node.address)).collect()
    }

    #[tokio::test]
    async fn name_is_registered_while_stream_is_open() {
        let nodes = NodeDirectory::new(7, None);
        let mut watching = nodes.join(None, false).unwrap();
        assert_eq!(names(&mut watching).await, "");
        let a = nodes.join(entry("a", "10.0.0.1:1"), false).unwrap();
        let b = nodes.join(entry("b", "10.0.0.2:2"), false).unwrap();
        assert_eq!(names(&mut watching).await, "a@10.0.0.1:1 b@10.0.0.2:2 ");
        // The node restarts before the end of its first stream is noticed.
        let again = nodes.join(entry("a", "10.0.0.1:3"), false).unwrap();
        drop(a);
        assert_eq!(names(&mut watching).await, "a@10.0.0.1:3 b@10.0.0.2:2 ");
        drop((again, b));
        assert_eq!(names(&mut watching).await, "");
        drop(nodes);
        assert!(watching.next().await.is_none(), "the controller has ended");
    }

    #[tokio::test]
    async fn nodes_of_directory_are_limited() {
        let nodes = NodeDirectory::new(7, None);
        let join = |name: &str| nodes.join(entry(name, "10.0.0.1:1"), false);
        let mut listings: Vec<_> = (0..NODES_MAX).map(|i| join(&format!("node-{i}")).unwrap()).collect();
        let full = join("one more").unwrap_err();
        assert_eq!(full.message(), "the directory has 16384 nodes, the maximum");
        assert_eq!(full.code(), tonic::Code::ResourceExhausted);
        drop(join("node-7").expect("a registered name is free for its node"));
        listings.pop();
        drop(join("one more").expect("a node has left"));
        assert!(nodes.list().len() < NODES_MAX);
    }

    #[tokio::test]
    async fn invalid_entry_is_refused() {
        let nodes = NodeDirectory::new(7, None);
        for (name, address, says) in [
            ("", "10.0.0.1:1", "invalid node name of 0 bytes (1 to 255)"),
            ("a", "0.0.0.0:1", "a: expected the IP address and port where others reach it, got \"0.0.0.0:1\""),
            ("a", "here", "a: expected the IP address and port where others reach it, got \"here\""),
        ] {
            assert_eq!(nodes.join(entry(name, address), false).unwrap_err().message(), says);
        }
        assert!(nodes.list().is_empty());
    }

    #[tokio::test]
    async fn only_authenticating_nodes_get_key() {
        let nodes = NodeDirectory::new(7, Some([1, 2].into()));
        for (node, signs) in [(None, false), (None, true), (entry("a", "10.0.0.1:1"), true)] {
            let mut listing = nodes.join(node, signs).unwrap();
            let reply = listing.next().await.expect("open").expect("no error");
            assert_eq!(reply.token_key, signs.then(|| [1, 2].into()));
        }
        let none = NodeDirectory::new(7, None).join(None, true).unwrap_err();
        assert_eq!(none.message(), "no random bytes for the key of the nodes");
    }

    #[tokio::test]
    async fn nodes_of_directory_all_sign_or_none() {
        let nodes = NodeDirectory::new(7, Some([1, 2].into()));
        let join = |name: &str, signs| nodes.join(entry(name, "10.0.0.1:1"), signs);
        for (signs, says) in [
            (true, "messages of a and all other nodes in the directory carry tokens, and those of b do not"),
            (false, "messages of a and all other nodes in the directory carry no tokens, and those of b do"),
        ] {
            let (first, second) = (join("a", signs).unwrap(), join("c", signs).unwrap());
            let refused = join("b", !signs).unwrap_err();
            let advice = ": set the same authenticate_frames on all servers of the directory";
            assert_eq!(
                (refused.code(), refused.message()),
                (tonic::Code::FailedPrecondition, &*format!("{says}{advice}"))
            );
            assert_eq!(nodes.list().len(), 2);
            drop(second);
            // The only node restarts with another setting.
            drop((join("a", !signs).unwrap(), first));
            assert!(nodes.list().is_empty());
        }
    }
}
