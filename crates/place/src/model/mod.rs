//! Models of hosts and applications, read from YAML (LEO §III-A, Fig. 5).
//!
//! The input is text; the output a [`Hardware`], an [`Application`], or a [`ModelError`](crate::ModelError) with line
//! and column. Unknown keys, sizes without a unit and unknown nodes are errors.

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

/// Place of computation in a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceRole {
    /// Processor.
    Cpu,
    /// Accelerator.
    Acc,
}

impl DeviceRole {
    /// Both roles, in order.
    pub const ALL: [Self; 2] = [Self::Cpu, Self::Acc];

    /// Name in files and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Acc => "acc",
        }
    }
}

impl fmt::Display for DeviceRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
