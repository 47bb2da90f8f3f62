//! Builder of a channel.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pathcall_auth::{ConnectTarget, Credentials, innermost};
use pathcall_driver::node::Node;
use pathcall_endpoint::clone;
use pathcall_endpoint::delegate::caller::CallOptions;
use pathcall_endpoint::flow::RENEWAL_AT;
use pathcall_proto::manifest::{Manifest, MapPath};
use tonic::codegen::BoxFuture;
use tonic::transport::{ClientTlsConfig, Endpoint};

use super::cloned_stream::ClonedStreams;
use super::delegated::DelegateNode;
use super::dial::{DialOptions, connect_first, order_transports};
use super::journal::{Journal, JournalError};
use super::pool::{PoolMembership, PoolOptions};
use super::session::ChannelApplication;
use super::stats::Counters;
use super::transport::Transport;
use super::{Channel, Inner};
use crate::application::{Catalogue, FilterConflict};
use crate::delegate::TraceSink;
use crate::delegate::respond::DelegateDefaults;
use crate::delegate::trace::SharedTraceSink;

/// Default number of reliable flows that a channel uses in each application. A large call is split over them.
pub const DEFAULT_FLOWS: u32 = 4;

/// Options of a channel to be opened.
#[derive(Debug, Clone)]
#[must_use = "connect it"]
pub struct Builder {
    endpoint: Endpoint,
    /// Further servers to which the channel may connect.
    alternatives: Vec<Endpoint>,
    dial: DialOptions,
    catalogue: Catalogue,
    options: ChannelOptions,
    journal: Option<PathBuf>,
    node: Option<Node>,
    cloned: Option<clone::CloneOptions>,
    rack: String,
    defaults: DelegateDefaults,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct ChannelOptions {
    pub(super) local_address: Option<IpAddr>,
    pub(super) flows: u32,
    pub(super) flow_frames: u32,
    pub(super) busy_poll: Duration,
    pub(super) shared_memory: bool,
    /// Path of the calls, instead of that of their filter.
    pub(super) path: Option<MapPath>,
}

/// Error of [`Builder::connect`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The destination is not a valid address.
    #[error("invalid server address: {0}")]
    Destination(#[source] Box<dyn StdError + Send + Sync>),
    /// No server accepts connections at the destination.
    #[error("no gRPC server answers at {uri}: {}", innermost(source))]
    Transport {
        /// The destination.
        uri: String,
        /// Error of the transport.
        source: tonic::transport::Error,
    },
    /// A server at the destination accepts connections, but does not answer requests.
    #[error("the server at {uri} accepts connections but does not answer")]
    Silent {
        /// The destination.
        uri: String,
    },
    /// The manifests contradict each other.
    #[error(transparent)]
    Manifest(#[from] FilterConflict),
    /// The journal cannot be used.
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
            alternatives: Vec::new(),
            dial: DialOptions::default(),
            catalogue,
            journal: None,
            node: None,
            cloned: None,
            rack: String::new(),
            defaults: DelegateDefaults::default(),
            options: ChannelOptions {
                local_address: None,
                flows: DEFAULT_FLOWS,
                flow_frames: RENEWAL_AT,
                busy_poll: Duration::ZERO,
                shared_memory: true,
                path: None,
            },
        })
    }

    /// Adds the methods of another package.
    pub fn manifest(mut self, manifest: &'static Manifest) -> Self {
        self.catalogue.push(manifest);
        self
    }

    /// Adds another server to which the channel may connect, for example one of the same pool. May be called several
    /// times. The channel connects to the first server that answers. It tries the others one after the other, a moment
    /// apart, and again when it loses the server through which it follows a pool. If a name has several addresses, all
    /// of them are tried.
    ///
    /// # Errors
    /// `destination` is not a valid address.
    pub fn add_server<D>(mut self, destination: D) -> Result<Self, ConnectError>
    where
        D: TryInto<Endpoint>,
        D::Error: Into<Box<dyn StdError + Send + Sync>>,
    {
        self.alternatives.push(endpoint(destination)?);
        Ok(self)
    }

    /// Changes the options of the gRPC connections: to the given server and to the servers of its pool.
    pub fn endpoint(mut self, change: impl Fn(Endpoint) -> Endpoint + Send + Sync + 'static) -> Self {
        self.dial.change(change);
        self
    }

    /// Uses TLS for the connections: to the given server, whose address begins with `https://`, and to the servers of
    /// its pool. Each server must have a certificate for the name or address by which the channel connects to it, or
    /// for the configuration's `domain_name`, if that is set. Frames are not encrypted. Tokens protect them
    /// ([`authenticate_frames`](crate::layer::Builder::authenticate_frames)); the key of the tokens comes through the
    /// TLS connection.
    pub fn tls(mut self, tls: ClientTlsConfig) -> Self {
        self.dial.tls(tls);
        self
    }

    /// Uses TLS as [`tls`](Self::tls) does, with a certificate of the caller. A server must have a certificate of the
    /// server role, or one for its name. Both certificates are read again when their files change. Set options of the
    /// connections with [`endpoint`](Self::endpoint); those of the destination itself are ignored.
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.dial.credentials(credentials);
        self
    }

    /// Sets the local address from which frames are sent; the default is any address. The address must be reachable
    /// from server and element.
    pub fn local_address(mut self, address: IpAddr) -> Self {
        self.options.local_address = Some(address);
        self
    }

    /// Sets the number of reliable flows in each application, at least one; the default is [`DEFAULT_FLOWS`].
    pub fn flows(mut self, flows: u32) -> Self {
        self.options.flows = flows.max(1);
        self
    }

    /// Sets the number of frames of one flow after which the channel joins the application again. The default is half
    /// of the sequence numbers. The channel waits until it holds no locks.
    pub fn flow_frames(mut self, frames: u32) -> Self {
        self.options.flow_frames = frames.clamp(1, RENEWAL_AT);
        self
    }

    /// Sets for how long a call with a filter, or a cloned call, polls for its answer before its task sleeps; the
    /// default is zero. Polling saves the wake-up of a thread and costs processor time: some tens of microseconds are
    /// useful if processors are idle and calls are small. The node of delegated calls polls for this time after each
    /// message ([`NodeConfig::busy_poll`](crate::delegate::NodeConfig::busy_poll)), unless it is
    /// [given](Self::node).
    pub fn busy_poll(mut self, time: Duration) -> Self {
        self.options.busy_poll = time;
        self
    }

    /// Sets whether frames to and from an element on this host go through shared memory, if the element supports it;
    /// the default is true. All other frames go by UDP.
    pub fn shared_memory(mut self, share: bool) -> Self {
        self.options.shared_memory = share;
        self
    }

    /// Sets the path of the calls with a filter, instead of the filter's `path`, which `None` leaves. Whether frames go
    /// by an element, the server decides: [`layer::Builder::path`](crate::layer::Builder::path).
    pub fn path(mut self, path: impl Into<Option<MapPath>>) -> Self {
        self.options.path = path.into();
        self
    }

    /// Keeps a journal of calls with ids in this file, which is created if it does not exist. A call has an id if its
    /// metadata has `pathcall-call-id` (1 to 128 bytes, chosen by the application). The journal records the call before
    /// it is sent and when it is done. A process that was killed opens the same journal and repeats its calls with the
    /// same ids: a call that is recorded as done is answered at once; any other call takes effect unless it already
    /// has. This works for calls that add values by key and read none. The server executes each of them whole, in one
    /// step; the element is not used. If a handler follows, it sees a repeated call, with its id, until it has answered
    /// OK.
    ///
    /// A repeated call fails with DATA_LOSS if the server cannot know whether the call had taken effect: the server has
    /// restarted, or has had no call of this journal for an hour.
    ///
    /// The journal is written to the system's page cache: it survives the end of the process, but not a failure of the
    /// machine. It grows with every call; remove it when the run is over.
    pub fn journal(mut self, path: impl Into<PathBuf>) -> Self {
        self.journal = Some(path.into());
        self
    }

    /// Sets the node that makes delegated calls and receives their replies. By default the channel starts one when it
    /// is needed, on the address from which it reaches the server, with the server's transport (not QUIC, which needs
    /// certificates).
    pub fn node(mut self, node: Node) -> Self {
        self.node = Some(node);
        self
    }

    /// Makes all cloned calls with these options, instead of the clone and balance options of their methods: for
    /// comparisons. Budget, cancellation and deadline remain those of the method, and so does its hedging policy, if
    /// these options hedge.
    pub fn cloned(mut self, options: clone::CloneOptions) -> Self {
        self.cloned = Some(options);
        self
    }

    /// Sets the rack of this caller: its cloned calls pass the element of this rack (`pathcall element --rack`), if the
    /// pool has one there. By default none is named.
    pub fn rack(mut self, name: impl Into<String>) -> Self {
        self.rack = name.into();
        self
    }

    /// Sets timeouts and other options of delegated calls. [`CallOptions`] among the extensions of a request take
    /// precedence.
    pub fn call_options(mut self, options: CallOptions) -> Self {
        self.defaults.options = options;
        self
    }

    /// Traces delegated calls and passes each trace to `traces` when it is complete.
    pub fn traces(mut self, traces: impl TraceSink) -> Self {
        self.defaults.traces = Some(SharedTraceSink::new(traces));
        self
    }

    /// Connects to the server. Joins an application at its first call.
    ///
    /// # Errors
    /// No server answers, or two manifests have different filters for an application.
    pub fn connect(self) -> BoxFuture<Channel, ConnectError> {
        Box::pin(async move {
            let endpoints = self.targets()?;
            let (nth, transport) = connect_first(&endpoints).await?;
            self.open(order_transports(&endpoints, nth, transport))
        })
    }

    /// Creates a channel that connects at its first call.
    ///
    /// # Errors
    /// Two manifests have different filters for an application.
    pub fn connect_lazy(self) -> Result<Channel, ConnectError> {
        let endpoints = self.targets()?;
        self.open(order_transports(&endpoints, 0, Transport::lazy(&endpoints[0])))
    }

    /// Connection targets of all given servers, at least one.
    fn targets(&self) -> Result<Vec<ConnectTarget>, ConnectError> {
        let given = [&self.endpoint].into_iter().chain(&self.alternatives);
        let targets = given.map(|endpoint| self.dial.target_of(endpoint.clone()));
        targets.collect::<Result<_, _>>().map_err(|error| ConnectError::Destination(error.into()))
    }

    /// Creates the channel on the first of these transports; a pool uses the others, too.
    fn open(self, given: Vec<Transport>) -> Result<Channel, ConnectError> {
        let transport = given[0].clone();
        let applications = self.catalogue.applications()?;
        let journal = self.journal.as_deref().map(Journal::open).transpose()?;
        let joinable = |(name, application)| (name, Arc::new(ChannelApplication::new(application, self.options)));
        let applications: BTreeMap<_, Arc<ChannelApplication>> = applications.into_iter().map(joinable).collect();
        // An earlier process may have had state at a server that has failed since.
        for (name, application) in &applications {
            if let Some(log) = journal.as_ref().and_then(|journal: &Journal| journal.id_log(name)) {
                application.mark_state_at(log.server);
            }
        }
        let methods: Vec<_> = self.catalogue.all_cloned().collect();
        let (pooled, streams) = (!methods.is_empty(), ClonedStreams::of(&methods));
        let terms = PoolOptions { dial: self.dial, options: self.options, rack: self.rack, methods };
        let pool = pooled.then(|| PoolMembership::follow(given, terms));
        let inner = Inner {
            pool,
            streams,
            override_cloned: self.cloned,
            transport,
            catalogue: self.catalogue,
            applications,
            journal,
            delegate_node: DelegateNode::by(self.node, self.options.busy_poll),
            defaults: self.defaults,
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
