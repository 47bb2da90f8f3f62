//! The directory of nodes, that calls are passed on to: who is there, by name.
//!
//! A name is in it for as long as the stream by which its node registered. It is kept nowhere else: after a
//! restart nodes register again, and those who watch give them time for that.
//!
//! All nodes in it sign their messages, or none does: who is the first says it. The key is the directory's, and kept.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use pathcall_proto::v1::{NodeEntry, NodesReply, TokenKey};
use tokio::sync::watch;
use tokio_stream::Stream;
use tokio_stream::wrappers::WatchStream;
use tonic::Status;

/// Longest name of a node, bytes.
pub const NODE_NAME_MAX: usize = 255;
/// Characters of an address that is none that are said again.
const SAID_MAX: usize = 80;
/// Nodes that a controller knows at most.
pub const NODES_MAX: usize = 1 << 14;

/// All nodes, and which registration each is of.
#[derive(Debug)]
pub(crate) struct Nodes {
    boot_id: u64,
    /// What messages are signed with; none where the system has no randomness.
    key: Option<TokenKey>,
    table: watch::Sender<Table>,
}

#[derive(Debug, Clone, Default)]
struct Table {
    nodes: BTreeMap<String, (SocketAddr, u64)>,
    registrations: u64,
    /// Whether messages of those in it are signed.
    signed: bool,
}

impl Nodes {
    pub(crate) fn new(boot_id: u64, key: Option<TokenKey>) -> Arc<Self> {
        Arc::new(Self { boot_id, key, table: watch::Sender::default() })
    }

    /// Enters a node, if there is one, and gives out the directory from now on; with its key, if messages are to be signed.
    pub(crate) fn join(self: &Arc<Self>, entry: Option<NodeEntry>, signs: bool) -> Result<Listing, Status> {
        let key = match signs {
            true => Some(self.key.ok_or_else(|| Status::internal("there is no randomness for the key of the nodes"))?),
            false => None,
        };
        let place = match entry {
            None => None,
            Some(NodeEntry { name, address }) => {
                let address = check(&name, &address)?;
                Some(self.enter(name, address, signs)?)
            }
        };
        Ok(Listing { boot_id: self.boot_id, key, table: WatchStream::new(self.table.subscribe()), _place: place })
    }

    fn enter(self: &Arc<Self>, name: String, address: SocketAddr, signs: bool) -> Result<Place, Status> {
        let mut entered = Err(Status::internal(""));
        self.table.send_if_modified(|table| {
            entered = table.admits(&name, signs).map(|()| {
                table.registrations += 1;
                table.signed = signs;
                // A name's last registration counts: the one before may be of a process that is gone.
                table.nodes.insert(name.clone(), (address, table.registrations));
                table.registrations
            });
            entered.is_ok()
        });
        Ok(Place { registration: entered?, nodes: Arc::downgrade(self), name })
    }

    fn leave(&self, name: &str, registration: u64) {
        self.table.send_if_modified(|table| {
            let its_own = table.nodes.get(name).is_some_and(|(_, of)| *of == registration);
            its_own && table.nodes.remove(name).is_some()
        });
    }

    /// All of them, by name.
    pub(crate) fn list(&self) -> Vec<NodeEntry> {
        self.table.borrow().list()
    }
}

impl Table {
    /// Whether a node of this name may enter.
    fn admits(&self, name: &str, signs: bool) -> Result<(), Status> {
        if self.signed != signs
            && let Some(other) = self.nodes.keys().find(|other| *other != name)
        {
            let differs = match self.signed {
                true => {
                    format!("messages of {other} and all others in the directory carry tokens, and {name} wants none")
                }
                false => format!(
                    "messages of {other} and all others in the directory carry no tokens, and {name} wants some"
                ),
            };
            let what = format!("{differs}: give all servers of the directory the same authenticate_frames");
            return Err(Status::failed_precondition(what));
        }
        if self.nodes.len() >= NODES_MAX && !self.nodes.contains_key(name) {
            let what = format!("the directory has {NODES_MAX} nodes, as many as it may");
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
        return Err(Status::invalid_argument(format!("a node's name has 1 to {NODE_NAME_MAX} bytes, got {len}")));
    }
    let reachable = address.parse::<SocketAddr>().ok().filter(|at| !at.ip().is_unspecified() && at.port() != 0);
    reachable.ok_or_else(|| {
        let address: String = address.chars().take(SAID_MAX).collect();
        Status::invalid_argument(format!(
            "{name}: expected the IP address and port where others reach it, got {address:?}"
        ))
    })
}

/// A node's place in the directory; dropped, it is free.
#[derive(Debug)]
struct Place {
    /// Weak, so that streams end when the controller does.
    nodes: Weak<Nodes>,
    name: String,
    registration: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(nodes) = self.nodes.upgrade() {
            nodes.leave(&self.name, self.registration);
        }
    }
}

/// The directory, whenever it has changed.
#[derive(Debug)]
pub(crate) struct Listing {
    boot_id: u64,
    key: Option<TokenKey>,
    table: WatchStream<Table>,
    _place: Option<Place>,
}

impl Stream for Listing {
    type Item = Result<NodesReply, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let (boot_id, token_key) = (self.boot_id, self.key);
        let table = Pin::new(&mut self.table).poll_next(cx);
        table.map(|table| table.map(|table| Ok(NodesReply { boot_id, nodes: table.list(), token_key })))
    }
}

#[cfg(test)]
mod tests {
    use tokio_stream::StreamExt;

    use super::*;

    fn entry(name: &str, address: &str) -> Option<NodeEntry> {
        Some(NodeEntry { name: name.to_owned(), address: address.to_owned() })
    }

    async fn names(listing: &mut Listing) -> String {
        let NodesReply { nodes, .. } = listing.next().await.expect("open").expect("no error");
        nodes.into_iter().map(|node| format!("{}@{} ", node.name, node.address)).collect()
    }

    #[tokio::test]
    async fn a_name_is_there_as_long_as_its_stream() {
        let nodes = Nodes::new(7, None);
        let mut watching = nodes.join(None, false).unwrap();
        assert_eq!(names(&mut watching).await, "");
        let a = nodes.join(entry("a", "10.0.0.1:1"), false).unwrap();
        let b = nodes.join(entry("b", "10.0.0.2:2"), false).unwrap();
        assert_eq!(names(&mut watching).await, "a@10.0.0.1:1 b@10.0.0.2:2 ");
        // It starts anew before the end of its first stream is seen.
        let again = nodes.join(entry("a", "10.0.0.1:3"), false).unwrap();
        drop(a);
        assert_eq!(names(&mut watching).await, "a@10.0.0.1:3 b@10.0.0.2:2 ");
        drop((again, b));
        assert_eq!(names(&mut watching).await, "");
        drop(nodes);
        assert!(watching.next().await.is_none(), "the controller has ended");
    }

    #[tokio::test]
    async fn directory_has_a_bounded_number_of_nodes() {
        let nodes = Nodes::new(7, None);
        let join = |name: &str| nodes.join(entry(name, "10.0.0.1:1"), false);
        let mut listings: Vec<_> = (0..NODES_MAX).map(|i| join(&format!("node-{i}")).unwrap()).collect();
        let full = join("one more").unwrap_err();
        assert_eq!(full.message(), "the directory has 16384 nodes, as many as it may");
        assert_eq!(full.code(), tonic::Code::ResourceExhausted);
        drop(join("node-7").expect("its name is there already"));
        listings.pop();
        drop(join("one more").expect("somebody has left"));
        assert!(nodes.list().len() < NODES_MAX);
    }

    #[tokio::test]
    async fn nonsense_is_refused() {
        let nodes = Nodes::new(7, None);
        for (name, address, says) in [
            ("", "10.0.0.1:1", "a node's name has 1 to 255 bytes, got 0"),
            ("a", "0.0.0.0:1", "a: expected the IP address and port where others reach it, got \"0.0.0.0:1\""),
            ("a", "here", "a: expected the IP address and port where others reach it, got \"here\""),
        ] {
            assert_eq!(nodes.join(entry(name, address), false).unwrap_err().message(), says);
        }
        assert!(nodes.list().is_empty());
    }

    #[tokio::test]
    async fn key_is_given_to_who_authenticates_and_to_nobody_else() {
        let nodes = Nodes::new(7, Some([1, 2].into()));
        for (node, signs) in [(None, false), (None, true), (entry("a", "10.0.0.1:1"), true)] {
            let mut listing = nodes.join(node, signs).unwrap();
            let reply = listing.next().await.expect("open").expect("no error");
            assert_eq!(reply.token_key, signs.then(|| [1, 2].into()));
        }
        let none = Nodes::new(7, None).join(None, true).unwrap_err();
        assert_eq!(none.message(), "there is no randomness for the key of the nodes");
    }

    #[tokio::test]
    async fn nodes_of_a_directory_sign_all_or_none() {
        let nodes = Nodes::new(7, Some([1, 2].into()));
        let join = |name: &str, signs| nodes.join(entry(name, "10.0.0.1:1"), signs);
        for (signs, says) in [
            (true, "messages of a and all others in the directory carry tokens, and b wants none"),
            (false, "messages of a and all others in the directory carry no tokens, and b wants some"),
        ] {
            let (first, second) = (join("a", signs).unwrap(), join("c", signs).unwrap());
            let refused = join("b", !signs).unwrap_err();
            let advice = ": give all servers of the directory the same authenticate_frames";
            assert_eq!(
                (refused.code(), refused.message()),
                (tonic::Code::FailedPrecondition, &*format!("{says}{advice}"))
            );
            assert_eq!(nodes.list().len(), 2);
            drop(second);
            // It is alone, and has started anew.
            drop((join("a", !signs).unwrap(), first));
            assert!(nodes.list().is_empty());
        }
    }
}
