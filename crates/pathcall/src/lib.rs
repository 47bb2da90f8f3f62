//! gRPC with in-network computation: Pathcall runs part of a gRPC call in the network, in other servers or on an
//! accelerator, behind unchanged stubs.
//!
//! A program keeps the client and server code that `tonic` generates. It puts a [`Channel`] under its stubs and a
//! [`Layer`] around its services. Options in the `.proto` file say what may happen to a call on its path:
//!
//! | ability | option of the method | effect on the call |
//! |---|---|---|
//! | *map* | `(pathcall.filter)` | a network element adds, reads, counts or locks values of the message |
//! | *clone* | `(pathcall.clone)` | a slow call goes to a second server, or each call to two idle ones; the first good answer wins |
//! | *delegate* | `(pathcall.delegate)` | servers pass the call on to others, which reply directly to the caller |
//! | *place* | `(pathcall.place)` | the host's processor or its accelerator answers, whichever finishes sooner |
//!
//! Without an element, the server itself does the map operations, with the same results. If no two servers are idle, a
//! cloned call goes to the server with the shorter queue. A method without an option is plain gRPC. Cloned and placed
//! methods are plain gRPC, too, if the server does not use Pathcall. Packet functions, which are split between a
//! network element and servers, are built and run by the command `pathcall`, without this crate.
//!
//! # Example
//!
//! A method names a NetFilter file, which says what the network does with a field (NetRPC §4):
//!
//! ```proto
//! import "pathcall/options.proto";
//! import "pathcall/types.proto";
//!
//! message Counts { pathcall.STRINTMap kvs = 1; }
//! message Reply { string text = 1; }
//!
//! service Words {
//!   // words.nf: { "AppName": "WORDS", "addTo": "Counts.kvs" }
//!   rpc Reduce(Counts) returns (Reply) { option (pathcall.filter) = "words.nf"; }
//! }
//! ```
//!
//! `pathcall_build::compile` in `build.rs` generates tonic's stubs and the constant `PATHCALL`, the [`Manifest`] of the
//! package. The program includes both with `mod pb { pathcall::include_proto!("words"); }`. The client uses a
//! [`Channel`] in place of tonic's:
//!
//! ```no_run
//! # use pathcall_test_support::stubs as pb;
//! # async fn client() -> Result<(), Box<dyn std::error::Error>> {
//! let channel = pathcall::Channel::connect("http://127.0.0.1:50051", &pb::PATHCALL).await?;
//! let mut client = pb::words_client::WordsClient::new(channel);
//! let kvs = pathcall::types::StrintMap { map: [("word".to_owned(), 1)].into() };
//! client.reduce(pb::Counts { kvs: Some(kvs), ..Default::default() }).await?;
//! # Ok(())
//! # }
//! ```
//!
//! The server adds a [`Layer`] to tonic's server:
//!
//! ```no_run
//! # use pathcall_test_support::stubs as pb;
//! # async fn server(handler: impl pb::words_server::Words) -> Result<(), Box<dyn std::error::Error>> {
//! let pathcall = pathcall::Layer::builder(&pb::PATHCALL).controller("http://127.0.0.1:7700").build().await?;
//! tonic::transport::Server::builder()
//!     .layer(pathcall.clone())
//!     .add_service(pb::words_server::WordsServer::new(handler))
//!     .serve("127.0.0.1:50051".parse()?)
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! `pathcall up`, of the package `pathcall-cli`, starts a controller and a network element on this host. Without a
//! controller, or while no element has free memory, map operations run in software at the server, with the same
//! results.
//!
//! # Modules
//!
//! - [`manifest`] and [`types`]: generated options, and typed fields of messages
//! - [`channel`] and [`mod@layer`]: options, errors and counters of a [`Channel`] and a [`Layer`]
//! - [`delegate`]: handlers of delegated methods, and their callers
//! - [`place`]: devices of a host
//! - [`auth`]: certificates and access rules
//!
//! # Features
//!
//! No feature is on by default.
//!
//! | feature | adds |
//! |---|---|
//! | `config` | certificates and access rules from a file `pathcall.toml` (`auth::Config`) |
//! | `gzip` | requests that stubs compress with gzip |
//! | `otel` | export of the traces of delegated calls as OpenTelemetry spans (`delegate::otel`), and of counters as metrics (`export_metrics`) |
//! | `quic` | delegated calls by QUIC with TLS ([`delegate::Transport`], `delegate::Tls`), in addition to UDP and TCP |
//!
//! # Further reading
//!
//! In the repository: `docs/tutorials` has step-by-step tutorials, `examples` one small program per ability.
//! `docs/map.md`, `docs/clone.md`, `docs/delegate.md` and `docs/place.md` explain the abilities, `docs/security.md`
//! certificates and `docs/errors.md` all error messages. `docs/glossary.md` defines the terms.

#![warn(missing_docs)]

pub use pathcall_proto::manifest::{self, Manifest};
pub use pathcall_proto::types;
pub use pathcall_rpc::{Channel, FilterConflict, Layer, OwnerStore};

/// Certificates of parties, and rules of access.
pub mod auth {
    pub use pathcall_auth::{
        AccessGrant, AccessTable, ConnectTargetError, Credentials, CredentialsError, Identity, IdentityRule,
        IdentityRules, PartyRole, Pattern, Security, TlsIncoming,
    };
    #[cfg(feature = "config")]
    pub use pathcall_auth::{Config, ConfigError};
}

/// Options, errors and counters of a [`Channel`].
pub mod channel {
    pub use pathcall_rpc::channel::builder::{Builder, ConnectError, DEFAULT_FLOWS};
    pub use pathcall_rpc::channel::journal::JournalError;
    pub use pathcall_rpc::channel::stats::{
        ApplicationStats, CarriedStats, ChannelStats, ClientStats, CloneCallerStats, ClonePolicy, MethodPolicy,
        PathStats, PathTime, PolicyReason, PolicyStats, RefusedExtra,
    };
    pub use pathcall_rpc::channel::{Balance, CloneOptions, Hedge, HedgeAfter};
    pub use pathcall_rpc::{CALL_ID, COST};
}

/// Delegated calls: handlers that pass calls on to other servers, their nodes, callers and traces.
pub mod delegate {
    #[cfg(feature = "quic")]
    pub use pathcall_rpc::delegate::Tls;
    #[cfg(feature = "otel")]
    pub use pathcall_rpc::delegate::otel;
    pub use pathcall_rpc::delegate::{
        CallBuilder, CallOptions, CallSpan, CallTrace, CallTree, Client, ContextId, DelegatedCall, Directory, Handlers,
        HandlersError, InvalidRecord, Node, NodeConfig, NodeStats, NodeTarget, PendingTrace, RETRY_TIMEOUT,
        RecordHistory, Replies, RequestId, RequestOrder, RequestRecord, RpcMethod, RunningHandlers, SealedRequest,
        TokenKey, TraceSink, Transport,
    };
}

/// Placed methods: the host's devices, the accelerator's services, and counters of each path.
pub mod place {
    pub use pathcall_rpc::ROLE;
    pub use pathcall_rpc::layer::place::{
        Config, DeviceRole, Hardware, ModelError, PathState, PlaceOptions, PlaceSetupError, PlaceStats,
        SelectionStrategy,
    };
}

/// Options, errors and counters of a [`Layer`].
///
/// [`Layer`]: crate::Layer
pub mod layer {
    pub use pathcall_rpc::layer::OwnerStoreError;
    pub use pathcall_rpc::layer::builder::{Builder, DEFAULT_ROWS, DEFAULT_WORKERS, LayerError};
    pub use pathcall_rpc::layer::{
        CarriedStats, CloneWorkerStats, DirectStats, LayerService, OwnedApplicationStats, PoolStats, ServerStats,
    };
}

/// Includes the code that `pathcall_build::compile` generates for a protobuf package: tonic's stubs, and `PATHCALL`,
/// the package's [`Manifest`].
///
/// ```text
/// mod pb { pathcall::include_proto!("training"); }
/// ```
#[macro_export]
macro_rules! include_proto {
    ($package:tt) => {
        include!(concat!(env!("OUT_DIR"), "/", $package, ".rs"));
        include!(concat!(env!("OUT_DIR"), "/", $package, ".pathcall.rs"));
    };
}
