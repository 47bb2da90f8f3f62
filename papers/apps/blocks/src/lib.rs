//! Elastic block storage: reads of volumes that are made of layers, as of snapshots (LEO §V-A, after Solar).
//!
//! ```text
//! requester: qos (cpu or acc)                            responder: block-address (cpu or acc)
//! read ─▶ its volume's class; let through? ══▶ block: the newest layer that has it ─▶ address in the disk ─▶ data
//! ```
//!
//! [`disk`] is volumes, layers, extents and blocks, and what tasks do with them; [`load`] the reads, and what they must
//! answer: found by painting the layers over each other, not by looking anything up.

pub mod disk;
pub mod load;

pub use disk::{Disk, Shape};
pub use load::{Load, Reads};

/// The application's file, unless another one is given.
pub const FILE: (&str, &str) = ("ebs.yaml", include_str!("../ebs.yaml"));
