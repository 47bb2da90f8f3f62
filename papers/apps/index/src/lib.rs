//! A key-value store whose index is on the accelerator and on the processor, and whose values are in the host's memory
//! (LEO §V-A).
//!
//! ```text
//! GET  keys ──▶ look-up (cpu or acc) ──▶ slots ──▶ read (cpu) ──▶ values
//! PUT  keys ──▶ insert (cpu) ──▶ slots ──▶ write (cpu)
//!                 └ new keys: the accelerator's copy of the index follows, before the answer
//! ```
//!
//! *No GET has a value from before.* Requests of one part of the keys keep their order, whatever paths they take, but for
//! reads among themselves. An index says only where a value is, which a PUT of a key that is there does not change. And a
//! slot has its key: `read` looks whether it is the one that was asked for, and asks the processor's index otherwise, so
//! that a copy that has missed an insert costs time and no answer.
//!
//! [`tree`] is the index, [`store`] what tasks do, [`load`] YCSB's messages and what their answers must be.

pub mod load;
pub mod store;
pub mod tree;

pub use load::{Load, Mix};
pub use store::Store;

/// The application's file, unless another one is given.
pub const FILE: (&str, &str) = ("kvs.yaml", include_str!("../kvs.yaml"));
