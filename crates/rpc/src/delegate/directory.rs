//! Directory of nodes: by name, by key, and by service.
//!
//! A *service* is a set of nodes of which any may work on a request, its *replicas*: the nodes whose name is the
//! service's, or begins with it and a slash: `index/1`, `index/2`. With zones, the zone is the next part of the name:
//! `index/east/1`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use pathcall_auth::{ConnectTargetError, Security};
use pathcall_driver::node::Node;
use pathcall_endpoint::delegate::caller::CallFailure;
use pathcall_endpoint::delegate::servers::{ServiceReplica, weight};
use pathcall_wire::Instant;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::Status;

use super::dns;
use super::registry::{DirectoryMember, controller, follow};
use super::server_states::SharedServers;
pub use super::target::NodeTarget;

/// Directory of nodes by name. Clones share its content.
#[derive(Debug, Clone, Default)]
pub struct Directory {
    nodes: Arc<watch::Sender<BTreeMap<String, SocketAddr>>>,
    servers: Arc<SharedServers>,
    zone: Option<Arc<str>>,
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

    /// Copy of the content: addresses by names.
    #[must_use]
    pub fn nodes(&self) -> BTreeMap<String, SocketAddr> {
        self.nodes.borrow().clone()
    }

    /// Directory whose services are host names: the replicas of a service are the nodes at all addresses of its host, at
    /// one port. The names are resolved again every five seconds while a clone of the directory exists; the addresses
    /// stay unchanged while a name cannot be resolved.
    ///
    /// ```no_run
    /// # async fn example() {
    /// # use pathcall_rpc::delegate::Directory;
    /// let directory = Directory::of_dns([("index", "index.search.svc.cluster.local:7801")]);
    /// # }
    /// ```
    pub fn of_dns<N: Into<String>, H: Into<String>>(services: impl IntoIterator<Item = (N, H)>) -> Self {
        let directory = Self::default();
        let services = services.into_iter().map(|(name, host)| (name.into(), host.into())).collect();
        let feed = tokio::spawn(dns::follow(services, directory.clone()));
        Self { _feed: Some(Arc::new(Feed(feed))), ..directory }
    }

    /// Prefers replicas of this zone: those named `service/zone/…`.
    #[must_use]
    pub fn in_zone(self, zone: impl Into<Arc<str>>) -> Self {
        Self { zone: Some(zone.into()), ..self }
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
        let _ = self.nodes.subscribe().wait_for(|nodes| self.look_up(nodes, target, &[]).is_some()).await;
    }

    /// Address of a target.
    ///
    /// # Errors
    /// UNAVAILABLE, with the name or prefix that the directory does not have.
    pub fn find(&self, target: &NodeTarget) -> Result<SocketAddr, Status> {
        self.find_avoiding(target, &[])
    }

    /// Address of a target for a request that is sent now. It should be none of `avoided` if it is a replica of a
    /// service.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub(super) fn choose(&self, target: &NodeTarget, avoided: &[SocketAddr]) -> Result<SocketAddr, Status> {
        let chosen = self.find_avoiding(target, avoided)?;
        if matches!(target, NodeTarget::Service { .. }) {
            self.servers.lock().record_sent(self.now(), chosen);
        }
        Ok(chosen)
    }

    fn find_avoiding(&self, target: &NodeTarget, avoided: &[SocketAddr]) -> Result<SocketAddr, Status> {
        self.look_up(&self.nodes.borrow(), target, avoided).ok_or_else(|| {
            let what = match target {
                NodeTarget::Address(address) => address.to_string(),
                NodeTarget::Name(name) => format!("a node named {name:?}"),
                NodeTarget::Key { prefix, .. } => format!("a node whose name begins with {prefix:?}"),
                NodeTarget::Service { name, .. } => format!("a node of the service {name:?}"),
            };
            Status::unavailable(format!("the directory does not have {what}"))
        })
    }

    fn look_up(
        &self,
        nodes: &BTreeMap<String, SocketAddr>,
        target: &NodeTarget,
        avoided: &[SocketAddr],
    ) -> Option<SocketAddr> {
        match target {
            NodeTarget::Address(address) => Some(*address),
            NodeTarget::Name(name) => nodes.get(name).copied(),
            NodeTarget::Key { prefix, key } => {
                let those = nodes.range(prefix.clone()..).take_while(|(name, _)| name.starts_with(prefix));
                those.max_by_key(|(name, _)| weight(name, key)).map(|(_, address)| *address)
            }
            NodeTarget::Service { name, key } => {
                let replicas = replicas_of(nodes, name, self.zone.as_deref());
                let draw = |below| rand::random_range(0..below);
                self.servers.lock().choose(self.now(), replicas, key.as_deref(), avoided, draw)
            }
        }
    }

    /// Learns of the servers that a node sends requests to.
    pub(super) fn learn_from(&self, node: &Node) {
        let servers: Weak<SharedServers> = Arc::downgrade(&self.servers);
        node.add_observer(servers);
    }

    /// Records the failure of a call: requests to a service avoid a server that did not answer for a while.
    pub(super) fn record_call_failure(&self, failure: &CallFailure) {
        self.servers.lock().record_call_failure(self.now(), failure);
    }

    /// These servers, and those that have just failed, but not more than a request can name.
    pub(super) fn with_avoided(&self, avoided: &[SocketAddr]) -> Vec<SocketAddr> {
        self.servers.lock().with_avoided(self.now(), avoided)
    }

    /// Time of the servers' states.
    pub(super) fn now(&self) -> Instant {
        self.servers.now()
    }
}

/// Replicas of a service, by name.
fn replicas_of<'a>(
    nodes: &'a BTreeMap<String, SocketAddr>,
    service: &str,
    zone: Option<&'a str>,
) -> impl Iterator<Item = ServiceReplica<'a>> + Clone {
    let (prefix, length) = (format!("{service}/"), service.len());
    let whole = nodes.get_key_value(service).into_iter();
    let parts = nodes.range(prefix.clone()..).take_while(move |(name, _)| name.starts_with(&prefix));
    whole.chain(parts).map(move |(name, address)| {
        let in_zone = zone.is_some_and(|zone| name[length..].split('/').nth(1) == Some(zone));
        ServiceReplica { name, address: *address, in_zone }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use pathcall_driver::node::{ServerEvent, ServerObserver};

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

    /// Addresses at which a service without load is found in 200 draws.
    fn drawn(directory: &Directory, avoided: &[SocketAddr]) -> BTreeSet<u16> {
        let target = NodeTarget::service("index");
        (0..200).map(|_| directory.find_avoiding(&target, avoided).unwrap().port()).collect()
    }

    fn record_failure(directory: &Directory, server: SocketAddr) {
        directory.servers.on_server_event(ServerEvent::Unreachable(server));
    }

    #[tokio::test]
    async fn failed_replica_of_service_is_found_last() {
        let names = ["index", "index-9", "index/east/1", "index/west/1", "index/west/2", "indexes/1"];
        let directory = Directory::of(names.into_iter().zip((0..).map(at)));
        assert_eq!(drawn(&directory, &[]), [0, 2, 3, 4].into());
        assert_eq!(drawn(&directory, &[at(0), at(3)]), [2, 4].into());
        record_failure(&directory, at(2));
        assert_eq!(drawn(&directory, &[at(0)]), [3, 4].into());
        assert_eq!(directory.with_avoided(&[at(9)]), [at(9), at(2)]);
        let west = directory.clone().in_zone("west");
        assert_eq!(drawn(&west, &[]), [3, 4].into());
        assert_eq!(drawn(&west, &[at(3), at(4)]), [0].into(), "another zone before one that has failed");
        assert_eq!(drawn(&directory, &[at(0), at(3), at(4)]), [2].into(), "it failed in another call only");
        let all = [0, 2, 3, 4].map(at);
        assert_eq!(drawn(&directory, &all), [4].into(), "the others failed in this call, or before it");
        let merged = directory.with_avoided(&[at(0), at(3), at(4)]);
        assert_eq!(drawn(&directory, &merged), [2].into(), "it failed in another call only");
        let missing = directory.find(&NodeTarget::service("docs")).unwrap_err();
        assert_eq!(missing.message(), "the directory does not have a node of the service \"docs\"");
    }

    #[tokio::test(start_paused = true)]
    async fn requests_go_to_the_less_loaded_replica() {
        let directory = Directory::of([("index/1", at(1)), ("index/2", at(2))]);
        let service = NodeTarget::service("index");
        let find = || directory.choose(&service, &[]).unwrap();
        let report = |server, load| {
            directory.servers.on_server_event(ServerEvent::Load(server, load));
        };
        report(at(1), 4);
        assert_eq!(directory.find(&service).unwrap(), at(2), "a look-up is no request");
        assert_eq!([find(), find(), find(), find()], [at(2); 4]);
        // Both have the same estimate now.
        let both = [find(), find()];
        assert!(both.contains(&at(1)) && both.contains(&at(2)), "{both:?}");
        report(at(2), 64);
        assert_eq!([find(), find()], [at(1); 2]);
    }

    #[tokio::test]
    async fn key_of_a_service_moves_only_from_a_failed_replica() {
        let directory = Directory::of((0..5).map(|i| (format!("index/{i}"), at(i))));
        let homes = |directory: &Directory| -> Vec<SocketAddr> {
            let target = |key: u32| NodeTarget::service_key("index", key.to_be_bytes());
            (0..1_000).map(|key| directory.find(&target(key)).unwrap()).collect()
        };
        let before = homes(&directory);
        record_failure(&directory, at(3));
        let after = homes(&directory);
        assert!(before.contains(&at(3)) && !after.contains(&at(3)));
        assert!(before.iter().zip(&after).all(|(before, after)| before == after || *before == at(3)));
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
