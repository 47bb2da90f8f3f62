//! Deterministic simulator of Pathcall's real code on faulty networks.
//!
//! ```text
//! seed ─► plan ─► world ─► outcome        map, clone, delegate, function, place: one world for each ability
//!                  ├─ timeline: clock, event queue, trace
//!                  ├─ the real state machines, on hosts and networks with faults
//!                  └─ checker: compares every outcome with a model
//! ```
//!
//! A [`Simulation`] draws a plan from a seed and plays it in virtual time; it sweeps many seeds on all cores, and
//! shrinks a plan to what a violation needs. [`all`] combines the worlds; [`cli`] is `pathcall sim`.

#![warn(missing_docs)]

pub mod all;
pub mod cli;
pub mod clone;
pub mod delegate;
pub mod function;
pub mod map;
pub mod place;
pub mod queue;
pub mod random;

mod counts;
mod element_program;
mod environment;
mod minimizer;
mod panics;
mod simulation;
mod timeline;
mod trace;

pub use simulation::{Progress, RunOutcome, Simulation, SweepFinding, SweepReport};
