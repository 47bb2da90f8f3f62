//! Tests of models, path selection, devices, contexts and all-reduce.

mod accelerators;
mod busy_processors;
mod context;
mod cost;
mod device;
mod exact;
mod failing_paths;
mod host_model;
mod late_binding;
mod models;
mod order;
#[cfg(target_os = "linux")]
mod reduce;
#[cfg(target_os = "linux")]
mod reduce_processes;
mod schema;
mod several_accelerators;
mod shared;
mod strategies;
mod two_processes;
