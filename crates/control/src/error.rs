//! Errors of a controller, at its start or end.

use std::io;
use std::net::SocketAddr;

use crate::state::CorruptStore;
use crate::store::StoreError;

/// Error of a controller, at its start or end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another program uses the port.
    #[error(
        "port {} is in use: another controller may be running on {}; choose another with --listen",
        addr.port(), addr.ip()
    )]
    PortInUse {
        /// Requested address.
        addr: SocketAddr,
    },
    /// The address belongs to another machine.
    #[error("{} is not an address of this machine: choose one with --listen", addr.ip())]
    NotLocal {
        /// Requested address.
        addr: SocketAddr,
    },
    /// Other error of the system.
    #[error("the controller cannot listen on {addr}: {source}")]
    Bind {
        /// Requested address.
        addr: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// Other hosts can reach the address, and there are no certificates.
    #[error(transparent)]
    Plaintext(#[from] pathcall_auth::PlaintextError),
    /// The store cannot be used, or has failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store was not written by a controller.
    #[error("{0}; choose another store with --store")]
    CorruptStore(#[from] CorruptStore),
    /// The listening socket failed.
    #[error("the controller's service ended: {0}")]
    Serve(#[source] tonic::transport::Error),
    /// A task of the controller panicked.
    #[error("a task of the controller panicked: {0}")]
    Defect(#[source] tokio::task::JoinError),
}
