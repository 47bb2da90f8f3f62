//! Test support for network functions: random programs, small functions, and comparison of executions.
//!
//! ```text
//! random:   bytes of choices ─► program + steps ─┬─► one execution ───┐
//!                                                └─► another ─────────┴─► first difference
//! held:     a function, a plan ─┬─► split: element, servers, controller ─┐
//!                               └─► in one piece ────────────────────────┴─► what left differs?
//! fixtures: small functions built by hand, with handlers in Rust
//! ```
//!
//! Used by the tests of `pathcall-function` and of `pathcall-xdp`, on the public API of `pathcall-function` alone.

#![warn(missing_docs)]

pub mod fixtures;
pub mod held;
pub mod random;
