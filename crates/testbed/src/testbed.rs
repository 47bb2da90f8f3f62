//! Running testbed and its nodes, on which programs run.

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
use crate::link::TestbedLink;
use crate::plan::{HOST_INTERFACE, NodeName, TestbedPlan, check_bed_name};
use crate::relay::Relay;
use crate::tool;

/// Folder in which `ip` keeps the names of namespaces.
const NAMESPACES: &str = "/run/netns";

/// Running testbed. It ends when the value is dropped or the process ends, unless it is [kept](Self::keep).
#[derive(Debug)]
pub struct Testbed {
    name: String,
    nodes: BTreeSet<NodeName>,
    /// Hosts whose links have a wire; `None` until looked up, for a testbed of another process.
    wired: Option<BTreeSet<usize>>,
    /// Threads that delay frames; dropped before the guard deletes their devices.
    relay: Option<Relay>,
    guard: Option<Guard>,
}

/// Host or element of a testbed.
#[derive(Debug, Clone)]
pub struct TestbedNode {
    name: NodeName,
    namespace: String,
    address: Ipv4Addr,
}

/// All testbeds on this machine, of any process, with their nodes.
///
/// # Errors
/// Returns an error if the names of namespaces can't be read.
pub fn list_testbeds() -> Result<BTreeMap<String, BTreeSet<NodeName>>, Error> {
    let doing = "reading the names of namespaces in /run/netns";
    let mut beds: BTreeMap<String, BTreeSet<NodeName>> = BTreeMap::new();
    let entries = match std::fs::read_dir(NAMESPACES) {
        Ok(entries) => entries,
        // No namespace was ever created.
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
    /// Builder of a new testbed.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(crate) fn new(plan: TestbedPlan, relay: Option<Relay>, guard: Guard) -> Self {
        let wired = plan.cables().filter(|cable| cable.middle.is_some());
        let wired = wired.filter_map(|cable| cable.near.node.host()).collect();
        Self { nodes: plan.nodes().collect(), wired: Some(wired), name: plan.bed, relay, guard: Some(guard) }
    }

    /// Opens a testbed that another process has built; it stays when this value is dropped.
    ///
    /// # Errors
    /// Returns an error if no testbed has this name.
    pub fn open(name: &str) -> Result<Self, Error> {
        check_bed_name(name)?;
        let nodes = list_testbeds()?.remove(name).ok_or_else(|| Error::NotUp { bed: name.to_owned() })?;
        Ok(Self { name: name.to_owned(), nodes, wired: None, relay: None, guard: None })
    }

    /// True if threads of this process delay frames: then the testbed ends with the process.
    #[must_use]
    pub fn needs_owner(&self) -> bool {
        self.relay.is_some()
    }

    /// Leaves the testbed up for good; [`Testbed::open`] finds it.
    ///
    /// # Errors
    /// Returns an error, and takes the testbed down, if it [needs its owner](Self::needs_owner).
    pub fn keep(mut self) -> Result<(), Error> {
        if self.needs_owner() {
            return Err(Error::NeedsOwner { bed: self.name.clone() });
        }
        if let Some(guard) = self.guard.take() {
            guard.dismiss();
        }
        Ok(())
    }

    /// Keeps the testbed until another process takes it down, which kills this process. Calls `ready` once that is
    /// possible.
    ///
    /// # Errors
    /// Returns an error if the testbed is gone or `ready` fails; otherwise never returns.
    pub fn stay<E: From<Error>>(self, ready: impl FnOnce(&Self) -> Result<(), E>) -> Result<Infallible, E> {
        // A process belongs to a testbed if its first thread is in one of its namespaces.
        enter(&namespace_file(&NodeName::Wire.namespace(&self.name)))?;
        ready(&self)?;
        loop {
            thread::park();
        }
    }

    /// Ends all processes in the testbed and deletes it, also if it was opened.
    ///
    /// # Errors
    /// Returns an error if something can't be deleted.
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

    /// Name of the testbed.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Elements and hosts, in order.
    pub fn nodes(&self) -> impl Iterator<Item = TestbedNode> {
        self.nodes.iter().filter_map(|name| self.node(*name).ok())
    }

    /// Host `k`, counted from 1.
    ///
    /// # Errors
    /// Returns an error if the host does not exist.
    pub fn host(&self, k: usize) -> Result<TestbedNode, Error> {
        self.node(NodeName::Host(k))
    }

    /// Element `n`, counted from 1.
    ///
    /// # Errors
    /// Returns an error if the element does not exist.
    pub fn element(&self, n: usize) -> Result<TestbedNode, Error> {
        self.node(NodeName::Element(n))
    }

    /// Host or element of this name.
    ///
    /// # Errors
    /// Returns an error if the node does not exist.
    pub fn node(&self, name: NodeName) -> Result<TestbedNode, Error> {
        let address = name.address().filter(|_| self.nodes.contains(&name));
        let address = address.ok_or_else(|| Error::NoNode {
            bed: self.name.clone(),
            got: name.to_string(),
            has: self.nodes.iter().map(NodeName::to_string).collect::<Vec<_>>().join(" "),
        })?;
        Ok(TestbedNode { name, namespace: name.namespace(&self.name), address })
    }

    /// Link of host `k`, counted from 1.
    ///
    /// # Errors
    /// Returns an error if the host does not exist, or the testbed is still being built.
    pub fn link(&self, k: usize) -> Result<TestbedLink, Error> {
        self.host(k)?;
        let known = self.wired.as_ref().map(|hosts| hosts.contains(&k));
        let wired = known.or_else(|| (!self.nodes.contains(&NodeName::Wire)).then_some(false));
        TestbedLink::of_host(&self.name, k, wired)
    }

    /// Link between the two elements; *up* is from the first to the second.
    ///
    /// # Errors
    /// Returns an error if there is only one element.
    pub fn chain(&self) -> Result<TestbedLink, Error> {
        self.element(2)?;
        Ok(TestbedLink::chain(&self.name))
    }
}

impl TestbedNode {
    /// Name within the testbed.
    #[must_use]
    pub fn name(&self) -> NodeName {
        self.name
    }

    /// Name of the network namespace, as in `ip netns`.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// File that represents the network namespace.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        namespace_file(&self.namespace)
    }

    /// Moves the calling thread, and all threads that it starts from now on, into the node's network namespace: their
    /// new sockets belong to the node. Existing sockets stay where they are.
    ///
    /// # Errors
    /// Returns an error without root, and if the testbed is gone.
    pub fn enter(&self) -> Result<(), Error> {
        enter(&self.file())
    }

    /// Address that all other nodes of the testbed can reach.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Command of a program on this node: the program sees the node's interfaces, also in `/sys`, and all files of this
    /// machine.
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = tool::command("ip");
        command.args(["netns", "exec", &self.namespace]).arg(program);
        command
    }

    /// Command of `tcpdump` on all interfaces of this node: as text, or into a file.
    ///
    /// # Errors
    /// Returns an error if tcpdump is not installed.
    pub fn capture(&self, file: Option<&Path>) -> Result<Command, Error> {
        if !tool::is_installed("tcpdump") {
            return Err(Error::Missing { program: "tcpdump", package: "tcpdump" });
        }
        let interface = if self.name.host().is_some() { HOST_INTERFACE } else { "any" };
        let mut command = self.command("tcpdump");
        // tcpdump stays root: the file's folder may be root's.
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
