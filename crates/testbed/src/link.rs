//! A link of a bed that is up: what it carried, what befell that, and its cable, to be taken out.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::thread;

use serde_json::Value;

use crate::bed::{enter, namespace_file};
use crate::error::Error;
use crate::plan::{
    CHAIN, CHAIN_FAR_SIDE, CHAIN_INTERFACE, CHAIN_SIDE, DOWN, HOST_INTERFACE, NodeName, UP, element_side, host_side,
};
use crate::{script, tool};

/// The link of a host, or the one between two elements.
#[derive(Debug, Clone)]
pub struct Link {
    bed: String,
    /// The host; of the chain, the first element.
    near: NodeName,
    /// Its interface.
    interface: String,
    /// The wire's interface towards it, but for a bare link.
    inner: Option<String>,
    /// The wire's other interface, if there is a wire.
    outer: String,
    /// As counters call it.
    cable: String,
}

/// What the near end of a link sent and received.
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
    /// Lost at random. What a full queue loses is counted by [`Link::overflowed`].
    pub lost: u64,
    /// Marked "congestion experienced".
    pub marked: u64,
    /// Sent on twice.
    pub repeated: u64,
    /// Sent on, copies not counted.
    pub passed: u64,
}

impl Link {
    /// `wired` says whether the link passes a wire, if that is known.
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

    /// Between the elements.
    pub(crate) fn chain(bed: &str) -> Self {
        let near = NodeName::Element(1);
        let (interface, inner) = (CHAIN_INTERFACE.to_owned(), Some(CHAIN_SIDE.to_owned()));
        let outer = CHAIN_FAR_SIDE.to_owned();
        Self { bed: bed.to_owned(), near, interface, inner, outer, cable: CHAIN.to_owned() }
    }

    /// What the host's interface has sent and received since the bed is up.
    ///
    /// Exact, but for one case: on a bare link, each frame that an XDP program sends back or redirects to the
    /// host counts as one Ethernet header too long.
    ///
    /// # Errors
    /// When the bed is gone.
    pub fn traffic(&self) -> Result<Traffic, Error> {
        let namespace = self.near.namespace(&self.bed);
        let value = json(&namespace, "ip", &["-json", "-statistics", "link", "show", "dev", &self.interface])?;
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

    /// Puts the cable back: addresses, neighbours and programs are as before. Waits until the ends have noticed.
    ///
    /// # Errors
    /// When the link is bare, or the bed gone.
    pub fn mend(&self) -> Result<(), Error> {
        self.set("up")?;
        let ends = [(self.near, Some(&self.interface)), (NodeName::Wire, self.inner.as_ref())];
        for (node, interface) in ends {
            let settle = interface.map(|name| script::settle(name)).unwrap_or_default();
            tool::shell(&node.namespace(&self.bed), &settle)?;
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

    /// Frames that found the queue for the link's rate full, *up* and *down*; nothing on a bare link.
    ///
    /// # Errors
    /// When the bed is gone.
    pub fn overflowed(&self) -> Result<Option<(u64, u64)>, Error> {
        let Some(near) = &self.inner else { return Ok(None) };
        let namespace = NodeName::Wire.namespace(&self.bed);
        let dropped = |interface: &str| {
            let value = json(&namespace, "tc", &["-json", "-statistics", "qdisc", "show", "dev", interface, "root"])?;
            number("tc", &value[0]["drops"], "drops")
        };
        // What goes to the far end waits there.
        Ok(Some((dropped(&self.outer)?, dropped(near)?)))
    }

    /// What the wire did to frames *up* and to frames *down*; nothing on a bare link.
    ///
    /// # Errors
    /// When the bed is gone.
    pub fn faults(&self) -> Result<Option<(Faults, Faults)>, Error> {
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
            Ok::<_, Error>(Faults { lost, marked, repeated: count(script::REPEATED)?, passed: count(script::PASSED)? })
        };
        Ok(Some((faults(UP)?, faults(DOWN)?)))
    }
}

/// The frames that a bed's wire has counted.
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

/// What a program says in a namespace. It gets there by a thread, which is done in no time: `ip netns exec` takes
/// tens of milliseconds, for file systems that are not needed here.
fn json(namespace: &str, program: &'static str, arguments: &[&str]) -> Result<Value, Error> {
    let said = || {
        enter(&namespace_file(namespace))?;
        tool::output(program, namespace, tool::command(program).args(arguments))
    };
    let text = thread::scope(|scope| scope.spawn(said).join().unwrap_or_else(|panic| resume_unwind(panic)))?;
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
