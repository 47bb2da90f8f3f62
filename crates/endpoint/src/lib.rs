//! Endpoints of Pathcall: state machines and drivers in the processes of callers and servers.
//!
//! Modules, in the order in which a call passes them: [`map`], [`mod@clone`] and [`delegate`] convert calls to frames
//! or messages, and frames or messages to answers. [`flow`] sends each frame reliably within a window; [`messages`]
//! carries long messages over flows. `token` signs and checks frames of applications with a key. [`driver`] moves
//! frames between the state machines and UDP, shared memory, TCP or QUIC. All modules except the driver have no I/O and
//! read no clock, so the simulator and the fuzzers run the same code.

#![warn(missing_docs)]

pub mod clone;
pub mod delegate;
pub mod driver;
pub mod flow;
pub mod map;
pub mod messages;
mod tables;
mod token;
