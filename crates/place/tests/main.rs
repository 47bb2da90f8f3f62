//! Models, selection and all-reduce; what counts, or is, a process of its own has a target of its own.

mod beside;
mod exact;
mod left;
mod models;
mod order;
mod plain;
#[cfg(target_os = "linux")]
mod reduce;
mod schema;
mod shared;
mod strategies;
