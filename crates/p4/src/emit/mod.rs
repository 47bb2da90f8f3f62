//! Back ends that emit source text, for targets with a compiler of their own.
//!
//! ```text
//! ir::Program ─┬─► p4:  P4_16 text (v1model), readable by our own front end
//!              └─► xdp: C file for the kernel, and the layout of its maps ─► crates/xdp loads it
//! ```
//!
//! Both programs behave as the interpreter does, packet for packet; tests compare them.

pub mod p4;
mod visit;
pub mod xdp;
