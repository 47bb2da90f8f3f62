//! What hosts are made of and what an application's requests need, read from YAML (LEO §III-A, Fig. 5).
//!
//! Text in, [`Hardware`] or [`Application`] out, or a [`Mistake`](crate::Mistake) with its line and column. Nothing is
//! guessed: unknown keys, sizes without unit and nodes that are not there are mistakes.

mod application;
mod application_yaml;
mod hardware;
mod hardware_yaml;
mod routes;
mod units;
mod yaml;

pub use application::{Access, Application, Dataflow, Dependency, End, LinkBytes, RequestType, Task, Trip};
pub use hardware::{Hardware, Link, LogicalLink, Node, NodeRole, Preset};

/// JSON Schema of hardware models, for editors.
pub const HARDWARE_SCHEMA: &str = include_str!("../../models/hardware.schema.json");
/// JSON Schema of applications, for editors.
pub const APPLICATION_SCHEMA: &str = include_str!("../../models/application.schema.json");

use std::fmt;

/// The two places in a host where a request can be worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// The host's processor.
    Cpu,
    /// Its accelerator.
    Acc,
}

impl Role {
    /// Both, in order.
    pub const ALL: [Self; 2] = [Self::Cpu, Self::Acc];

    /// As files and the command line have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Acc => "acc",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
