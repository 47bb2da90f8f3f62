//! Elastic block storage: reads from volumes that consist of layers, such as snapshots (LEO §V-A, after Solar).
//!
//! ```text
//! requester: qos (cpu or acc)                            responder: block-address (cpu or acc)
//! read ─▶ class of the volume; admission   ══▶ block: newest layer with the block ─▶ address on the disk ─▶ data
//! ```
//!
//! [`disk`] has volumes, layers, extents, blocks and their tasks. [`load`] has the reads and their expected answers,
//! which come from painting the layers over each other, without any look-up.

pub mod disk;
pub mod load;

pub use disk::{Disk, DiskShape};
pub use load::{BlockLoad, Reads};

/// Default application file.
pub const FILE: (&str, &str) = ("ebs.yaml", include_str!("../ebs.yaml"));
