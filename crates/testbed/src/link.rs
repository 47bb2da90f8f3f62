//! Link of a running testbed: traffic and fault counters, and cutting the cable.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::thread;

use serde_json::Value;

use crate::error::Error;
use crate::plan::{
    CHAIN, CHAIN_FAR_SIDE, CHAIN_INTERFACE, CHAIN_SIDE, DOWN, HOST_INTERFACE, NodeName, UP, element_side, host_side,
};
use crate::testbed::{enter, namespace_file};
use crate::{script, tool};

/// Link of a host, or link between the two elements.
#[derive(Debug, Clone)]
pub struct TestbedLink {
    bed: String,
    /// Host; of the chain, the first element.
    near: NodeName,
    /// Interface of that node.
    interface: String,
    /// Interface of the wire towards that node; `None` on a bare link.
    inner: Option<String>,
    /// Other interface of the wire; unused on a bare link.
    outer: String,
    /// Name of the cable in counters.
    cable: String,
}

/// Traffic at the near end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traffic {
    /// From the host towards its element, before any loss.
    pub up: FrameCounts,
    /// Frames that arrived at the host.
    pub down: FrameCounts,
}

/// Number of frames, and their bytes with Ethernet headers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct FrameCounts {
    pub frames: u64,
    pub bytes: u64,
}

/// Faults of a wire in one direction; a frame may be both marked and repeated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkFaults {
    /// Lost at random. [`TestbedLink::overflowed`] counts frames lost to a full queue.
    pub lost: u64,
    /// Marked "congestion experienced".
    pub marked: u64,
    /// Delivered twice.
    pub repeated: u64,
    /// Delivered, without the copies.
    pub passed: u64,
}

impl TestbedLink {
    /// `wired`: the link has a wire, if known.
    pub(crate) fn of_host(bed: &str, k: usize, wired: Option<bool>) -> Result<Self, Error> {
        let near = NodeName::Host(k);
        let mut link = Self {
            bed: bed.to_owned(),
            near,
            interface: HOST_INTERFACE.to_owned(),
            inner: Some(host_side(k)),
            outer: element_side(k),
            cable: near.to_string(),
        };
        let wired = match wired {
            Some(wired) => wired,
            None => counters(bed)?.contains_key(&link.counter(UP, script::PASSED)),
        };
        link.inner.take_if(|_| !wired);
        Ok(link)
    }

    /// Link between the elements.
    pub(crate) fn chain(bed: &str) -> Self {
        let near = NodeName::Element(1);
        let (interface, inner) = (CHAIN_INTERFACE.to_owned(), Some(CHAIN_SIDE.to_owned()));
        let outer = CHAIN_FAR_SIDE.to_owned();
        Self { bed: bed.to_owned(), near, interface, inner, outer, cable: CHAIN.to_owned() }
    }

    /// Traffic of the host's interface since the testbed is up.
    ///
    /// Exact, with one exception: on a bare link, each frame that an XDP program reflects or redirects to the host is
    /// counted with one extra Ethernet header.
    ///
    /// # Errors
    /// Returns an error if the testbed is gone.
    pub fn traffic(&self) -> Result<Traffic, Error> {
        let namespace = self.near.namespace(&self.bed);
        let value = json(&namespace, "ip", &["-json", "-statistics", "link", "show", "dev", &self.interface])?;
        // veth counts a frame on arrival, without its Ethernet header, if the receiving end polls (GRO is on, or an XDP
        // program is attached), as all ends do here.
        let count = |direction: &str| {
            let counts = &value[0]["stats64"][direction];
            let number = |what: &str| number("ip", &counts[what], what);
            let (frames, bytes) = (number("packets")?, number("bytes")?);
            Ok::<_, Error>(FrameCounts { frames, bytes: bytes + frames * u64::from(script::ETHERNET_BYTES) })
        };
        Ok(Traffic { up: count("tx")?, down: count("rx")? })
    }

    /// Unplugs the cable at the host: its interface has no carrier, and no frame crosses.
    ///
    /// # Errors
    /// Returns an error if the link is bare or the testbed is gone.
    pub fn cut(&self) -> Result<(), Error> {
        self.set("down")
    }

    /// Plugs the cable in: addresses, neighbours and programs are as before. Waits until both ends have a carrier.
    ///
    /// # Errors
    /// Returns an error if the link is bare or the testbed is gone.
    pub fn mend(&self) -> Result<(), Error> {
        self.set("up")?;
        let ends = [(self.near, Some(&self.interface)), (NodeName::Wire, self.inner.as_ref())];
        for (node, interface) in ends {
            let await_interfaces = interface.map(|name| script::await_interfaces(name)).unwrap_or_default();
            tool::shell(&node.namespace(&self.bed), &await_interfaces)?;
        }
        Ok(())
    }

    fn set(&self, state: &str) -> Result<(), Error> {
        let Some(inner) = &self.inner else {
            return Err(Error::Bare { bed: self.bed.clone(), link: self.cable.clone() });
        };
        let namespace = NodeName::Wire.namespace(&self.bed);
        let mut command = tool::command("ip");
        command.args(["-n", &namespace, "link", "set", "dev", inner, state]);
        tool::output("ip", &namespace, &mut command).map(|_| ())
    }

    fn counter(&self, direction: &str, what: &str) -> String {
        script::counter(&self.cable, direction, what)
    }

    /// Frames dropped by a full queue of the link's rate, *up* and *down*; `None` on a bare link.
    ///
    /// # Errors
    /// Returns an error if the testbed is gone.
    pub fn overflowed(&self) -> Result<Option<(u64, u64)>, Error> {
        let Some(near) = &self.inner else { return Ok(None) };
        let namespace = NodeName::Wire.namespace(&self.bed);
        let dropped = |interface: &str| {
            let value = json(&namespace, "tc", &["-json", "-statistics", "qdisc", "show", "dev", interface, "root"])?;
            number("tc", &value[0]["drops"], "drops")
        };
        // Frames to the far end queue there.
        Ok(Some((dropped(&self.outer)?, dropped(near)?)))
    }

    /// Faults of the wire for frames *up* and *down*; `None` on a bare link.
    ///
    /// # Errors
    /// Returns an error if the testbed is gone.
    pub fn faults(&self) -> Result<Option<(LinkFaults, LinkFaults)>, Error> {
        if self.inner.is_none() {
            return Ok(None);
        }
        let counters = counters(&self.bed)?;
        let faults = |direction: &str| {
            let count = |what: &str| {
                let name = self.counter(direction, what);
                let missing =
                    || Error::Output { program: "nft", expected: format!("counter {name}"), got: String::new() };
                counters.get(&name).copied().ok_or_else(missing)
            };
            let (lost, marked) = (count(script::LOST)?, count(script::MARKED)?);
            Ok::<_, Error>(LinkFaults {
                lost,
                marked,
                repeated: count(script::REPEATED)?,
                passed: count(script::PASSED)?,
            })
        };
        Ok(Some((faults(UP)?, faults(DOWN)?)))
    }
}

/// All counters of a testbed's wire.
fn counters(bed: &str) -> Result<BTreeMap<String, u64>, Error> {
    let namespace = NodeName::Wire.namespace(bed);
    let value = json(&namespace, "nft", &["-j", "list", "counters", "table", "netdev", script::TABLE])?;
    let items = value["nftables"].as_array().map(Vec::as_slice).unwrap_or_default();
    let counters = items.iter().map(|item| &item["counter"]).filter(|counter| counter.is_object());
    let read = |counter: &Value| {
        Ok((counter["name"].as_str().unwrap_or_default().to_owned(), number("nft", &counter["packets"], "packets")?))
    };
    counters.map(read).collect()
}

/// Parses the JSON output of a program in a namespace. A thread enters the namespace: `ip netns exec` would take tens
/// of milliseconds for file systems that are not needed here.
fn json(namespace: &str, program: &'static str, arguments: &[&str]) -> Result<Value, Error> {
    let run = || {
        enter(&namespace_file(namespace))?;
        tool::output(program, namespace, tool::command(program).args(arguments))
    };
    let text = thread::scope(|scope| scope.spawn(run).join().unwrap_or_else(|panic| resume_unwind(panic)))?;
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
