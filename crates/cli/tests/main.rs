//! Tests of the command `pathcall`, and of whole systems of processes that it starts.

mod access;
mod all_abilities;
mod bad_input;
mod certificates;
mod cli;
mod docs;
mod function;
mod hostile;
mod isolation;
#[cfg(feature = "xdp")]
mod live;
mod pipe;
mod place;
mod pools;
mod process_failures;
#[cfg(feature = "xdp")]
mod racks;
mod shared_memory;
#[cfg(feature = "xdp")]
mod soak;
mod tls;
mod trd;
#[cfg(feature = "xdp")]
mod xdp;

/// Path of the command.
const PATHCALL: &str = env!("CARGO_BIN_EXE_pathcall");
