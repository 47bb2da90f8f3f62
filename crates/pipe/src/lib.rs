//! Pipes of unmodified gRPC services: the answer of each service goes on to the next one's host, not back to the caller
//! (DPC §7.5.3).
//!
//! ```text
//!            call                delegated              delegated
//! caller ──────────▶ front ─────────────▶ sidecar 1 ─────────────▶ sidecar 2
//!   ▲                  │ ▲                   │ ▲ gRPC                 │ ▲ gRPC
//!   └──────────────────┘ │                   ▼ │                      ▼ │
//!                        │                 service 1               service 2
//!                        └──────────────────── reply ────────────────┘
//! ```
//!
//! A file names the steps, and tells how each request and the reply are built from the messages before them. The
//! services have no part in this: their stubs and servers are the usual ones.
//!
//! Modules in the order in which a call meets them: `file` reads the YAML, `check` is the type checker ([`Pipe::read`]),
//! `expression` evaluates expressions, `fields` is a set of fields, `plan` is the pipe ([`Pipe`]). These do no I/O
//! except for reading the files. [`front`] serves callers, and [`sidecar`] serves a step; `codec` passes encoded
//! messages to gRPC.

#![warn(missing_docs)]

mod check;
mod codec;
mod expression;
mod fields;
mod file;
pub mod front;
mod plan;
pub mod sidecar;

pub use check::STEPS_MAX;
pub use front::PipeFront;
pub use pathcall_build::BuildDiagnostic;
pub use plan::{ArrivedHop, HopAfter, Pipe};

/// Largest message of a caller or a service, bytes.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;
