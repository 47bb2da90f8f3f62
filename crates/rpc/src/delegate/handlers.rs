//! Runs the handlers of a server.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use bytes::Bytes;
use pathcall_auth::{Security, TargetError};
use pathcall_endpoint::delegate::{self, Context, RequestId};
use pathcall_endpoint::driver::node::{History, Node, NodeConfig, NodeStats, Request, Transport};
use pathcall_proto::delegate::Method;
use pathcall_wire::TokenKey;
use prost::Message;
use rand::rngs::SysError;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tonic::Status;
use tonic::codegen::BoxFuture;
use tonic::service::Interceptor;

use super::call::{Call, Inner};
use super::directory::Directory;
use super::envelope::{self, Envelope};
use super::guard::{self, Check, Guard};
use super::registry::{self, Member};
use crate::key;

/// Requests that are worked on at one time, unless it is said otherwise; others wait in the node's order.
const AT_ONCE: usize = 1024;

/// Who hears of records that are needed no more.
type Forget = Box<dyn Fn(Context, RequestId) + Send>;
/// A handler of any method: given an encoded request, and what it may do for its call.
pub(crate) type Handler = Arc<dyn Fn(Bytes, Arc<Inner>) -> Working + Send + Sync>;
pub(crate) type Working = Pin<Box<dyn Future<Output = Result<(), Status>> + Send>>;

/// Handlers that a server is about to have.
///
/// ```ignore
/// let handlers = Handlers::new()
///     .handle::<pb::delegated::DocsLookup, _, _>(async |query, call| {
///         for id in index.find(&query) {
///             call.delegate::<pb::delegated::DocsFetch>(Target::key("docs-", id.to_be_bytes()), &Id { id })?;
///         }
///         Ok(())
///     })
///     .start().await?;
/// let server = pathcall::Server::builder(&pb::PATHCALL).handlers(handlers).build().await?;
/// ```
#[must_use = "start them"]
pub struct Handlers {
    handlers: BTreeMap<&'static str, Handler>,
    twice: Option<&'static str>,
    node: NodeConfig,
    directory: Directory,
    controller: Option<(String, String)>,
    security: Security,
    at_once: usize,
    history: History,
    forget: Option<Forget>,
    check: Option<Check>,
    authenticate: Option<bool>,
}

/// Why handlers could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// No place to listen at, or no certificates.
    #[error("no node at {address}: {source}")]
    Node {
        /// Where it should have listened.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The controller can't be connected to by this address.
    #[error(transparent)]
    Controller(#[from] TargetError),
    /// The system gives no randomness for the key of messages.
    #[error("no randomness for the key that signs delegated messages: {0}")]
    Randomness(SysError),
    /// A method can have one handler.
    #[error("{0} has two handlers")]
    Twice(&'static str),
}

impl Default for Handlers {
    fn default() -> Self {
        Self::new()
    }
}

impl Handlers {
    /// None, on a free port of the loopback.
    pub fn new() -> Self {
        Self {
            handlers: BTreeMap::new(),
            twice: None,
            node: NodeConfig::default(),
            directory: Directory::default(),
            controller: None,
            security: Security::default(),
            at_once: AT_ONCE,
            history: History::default(),
            forget: None,
            check: None,
            authenticate: None,
        }
    }

    /// Where to listen, and how messages are carried.
    pub fn node(mut self, node: NodeConfig) -> Self {
        self.node = node;
        self
    }

    /// Where [`Target`](super::Target)s by name and by key are found.
    pub fn directory(mut self, directory: Directory) -> Self {
        self.directory = directory;
        self
    }

    /// Takes a place in the directory of the controller at `http://host:port`, by this name, and finds targets
    /// there. A controller that can't be reached is tried again and again.
    pub fn controller(mut self, address: impl Into<String>, name: impl Into<String>) -> Self {
        self.controller = Some((address.into(), name.into()));
        self
    }

    /// The certificate by which it takes its place in the controller's directory.
    pub fn security(mut self, security: Security) -> Self {
        self.security = security;
        self
    }

    /// Whether messages carry tokens, by flows and by TCP: nothing is done for who does not have their key. On where there are
    /// [certificates](Self::security), else off, unless given. The key is drawn, or the controller's; all nodes of a
    /// directory say the same. Callers have it of the server that these handlers are given to, which [can say this
    /// too](crate::server::Builder::authenticate_frames): until then they would work for anybody.
    pub fn authenticate_frames(mut self, authenticate: bool) -> Self {
        self.authenticate = Some(authenticate);
        self
    }

    /// Requests that are worked on at one time; at least one.
    pub fn at_once(mut self, requests: usize) -> Self {
        self.at_once = requests.clamp(1, Semaphore::MAX_PERMITS);
        self
    }

    /// What handlers of an earlier process [sealed](Call::seal) and made durable: whoever asks for that again is told
    /// the same again, and no handler runs (DPC §3.5.3).
    pub fn history(mut self, history: History) -> Self {
        self.history = history;
        self
    }

    /// Hears of records that are needed no more, one after the other in a task of its own: of a call, and its request.
    /// Who deletes the record stores the last such call of each caller, for [`History::ended`]. Records of callers
    /// that died are never heard of: they go by their age.
    pub fn on_forget(mut self, forget: impl Fn(Context, RequestId) + Send + 'static) -> Self {
        self.forget = Some(Box::new(forget));
        self
    }

    /// Has this interceptor see each request before its handler, as tonic's `InterceptedService` does: its status is the
    /// call's; the handler finds the metadata that it leaves, and what it adds to the extensions
    /// ([`Call::extensions`]). A request that another server has passed on is seen as well. Where it came from is not
    /// known: who calls proves it by metadata. Layers of a tonic server around these handlers see requests before it.
    pub fn interceptor(mut self, interceptor: impl Interceptor + Clone + Send + Sync + 'static) -> Self {
        self.check = Some(guard::check(interceptor));
        self
    }

    /// Adds the handler of a method. It runs in a task of its own, and is dropped when the call is aborted.
    pub fn handle<M, H, F>(mut self, handler: H) -> Self
    where
        M: Method,
        H: Fn(M::Request, Call<M::Response>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), Status>> + Send + 'static,
    {
        if self.handlers.insert(M::PATH, erased::<M, H, F>(handler)).is_some() {
            self.twice = Some(M::PATH);
        }
        self
    }

    /// Starts a node and has it take requests.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(mut self) -> BoxFuture<Serving, StartError> {
        Box::pin(async move {
            if let Some(path) = self.twice {
                return Err(StartError::Twice(path));
            }
            let authenticate = self.authenticate.unwrap_or(self.security.credentials().is_some());
            if authenticate && self.node.key.is_none() {
                self.node.key = Some(key::draw().map_err(StartError::Randomness)?);
            }
            let signs = watch::Sender::new(authenticate);
            let address = self.node.listen;
            let started = Node::resume(&self.node, self.history).await;
            let (node, requests, mut forgotten) = started.map_err(|source| StartError::Node { address, source })?;
            // It ends with the node; without anybody to tell, what it hears of goes nowhere.
            let forget = self.forget;
            tokio::spawn(async move {
                while let Some((call, request)) = forgotten.next().await {
                    forget.iter().for_each(|forget| forget(call, request));
                }
            });
            let directory = match self.controller {
                None => self.directory,
                Some((address, name)) => {
                    let controller = registry::controller(&address, &self.security)?;
                    Directory::followed(controller, Member::new(name, &node, signs.subscribe()))
                }
            };
            let permits = Arc::new(Semaphore::new(self.at_once));
            let (handlers, placed, guard) = (self.handlers, OnceLock::new(), Guard::new(self.check));
            let shared = Arc::new(Shared { handlers, placed, directory, guard });
            let working = Arc::clone(&shared);
            let task = tokio::spawn(async move {
                // Permits first: a request that is taken is worked on, the others keep the node's order.
                while let Ok(permit) = Arc::clone(&permits).acquire_owned().await {
                    let (request, shared) = (requests.receive().await, Arc::clone(&working));
                    tokio::spawn(async move {
                        work(request, &shared).await;
                        drop(permit);
                    });
                }
            });
            Ok(Serving(Arc::new(Running { node, config: self.node, signs, shared, task })))
        })
    }
}

/// A handler that is told apart by its method's path alone.
pub(crate) fn erased<M, H, F>(handler: H) -> Handler
where
    M: Method,
    H: Fn(M::Request, Call<M::Response>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<(), Status>> + Send + 'static,
{
    Arc::new(move |message, inner| {
        let request = match M::Request::decode(message) {
            Ok(request) => request,
            Err(error) => {
                let status = Status::invalid_argument(format!("{}: {error}", M::PATH));
                return Box::pin(async { Err(status) });
            }
        };
        Box::pin(handler(request, Call::new(inner)))
    })
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handlers").field("methods", &self.handlers.keys()).field("node", &self.node).finish()
    }
}

/// Handlers that run, as long as there is a clone of this.
#[derive(Debug, Clone)]
pub struct Serving(Arc<Running>);

#[derive(Debug)]
struct Running {
    node: Node,
    config: NodeConfig,
    /// Whether messages carry tokens.
    signs: watch::Sender<bool>,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

/// What requests are worked on with.
struct Shared {
    handlers: BTreeMap<&'static str, Handler>,
    /// In their place, where the host has an accelerator: they choose who works on a request.
    placed: OnceLock<BTreeMap<&'static str, Handler>>,
    directory: Directory,
    guard: Guard,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let placed = self.placed.get().into_iter().flat_map(BTreeMap::keys);
        let placed: Vec<_> = placed.collect();
        f.debug_struct("Shared")
            .field("methods", &self.handlers.keys())
            .field("placed", &placed)
            .finish_non_exhaustive()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Serving {
    /// Where other servers, and callers, reach it.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.node.address()
    }

    /// The node: it can also call.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.0.node
    }

    /// Where its handlers' targets are found.
    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.0.shared.directory
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> NodeStats {
        self.0.node.stats()
    }

    pub(crate) fn config(&self) -> &NodeConfig {
        &self.0.config
    }

    /// Has its messages carry tokens from now on.
    pub(crate) fn authenticate(&self) -> Result<(), SysError> {
        if self.0.node.key().is_none() {
            self.0.node.set_key(Some(key::draw()?));
        }
        self.0.signs.send_if_modified(|signs| !std::mem::replace(signs, true));
        Ok(())
    }

    /// What callers' messages have to be signed with; by QUIC they need not be.
    pub(crate) fn key(&self) -> Option<TokenKey> {
        let signs = matches!(self.0.config.transport, Transport::Flows | Transport::Tcp) && *self.0.signs.borrow();
        self.0.node.key().filter(|_| signs)
    }

    /// Whether it works on requests of the method with this path.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.0.shared.handlers.contains_key(path)
    }

    /// Checks of requests.
    pub(crate) fn guard(&self) -> &Guard {
        &self.0.shared.guard
    }

    /// Has requests go from now on to what `instead` makes of a handler; once.
    pub(crate) fn place_by(&self, instead: impl Fn(&'static str, &Handler) -> Option<Handler>) {
        let handlers = self.0.shared.handlers.iter();
        let placed = handlers.filter_map(|(path, handler)| Some((*path, instead(path, handler)?)));
        // A second server around the same handlers finds them placed.
        let _ = self.0.shared.placed.set(placed.collect());
    }
}

/// Has a request worked on.
async fn work(request: Request, shared: &Shared) {
    let fail = |request: &Request, status: Status| {
        request.fail(&delegate::Status::new(status.code() as u8, status.message()));
    };
    let Envelope { path, metadata, message } = match envelope::open(request.payload().clone()) {
        Ok(envelope) => envelope,
        Err(error) => return fail(&request, Status::invalid_argument(error.to_string())),
    };
    let placed = shared.placed.get().and_then(|placed| placed.get(&*path));
    let Some(handler) = placed.or_else(|| shared.handlers.get(&*path)) else {
        return fail(&request, Status::unimplemented(format!("this server has no handler of {path}")));
    };
    if request.is_traced() {
        request.label(&path);
    }
    // A time beyond what the clock can say is no limit.
    let deadline = request.time().and_then(|time| Instant::now().checked_add(time));
    let admitted = tokio::select! {
        admitted = shared.guard.admit(&path, metadata) => admitted,
        () = request.aborted() => return fail(&request, Status::cancelled("nobody wants the result any more")),
    };
    let (metadata, extensions) = match admitted {
        Ok(admitted) => admitted,
        Err(status) => return fail(&request, status),
    };
    let inner = Arc::new(Inner::new(request, metadata, extensions, shared.directory.clone(), deadline));
    let _forsaken = Forsaken(Arc::clone(&inner));
    let working = handler(message, Arc::clone(&inner));
    tokio::select! {
        done = working => match done {
            // Sealed: it has said all, and sends that when it may.
            Ok(()) if inner.request.is_over() => {}
            // Aborted in the meantime: nobody waits for it.
            Ok(()) => drop(inner.request.finish()),
            Err(status) => fail(&inner.request, status),
        },
        () = inner.request.aborted() => {}
    }
}

/// Ends the request when its handler has panicked or is dropped: clones of its call may live on elsewhere.
struct Forsaken(Arc<Inner>);

impl Drop for Forsaken {
    fn drop(&mut self) {
        self.0.request.forsake();
    }
}
