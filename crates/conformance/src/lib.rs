//! What holds every execution of the switch program to the reference (`pathcall-program`).
//!
//! ```text
//!            ┌─► reference ─► outcome, registers, counters ─┐
//! steps ─────┤                                              ├─► the same, or where they differ first
//!            └─► execution ─► outcome, registers, counters ─┘
//! ```
//!
//! An execution offers [`Execution`].

mod execution;
mod reference;
mod state;

pub use execution::{Execution, Failure, Outcome};
pub use state::{ApplicationState, PlaceState, RowState, State};
