//! Errors of testbeds.

use std::io;

use crate::plan::{ELEMENTS_MAX, HOSTS_MAX};
use crate::profile::LinkValueError;

/// Reason for which a testbed can't be built or used, in one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Network namespaces need root.
    #[error("a testbed needs root (it makes network namespaces): run this with sudo")]
    NotRoot,
    /// Root lacks capabilities, as in most containers.
    #[error("a testbed needs a root with the capabilities CAP_NET_ADMIN and CAP_SYS_ADMIN")]
    MissingCapabilities,
    /// An ordinary user can't be root of a user namespace here.
    #[error("cannot make a user namespace: {reason}")]
    NoUserNamespace {
        /// Output of the program `unshare`, or error of the system.
        reason: String,
    },
    /// A required program is not installed.
    #[error("{program} is missing: apt-get install {package}")]
    Missing {
        /// Name of the program.
        program: &'static str,
        /// Debian package of the program.
        package: &'static str,
    },
    /// The name is not usable in names of namespaces.
    #[error("invalid testbed name {got:?} (1 to 20 lower-case letters and digits)")]
    InvalidTestbedName {
        /// Requested name.
        got: String,
    },
    /// Invalid value of a link property.
    #[error(transparent)]
    Word(#[from] LinkValueError),
    /// The number of hosts is out of range.
    #[error("invalid number of hosts {got} (1 to {HOSTS_MAX})")]
    Hosts {
        /// Requested number.
        got: usize,
    },
    /// The number of elements is out of range.
    #[error("invalid number of elements {got} (1 to {ELEMENTS_MAX})")]
    Elements {
        /// Requested number.
        got: usize,
    },
    /// The MTU is too small for Pathcall over IPv4, or larger than veth's.
    #[error("invalid MTU {got} (576 to 65535 bytes)")]
    Mtu {
        /// Requested MTU in bytes.
        got: u32,
    },
    /// Reordering needs a delay: reordered frames are those without delay.
    #[error("reordering needs a delay: set --delay as well")]
    ReorderWithoutDelay,
    /// The name is taken.
    #[error("testbed {bed} exists already: take it down with pathcall testbed down --name {bed}")]
    AlreadyUp {
        /// Name of the testbed.
        bed: String,
    },
    /// The testbed can't outlive its owner.
    #[error("testbed {bed} delays frames, which needs the process that built it")]
    NeedsOwner {
        /// Name of the testbed.
        bed: String,
    },
    /// No testbed has this name.
    #[error("testbed {bed} does not exist: build it with pathcall testbed up --name {bed}")]
    NotUp {
        /// Name of the testbed.
        bed: String,
    },
    /// The testbed has no such node.
    #[error("testbed {bed} has no node {got} (it has {has})")]
    NoNode {
        /// Name of the testbed.
        bed: String,
        /// Requested node.
        got: String,
        /// Existing nodes.
        has: String,
    },
    /// A link without a wire can't be cut.
    #[error("the link of {link} in testbed {bed} has no wire: build the testbed with --wired or a link property")]
    Bare {
        /// Name of the testbed.
        bed: String,
        /// Host of the link.
        link: String,
    },
    /// Invalid name of a node.
    #[error("invalid node {got:?} (a host as in 1 or h1, or an element as in e1 or e2)")]
    NodeName {
        /// Requested node.
        got: String,
    },
    /// A program reported an error.
    #[error("{program} failed on {place}: {reason}")]
    Tool {
        /// Name of the program.
        program: &'static str,
        /// Namespace or testbed of the operation.
        place: String,
        /// Last error output of the program.
        reason: String,
    },
    /// The output of a program can't be parsed.
    #[error("unexpected output of {program}: expected {expected}, got {got:?}")]
    Output {
        /// Name of the program.
        program: &'static str,
        /// Expected content.
        expected: String,
        /// Beginning of the output.
        got: String,
    },
    /// A system call failed.
    #[error("{doing}: {source}")]
    Io {
        /// Operation that failed.
        doing: &'static str,
        /// Error of the system.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io(doing: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::Io { doing, source }
    }
}
