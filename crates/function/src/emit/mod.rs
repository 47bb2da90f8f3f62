//! Back ends that write text: what an element runs, for targets that bring their own compiler.
//!
//! ```text
//! ir::Program ─┬─► p4:  P4_16 (v1model), which our own front end reads back
//!              └─► xdp: one file of C for the kernel, and where its maps hold what ─► crates/xdp loads it
//! ```
//!
//! Both do what the interpreter does, packet for packet: tests hold them to it.

pub mod p4;
mod walk;
pub mod xdp;
