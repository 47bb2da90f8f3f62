//! What holds every execution of the switch program to the reference (`pathcall-program`).
//!
//! ```text
//!            ┌─► reference ─► outcome, registers, counters ─┐
//! steps ─────┤                                              ├─► the same, or where they differ first
//!            └─► execution ─► outcome, registers, counters ─┘
//! ```
//!
//! An execution offers [`Execution`]. What happens to it is a sequence of [`Step`]s: from a seed, by the
//! [`generate`] module, or from a file, by the [`corpus`] module.

#![warn(missing_docs)]

pub mod corpus;
mod decode;
mod differ;
mod execution;
pub mod frame;
pub mod generate;
pub mod p4;
mod profile;
mod random;
mod reference;
mod shrink;
mod state;
mod step;

pub use decode::Decoded;
pub use differ::{Difference, What, campaign, differ};
pub use execution::{Execution, Failure, Outcome};
pub use profile::Hardware;
pub use random::Random;
pub use reference::program;
pub use state::{ApplicationState, CallState, PlaceState, PoolState, RowState, State};
pub use step::{Effect, Step};
