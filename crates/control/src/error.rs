//! Why a controller does not start, or ends: one line each.

use std::io;
use std::net::SocketAddr;

use crate::state::Corrupt;
use crate::store::StoreError;

/// Why a controller does not start, or ends.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another program listens there.
    #[error(
        "port {} is in use: another controller may be running on {}; choose another with --listen",
        addr.port(), addr.ip()
    )]
    PortInUse {
        /// Address asked for.
        addr: SocketAddr,
    },
    /// The address is another machine's.
    #[error("{} is not an address of this machine: choose one with --listen", addr.ip())]
    NotLocal {
        /// Address asked for.
        addr: SocketAddr,
    },
    /// The system refused for another reason.
    #[error("the controller can't listen on {addr}: {source}")]
    Bind {
        /// Address asked for.
        addr: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// Others reach it, and it has no certificates.
    #[error(transparent)]
    Plaintext(#[from] pathcall_auth::PlaintextError),
    /// The store can't be used, or has failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store is not one that a controller wrote.
    #[error("{0}; choose another store with --store")]
    Corrupt(#[from] Corrupt),
    /// The listening socket failed.
    #[error("the controller's service ended: {0}")]
    Serve(#[source] tonic::transport::Error),
    /// A part of the controller panicked.
    #[error("the controller ended by a defect: {0}")]
    Defect(#[source] tokio::task::JoinError),
}
