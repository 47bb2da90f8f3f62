//! Test support for network functions: random programs, small functions, and comparison of executions.
//!
//! ```text
//! random:      bytes of choices ─► program + steps ─┬─► one execution ───┐
//!                                                   └─► another ─────────┴─► first difference
//! equivalence: function, plan ─┬─► split: element, servers, controller ─┐
//!                              └─► unsplit ─────────────────────────────┴─► different outputs?
//! fixtures:    small functions built by hand, with handlers in Rust
//! ```
//!
//! Used by the tests of this crate, `pathcall-xdp` and `pathcall-conformance`; depends only on the public API of `pathcall-p4` and
//! `pathcall-netfn`.

#![warn(missing_docs)]

pub mod equivalence;
pub mod fixtures;
pub mod random;
