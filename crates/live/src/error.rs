//! Why a function does not run live.

use std::io;
use std::net::SocketAddr;

/// What went wrong; one line, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no interface of this name.
    #[error("there is no interface {0} here (`ip link` names them)")]
    NoInterface(String),
    /// The topology does not say by which interface a device is reached.
    #[error("the topology's link to {0} names no interface of this machine: add interface = \"NAME\" to it")]
    NoInterfaceSaid(String),
    /// Requests are longer than the link to a server takes.
    #[error(
        "interface {interface} has an MTU of {mtu} bytes, requests take {least}: `ip link set {interface} mtu {least}`, \
         at both ends"
    )]
    Mtu {
        /// The interface.
        interface: String,
        /// What it takes.
        mtu: usize,
        /// What it has to take.
        least: usize,
    },
    /// No permission.
    #[error("no permission for packets past the system's own: run as root, or with CAP_NET_RAW and CAP_NET_ADMIN")]
    Permission,
    /// The function has no handler: there is nothing for servers to do.
    #[error("{0} has no handler: it needs no servers")]
    NoHandler(String),
    /// The function can't be loaded or attached.
    #[cfg(all(feature = "kernel", target_os = "linux"))]
    #[error(transparent)]
    Kernel(#[from] pathcall_xdp::function::Error),
    /// The element does not take what servers need.
    #[error("the element: {0}")]
    Table(#[from] pathcall_function::exec::TableError),
    /// The handler does not start.
    #[error("{0}")]
    Handler(#[from] pathcall_function::handler::StartError),
    /// The address can't be listened on.
    #[error("can't listen on {address}: {source}")]
    Bind {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The function's controller can't be connected to by this address.
    #[error(transparent)]
    Target(#[from] pathcall_auth::TargetError),
    /// Others reach the function's controller, and it has no certificates.
    #[error(transparent)]
    Plaintext(#[from] pathcall_auth::PlaintextError),
    /// The controller does not take this server.
    #[error("the controller at {url} refuses: {said}")]
    Refused {
        /// Its URL.
        url: String,
        /// What it says.
        said: String,
    },
    /// A thread ended that should not.
    #[error("the {0} ended")]
    Ended(&'static str),
    /// What the system says.
    #[error("{doing}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// Its answer.
        source: io::Error,
    },
}
