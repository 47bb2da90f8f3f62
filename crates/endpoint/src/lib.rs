//! A host's end of Pathcall: the part that lives in the process that calls or serves.
//!
//! In the order data meets them: [`map`], [`mod@clone`] and [`delegate`] turn calls into frames or messages, and these
//! into answers; [`flow`] sends each frame reliably under a window, [`messages`] carries long messages over flows;
//! `token` signs and checks frames, where an application wants it; [`driver`] moves them between the state machines and
//! UDP, shared memory, TCP or QUIC. Everything but the driver is free of I/O and clocks, so the simulator and the fuzzers
//! run the very same code.

#![warn(missing_docs)]

pub mod clone;
pub mod delegate;
pub mod driver;
pub mod flow;
pub mod map;
pub mod messages;
mod tables;
mod token;
