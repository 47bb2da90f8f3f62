//! Opens a channel, with options.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pathcall_auth::{Credentials, Target, innermost};
use pathcall_endpoint::clone;
use pathcall_endpoint::delegate::caller::CallOptions;
use pathcall_endpoint::driver::node::Node;
use pathcall_endpoint::flow::SPENT;
use pathcall_proto::manifest::Manifest;
use tonic::codegen::BoxFuture;
use tonic::transport::{ClientTlsConfig, Endpoint};

use super::delegated::Delegating;
use super::dial::{Dial, answering, in_order};
use super::journal::{Journal, JournalError};
use super::pool::{Pool, Terms};
use super::session::Slot;
use super::stats::Counters;
use super::transport::Transport;
use super::{Channel, Inner};
use crate::application::{Catalogue, Disagreement};
use crate::delegate::Traces;
use crate::delegate::respond::Habits;
use crate::delegate::trace::Sink;

/// Reliable flows that a channel asks for in each application. A large call is split over them.
pub const FLOWS: u32 = 4;

/// Options of a channel that is about to be opened.
#[derive(Debug, Clone)]
#[must_use = "connect it"]
pub struct Builder {
    endpoint: Endpoint,
    /// Other servers that will do.
    more: Vec<Endpoint>,
    dial: Dial,
    catalogue: Catalogue,
    options: Options,
    journal: Option<PathBuf>,
    node: Option<Node>,
    cloned: Option<clone::Options>,
    habits: Habits,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    pub(super) local_address: Option<IpAddr>,
    pub(super) flows: u32,
    pub(super) flow_frames: u32,
    pub(super) busy_poll: Duration,
    pub(super) shared_memory: bool,
}

/// Why a channel could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The destination is not an address.
    #[error("not the address of a server: {0}")]
    Destination(#[source] Box<dyn StdError + Send + Sync>),
    /// Nobody answers there.
    #[error("no gRPC server answers at {uri}: {}", innermost(source))]
    Transport {
        /// The destination.
        uri: String,
        /// What the transport says.
        source: tonic::transport::Error,
    },
    /// Something takes connections there, and does not answer requests.
    #[error("the server at {uri} takes connections and answers nothing")]
    Silent {
        /// The destination.
        uri: String,
    },
    /// The manifests do not fit together.
    #[error(transparent)]
    Manifest(#[from] Disagreement),
    /// The journal can't be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl Builder {
    pub(super) fn new<D>(destination: D, manifest: &'static Manifest) -> Result<Self, ConnectError>
    where
        D: TryInto<Endpoint>,
        D::Error: Into<Box<dyn StdError + Send + Sync>>,
    {
        let endpoint = endpoint(destination)?;
        let mut catalogue = Catalogue::default();
        catalogue.push(manifest);
        Ok(Self {
            endpoint,
            more: Vec::new(),
            dial: Dial::default(),
            catalogue,
            journal: None,
            node: None,
            cloned: None,
            habits: Habits::default(),
            options: Options {
                local_address: None,
                flows: FLOWS,
                flow_frames: SPENT,
                busy_poll: Duration::ZERO,
                shared_memory: true,
            },
        })
    }

    /// Adds the methods of another package.
    pub fn manifest(mut self, manifest: &'static Manifest) -> Self {
        self.catalogue.push(manifest);
        self
    }

    /// Adds another server that will do as well, as often as there are any: one of the same pool, say. The channel connects to
    /// the first that answers; the others are tried a moment after it, and when the one that a pool is followed by is gone. A
    /// name with several addresses is tried address by address.
    ///
    /// # Errors
    /// When `destination` is not an address.
    pub fn also<D>(mut self, destination: D) -> Result<Self, ConnectError>
    where
        D: TryInto<Endpoint>,
        D::Error: Into<Box<dyn StdError + Send + Sync>>,
    {
        self.more.push(endpoint(destination)?);
        Ok(self)
    }

    /// Changes the gRPC connections' own options: of the one to the server that is named, and of those to servers of
    /// its pool that the channel finds by itself.
    pub fn endpoint(mut self, change: impl Fn(Endpoint) -> Endpoint + Send + Sync + 'static) -> Self {
        self.dial.change(change);
        self
    }

    /// Connects with TLS: to the server that is named, whose address begins with `https://`, and to those of its pool
    /// that the channel finds by itself. Each shows a certificate of the name or the address that it is gone to by, or
    /// of the configuration's `domain_name`, where that is set. Frames are not encrypted; tokens protect them
    /// ([`authenticate_frames`](crate::server::Builder::authenticate_frames)), and their key comes by this connection.
    pub fn tls(mut self, tls: ClientTlsConfig) -> Self {
        self.dial.tls(tls);
        self
    }

    /// Connects as [`tls`](Self::tls) does, and shows a certificate: the caller's. Servers show one that is of a server's role,
    /// or else of their name. Both are read again when their files change. Options of the connections are given by
    /// [`endpoint`](Self::endpoint); those of the destination itself are not kept.
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.dial.credentials(credentials);
        self
    }

    /// The address that frames are sent from; any, unless given. Server and element must be
    /// reachable from it, and it from them.
    pub fn local_address(mut self, address: IpAddr) -> Self {
        self.options.local_address = Some(address);
        self
    }

    /// Reliable flows in each application, at least one: [`FLOWS`] unless given.
    pub fn flows(mut self, flows: u32) -> Self {
        self.options.flows = flows.max(1);
        self
    }

    /// Frames of one flow after which an application is joined anew: half of the numbers that there are for them, unless
    /// given. Locks that are held are waited for.
    pub fn flow_frames(mut self, frames: u32) -> Self {
        self.options.flow_frames = frames.clamp(1, SPENT);
        self
    }

    /// A call with a filter, or one that is cloned, looks for its answer itself for so long before its task waits; not at all,
    /// unless given. It saves the wake-up of a thread at the cost of a processor's time: some tens of
    /// microseconds are worth it where processors are idle and calls are small.
    pub fn busy_poll(mut self, time: Duration) -> Self {
        self.options.busy_poll = time;
        self
    }

    /// Whether frames to and from an element on this host go by memory shared with it, where it agrees;
    /// they do, unless given. Everything else, and everything until then, goes by UDP.
    pub fn shared_memory(mut self, share: bool) -> Self {
        self.options.shared_memory = share;
        self
    }

    /// Keeps a journal in this file, which is made if it is not there: calls with an id (metadata
    /// `pathcall-call-id`, 1 to 128 bytes, the application's choice) are noted in it before they are sent
    /// and when they are done. A process that was killed opens the same journal and makes its calls again,
    /// with the same ids: one that is known to be done is answered at once, any other takes effect unless
    /// it had. That holds for calls that add under keys and get nothing; each is done by the server, whole
    /// and in one step, past the element. A handler behind one sees it again, with its id, when the call is made again before
    /// that has answered OK.
    ///
    /// DATA_LOSS says that the server can't know whether a repeated call had taken effect: it has started
    /// anew, or has not heard of this journal for an hour.
    ///
    /// The journal is written to the system's page cache: it survives the process, and not the loss of
    /// the machine. It grows with every call; a run that is over can remove it.
    pub fn journal(mut self, path: impl Into<PathBuf>) -> Self {
        self.journal = Some(path.into());
        self
    }

    /// The node that calls which servers may pass on are made by, and that replies come to. One is started when
    /// it is needed, unless given: at the address that the server is reached from, by what carries messages
    /// there, but for QUIC, which needs certificates.
    pub fn node(mut self, node: Node) -> Self {
        self.node = Some(node);
        self
    }

    /// Makes cloned calls with these options, whatever their methods say of cloning and balance: to compare. Budget,
    /// cancellation and deadline are the method's, and so is its hedging policy, if these options hedge.
    pub fn cloned(mut self, options: clone::Options) -> Self {
        self.cloned = Some(options);
        self
    }

    /// Time-outs and more of calls that servers may pass on. A request with [`CallOptions`] among its extensions
    /// is made by these.
    pub fn call_options(mut self, options: CallOptions) -> Self {
        self.habits.options = options;
        self
    }

    /// Has calls that servers may pass on traced, and takes the traces, when they have ended.
    pub fn traces(mut self, traces: impl Traces) -> Self {
        self.habits.traces = Some(Sink::new(traces));
        self
    }

    /// Connects to the server. Applications are joined when they are first used.
    ///
    /// # Errors
    /// When nobody answers, or two manifests give an application different filters.
    pub fn connect(self) -> BoxFuture<Channel, ConnectError> {
        Box::pin(async move {
            let endpoints = self.dialled()?;
            let (nth, transport) = answering(&endpoints).await?;
            self.channel(in_order(&endpoints, nth, transport))
        })
    }

    /// A channel that connects at its first call.
    ///
    /// # Errors
    /// When two manifests give an application different filters.
    pub fn connect_lazy(self) -> Result<Channel, ConnectError> {
        let endpoints = self.dialled()?;
        self.channel(in_order(&endpoints, 0, Transport::lazy(&endpoints[0])))
    }

    /// All servers that are named, at least one.
    fn dialled(&self) -> Result<Vec<Target>, ConnectError> {
        let named = [&self.endpoint].into_iter().chain(&self.more);
        let dialled = named.map(|endpoint| self.dial.named(endpoint.clone()));
        dialled.collect::<Result<_, _>>().map_err(|error| ConnectError::Destination(error.into()))
    }

    /// By the first of these servers, and for a pool by the others, too.
    fn channel(self, named: Vec<Transport>) -> Result<Channel, ConnectError> {
        let transport = named[0].clone();
        let applications = self.catalogue.applications()?;
        let journal = self.journal.as_deref().map(Journal::open).transpose()?;
        let slot = |(name, application)| (name, Arc::new(Slot::new(application, self.options)));
        let slots: BTreeMap<_, Arc<Slot>> = applications.into_iter().map(slot).collect();
        // What an earlier process had there may be gone with the server that had it.
        for (name, slot) in &slots {
            if let Some(book) = journal.as_ref().and_then(|journal: &Journal| journal.book(name)) {
                slot.invest_in(book.server);
            }
        }
        let methods: Vec<_> = self.catalogue.all_cloned().collect();
        let pooled = !methods.is_empty();
        let terms = Terms { dial: self.dial, options: self.options, methods };
        let pool = pooled.then(|| Pool::follow(named, terms));
        let inner = Inner {
            pool,
            override_cloned: self.cloned,
            transport,
            catalogue: self.catalogue,
            slots,
            journal,
            delegating: Delegating::by(self.node),
            habits: self.habits,
            counters: Counters::default(),
        };
        Ok(Channel { inner: Arc::new(inner) })
    }
}

fn endpoint<D>(destination: D) -> Result<Endpoint, ConnectError>
where
    D: TryInto<Endpoint>,
    D::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    destination.try_into().map_err(|error| ConnectError::Destination(error.into()))
}
