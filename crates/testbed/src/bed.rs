//! A bed that is up, and its nodes, to run programs on.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::ffi::OsStr;
use std::fs::File;
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::builder::Builder;
use crate::error::Error;
use crate::guard::{Guard, tear_down};
use crate::link::Link;
use crate::plan::{HOST_INTERFACE, NodeName, Plan, check_bed_name};
use crate::relay::Relay;
use crate::tool;

/// Where `ip` keeps the names of namespaces.
const NAMESPACES: &str = "/run/netns";

/// A bed that is up, until the value is dropped or the process ends, unless it is [kept](Self::keep).
#[derive(Debug)]
pub struct Testbed {
    name: String,
    nodes: BTreeSet<NodeName>,
    /// Hosts whose links are not bare; to be found out, of a bed that somebody else has built.
    wired: Option<BTreeSet<usize>>,
    /// Delays frames; dropped before the guard deletes what it reads.
    relay: Option<Relay>,
    guard: Option<Guard>,
}

/// A host or an element.
#[derive(Debug, Clone)]
pub struct Node {
    name: NodeName,
    namespace: String,
    address: Ipv4Addr,
}

/// The beds that are up on this machine, whoever built them, with their nodes.
///
/// # Errors
/// When the names of namespaces can't be read.
pub fn beds() -> Result<BTreeMap<String, BTreeSet<NodeName>>, Error> {
    let doing = "reading the names of namespaces in /run/netns";
    let mut beds: BTreeMap<String, BTreeSet<NodeName>> = BTreeMap::new();
    let entries = match std::fs::read_dir(NAMESPACES) {
        Ok(entries) => entries,
        // There has never been any.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(beds),
        Err(error) => return Err(Error::io(doing)(error)),
    };
    for entry in entries {
        let name = entry.map_err(Error::io(doing))?.file_name();
        if let Some((bed, node)) = name.to_str().and_then(NodeName::of_namespace) {
            beds.entry(bed.to_owned()).or_default().insert(node);
        }
    }
    Ok(beds)
}

impl Testbed {
    /// A bed to be.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(crate) fn new(plan: Plan, relay: Option<Relay>, guard: Guard) -> Self {
        let wired = plan.cables().filter(|cable| cable.middle.is_some());
        let wired = wired.filter_map(|cable| cable.near.node.host()).collect();
        Self { nodes: plan.nodes().collect(), wired: Some(wired), name: plan.bed, relay, guard: Some(guard) }
    }

    /// A bed that somebody else has built; it stays when this value is dropped.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn open(name: &str) -> Result<Self, Error> {
        check_bed_name(name)?;
        let nodes = beds()?.remove(name).ok_or_else(|| Error::NotUp { bed: name.to_owned() })?;
        Ok(Self { name: name.to_owned(), nodes, wired: None, relay: None, guard: None })
    }

    /// Whether frames are delayed by threads of this process: it then lives no longer than that.
    #[must_use]
    pub fn needs_owner(&self) -> bool {
        self.relay.is_some()
    }

    /// Leaves the bed up for good: [`Testbed::open`] finds it.
    ///
    /// # Errors
    /// When it [needs its owner](Self::needs_owner); it is taken down then.
    pub fn keep(mut self) -> Result<(), Error> {
        if self.needs_owner() {
            return Err(Error::NeedsOwner { bed: self.name.clone() });
        }
        if let Some(guard) = self.guard.take() {
            guard.dismiss();
        }
        Ok(())
    }

    /// Keeps the bed until somebody else takes it down, which kills this process; `ready` is called when that is so.
    ///
    /// # Errors
    /// When the bed is gone, and as `ready` does; otherwise it never returns.
    pub fn stay<E: From<Error>>(self, ready: impl FnOnce(&Self) -> Result<(), E>) -> Result<Infallible, E> {
        // A bed's processes are those whose first thread is in one of its namespaces.
        enter(&namespace_file(&NodeName::Wire.namespace(&self.name)))?;
        ready(&self)?;
        loop {
            thread::park();
        }
    }

    /// Ends all processes in the bed and deletes it; an opened one, too.
    ///
    /// # Errors
    /// When something can't be deleted.
    pub fn down(mut self) -> Result<(), Error> {
        drop(self.relay.take());
        match self.guard.take() {
            Some(guard) => guard.finish(&self.name),
            None => {
                let namespaces: Vec<String> = self.nodes.iter().map(|node| node.namespace(&self.name)).collect();
                tear_down(&self.name, &namespaces)
            }
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its elements and hosts, in their order.
    pub fn nodes(&self) -> impl Iterator<Item = Node> {
        self.nodes.iter().filter_map(|name| self.node(*name).ok())
    }

    /// Host `k`, counted from 1.
    ///
    /// # Errors
    /// When there is none.
    pub fn host(&self, k: usize) -> Result<Node, Error> {
        self.node(NodeName::Host(k))
    }

    /// Element `n`, counted from 1.
    ///
    /// # Errors
    /// When there is none.
    pub fn element(&self, n: usize) -> Result<Node, Error> {
        self.node(NodeName::Element(n))
    }

    /// A host or an element.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn node(&self, name: NodeName) -> Result<Node, Error> {
        let address = name.address().filter(|_| self.nodes.contains(&name));
        let address = address.ok_or_else(|| Error::NoNode {
            bed: self.name.clone(),
            got: name.to_string(),
            has: self.nodes.iter().map(NodeName::to_string).collect::<Vec<_>>().join(" "),
        })?;
        Ok(Node { name, namespace: name.namespace(&self.name), address })
    }

    /// The link of host `k`, counted from 1.
    ///
    /// # Errors
    /// When there is no such host, or somebody is still building the bed.
    pub fn link(&self, k: usize) -> Result<Link, Error> {
        self.host(k)?;
        let known = self.wired.as_ref().map(|hosts| hosts.contains(&k));
        let wired = known.or_else(|| (!self.nodes.contains(&NodeName::Wire)).then_some(false));
        Link::of_host(&self.name, k, wired)
    }

    /// The link between two elements; *up* is from the first to the second.
    ///
    /// # Errors
    /// When there is one element only.
    pub fn chain(&self) -> Result<Link, Error> {
        self.element(2)?;
        Ok(Link::chain(&self.name))
    }
}

impl Node {
    /// Its name in the bed.
    #[must_use]
    pub fn name(&self) -> NodeName {
        self.name
    }

    /// Its network namespace, as `ip netns` knows it.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The file that stands for its network namespace.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        namespace_file(&self.namespace)
    }

    /// Moves the calling thread there, with all threads that it starts from now on: their sockets are the
    /// node's. Sockets that there are already stay where they are.
    ///
    /// # Errors
    /// Without root, and when the bed is gone.
    pub fn enter(&self) -> Result<(), Error> {
        enter(&self.file())
    }

    /// Its address, which all others in the bed reach.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// A program, prepared to run there: it sees the node's interfaces, in `/sys` too, and all files of
    /// this machine.
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = tool::command("ip");
        command.args(["netns", "exec", &self.namespace]).arg(program);
        command
    }

    /// `tcpdump` of all its interfaces, prepared to run there: in text, or into a file.
    ///
    /// # Errors
    /// When tcpdump is not installed.
    pub fn capture(&self, file: Option<&Path>) -> Result<Command, Error> {
        if !tool::is_installed("tcpdump") {
            return Err(Error::Missing { program: "tcpdump", package: "tcpdump" });
        }
        let interface = if self.name.host().is_some() { HOST_INTERFACE } else { "any" };
        let mut command = self.command("tcpdump");
        // As root to the end: the file's directory may be root's.
        command.args(["-n", "-Z", "root", "--immediate-mode", "-U", "-l", "-i", interface]);
        if let Some(file) = file {
            command.arg("-w").arg(file);
        }
        Ok(command)
    }
}

pub(crate) fn namespace_file(namespace: &str) -> PathBuf {
    Path::new(NAMESPACES).join(namespace)
}

/// Moves this thread.
pub(crate) fn enter(namespace: &Path) -> Result<(), Error> {
    let doing = "moving a thread into a network namespace";
    let file = File::open(namespace).map_err(Error::io(doing))?;
    let moved = move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network));
    moved.map_err(|errno| Error::io(doing)(errno.into()))
}
