//! What a host is made of: nodes, the physical links between them, and how logical links run over these.

use super::Role;
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
    pub fn parse(file: &str, text: &str) -> Result<Self, Mistake> {
        super::hardware_yaml::parse(file, text)
    }

    /// A model that comes with the crate.
    ///
    /// # Panics
    /// Never: a test reads them all.
    #[must_use]
    pub fn preset(preset: Preset) -> Self {
        let (file, text) = preset.file();
        Self::parse(file, text).expect("models that come with the crate are right")
    }

    /// The node with a role, if the host has one; of switches the first.
    #[must_use]
    pub fn node(&self, role: NodeRole) -> Option<usize> {
        self.nodes.iter().position(|node| node.role == role)
    }

    /// The nodes that a logical link passes, both ends too; none where the host has no accelerator.
    #[must_use]
    pub fn route(&self, link: LogicalLink) -> Option<&[usize]> {
        self.routes[link as usize].as_deref()
    }

    /// The physical link between two nodes.
    #[must_use]
    pub fn link(&self, one: usize, other: usize) -> Option<&Link> {
        self.links.iter().find(|link| link.between == [one, other] || link.between == [other, one])
    }
}

impl NodeRole {
    /// All, with the words that files have for them.
    pub const WORDS: [(&'static str, Self); 4] =
        [("cpu", Self::Cpu), ("acc", Self::Acc), ("nic", Self::Nic), ("switch", Self::Switch)];

    /// As files have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::WORDS[self as usize].0
    }
}

impl From<Role> for NodeRole {
    fn from(role: Role) -> Self {
        match role {
            Role::Cpu => Self::Cpu,
            Role::Acc => Self::Acc,
        }
    }
}

impl LogicalLink {
    /// As files have it: `CN`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        ["CN", "NC", "AN", "NA", "CA", "AC"][self as usize]
    }

    /// Where it begins and where it ends.
    #[must_use]
    pub const fn ends(self) -> (NodeRole, NodeRole) {
        use NodeRole::{Acc, Cpu, Nic};
        [(Cpu, Nic), (Nic, Cpu), (Acc, Nic), (Nic, Acc), (Cpu, Acc), (Acc, Cpu)][self as usize]
    }

    /// From a role to the card.
    #[must_use]
    pub const fn out_of(role: Role) -> Self {
        match role {
            Role::Cpu => Self::Cn,
            Role::Acc => Self::An,
        }
    }

    /// From the card to a role.
    #[must_use]
    pub const fn into(role: Role) -> Self {
        match role {
            Role::Cpu => Self::Nc,
            Role::Acc => Self::Na,
        }
    }
}

impl Preset {
    /// All.
    pub const ALL: [Self; 3] = [Self::Direct, Self::OnPath, Self::OffPath];

    /// By the name of the model.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|preset| preset.name() == name)
    }

    /// Name of the model.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::OnPath => "on-path",
            Self::OffPath => "off-path",
        }
    }

    /// Its file, to be copied and changed.
    #[must_use]
    pub const fn file(self) -> (&'static str, &'static str) {
        match self {
            Self::Direct => ("direct.yaml", include_str!("../../models/direct.yaml")),
            Self::OnPath => ("on-path.yaml", include_str!("../../models/on-path.yaml")),
            Self::OffPath => ("off-path.yaml", include_str!("../../models/off-path.yaml")),
        }
    }
}
