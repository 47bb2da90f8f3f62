//! Errors of live functions.

use std::io;
use std::net::SocketAddr;

/// Error of an element or a server: one line, with what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No interface has this name.
    #[error("there is no interface {0} here (`ip link` names them)")]
    NoInterface(String),
    /// The topology has no interface for a device.
    #[error("the topology's link to {0} names no interface of this machine: add interface = \"NAME\" to it")]
    NoInterfaceInTopology(String),
    /// Requests are longer than the MTU of the link to a server.
    #[error(
        "interface {interface} has an MTU of {mtu} bytes, requests take {least}: `ip link set {interface} mtu {least}`, \
         at both ends"
    )]
    Mtu {
        /// Name of the interface.
        interface: String,
        /// MTU of the interface, bytes.
        mtu: usize,
        /// Least MTU for requests, bytes.
        least: usize,
    },
    /// The process may not open packet sockets.
    #[error("no permission to open packet sockets: run as root, or with CAP_NET_RAW and CAP_NET_ADMIN")]
    Permission,
    /// The function has no handler, so it needs no servers.
    #[error("{0} has no handler: it needs no servers")]
    NoHandler(String),
    /// The function cannot be loaded or attached.
    #[cfg(all(feature = "kernel", target_os = "linux"))]
    #[error(transparent)]
    Kernel(#[from] pathcall_xdp::function::Error),
    /// The element refused an entry that the servers need.
    #[error("the element refused an entry: {0}")]
    Table(#[from] pathcall_p4::exec::TableError),
    /// The handler cannot be started.
    #[error("{0}")]
    Handler(#[from] pathcall_netfn::handler::HandlerStartError),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// Listen address.
        address: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// The address of the function's controller is invalid.
    #[error(transparent)]
    Target(#[from] pathcall_auth::ConnectTargetError),
    /// The function's controller is reachable from other hosts, and has no certificates.
    #[error(transparent)]
    Plaintext(#[from] pathcall_auth::PlaintextError),
    /// The controller refuses this server.
    #[error("the controller at {url} refuses: {reason}")]
    Refused {
        /// URL of the controller.
        url: String,
        /// Reason given by the controller.
        reason: String,
    },
    /// A thread ended unexpectedly.
    #[error("the {0} ended")]
    Ended(&'static str),
    /// A system call failed.
    #[error("{doing}: {source}")]
    System {
        /// Operation that failed.
        doing: &'static str,
        /// Error of the system.
        source: io::Error,
    },
}
