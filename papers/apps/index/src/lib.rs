//! Key-value store with an index on accelerator and processor, and values in the memory of the host (LEO §V-A).
//!
//! ```text
//! GET  keys ──▶ look-up (cpu or acc) ──▶ slots ──▶ read (cpu) ──▶ values
//! PUT  keys ──▶ insert (cpu) ──▶ slots ──▶ write (cpu)
//!                 └ new keys: updates of the accelerator's copy of the index, before the answer
//! ```
//!
//! *No GET returns an outdated value.* Requests of one partition of the keys keep their order on all paths, except
//! reads among themselves. An index contains only the slot of a value, which a PUT to an existing key does not change.
//! Each slot contains its key: `read` compares it with the requested key, and uses the processor's index if they
//! differ. So a copy that missed an insert costs time, but gives no wrong answer.
//!
//! [`tree`] is the index, [`store`] has the tasks, and [`load`] has YCSB's messages with their expected answers.

pub mod load;
pub mod store;
pub mod tree;

pub use load::{IndexLoad, YcsbMix};
pub use store::IndexedStore;

/// Default application file.
pub const FILE: (&str, &str) = ("kvs.yaml", include_str!("../kvs.yaml"));
