//! The directory of nodes, that calls are passed on to: who is there, by name.
//!
//! A name is in it for as long as the stream by which its node registered. It is kept nowhere else: after a
//! restart nodes register again, and those who watch give them time for that.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use pathcall_proto::v1::{NodeEntry, NodesReply};
use tokio::sync::watch;
use tokio_stream::Stream;
use tokio_stream::wrappers::WatchStream;
use tonic::Status;

/// Longest name of a node, bytes.
pub const NODE_NAME_MAX: usize = 255;
/// Nodes that a controller knows at most.
pub const NODES_MAX: usize = 1 << 14;

/// All nodes, and which registration each is of.
#[derive(Debug)]
pub(crate) struct Nodes {
    boot_id: u64,
    table: watch::Sender<Table>,
}

#[derive(Debug, Clone, Default)]
struct Table {
    nodes: BTreeMap<String, (SocketAddr, u64)>,
    registrations: u64,
}

impl Nodes {
    pub(crate) fn new(boot_id: u64) -> Arc<Self> {
        Arc::new(Self { boot_id, table: watch::Sender::default() })
    }

    /// Enters a node, if there is one, and gives out the directory from now on.
    pub(crate) fn join(self: &Arc<Self>, entry: Option<NodeEntry>) -> Result<Listing, Status> {
        let place = match entry {
            None => None,
            Some(NodeEntry { name, address }) => {
                let address = check(&name, &address)?;
                Some(self.enter(name, address)?)
            }
        };
        Ok(Listing { boot_id: self.boot_id, table: WatchStream::new(self.table.subscribe()), _place: place })
    }

    fn enter(self: &Arc<Self>, name: String, address: SocketAddr) -> Result<Place, Status> {
        let mut entered = None;
        self.table.send_if_modified(|table| {
            if table.nodes.len() >= NODES_MAX && !table.nodes.contains_key(&name) {
                return false;
            }
            table.registrations += 1;
            entered = Some(table.registrations);
            // A name's last registration counts: the one before may be of a process that is gone.
            table.nodes.insert(name.clone(), (address, table.registrations));
            true
        });
        let full = || Status::resource_exhausted(format!("the directory has {NODES_MAX} nodes, as many as it may"));
        Ok(Place { nodes: Arc::downgrade(self), name, registration: entered.ok_or_else(full)? })
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
    table: WatchStream<Table>,
    _place: Option<Place>,
}

impl Stream for Listing {
    type Item = Result<NodesReply, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let boot_id = self.boot_id;
        let table = Pin::new(&mut self.table).poll_next(cx);
        table.map(|table| table.map(|table| Ok(NodesReply { boot_id, nodes: table.list() })))
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
        let nodes = Nodes::new(7);
        let mut watching = nodes.join(None).unwrap();
        assert_eq!(names(&mut watching).await, "");
        let a = nodes.join(entry("a", "10.0.0.1:1")).unwrap();
        let b = nodes.join(entry("b", "10.0.0.2:2")).unwrap();
        assert_eq!(names(&mut watching).await, "a@10.0.0.1:1 b@10.0.0.2:2 ");
        // It starts anew before the end of its first stream is seen.
        let again = nodes.join(entry("a", "10.0.0.1:3")).unwrap();
        drop(a);
        assert_eq!(names(&mut watching).await, "a@10.0.0.1:3 b@10.0.0.2:2 ");
        drop((again, b));
        assert_eq!(names(&mut watching).await, "");
        drop(nodes);
        assert!(watching.next().await.is_none(), "the controller has ended");
    }

    #[tokio::test]
    async fn directory_has_a_bounded_number_of_nodes() {
        let nodes = Nodes::new(7);
        let join = |name: &str| nodes.join(entry(name, "10.0.0.1:1"));
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
        let nodes = Nodes::new(7);
        for (name, address, says) in [
            ("", "10.0.0.1:1", "a node's name has 1 to 255 bytes, got 0"),
            ("a", "0.0.0.0:1", "a: expected the IP address and port where others reach it, got \"0.0.0.0:1\""),
            ("a", "here", "a: expected the IP address and port where others reach it, got \"here\""),
        ] {
            assert_eq!(nodes.join(entry(name, address)).unwrap_err().message(), says);
        }
        assert!(nodes.list().is_empty());
    }
}
