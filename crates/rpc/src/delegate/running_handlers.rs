//! Running handlers of a node: the requests that they work on, and their checks.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use pathcall_driver::node::{Node, NodeConfig, NodeRequest, NodeRequests, NodeStats, Transport};
use pathcall_wire::TokenKey;
use rand::rngs::SysError;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::Status;

use super::call::{EndOnDrop, Inner};
use super::directory::Directory;
use super::envelope::{self, Envelope};
use super::failure;
use super::guard::HandlerGuard;
use super::handler_slot::{HandlerSlot, HandlerSlots};
use super::handlers::Handler;
use crate::{headers, token_key};

/// Running handlers; they stop when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct RunningHandlers(pub(super) Arc<RunningNode>);

#[derive(Debug)]
pub(super) struct RunningNode {
    pub(super) node: Node,
    pub(super) config: NodeConfig,
    /// Whether messages carry tokens.
    pub(super) signs: watch::Sender<bool>,
    pub(super) shared: Arc<HandlerTable>,
    /// Tasks that receive requests.
    pub(super) tasks: Vec<JoinHandle<()>>,
}

/// Handlers and checks that the tasks share.
pub(super) struct HandlerTable {
    pub(super) handlers: BTreeMap<Cow<'static, str>, Handler>,
    /// Handlers that choose between processor and accelerator, if the host has one. They replace `handlers`.
    pub(super) placed: OnceLock<BTreeMap<&'static str, Handler>>,
    pub(super) directory: Directory,
    pub(super) guard: HandlerGuard,
    /// Whether requests are passed on with the caller's credentials.
    pub(super) forward_credentials: bool,
}

impl fmt::Debug for HandlerTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let placed: Vec<_> = self.placed.get().into_iter().flat_map(BTreeMap::keys).collect();
        f.debug_struct("HandlerTable")
            .field("methods", &self.handlers.keys())
            .field("placed", &placed)
            .finish_non_exhaustive()
    }
}

impl Drop for RunningNode {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl RunningHandlers {
    /// Address at which other servers and callers reach the node.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.node.address()
    }

    /// Node of the handlers. It can also make calls.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.0.node
    }

    /// Directory in which the handlers' targets are found.
    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.0.shared.directory
    }

    /// Counters of the node.
    #[must_use]
    pub fn stats(&self) -> NodeStats {
        self.0.node.stats()
    }

    pub(crate) fn config(&self) -> &NodeConfig {
        &self.0.config
    }

    /// Turns tokens on for all messages from now on.
    pub(crate) fn authenticate(&self) -> Result<(), SysError> {
        if self.0.node.key().is_none() {
            self.0.node.set_key(Some(token_key::random_key()?));
        }
        self.0.signs.send_if_modified(|signs| !std::mem::replace(signs, true));
        Ok(())
    }

    /// Key for messages of callers; `None` by QUIC, which does not need it.
    pub(crate) fn key(&self) -> Option<TokenKey> {
        let signs = matches!(self.0.config.transport, Transport::Flows | Transport::Tcp) && *self.0.signs.borrow();
        self.0.node.key().filter(|_| signs)
    }

    /// Whether there is a handler for the method with this path.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.0.shared.handlers.contains_key(path)
    }

    /// Checks of requests.
    pub(crate) fn guard(&self) -> &HandlerGuard {
        &self.0.shared.guard
    }

    /// Replaces each handler of a typed method by the one that `instead` returns. Has an effect once.
    pub(crate) fn place_by(&self, instead: impl Fn(&'static str, &Handler) -> Option<Handler>) {
        let handlers = self.0.shared.handlers.iter();
        let placed = handlers.filter_map(|(path, handler)| match path {
            Cow::Borrowed(path) => Some((*path, instead(path, handler)?)),
            Cow::Owned(_) => None,
        });
        // A second layer with the same handlers leaves them as they are.
        let _ = self.0.shared.placed.set(placed.collect());
    }
}

/// Works on requests, each in a task of its own, until dropped.
pub(super) async fn serve(requests: NodeRequests, slots: HandlerSlots, shared: Arc<HandlerTable>) {
    loop {
        // A slot is not held without a request: the receivers of other shards may need it.
        requests.waiting().await;
        // Slots first: a request that is received is worked on at once, the others keep the node's order.
        let slot = slots.take().await;
        let Some(request) = requests.try_receive() else { continue };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move { work(request, slot, &shared).await });
    }
}

/// Works on one request: checks it and runs its handler.
async fn work(request: NodeRequest, slot: HandlerSlot, shared: &HandlerTable) {
    let fail = |request: &NodeRequest, status: Status| {
        request.fail(&failure::encode(&status));
    };
    let Envelope { path, metadata, avoided, message } = match envelope::decode(request.payload().clone()) {
        Ok(envelope) => envelope,
        Err(error) => return fail(&request, Status::invalid_argument(error.to_string())),
    };
    let placed = shared.placed.get().and_then(|placed| placed.get(&*path));
    let Some(handler) = placed.or_else(|| shared.handlers.get(&*path)) else {
        return fail(&request, Status::unimplemented(format!("this server has no handler of {path}")));
    };
    if request.is_traced() {
        request.set_label(&path);
    }
    let deadline = request.time().and_then(|time| Instant::now().checked_add(time));
    let admitted = tokio::select! {
        admitted = shared.guard.admit(&path, metadata) => admitted,
        () = request.aborted() => return fail(&request, Status::cancelled("the caller no longer needs the result")),
    };
    let (metadata, extensions) = match admitted {
        Ok(admitted) => admitted,
        Err(status) => return fail(&request, status),
    };
    let passed_on = (!shared.forward_credentials).then(|| headers::without_credentials(&metadata)).flatten();
    let (metadata, directory) = ((metadata, passed_on, extensions), (shared.directory.clone(), avoided));
    let inner = Arc::new(Inner::new((request, slot), metadata, directory, deadline));
    let _end_on_drop = EndOnDrop(Arc::clone(&inner));
    let working = handler(message, Arc::clone(&inner));
    tokio::select! {
        done = working => match done {
            // A sealed request: the result is sent when it is released.
            Ok(()) if inner.request.is_over() => {}
            // Aborted in the meantime: no party waits for the result.
            Ok(()) => drop(inner.request.finish()),
            Err(status) => fail(&inner.request, status),
        },
        () = inner.request.aborted() => {}
    }
}
