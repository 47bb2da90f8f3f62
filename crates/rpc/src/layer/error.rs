//! Errors of a layer that cannot be built.

use std::io;
use std::net::SocketAddr;

use pathcall_auth::ConnectTargetError;
use rand::rngs::SysError;

use super::place::PlaceSetupError;
use super::store::OwnerStoreError;
use crate::application::FilterConflict;

/// Error of [`Builder::build`](super::Builder::build).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LayerError {
    /// The manifests contradict each other.
    #[error(transparent)]
    Manifest(#[from] FilterConflict),
    /// The controller's address is invalid.
    #[error(transparent)]
    Controller(#[from] ConnectTargetError),
    /// No UDP port for an application's map frames.
    #[error("cannot open a UDP port for {app} on {address}: {source}")]
    Bind {
        /// The `AppName`.
        app: &'static str,
        /// Requested address.
        address: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// The system has no random bytes for the key that signs map frames.
    #[error("no random bytes for the key of the map frames of {app}: {source}")]
    Randomness {
        /// The `AppName`.
        app: &'static str,
        /// Error of the system.
        source: SysError,
    },
    /// The system has no random bytes for the key that signs delegated messages.
    #[error("no random bytes for the key of delegated messages: {0}")]
    NoNodeKey(SysError),
    /// Methods cannot be placed on this host.
    #[error(transparent)]
    Place(#[from] PlaceSetupError),
    /// The owner's store cannot be used.
    #[error("the store of {app} failed: {source}")]
    Store {
        /// The `AppName`.
        app: &'static str,
        /// Error of the store.
        source: OwnerStoreError,
    },
    /// The controller does not give the application to this server.
    #[error("the controller at {controller} refused {app}: {reason}")]
    Refused {
        /// The `AppName`.
        app: &'static str,
        /// Address of the controller.
        controller: String,
        /// Reason: another live server owns the name, or its filters differ.
        reason: String,
    },
}
