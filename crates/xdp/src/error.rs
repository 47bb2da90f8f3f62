//! What can go wrong between the loader and the kernel.

use std::io;

/// Why the kernel's program can't do what it was asked to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The user may not load programs.
    #[error("no permission to load the XDP program: run as root, or with CAP_BPF and CAP_NET_ADMIN")]
    Permission,
    /// There is no such interface.
    #[error("there is no interface {0} here (`ip link` names them)")]
    NoInterface(String),
    /// The interface has a program already, which is left alone.
    #[error(
        "interface {interface} carries XDP program {id} already: detach it first (`ip link set {interface} xdp off`)"
    )]
    Occupied {
        /// Its name.
        interface: String,
        /// The kernel's number of the program.
        id: u32,
    },
    /// The interface does not carry all frames.
    #[error(
        "interface {interface} has an MTU of {mtu} bytes, frames take {least}: `ip link set {interface} mtu {least}`"
    )]
    Mtu {
        /// Its name.
        interface: String,
        /// Largest packet that it carries, bytes.
        mtu: u32,
        /// Largest packet that a frame takes.
        least: u32,
    },
    /// The register arrays are too large.
    #[error("{what}: {wanted} are too many for the kernel, it takes {max} at most")]
    Size {
        /// Rows, lanes or slots.
        what: &'static str,
        /// How many were asked for.
        wanted: usize,
        /// How many there may be.
        max: usize,
    },
    /// There is no room for one more application.
    #[error("the element's table of applications is full: {0} at most")]
    Applications(usize),
    /// More pools than there is room for.
    #[error("the XDP program has room for {0} pools of servers")]
    Pools(usize),
    /// A row is wider than the program takes.
    #[error("application {gaid} has rows of {width} lanes: the XDP program takes {max} at most")]
    Width {
        /// The application.
        gaid: u32,
        /// Lanes of its rows.
        width: u32,
        /// The most there may be.
        max: u32,
    },
    /// A control program in the kernel has found what its caller should have kept from it.
    #[error("the kernel's program refused to {0}")]
    Refused(&'static str),
    /// The object lacks something: it was built from other sources.
    #[error("the XDP program has no {0}")]
    Missing(&'static str),
    /// What the kernel says.
    #[error("{doing}: {source}")]
    Kernel {
        /// What was tried.
        doing: &'static str,
        /// Its answer.
        source: libbpf_rs::Error,
    },
    /// What the system says.
    #[error("{doing}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// Its answer.
        source: io::Error,
    },
}

impl Error {
    /// Whether the machine lacks something that the program needs: whoever asked for it can do nothing
    /// about it, and user space works all the same.
    #[must_use]
    pub fn is_lack(&self) -> bool {
        matches!(self, Self::Kernel { .. } | Self::Refused(_) | Self::Missing(_))
    }

    pub(crate) fn kernel(doing: &'static str) -> impl Fn(libbpf_rs::Error) -> Self {
        move |source| match source.kind() {
            libbpf_rs::ErrorKind::PermissionDenied => Self::Permission,
            _ => Self::Kernel { doing, source },
        }
    }
}
