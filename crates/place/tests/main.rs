//! Models, selection and all-reduce.

mod beside;
mod context;
mod cost;
mod device;
mod exact;
mod left;
mod models;
mod order;
mod plain;
#[cfg(target_os = "linux")]
mod reduce;
#[cfg(target_os = "linux")]
mod reduce_processes;
mod schema;
mod shared;
mod strategies;
mod two_processes;
