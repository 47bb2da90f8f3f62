//! Start-up errors of an element, one line each.

use std::fmt;
use std::io;
use std::net::SocketAddr;

/// Reason for which an element does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another program uses the port.
    #[error(
        "{} port {} is in use on {}: another element may be running; choose another with {}",
        port.transport(), addr.port(), addr.ip(), port.option()
    )]
    PortInUse {
        /// Port of the element.
        port: Port,
        /// Requested address.
        addr: SocketAddr,
    },
    /// The address belongs to another machine.
    #[error("{} is not an address of this machine: choose one with {}", addr.ip(), port.option())]
    NotLocal {
        /// Port of the element.
        port: Port,
        /// Requested address.
        addr: SocketAddr,
    },
    /// The system refused the address for another reason.
    #[error("{} {addr} cannot be bound for {port}: {source}", port.transport())]
    Bind {
        /// Port of the element.
        port: Port,
        /// Requested address.
        addr: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// The advertised address would be unspecified, so no other machine could reach it.
    #[error("{addr} ({port}) cannot be reached from other machines: set a reachable address with --advertise")]
    Unspecified {
        /// Port of the element.
        port: Port,
        /// Bound address.
        addr: SocketAddr,
    },
    /// The controller's address is invalid.
    #[error(transparent)]
    Controller(#[from] pathcall_auth::ConnectTargetError),
    /// The control service is open to other machines and has no certificates.
    #[error(transparent)]
    Plaintext(#[from] pathcall_auth::PlaintextError),
    /// The data thread can't be pinned to a processor.
    #[error("cannot pin the data thread to processor {cpu}: {source}; choose another with --cpu")]
    Cpu {
        /// Requested processor.
        cpu: usize,
        /// Error of the system.
        source: io::Error,
    },
    /// This build has no XDP program.
    #[error("this build has no XDP program: build it with `cargo build --release -p pathcall-cli --features xdp`")]
    NoXdp,
    /// The XDP program needs an IPv4 address.
    #[error("{addr}: an element with --xdp needs an IPv4 address: choose one with --data")]
    XdpFamily {
        /// Address that frames are sent to.
        addr: std::net::IpAddr,
    },
    /// The XDP program can't be loaded or attached.
    #[cfg(feature = "xdp")]
    #[error(transparent)]
    Xdp(#[from] pathcall_xdp::Error),
    /// The data thread can't be started.
    #[error("cannot start the element's data thread: {0}")]
    Thread(#[source] io::Error),
}

/// Socket of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// UDP, for frames.
    Data,
    /// TCP, for the control service.
    Control,
}

impl Port {
    /// Name of the transport protocol.
    #[must_use]
    pub const fn transport(self) -> &'static str {
        match self {
            Self::Data => "UDP",
            Self::Control => "TCP",
        }
    }

    /// Command-line option that sets the address.
    #[must_use]
    pub const fn option(self) -> &'static str {
        match self {
            Self::Data => "--data",
            Self::Control => "--control",
        }
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Data => "frames",
            Self::Control => "control calls",
        })
    }
}

impl Error {
    /// Classifies the error that `bind` of `addr` returned.
    pub(crate) fn bind(port: Port, addr: SocketAddr, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::PortInUse { port, addr },
            io::ErrorKind::AddrNotAvailable => Self::NotLocal { port, addr },
            _ => Self::Bind { port, addr, source },
        }
    }
}
