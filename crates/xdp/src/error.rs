//! Errors of the loader and the kernel.

use std::io;

/// Error of the kernel's program.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The user may not load programs.
    #[error("no permission to load the XDP program: run as root, or with CAP_BPF and CAP_NET_ADMIN")]
    Permission,
    /// No interface has this name.
    #[error("there is no interface {0} here (`ip link` names them)")]
    NoInterface(String),
    /// The interface has an XDP program already, which stays attached.
    #[error(
        "interface {interface} carries XDP program {id} already: detach it first (`ip link set {interface} xdp off`)"
    )]
    Occupied {
        /// Name of the interface.
        interface: String,
        /// Kernel's id of the program.
        id: u32,
    },
    /// The MTU of the interface is too small for frames.
    #[error(
        "interface {interface} has an MTU of {mtu} bytes, frames take {least}: `ip link set {interface} mtu {least}`"
    )]
    Mtu {
        /// Name of the interface.
        interface: String,
        /// MTU of the interface, bytes.
        mtu: u32,
        /// Least MTU for frames, bytes.
        least: u32,
    },
    /// The register arrays are too large.
    #[error("too many {what} for the kernel: {wanted} (at most {max})")]
    Size {
        /// Rows, lanes or slots.
        what: &'static str,
        /// Requested number.
        wanted: usize,
        /// Largest possible number.
        max: usize,
    },
    /// The table of applications is full.
    #[error("the element's table of applications is full: {0} at most")]
    Applications(usize),
    /// The table of pools is full.
    #[error("the XDP program has room for {0} pools of servers")]
    Pools(usize),
    /// A row is too wide for the program.
    #[error("application {gaid} has rows of {width} lanes: the XDP program takes {max} at most")]
    Width {
        /// Application with the row.
        gaid: u32,
        /// Lanes of a row.
        width: u32,
        /// Most lanes of a row.
        max: u32,
    },
    /// A control program in the kernel rejected a request that the caller should not have made.
    #[error("the kernel's program refused to {0}")]
    Refused(&'static str),
    /// The object lacks a program or map, so it was built from other sources.
    #[error("the XDP program has no {0}")]
    Missing(&'static str),
    /// A call to the kernel failed.
    #[error("{doing}: {source}")]
    Kernel {
        /// Operation that failed.
        doing: &'static str,
        /// Error of libbpf.
        source: libbpf_rs::Error,
    },
    /// A system call failed.
    #[error("{doing}: {source}")]
    System {
        /// Operation that failed.
        doing: &'static str,
        /// Error of the system.
        source: io::Error,
    },
}

impl Error {
    /// Whether the machine lacks something that the program needs (permission, for example), so that user space does
    /// the work instead.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Kernel { .. } | Self::Refused(_) | Self::Missing(_))
    }

    pub(crate) fn kernel(doing: &'static str) -> impl Fn(libbpf_rs::Error) -> Self {
        move |source| match source.kind() {
            libbpf_rs::ErrorKind::PermissionDenied => Self::Permission,
            _ => Self::Kernel { doing, source },
        }
    }
}
