//! Why a testbed does not come up, or can't be used.

use std::io;

use crate::plan::{ELEMENTS_MAX, HOSTS_MAX};
use crate::profile::WordError;

/// Why a testbed does not come up, or can't be used: one line each.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Namespaces are root's.
    #[error("a testbed needs root (it makes network namespaces): run this with sudo")]
    NotRoot,
    /// This root may less than others: in a container, most often.
    #[error("a testbed needs a root with the capabilities CAP_NET_ADMIN and CAP_SYS_ADMIN")]
    NotAllowed,
    /// A program that is used is not installed.
    #[error("{program} is missing: apt-get install {package}")]
    Missing {
        /// As it is called.
        program: &'static str,
        /// Where Debian has it.
        package: &'static str,
    },
    /// The name would not do in the names of namespaces.
    #[error("testbed name {got:?}: expected 1 to 20 lower-case letters and digits")]
    BedName {
        /// What was asked for.
        got: String,
    },
    /// A rate or a share that is none.
    #[error(transparent)]
    Word(#[from] WordError),
    /// Too many hosts, or none.
    #[error("{got} hosts: expected 1 to {HOSTS_MAX}")]
    Hosts {
        /// What was asked for.
        got: usize,
    },
    /// Too many elements, or none.
    #[error("{got} elements: expected 1 to {ELEMENTS_MAX}")]
    Elements {
        /// What was asked for.
        got: usize,
    },
    /// Too small for IPv4 with everything that Pathcall sends, or larger than veth's.
    #[error("MTU of {got} bytes: expected 576 to 65535")]
    Mtu {
        /// What was asked for, in bytes.
        got: u32,
    },
    /// Frames are reordered by not delaying some.
    #[error("frames overtake others only where there is a delay")]
    NothingToOvertake,
    /// The name is taken.
    #[error("testbed {bed} is up already; to take it down: pathcall testbed down --name {bed}")]
    AlreadyUp {
        /// Its name.
        bed: String,
    },
    /// It can't be left alone.
    #[error("testbed {bed} delays frames, for which it needs the process that has built it")]
    NeedsOwner {
        /// Its name.
        bed: String,
    },
    /// There is no such testbed.
    #[error("there is no testbed {bed}; to build it: pathcall testbed up --name {bed}")]
    NotUp {
        /// Its name.
        bed: String,
    },
    /// The testbed has no such node.
    #[error("testbed {bed} has no {got}: it has {has}")]
    NoNode {
        /// Its name.
        bed: String,
        /// What was asked for.
        got: String,
        /// What is there.
        has: String,
    },
    /// A link without a middle can't be cut.
    #[error("the link of h{host} in testbed {bed} is bare: give it a property, or --wired")]
    Bare {
        /// The testbed.
        bed: String,
        /// The host's number.
        host: usize,
    },
    /// A node's name that is none.
    #[error("node {got:?}: expected a host's number, as in 1 or h1, or an element's name, e1 or e2")]
    NodeName {
        /// What was asked for.
        got: String,
    },
    /// A program that was run says that something can't be done.
    #[error("{program} failed on {place}: {said}")]
    Tool {
        /// The program.
        program: &'static str,
        /// Namespace or bed that it worked on.
        place: String,
        /// Its last words.
        said: String,
    },
    /// What a program printed can't be read.
    #[error("{program} printed what can't be read: expected {expected}, got {got:?}")]
    Output {
        /// The program.
        program: &'static str,
        /// What was looked for.
        expected: String,
        /// The beginning of what came.
        got: String,
    },
    /// The system refuses something.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The reason.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io(doing: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::Io { doing, source }
    }
}
