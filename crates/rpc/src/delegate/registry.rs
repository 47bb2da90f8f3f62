//! Registration of a node in a controller's directory, and a copy of that directory.
//!
//! The registration holds as long as a stream to the controller is open; when the stream breaks, the node registers
//! again until the controller answers. The copy does not change meanwhile. After a restart of the controller the other
//! nodes have to register again, too: the copy keeps the nodes that it knew for a while, so that keys do not move away
//! and back.
//!
//! A node that authenticates its messages gets the directory's key before the directory has any nodes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use pathcall_auth::{ConnectTarget, ConnectTargetError, ExpectedPeer, PartyRole, Security};
use pathcall_driver::node::{Node, WeakNode};
use pathcall_proto::v1::controller_client::ControllerClient;
use pathcall_proto::v1::{FollowNodesRequest, NodeEntry, NodeList};
use pathcall_wire::TokenKey;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::directory::Directory;

/// Keep-alive interval: the loss of a connection is noticed within twice this time.
const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// Time after which a controller that has not answered counts as unreachable.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Pauses between attempts to connect: the first, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// Time after a controller's restart during which nodes may be missing: longer than nodes take to register again.
const REREGISTRATION_PERIOD: Duration = Duration::from_secs(6);

/// Connection target of the controller at an address.
pub(super) fn controller(address: &str, security: &Security) -> Result<ConnectTarget, ConnectTargetError> {
    let target = security.target(address, ExpectedPeer::new(PartyRole::Controller))?;
    Ok(target.endpoint(|endpoint| {
        endpoint.connect_timeout(ANSWER_TIMEOUT).http2_keep_alive_interval(KEEP_ALIVE).keep_alive_timeout(KEEP_ALIVE)
    }))
}

/// Party that follows a directory.
#[derive(Debug)]
pub(super) struct DirectoryMember {
    /// Entry to register, if any.
    entry: Option<NodeEntry>,
    /// Node that gets the directory's key.
    node: Option<WeakNode>,
    /// Whether messages are signed; may change later.
    signs: watch::Receiver<bool>,
}

impl DirectoryMember {
    /// A party that only reads the directory.
    pub(super) fn observer() -> Self {
        Self { entry: None, node: None, signs: watch::channel(false).1 }
    }

    /// This node, registered under this name.
    pub(super) fn new(name: String, node: &Node, signs: watch::Receiver<bool>) -> Self {
        let entry = NodeEntry { name, address: node.address().to_string() };
        Self { entry: Some(entry), node: Some(node.downgrade()), signs }
    }

    /// This node, not registered, which signs its messages.
    pub(super) fn key_holder(node: &Node) -> Self {
        Self { entry: None, node: Some(node.downgrade()), signs: watch::channel(true).1 }
    }

    /// Sets the node's key to the directory's, if messages are signed.
    fn take_key(&self, signs: bool, reply: &NodeList) {
        let Some(node) = self.node.as_ref().filter(|_| signs).and_then(WeakNode::upgrade) else { return };
        match reply.token_key {
            Some(key) => node.set_key(Some(TokenKey::new(key.into()))),
            None => {
                tracing::warn!("messages have to carry tokens, but the controller sent no key: is it an older version?")
            }
        }
    }
}

/// Keeps `member` registered, if it has an entry, and the copy up to date, until dropped.
pub(super) async fn follow(controller: ConnectTarget, mut member: DirectoryMember, directory: Directory) {
    let mut client = ControllerClient::new(controller.connect_lazy());
    let mut copy = DirectoryCopy::default();
    let mut pause = PAUSE.0;
    loop {
        let authenticate = *member.signs.borrow_and_update();
        let request = FollowNodesRequest { node: member.entry.clone(), authenticate };
        match client.follow_nodes(request).await {
            Ok(replies) => {
                let mut replies = replies.into_inner();
                loop {
                    let next = tokio::select! {
                        next = replies.message() => next,
                        // Registers anew, with authentication.
                        Ok(()) = member.signs.changed() => {
                            pause = Duration::ZERO;
                            break;
                        }
                        () = sleep_until_some(copy.until) => {
                            copy.end_reregistration();
                            directory.set(copy.nodes.clone());
                            continue;
                        }
                    };
                    let Ok(Some(reply)) = next else { break };
                    pause = PAUSE.0;
                    member.take_key(authenticate, &reply);
                    copy.take(Instant::now(), reply);
                    directory.set(copy.nodes.clone());
                }
            }
            // A controller that refuses gives its reason each time; one that is unreachable may come back.
            Err(status) => tracing::warn!(%status, "not in the controller's directory of nodes"),
        }
        tokio::select! {
            () = sleep(pause) => {}
            Ok(()) = member.signs.changed() => {}
        }
        pause = (pause * 2).clamp(PAUSE.0, PAUSE.1);
    }
}

async fn sleep_until_some(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// Copy of the controller's directory.
#[derive(Debug, Default)]
struct DirectoryCopy {
    boot_id: Option<u64>,
    nodes: BTreeMap<String, SocketAddr>,
    /// Latest content that the controller sent.
    latest: BTreeMap<String, SocketAddr>,
    /// Until this time nodes that the controller does not list are kept.
    until: Option<Instant>,
}

impl DirectoryCopy {
    fn take(&mut self, now: Instant, reply: NodeList) {
        let entry = |node: NodeEntry| Some((node.name, node.address.parse().ok()?));
        self.latest = reply.nodes.into_iter().filter_map(entry).collect();
        if self.boot_id.replace(reply.boot_id).is_some_and(|before| before != reply.boot_id) {
            self.until = Some(now + REREGISTRATION_PERIOD);
        }
        match self.until {
            Some(_) => self.nodes.extend(self.latest.clone()),
            None => self.nodes = self.latest.clone(),
        }
    }

    fn end_reregistration(&mut self) {
        self.until = None;
        self.nodes = self.latest.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(boot_id: u64, names: &str) -> NodeList {
        let node = |name: char| NodeEntry { name: name.into(), address: format!("10.0.0.1:{}", name as u32) };
        NodeList { boot_id, nodes: names.chars().map(node).collect(), token_key: None }
    }

    fn names(copy: &DirectoryCopy) -> String {
        copy.nodes.keys().map(String::as_str).collect()
    }

    #[tokio::test]
    async fn copy_keeps_nodes_for_a_while_after_controller_restart() {
        let (mut copy, now) = (DirectoryCopy::default(), Instant::now());
        copy.take(now, reply(1, "abc"));
        copy.take(now, reply(1, "ac"));
        assert_eq!(names(&copy), "ac", "b has left");
        copy.take(now, reply(2, ""));
        copy.take(now, reply(2, "cd"));
        assert_eq!((names(&copy).as_str(), copy.until), ("acd", Some(now + REREGISTRATION_PERIOD)));
        copy.end_reregistration();
        assert_eq!(names(&copy), "cd", "a has not come back");
    }
}
