//! A bed that is up: its nodes, to run programs on, and its links, with what they carried.

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
use serde_json::Value;

use crate::builder::Builder;
use crate::error::Error;
use crate::guard::{Guard, tear_down};
use crate::plan::{DOWN, HOST_INTERFACE, NodeName, Plan, UP, check_bed_name, host_side};
use crate::relay::Relay;
use crate::{script, tool};

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

/// The link of a host.
#[derive(Debug, Clone)]
pub struct Link {
    bed: String,
    host: usize,
    wired: bool,
}

/// What a host's interface sent and received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traffic {
    /// From the host towards its element, before anything got lost.
    pub up: Counts,
    /// What arrived at the host.
    pub down: Counts,
}

/// Frames, and their bytes with Ethernet headers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Counts {
    pub frames: u64,
    pub bytes: u64,
}

/// Frames of a wire in one direction, by what befell them; a frame may be marked and repeated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults {
    /// Lost at random. What a full queue loses is not counted here.
    pub lost: u64,
    /// Marked "congestion experienced".
    pub marked: u64,
    /// Sent on twice.
    pub repeated: u64,
    /// Sent on, copies not counted.
    pub passed: u64,
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

    /// Keeps the bed until somebody else takes it down, which kills this process.
    ///
    /// # Errors
    /// When the bed is gone; otherwise it never returns.
    pub fn stay(self) -> Result<Infallible, Error> {
        // A bed's processes are those whose first thread is in one of its namespaces.
        enter(&namespace_file(&NodeName::Wire.namespace(&self.name)))?;
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
        let counted = || Ok::<_, Error>(counters(&self.name)?.contains_key(&count_name(k, UP, script::PASSED)));
        let wired = match &self.wired {
            Some(hosts) => hosts.contains(&k),
            None => self.nodes.contains(&NodeName::Wire) && counted()?,
        };
        Ok(Link { bed: self.name.clone(), host: k, wired })
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

impl Link {
    /// What the host's interface has sent and received since the bed is up.
    ///
    /// Exact, but for one case: on a bare link, each frame that an XDP program sends back or redirects to the
    /// host counts as one Ethernet header too long.
    ///
    /// # Errors
    /// When the bed is gone.
    pub fn traffic(&self) -> Result<Traffic, Error> {
        let namespace = NodeName::Host(self.host).namespace(&self.bed);
        let mut command = tool::command("ip");
        command.args(["-n", &namespace, "-json", "-statistics", "link", "show", "dev", HOST_INTERFACE]);
        let value = json("ip", &namespace, &mut command)?;
        // veth counts a frame where it arrives, without its Ethernet header, if the end it arrives at polls
        // (GRO is on, or an XDP program there), as all ends do.
        let count = |direction: &str| {
            let counts = &value[0]["stats64"][direction];
            let number = |what: &str| number("ip", &counts[what], what);
            let (frames, bytes) = (number("packets")?, number("bytes")?);
            Ok::<_, Error>(Counts { frames, bytes: bytes + frames * u64::from(script::ETHERNET_BYTES) })
        };
        Ok(Traffic { up: count("tx")?, down: count("rx")? })
    }

    /// Takes the cable out at the host: its interface has no carrier, and nothing crosses.
    ///
    /// # Errors
    /// When the link is bare, or the bed gone.
    pub fn cut(&self) -> Result<(), Error> {
        self.set("down")
    }

    /// Puts the cable back: addresses, neighbours and programs are as before.
    ///
    /// # Errors
    /// When the link is bare, or the bed gone.
    pub fn mend(&self) -> Result<(), Error> {
        self.set("up")
    }

    fn set(&self, state: &str) -> Result<(), Error> {
        if !self.wired {
            return Err(Error::Bare { bed: self.bed.clone(), host: self.host });
        }
        let namespace = NodeName::Wire.namespace(&self.bed);
        let mut command = tool::command("ip");
        command.args(["-n", &namespace, "link", "set", "dev", &host_side(self.host), state]);
        tool::output("ip", &namespace, &mut command).map(|_| ())
    }

    /// What the wire did to frames from the host, and to frames to it; nothing on a bare link.
    ///
    /// # Errors
    /// When the bed is gone.
    pub fn faults(&self) -> Result<Option<(Faults, Faults)>, Error> {
        if !self.wired {
            return Ok(None);
        }
        let counters = counters(&self.bed)?;
        let faults = |direction: &str| {
            let count = |what: &str| {
                let name = count_name(self.host, direction, what);
                let missing =
                    || Error::Output { program: "nft", expected: format!("counter {name}"), got: String::new() };
                counters.get(&name).copied().ok_or_else(missing)
            };
            let (lost, marked) = (count(script::LOST)?, count(script::MARKED)?);
            Ok::<_, Error>(Faults { lost, marked, repeated: count(script::REPEATED)?, passed: count(script::PASSED)? })
        };
        Ok(Some((faults(UP)?, faults(DOWN)?)))
    }
}

fn namespace_file(namespace: &str) -> PathBuf {
    Path::new(NAMESPACES).join(namespace)
}

/// Moves this thread.
fn enter(namespace: &Path) -> Result<(), Error> {
    let doing = "moving a thread into a network namespace";
    let file = File::open(namespace).map_err(Error::io(doing))?;
    let moved = move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network));
    moved.map_err(|errno| Error::io(doing)(errno.into()))
}

/// The name of a counter of host `k`'s link.
fn count_name(k: usize, direction: &str, what: &str) -> String {
    script::counter(&NodeName::Host(k).to_string(), direction, what)
}

/// The frames that a bed's wire has counted.
fn counters(bed: &str) -> Result<BTreeMap<String, u64>, Error> {
    let namespace = NodeName::Wire.namespace(bed);
    let mut command = tool::command("ip");
    let list = ["nft", "-j", "list", "counters", "table", "netdev", script::TABLE];
    command.args(["netns", "exec", &namespace]).args(list);
    let value = json("nft", &namespace, &mut command)?;
    let items = value["nftables"].as_array().map(Vec::as_slice).unwrap_or_default();
    let counters = items.iter().map(|item| &item["counter"]).filter(|counter| counter.is_object());
    let read = |counter: &Value| {
        Ok((counter["name"].as_str().unwrap_or_default().to_owned(), number("nft", &counter["packets"], "packets")?))
    };
    counters.map(read).collect()
}

fn json(program: &'static str, place: &str, command: &mut Command) -> Result<Value, Error> {
    let text = tool::output(program, place, command)?;
    serde_json::from_str(&text).map_err(|error| Error::Output {
        program,
        expected: format!("JSON ({error})"),
        got: text.chars().take(80).collect(),
    })
}

fn number(program: &'static str, value: &Value, what: &str) -> Result<u64, Error> {
    let error = || Error::Output { program, expected: format!("a number of {what}"), got: value.to_string() };
    value.as_u64().ok_or_else(error)
}
