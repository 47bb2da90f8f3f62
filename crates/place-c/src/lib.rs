//! The interface of *place* for C: LEO's Table II, and what is needed to look at it.
//!
//! ```text
//! builder: files, devices, functions, memory, clocks ── init ──▶ context: send, recv, write, read, handle
//!                                                                  └──▶ event: an answer, an access, a request
//! ```
//!
//! C sees `include/pathcall_place.h`, which a test holds to what stands here, declaration by declaration. `error` has
//! the codes and the text that goes with them; [`builder`] and [`context`] are opaque to C; [`event`] is what it reads.
//! No panic leaves the library. Who owns what is said at each function, and in `docs/place-c.md`.

#![warn(missing_docs)]
#![allow(non_camel_case_types)] // they are names of C

#[expect(unsafe_code, reason = "pointers of C are followed: see each")]
mod args;
#[expect(unsafe_code, reason = "an interface of C")]
pub mod builder;
#[expect(unsafe_code, reason = "an interface of C")]
pub mod context;
/// For this crate's own tests.
#[doc(hidden)]
#[expect(unsafe_code, reason = "an interface of C")]
pub mod error;
#[expect(unsafe_code, reason = "an interface of C")]
pub mod event;
#[expect(unsafe_code, reason = "functions of C are called")]
mod functions;
mod gate;

pub use builder::*;
pub use context::*;
pub use error::{
    PATHCALL_PLACE_FAILED, PATHCALL_PLACE_FULL, PATHCALL_PLACE_INVALID, PATHCALL_PLACE_NOTHING, PATHCALL_PLACE_OK,
    PATHCALL_PLACE_PANICKED, PATHCALL_PLACE_REFUSED, PATHCALL_PLACE_TOO_LONG, PATHCALL_PLACE_UNKNOWN,
    pathcall_place_error,
};
pub use event::*;
pub use functions::*;

/// The processor.
pub const PATHCALL_PLACE_CPU: u32 = 0;
/// The accelerator.
pub const PATHCALL_PLACE_ACC: u32 = 1;
/// A time that was not measured.
pub const PATHCALL_PLACE_UNMEASURED: u64 = u64::MAX;
