//! What a host is made of: nodes, the physical links between them, and how logical links run over these.

use crate::Mistake;

/// A host's hardware (LEO Fig. 5c).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hardware {
    /// Name of the model.
    pub name: String,
    /// The file that it was read from, as its reader named it.
    pub file: String,
    /// Processor, accelerator, network card, switches between them: one processor, one card, at most one accelerator.
    pub nodes: Vec<Node>,
    /// What joins them.
    pub links: Vec<Link>,
    /// Physical route of each logical link that the host has, in the order of [`LogicalLink::ALL`]: the nodes passed,
    /// both ends too. None where the host has no accelerator.
    pub routes: [Option<Vec<usize>>; 6],
}

/// A device of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Name, unique in the model.
    pub name: String,
    /// What it is.
    pub role: NodeRole,
    /// Requests that it can work on at the same time, at least 1: cores, engines.
    pub slots: u32,
}

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NodeRole {
    /// The host's processor.
    Cpu,
    /// Its accelerator.
    Acc,
    /// Its network card.
    Nic,
    /// Passes data on, computes nothing: a PCIe switch.
    Switch,
}

/// A physical link. Both directions carry what is given here, at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// The nodes that it joins.
    pub between: [usize; 2],
    /// Bytes a second.
    pub bytes_per_second: u64,
    /// Messages a second, however small.
    pub messages_per_second: u64,
    /// Of an empty link, without the time that a message's bytes take, in nanoseconds.
    pub latency_ns: u64,
}

/// A link as developers see it: from one of processor, accelerator and card to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LogicalLink {
    /// CPU to NIC.
    Cn,
    /// NIC to CPU.
    Nc,
    /// Accelerator to NIC.
    An,
    /// NIC to accelerator.
    Na,
    /// CPU to accelerator.
    Ca,
    /// Accelerator to CPU.
    Ac,
}

impl LogicalLink {
    /// All, in order.
    pub const ALL: [Self; 6] = [Self::Cn, Self::Nc, Self::An, Self::Na, Self::Ca, Self::Ac];
}

/// Models that come with the crate (LEO Fig. 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Preset {
    /// Processor, accelerator and card on one PCIe switch.
    Direct,
    /// The accelerator stands between card and processor.
    OnPath,
    /// The accelerator hangs off the card.
    OffPath,
}

impl Hardware {
    /// Reads a model; `file` names it in mistakes.
    ///
    /// # Errors
    /// The first mistake in it.
    pub fn parse(_file: &str, _text: &str) -> Result<Self, Mistake> {
        unimplemented!("next commit")
    }

    /// A model that comes with the crate.
    #[must_use]
    pub fn preset(_preset: Preset) -> Self {
        unimplemented!("next commit")
    }
}
