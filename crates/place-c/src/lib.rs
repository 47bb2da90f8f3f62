//! C interface of *place*: the calls of LEO's Table II, and calls that report its decisions and statistics.
//!
//! ```text
//! builder: files, devices, functions, memory, clocks ── init ──▶ context: send, recv, write, read, handle
//!                                                                  └──▶ event: an answer, an access, a request
//! ```
//!
//! C programs include `include/pathcall_place.h`; a test compares each of its declarations with this crate. Module
//! `error` has the status codes and the error text. [`builder`] and [`context`] are opaque to C; C reads the fields of
//! [`event`]. No panic leaves the library. Each function, and `docs/place-c.md`, state the owner of each pointer.

#![warn(missing_docs)]
#![allow(non_camel_case_types)] // names of the C interface

#[expect(unsafe_code, reason = "dereferences pointers from C: see each")]
mod args;
#[expect(unsafe_code, reason = "a C interface")]
pub mod builder;
mod call_gate;
#[expect(unsafe_code, reason = "a C interface")]
pub mod context;
/// Public for this crate's own tests only.
#[doc(hidden)]
#[expect(unsafe_code, reason = "a C interface")]
pub mod error;
#[expect(unsafe_code, reason = "a C interface")]
pub mod event;
#[expect(unsafe_code, reason = "calls C functions")]
mod functions;

pub use builder::*;
pub use context::*;
pub use error::{
    PATHCALL_PLACE_FAILED, PATHCALL_PLACE_FULL, PATHCALL_PLACE_INVALID, PATHCALL_PLACE_NOTHING, PATHCALL_PLACE_OK,
    PATHCALL_PLACE_PANICKED, PATHCALL_PLACE_REFUSED, PATHCALL_PLACE_TOO_LONG, PATHCALL_PLACE_UNKNOWN,
    pathcall_place_error,
};
pub use event::*;
pub use functions::*;

/// Role of the processor.
pub const PATHCALL_PLACE_CPU: u32 = 0;
/// Role of accelerator 0; the roles of the others follow: `PATHCALL_PLACE_ACC + 1` and so on.
pub const PATHCALL_PLACE_ACC: u32 = 1;
/// Limit on the accelerators of a host.
pub const PATHCALL_PLACE_ACCELERATORS_MAX: u32 = 7;
/// Value of a time that was not measured.
pub const PATHCALL_PLACE_UNMEASURED: u64 = u64::MAX;
