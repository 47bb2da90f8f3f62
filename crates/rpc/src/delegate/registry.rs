//! A node's place in a controller's directory, and a copy of that directory.
//!
//! The place is held by a stream; when it breaks, it is asked for again until the controller is back. The copy
//! stays as it was meanwhile. After a restart of the controller others have to register again too: whom the copy
//! knew is kept in it for a while, or keys would change places and back.
//!
//! A node that authenticates its messages is given the directory's key, before it sees anybody in it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use pathcall_auth::{Peer, Role, Security, Target, TargetError};
use pathcall_endpoint::driver::node::{Node, WeakNode};
use pathcall_proto::v1::controller_client::ControllerClient;
use pathcall_proto::v1::{NodeEntry, NodesReply, NodesRequest};
use pathcall_wire::TokenKey;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::directory::Directory;

/// One that is gone without a word is noticed within twice this time.
const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// A controller that has not answered after this time is taken for unreachable.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Pauses between attempts to reach it: the first, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// For so long after a controller's restart nodes may be missing: longer than they take to register again.
const MUSTER: Duration = Duration::from_secs(6);

/// The controller at an address.
pub(super) fn controller(address: &str, security: &Security) -> Result<Target, TargetError> {
    let target = security.target(address, Peer::new(Role::Controller))?;
    Ok(target.endpoint(|endpoint| {
        endpoint.connect_timeout(ANSWER_TIMEOUT).http2_keep_alive_interval(KEEP_ALIVE).keep_alive_timeout(KEEP_ALIVE)
    }))
}

/// Who follows a directory.
#[derive(Debug)]
pub(super) struct Member {
    /// Its place, if it wants one.
    entry: Option<NodeEntry>,
    /// Who has its key.
    node: Option<WeakNode>,
    /// Whether messages are to be signed; it may be said later.
    signs: watch::Receiver<bool>,
}

impl Member {
    /// Nobody in particular.
    pub(super) fn nobody() -> Self {
        Self { entry: None, node: None, signs: watch::channel(false).1 }
    }

    /// This node, by this name.
    pub(super) fn new(name: String, node: &Node, signs: watch::Receiver<bool>) -> Self {
        let entry = NodeEntry { name, address: node.address().to_string() };
        Self { entry: Some(entry), node: Some(node.downgrade()), signs }
    }

    /// This node, which has no place and signs its messages.
    pub(super) fn watching(node: &Node) -> Self {
        Self { entry: None, node: Some(node.downgrade()), signs: watch::channel(true).1 }
    }

    /// Signs with the directory's key.
    fn take_key(&self, signs: bool, reply: &NodesReply) {
        let Some(node) = self.node.as_ref().filter(|_| signs).and_then(WeakNode::upgrade) else { return };
        match reply.token_key {
            Some(key) => node.set_key(Some(TokenKey::new(key.into()))),
            None => tracing::warn!(
                "messages are to carry tokens, and the controller gives no key: is it of an older version?"
            ),
        }
    }
}

/// Holds the place of `member`, if it wants one, and keeps the copy, for ever.
pub(super) async fn follow(controller: Target, mut member: Member, directory: Directory) {
    let mut client = ControllerClient::new(controller.connect_lazy());
    let mut copy = Copy::default();
    let mut pause = PAUSE.0;
    loop {
        let authenticate = *member.signs.borrow_and_update();
        let request = NodesRequest { node: member.entry.clone(), authenticate };
        match client.nodes(request).await {
            Ok(replies) => {
                let mut replies = replies.into_inner();
                loop {
                    let next = tokio::select! {
                        next = replies.message() => next,
                        // It asks for its place anew.
                        Ok(()) = member.signs.changed() => {
                            pause = Duration::ZERO;
                            break;
                        }
                        () = over(copy.until) => {
                            copy.muster_is_over();
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
            // A controller that refuses says why each time; one that is away comes back.
            Err(status) => tracing::warn!(%status, "not in the controller's directory of nodes"),
        }
        tokio::select! {
            () = sleep(pause) => {}
            Ok(()) = member.signs.changed() => {}
        }
        pause = (pause * 2).clamp(PAUSE.0, PAUSE.1);
    }
}

async fn over(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// What is known of the directory.
#[derive(Debug, Default)]
struct Copy {
    boot_id: Option<u64>,
    nodes: BTreeMap<String, SocketAddr>,
    /// The last of it that the controller said.
    said: BTreeMap<String, SocketAddr>,
    /// Nodes that the controller does not name are kept until then.
    until: Option<Instant>,
}

impl Copy {
    fn take(&mut self, now: Instant, reply: NodesReply) {
        let entry = |node: NodeEntry| Some((node.name, node.address.parse().ok()?));
        self.said = reply.nodes.into_iter().filter_map(entry).collect();
        if self.boot_id.replace(reply.boot_id).is_some_and(|before| before != reply.boot_id) {
            self.until = Some(now + MUSTER);
        }
        match self.until {
            Some(_) => self.nodes.extend(self.said.clone()),
            None => self.nodes = self.said.clone(),
        }
    }

    fn muster_is_over(&mut self) {
        self.until = None;
        self.nodes = self.said.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(boot_id: u64, names: &str) -> NodesReply {
        let node = |name: char| NodeEntry { name: name.into(), address: format!("10.0.0.1:{}", name as u32) };
        NodesReply { boot_id, nodes: names.chars().map(node).collect(), token_key: None }
    }

    fn names(copy: &Copy) -> String {
        copy.nodes.keys().map(String::as_str).collect()
    }

    #[tokio::test]
    async fn a_controller_that_starts_anew_is_given_time_to_hear_of_all() {
        let (mut copy, now) = (Copy::default(), Instant::now());
        copy.take(now, reply(1, "abc"));
        copy.take(now, reply(1, "ac"));
        assert_eq!(names(&copy), "ac", "b has left");
        copy.take(now, reply(2, ""));
        copy.take(now, reply(2, "cd"));
        assert_eq!((names(&copy).as_str(), copy.until), ("acd", Some(now + MUSTER)));
        copy.muster_is_over();
        assert_eq!(names(&copy), "cd", "a has not come back");
    }
}
