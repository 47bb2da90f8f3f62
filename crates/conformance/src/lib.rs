//! Conformance tests: executions of the switch program, compared with the reference (`pathcall-program`).
//!
//! ```text
//!            ┌─► reference ─► outcome, registers, counters ─┐
//! steps ─────┤                                              ├─► equal, or the first difference
//!            └─► execution ─► outcome, registers, counters ─┘
//! ```
//!
//! An execution implements [`ProgramExecution`]. Its input is a sequence of [`ProgramStep`]s: random ones from the
//! [`generate`] module, or those of a file, from the [`corpus`] module.

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
pub use differ::{Difference, DifferenceKind, campaign, differ};
pub use execution::{ExecutionFailure, ProgramExecution, ProgramOutcome};
pub use profile::HardwareExecution;
pub use random::RandomChoice;
pub use reference::program;
pub use state::{ApplicationState, CallState, ExecutionState, PlaceState, PoolRegisters, RowState};
pub use step::{ProgramStep, StepEffect};
