//! Handlers of delegated methods, and the node that runs them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use pathcall_auth::{ConnectTargetError, Security};
use pathcall_driver::node::{Node, NodeConfig, RecordHistory};
use pathcall_endpoint::delegate::{ContextId, RequestId};
use pathcall_proto::delegate::RpcMethod;
use prost::Message;
use rand::rngs::SysError;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tonic::Status;
use tonic::codegen::BoxFuture;
use tonic::service::Interceptor;

use super::call::{DelegatedCall, Inner};
use super::directory::Directory;
use super::guard::{self, HandlerGuard, InterceptorFn};
use super::handler_slot::HandlerSlots;
use super::registry::{self, DirectoryMember};
use super::running_handlers::{HandlerTable, RunningHandlers, RunningNode, serve};
use crate::token_key;

/// Default number of requests that are processed at a time; others wait in their order of arrival.
const DEFAULT_CONCURRENCY: usize = 1024;

/// Callback for records that are no longer needed.
type Forget = Box<dyn Fn(ContextId, RequestId) + Send>;
/// Handler of any method, for an encoded request and the state of its call.
pub(crate) type Handler = Arc<dyn Fn(Bytes, Arc<Inner>) -> HandlerFuture + Send + Sync>;
pub(crate) type HandlerFuture = Pin<Box<dyn Future<Output = Result<(), Status>> + Send>>;

/// Builder for the handlers of a server.
///
/// ```no_run
/// # use {pathcall_rpc::delegate::{Handlers, NodeTarget}, pathcall_test_support::stubs::{Note, delegated::*}};
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let lookup = Handlers::new().handle::<DocsLookup, _, _>(async |wish, call| {
///     for text in wish.names {
///         call.delegate::<DocsFetch>(NodeTarget::key("docs-", text.clone()), &Note { text })?;
///     }
///     Ok(())
/// });
/// let handlers = lookup.start().await?; // for `Layer::builder(…).handlers(handlers)`
/// # Ok(()) }
/// ```
#[must_use = "start them"]
pub struct Handlers {
    handlers: BTreeMap<Cow<'static, str>, Handler>,
    duplicate: Option<Cow<'static, str>>,
    node: NodeConfig,
    runtimes: Vec<Handle>,
    directory: Directory,
    controller: Option<(String, String)>,
    security: Security,
    concurrency_limit: usize,
    history: RecordHistory,
    forget: Option<Forget>,
    check: Option<InterceptorFn>,
    authenticate: Option<bool>,
    forward_credentials: bool,
}

/// Error of [`Handlers::start`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandlersError {
    /// The node cannot listen on its address, or has no certificates.
    #[error("cannot start a node at {address}: {source}")]
    Node {
        /// Address to listen on.
        address: SocketAddr,
        /// Cause.
        source: io::Error,
    },
    /// The controller's address is invalid.
    #[error(transparent)]
    Controller(#[from] ConnectTargetError),
    /// The system has no random bytes for the key of messages.
    #[error("no random bytes for the key of delegated messages: {0}")]
    Randomness(SysError),
    /// A method has two handlers.
    #[error("{0} has two handlers")]
    DuplicateHandler(Cow<'static, str>),
}

impl Default for Handlers {
    fn default() -> Self {
        Self::new()
    }
}

impl Handlers {
    /// No handlers yet, and a node on a free port of the loopback interface.
    pub fn new() -> Self {
        Self {
            handlers: BTreeMap::new(),
            duplicate: None,
            node: NodeConfig::default(),
            runtimes: Vec::new(),
            directory: Directory::default(),
            controller: None,
            security: Security::default(),
            concurrency_limit: DEFAULT_CONCURRENCY,
            history: RecordHistory::default(),
            forget: None,
            check: None,
            authenticate: None,
            forward_credentials: false,
        }
    }

    /// Sets the node's address and transport.
    pub fn node(mut self, node: NodeConfig) -> Self {
        self.node = node;
        self
    }

    /// Sets the runtimes on which the [shards](NodeConfig::shards) of the node run in turn, with the handlers of their
    /// requests. The default is the runtime on which the handlers are started. A runtime of one thread for each shard
    /// lets each use a processor of its own.
    pub fn runtimes(mut self, runtimes: impl IntoIterator<Item = Handle>) -> Self {
        self.runtimes = runtimes.into_iter().collect();
        self
    }

    /// Sets the directory in which [`NodeTarget`](super::NodeTarget)s are found.
    pub fn directory(mut self, directory: Directory) -> Self {
        self.directory = directory;
        self
    }

    /// Registers the node under this name in the directory of the controller at `http://host:port`, and finds targets
    /// in this directory. Retries while the controller is unreachable.
    pub fn controller(mut self, address: impl Into<String>, name: impl Into<String>) -> Self {
        self.controller = Some((address.into(), name.into()));
        self
    }

    /// Sets the certificate with which the node registers at the controller.
    pub fn security(mut self, security: Security) -> Self {
        self.security = security;
        self
    }

    /// Sets whether messages carry tokens, on UDP flows and TCP: the node drops messages without a valid token. The
    /// default is on if there are [certificates](Self::security), and off otherwise. The key is random, or the
    /// controller's; all nodes of a directory must have the same setting. Callers get the key from the server that has
    /// these handlers, which [can turn tokens on, too](crate::layer::Builder::authenticate_frames): until then the
    /// handlers work for any caller.
    pub fn authenticate_frames(mut self, authenticate: bool) -> Self {
        self.authenticate = Some(authenticate);
        self
    }

    /// Sets how many requests are worked on at a time; at least one. Handlers that wait for their callers do not count.
    pub fn concurrency_limit(mut self, requests: usize) -> Self {
        self.concurrency_limit = requests.clamp(1, Semaphore::MAX_PERMITS);
        self
    }

    /// Sets the records that an earlier process [sealed](DelegatedCall::seal) and made durable. A request that is
    /// repeated gets the recorded result, and no handler runs (DPC §3.5.3).
    pub fn history(mut self, history: RecordHistory) -> Self {
        self.history = history;
        self
    }

    /// Sets a callback for records that are no longer needed, with the call and its request. It is called for one
    /// record after the other, in a task of its own. A program that deletes the record must store the last such call of
    /// each caller, for [`RecordHistory::ended`]. Records of callers that died have no callback: delete those by age.
    pub fn on_forget(mut self, forget: impl Fn(ContextId, RequestId) + Send + 'static) -> Self {
        self.forget = Some(Box::new(forget));
        self
    }

    /// Sets the interceptor that sees each request before its handler, as tonic's `InterceptedService` does. Its error
    /// status becomes the call's status. The handler gets the metadata and the extensions
    /// ([`DelegatedCall::extensions`]) as the interceptor leaves them. Requests that other servers passed on go through
    /// it, too. The address of the sender is not known: callers authenticate by metadata. Layers of a tonic server
    /// around these handlers run before the interceptor.
    pub fn interceptor(mut self, interceptor: impl Interceptor + Clone + Send + Sync + 'static) -> Self {
        self.check = Some(guard::check(interceptor));
        self
    }

    /// Sets whether requests that handlers pass on carry the caller's credentials: the metadata `authorization`,
    /// `proxy-authorization`, `cookie` and `x-api-key`. The default is off: the next servers then see the rest of the
    /// caller's metadata only. [`DelegatedCall::delegate_with`] passes on whatever a handler chooses.
    pub fn forward_credentials(mut self, forward: bool) -> Self {
        self.forward_credentials = forward;
        self
    }

    /// Adds the handler of a method. It runs in a task of its own, and is dropped when the call is aborted.
    pub fn handle<M, H, F>(self, handler: H) -> Self
    where
        M: RpcMethod,
        H: Fn(M::Request, DelegatedCall<M::Response>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), Status>> + Send + 'static,
    {
        self.add(Cow::Borrowed(M::PATH), erase_handler::<M, H, F>(handler))
    }

    /// Adds a handler by its method's path.
    pub(super) fn add(mut self, path: Cow<'static, str>, handler: Handler) -> Self {
        if self.handlers.insert(path.clone(), handler).is_some() {
            self.duplicate = Some(path);
        }
        self
    }

    /// Starts a node that serves requests with these handlers.
    ///
    /// # Errors
    /// See [`HandlersError`].
    pub fn start(mut self) -> BoxFuture<RunningHandlers, HandlersError> {
        Box::pin(async move {
            if let Some(path) = self.duplicate {
                return Err(HandlersError::DuplicateHandler(path));
            }
            let authenticate = self.authenticate.unwrap_or(self.security.credentials().is_some());
            if authenticate && self.node.key.is_none() {
                self.node.key = Some(token_key::random_key().map_err(HandlersError::Randomness)?);
            }
            let signs = watch::Sender::new(authenticate);
            let address = self.node.listen;
            if self.runtimes.is_empty() {
                self.runtimes.push(Handle::current());
            }
            let started = Node::resume_on(&self.node, &self.runtimes, self.history).await;
            let (node, requests, mut forgotten) = started.map_err(|source| HandlersError::Node { address, source })?;
            // Ends with the node. Without a callback, the records are dropped.
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
                    Directory::of_target(controller, DirectoryMember::new(name, &node, signs.subscribe()))
                }
            };
            directory.learn_from(&node);
            let shared = Arc::new(HandlerTable {
                handlers: self.handlers,
                placed: OnceLock::new(),
                directory,
                guard: HandlerGuard::new(self.check),
                forward_credentials: self.forward_credentials,
            });
            let slots = HandlerSlots::new(self.concurrency_limit);
            let receivers = if self.runtimes.len() == 1 { vec![requests] } else { requests.by_shard() };
            let tasks = receivers.into_iter().zip(self.runtimes.iter().cycle());
            let tasks =
                tasks.map(|(requests, runtime)| runtime.spawn(serve(requests, slots.clone(), Arc::clone(&shared))));
            let tasks = tasks.collect();
            Ok(RunningHandlers(Arc::new(RunningNode { node, config: self.node, signs, shared, tasks })))
        })
    }
}

/// Converts a typed handler to one that is identified by its method's path alone.
pub(crate) fn erase_handler<M, H, F>(handler: H) -> Handler
where
    M: RpcMethod,
    H: Fn(M::Request, DelegatedCall<M::Response>) -> F + Send + Sync + 'static,
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
        Box::pin(handler(request, DelegatedCall::new(inner)))
    })
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handlers").field("methods", &self.handlers.keys()).field("node", &self.node).finish()
    }
}
