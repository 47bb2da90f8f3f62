//! gRPC with in-network computation, behind ordinary `tonic` stubs.
//!
//! A message travels a path of hops, and any hop may do part of the call: sums, reads, votes,
//! locks and counts over data in flight. A method says what it wants
//! in a NetFilter (NetRPC §4), which it names in its `.proto`:
//!
//! ```proto
//! import "pathcall/options.proto";
//! import "pathcall/types.proto";
//!
//! message NewGrad  { pathcall.FPArray tensor = 1; }
//! message AgtrGrad { pathcall.FPArray tensor = 1; }
//!
//! service Training {
//!   rpc Update(NewGrad) returns (AgtrGrad) { option (pathcall.filter) = "agtr.nf"; }
//! }
//! ```
//!
//! `pathcall_build::compile` in `build.rs` makes the stubs, which are tonic's own, and a
//! [`Manifest`] beside them. A program includes both with [`include_proto!`], and then has one line
//! that is not plain gRPC, in the client
//!
//! ```ignore
//! mod pb { pathcall::include_proto!("training"); }
//!
//! let channel = pathcall::Channel::connect("http://127.0.0.1:50051", &pb::PATHCALL).await?;
//! let mut client = pb::training_client::TrainingClient::new(channel);
//! let sum = client.update(pb::NewGrad { tensor: Some(pathcall::types::FpArray { data: gradient }) }).await?;
//! ```
//!
//! and two in the server:
//!
//! ```ignore
//! let pathcall = pathcall::Server::builder(&pb::PATHCALL).controller("http://127.0.0.1:7700").build().await?;
//! tonic::transport::Server::builder()
//!     .layer(pathcall.layer())
//!     .add_service(pb::training_server::TrainingServer::new(handler))
//!     .serve(address)
//!     .await?;
//! ```
//!
//! A method with `option (pathcall.clone) = { idempotent: true }` is answered by whichever of a pool of such servers
//! has time, two of them at once if both do; client and server look the same. One with `(pathcall.delegate)` streams, and
//! its servers may pass it on to others: see [`delegate`]. One with `(pathcall.place)` is answered by the host's processor
//! or by its accelerator: see [`place`].
//!
//! # Features
//!
//! None is on by default.
//!
//! | feature | adds |
//! |---|---|
//! | `quic` | delegated calls by QUIC with TLS ([`delegate::Transport`], `delegate::Tls`), beside UDP and TCP |
//! | `otel` | traces of delegated calls as spans of OpenTelemetry (`delegate::otel`) |
//!
//! The command `pathcall`, which runs controllers and network elements, is the package `pathcall-cli`.
//!
//! # Modules
//!
//! In the order that a program meets them: [`manifest`] is what the build found out, [`types`] are
//! the typed fields of messages, [`Channel`] goes under the stubs and [`Server`] around the
//! services.

#![warn(missing_docs)]

pub use pathcall_proto::manifest::{self, Manifest};
pub use pathcall_proto::types;
pub use pathcall_rpc::{Channel, Disagreement, Server};

/// Certificates that parties show to each other, and what each may do.
pub mod auth {
    pub use pathcall_auth::{
        Access, Credentials, CredentialsError, Grant, Identity, Incoming, Pattern, Role, Rule, Rules, Security,
        TargetError,
    };
    #[cfg(feature = "config")]
    pub use pathcall_auth::{Config, ConfigError};
}

/// Options and errors of a [`Channel`], and what it counts.
pub mod channel {
    pub use pathcall_rpc::CALL_ID;
    pub use pathcall_rpc::channel::builder::{Builder, ConnectError, FLOWS};
    pub use pathcall_rpc::channel::journal::JournalError;
    pub use pathcall_rpc::channel::stats::{ApplicationStats, CallerStats, CarriedStats, ChannelStats, ClientStats};
    pub use pathcall_rpc::channel::{Balance, CloneOptions, Hedge};
}

/// Calls that servers pass on: handlers, what they can do, nodes; callers and traces.
pub mod delegate {
    #[cfg(feature = "quic")]
    pub use pathcall_rpc::delegate::Tls;
    #[cfg(feature = "otel")]
    pub use pathcall_rpc::delegate::otel;
    pub use pathcall_rpc::delegate::{
        Begin, Call, CallOptions, Client, Context, Directory, Handlers, History, Method, NoRecord, Node, NodeConfig,
        NodeStats, Order, PATIENCE, Record, Replies, RequestId, Sealed, Serving, Span, StartError, Target, TokenKey,
        Trace, Traced, Traces, Transport, Tree,
    };
}

/// Methods that a host's processor or its accelerator answers: the host's hardware, who answers for the accelerator,
/// and what is known of each way.
pub mod place {
    pub use pathcall_rpc::ROLE;
    pub use pathcall_rpc::server::place::{
        Config, Hardware, Mistake, PathState, PlaceStats, Placing, PlacingError, Role, Strategy,
    };
}

/// Options and errors of a [`Server`], its layer, and what it counts.
pub mod server {
    pub use pathcall_rpc::server::builder::{BuildError, Builder, ROWS, WORKERS};
    pub use pathcall_rpc::server::{
        ApplicationStats, CarriedStats, Layered, PoolStats, ServerLayer, ServerStats, WorkerStats,
    };
}

/// Includes what `pathcall_build::compile` made of a protobuf package: tonic's stubs and `PATHCALL`,
/// the package's [`Manifest`].
///
/// ```ignore
/// mod pb { pathcall::include_proto!("training"); }
/// ```
#[macro_export]
macro_rules! include_proto {
    ($package:tt) => {
        include!(concat!(env!("OUT_DIR"), "/", $package, ".rs"));
        include!(concat!(env!("OUT_DIR"), "/", $package, ".pathcall.rs"));
    };
}
