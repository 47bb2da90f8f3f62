//! Hardware model of a host: nodes, physical links, and routes of logical links over them.

use super::{ACCELERATORS_MAX, DeviceRole};
use crate::ModelError;

/// Hardware model of a host (LEO Fig. 5c).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hardware {
    /// Name of the model.
    pub name: String,
    /// Name of its file, as passed by the caller.
    pub file: String,
    /// Nodes: one processor, one network card, at most [`ACCELERATORS_MAX`] accelerators, and switches. Accelerators are
    /// numbered in this order.
    pub nodes: Vec<HardwareNode>,
    /// Links between the nodes.
    pub links: Vec<HardwareLink>,
    /// Physical route of each logical link, in the order of [`HostLink::ALL`], as the nodes from end to end, by
    /// accelerator. `None` without this accelerator. The routes of the processor are with accelerator 0.
    pub routes: [[Option<Vec<usize>>; 6]; ACCELERATORS_MAX],
}

/// Node of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HardwareNode {
    /// Name, unique in the model.
    pub name: String,
    /// Role of the node.
    pub role: NodeRole,
    /// Number of requests that it processes in parallel, at least 1: cores, engines.
    pub slots: u32,
}

/// Role of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NodeRole {
    /// Processor.
    Cpu,
    /// Accelerator.
    Acc,
    /// Network card.
    Nic,
    /// PCIe switch, which forwards data and computes nothing.
    Switch,
}

/// Physical link. Both directions have these properties and are independent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HardwareLink {
    /// Nodes that the link connects.
    pub between: [usize; 2],
    /// Bytes per second.
    pub bytes_per_second: u64,
    /// Messages per second, for small messages.
    pub messages_per_second: u64,
    /// Delay of an empty link in nanoseconds, without the transmission time of the bytes.
    pub latency_ns: u64,
}

/// Logical link between processor, accelerator and network card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HostLink {
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

impl HostLink {
    /// All logical links, in order.
    pub const ALL: [Self; 6] = [Self::Cn, Self::Nc, Self::An, Self::Na, Self::Ca, Self::Ac];
}

/// Built-in models (LEO Fig. 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Preset {
    /// Processor, accelerator and card at one PCIe switch.
    Direct,
    /// Accelerator between card and processor.
    OnPath,
    /// Accelerator attached to the card.
    OffPath,
}

impl Hardware {
    /// Parses a model; `file` is the file's name in errors.
    ///
    /// # Errors
    /// The first error of the file.
    pub fn parse(file: &str, text: &str) -> Result<Self, ModelError> {
        super::hardware_yaml::parse(file, text)
    }

    /// Built-in model.
    ///
    /// # Panics
    /// Never: a test parses all of them.
    #[must_use]
    pub fn preset(preset: Preset) -> Self {
        let (file, text) = preset.file();
        Self::parse(file, text).expect("models of the crate are valid")
    }

    /// First node with a role.
    #[must_use]
    pub fn node(&self, role: NodeRole) -> Option<usize> {
        self.nodes.iter().position(|node| node.role == role)
    }

    /// Node of a device; `None` if the host lacks it.
    #[must_use]
    pub fn device(&self, role: DeviceRole) -> Option<usize> {
        match role.accelerator() {
            None => self.node(NodeRole::Cpu),
            Some(number) => {
                let nodes = self.nodes.iter().enumerate();
                nodes.filter(|(_, node)| node.role == NodeRole::Acc).map(|(at, _)| at).nth(number)
            }
        }
    }

    /// Number of accelerators.
    #[must_use]
    pub fn accelerators(&self) -> usize {
        self.nodes.iter().filter(|node| node.role == NodeRole::Acc).count()
    }

    /// Nodes of a logical link's route, from end to end, if `A` is this accelerator; `None` if the host lacks it.
    #[must_use]
    pub fn route(&self, link: HostLink, acc: DeviceRole) -> Option<&[usize]> {
        let acc = if link.has_acc() { acc.accelerator().unwrap_or(0) } else { 0 };
        self.routes[acc][link as usize].as_deref()
    }

    /// Physical link between two nodes.
    #[must_use]
    pub fn link(&self, one: usize, other: usize) -> Option<&HardwareLink> {
        self.links.iter().find(|link| link.between == [one, other] || link.between == [other, one])
    }
}

impl NodeRole {
    /// All roles, with their names in files.
    pub const NAMES: [(&'static str, Self); 4] =
        [("cpu", Self::Cpu), ("acc", Self::Acc), ("nic", Self::Nic), ("switch", Self::Switch)];

    /// Name in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize].0
    }
}

impl From<DeviceRole> for NodeRole {
    fn from(role: DeviceRole) -> Self {
        match role {
            DeviceRole::Cpu => Self::Cpu,
            _ => Self::Acc,
        }
    }
}

impl HostLink {
    /// Whether one end is an accelerator.
    #[must_use]
    pub const fn has_acc(self) -> bool {
        !matches!(self, Self::Cn | Self::Nc)
    }

    /// Name in files: `CN`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        ["CN", "NC", "AN", "NA", "CA", "AC"][self as usize]
    }

    /// Roles of the first and the last node.
    #[must_use]
    pub const fn ends(self) -> (NodeRole, NodeRole) {
        use NodeRole::{Acc, Cpu, Nic};
        [(Cpu, Nic), (Nic, Cpu), (Acc, Nic), (Nic, Acc), (Cpu, Acc), (Acc, Cpu)][self as usize]
    }

    /// Link from a role to the card.
    #[must_use]
    pub const fn out_of(role: DeviceRole) -> Self {
        match role {
            DeviceRole::Cpu => Self::Cn,
            _ => Self::An,
        }
    }

    /// Link from the card to a role.
    #[must_use]
    pub const fn into(role: DeviceRole) -> Self {
        match role {
            DeviceRole::Cpu => Self::Nc,
            _ => Self::Na,
        }
    }
}

impl Preset {
    /// All built-in models.
    pub const ALL: [Self; 3] = [Self::Direct, Self::OnPath, Self::OffPath];

    /// Built-in model with this name.
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

    /// File name and text, as a template for new models.
    #[must_use]
    pub const fn file(self) -> (&'static str, &'static str) {
        match self {
            Self::Direct => ("direct.yaml", include_str!("../../models/direct.yaml")),
            Self::OnPath => ("on-path.yaml", include_str!("../../models/on-path.yaml")),
            Self::OffPath => ("off-path.yaml", include_str!("../../models/off-path.yaml")),
        }
    }
}
