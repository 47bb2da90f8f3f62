//! Why an element does not start: one line each.

use std::fmt;
use std::io;
use std::net::SocketAddr;

/// Why an element does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another program listens there.
    #[error(
        "{} port {} is in use on {}: another element may be running; choose another with {}",
        port.transport(), addr.port(), addr.ip(), port.option()
    )]
    PortInUse {
        /// Which of the element's ports.
        port: Port,
        /// Address asked for.
        addr: SocketAddr,
    },
    /// The address is another machine's.
    #[error("{} is not an address of this machine: choose one with {}", addr.ip(), port.option())]
    NotLocal {
        /// Which of the element's ports.
        port: Port,
        /// Address asked for.
        addr: SocketAddr,
    },
    /// The system refused for another reason.
    #[error("{} {addr} can't be used for {port}: {source}", port.transport())]
    Bind {
        /// Which of the element's ports.
        port: Port,
        /// Address asked for.
        addr: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The controller would be told an address that nobody can reach.
    #[error("{addr} ({port}) is no address that others can reach: name one with --advertise")]
    Unspecified {
        /// Which of the element's ports.
        port: Port,
        /// Address bound.
        addr: SocketAddr,
    },
    /// The controller can't be connected to by this address.
    #[error(transparent)]
    Controller(#[from] pathcall_auth::TargetError),
    /// Others reach the control service, and it has no certificates.
    #[error(transparent)]
    Plaintext(#[from] pathcall_auth::PlaintextError),
    /// The data thread can't be kept on a processor.
    #[error("frames can't be worked on by processor {cpu} alone: {source}: choose another with --cpu")]
    Cpu {
        /// The processor asked for.
        cpu: usize,
        /// What the system says.
        source: io::Error,
    },
    /// This build has no program for the kernel.
    #[error("this build has no XDP program: build it with `cargo build --release -p pathcall-cli --features xdp`")]
    NoXdp,
    /// The program in the kernel speaks IPv4.
    #[error("{addr}: an element with --xdp needs an IPv4 address: choose one with --data")]
    XdpFamily {
        /// The address that frames are sent to.
        addr: std::net::IpAddr,
    },
    /// The program in the kernel can't be loaded or attached.
    #[cfg(feature = "xdp")]
    #[error(transparent)]
    Xdp(#[from] pathcall_xdp::Error),
    /// The data thread could not be started.
    #[error("the element's data thread can't be started: {0}")]
    Thread(#[source] io::Error),
}

/// One of the two sockets of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// UDP, for frames.
    Data,
    /// TCP, for the control service.
    Control,
}

impl Port {
    /// What runs over it.
    #[must_use]
    pub const fn transport(self) -> &'static str {
        match self {
            Self::Data => "UDP",
            Self::Control => "TCP",
        }
    }

    /// The command-line option that sets it.
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
    /// Names what `bind` of `addr` failed for.
    pub(crate) fn bind(port: Port, addr: SocketAddr, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::PortInUse { port, addr },
            io::ErrorKind::AddrNotAvailable => Self::NotLocal { port, addr },
            _ => Self::Bind { port, addr, source },
        }
    }
}
