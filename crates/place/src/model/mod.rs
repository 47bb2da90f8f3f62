//! Models of hosts and applications, read from YAML (LEO §III-A, Fig. 5).
//!
//! The input is text; the output a [`Hardware`], an [`Application`], or a [`ModelError`](crate::ModelError) with line
//! and column. Unknown keys, sizes without a unit and unknown nodes are errors.

mod accelerators;
mod application;
mod application_yaml;
mod hardware;
mod hardware_yaml;
mod routes;
pub(crate) mod units;
pub mod yaml;

pub use application::{AccessMode, Application, Dataflow, Dependency, LinkBytes, RequestType, Task, Trip, TripEnd};
pub use hardware::{Hardware, HardwareLink, HardwareNode, HostLink, NodeRole, Preset};

/// JSON Schema of hardware models, for editors.
pub const HARDWARE_SCHEMA: &str = include_str!("../../models/hardware.schema.json");
/// JSON Schema of application models, for editors.
pub const APPLICATION_SCHEMA: &str = include_str!("../../models/application.schema.json");

use std::fmt;

/// Limit on the slots of a node or a device.
pub const SLOTS_MAX: usize = 65_536;

/// Limit on the accelerators of a host.
pub const ACCELERATORS_MAX: usize = 7;

/// Place of computation in a host: its processor, or one of its accelerators, by number. The number of a role is also its
/// encoding between hosts and in C.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum DeviceRole {
    /// Processor.
    Cpu,
    /// Accelerator 0: the only one of most hosts.
    Acc,
    /// Accelerator 1.
    Acc1,
    /// Accelerator 2.
    Acc2,
    /// Accelerator 3.
    Acc3,
    /// Accelerator 4.
    Acc4,
    /// Accelerator 5.
    Acc5,
    /// Accelerator 6.
    Acc6,
}

impl DeviceRole {
    /// All roles, in order.
    pub const ALL: [Self; 1 + ACCELERATORS_MAX] =
        [Self::Cpu, Self::Acc, Self::Acc1, Self::Acc2, Self::Acc3, Self::Acc4, Self::Acc5, Self::Acc6];

    /// Role of the accelerator with this number, below [`ACCELERATORS_MAX`].
    #[must_use]
    pub fn acc(number: usize) -> Option<Self> {
        Self::ALL[1..].get(number).copied()
    }

    /// Number of the accelerator; `None` for the processor.
    #[must_use]
    pub const fn accelerator(self) -> Option<usize> {
        (self as usize).checked_sub(1)
    }

    /// Whether it is an accelerator.
    #[must_use]
    pub const fn is_acc(self) -> bool {
        self as usize > 0
    }

    /// Name on the command line, in replies and in the names of paths.
    #[must_use]
    pub const fn name(self) -> &'static str {
        ["cpu", "acc", "acc1", "acc2", "acc3", "acc4", "acc5", "acc6"][self as usize]
    }

    /// Role with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }
}

impl fmt::Display for DeviceRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
