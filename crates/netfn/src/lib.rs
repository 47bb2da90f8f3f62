//! Run time of network functions: handlers on servers, placement of flows in the element, and scaling (CLIP §V).
//!
//! ```text
//!               ┌─ installer ◀── place (which flows the element holds) ◀── reports of flows
//! element's ir ─┤              ◀── scale (which server has the others) ◀── loads
//!               └─ requests ──▶ serve ──▶ handler, mirror (tables) ──▶ responses
//! ```
//!
//! `pathcall-p4` splits a function; this crate runs the parts. A server's [`handler`] is C in a sandbox, with its
//! mirrored tables in [`mirror`]; [`serve`] drives the handler. [`place`] chooses the flows that the element holds,
//! [`scale`] the server of the others, and [`installer`] writes both into the element's tables. [`run`] runs all parts
//! in one process; [`live`] carries the messages between separate parts. No module has I/O or reads a clock:
//! `pathcall-live` connects them to sockets and to the kernel.

#![warn(missing_docs)]

pub mod handler;
pub mod installer;
pub mod live;
pub mod mirror;
pub mod place;
pub mod run;
pub mod scale;
pub mod serve;
