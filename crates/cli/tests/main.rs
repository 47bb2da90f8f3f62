//! The command `pathcall` as its users meet it, and whole systems of processes that it starts.

mod access;
mod apart;
mod bad_input;
mod certificates;
mod cli;
mod docs;
mod failing;
mod function;
mod hostile;
#[cfg(feature = "xdp")]
mod live;
mod memory;
mod place;
mod pools;
mod secured;
#[cfg(feature = "xdp")]
mod soak;
mod together;
mod trd;
#[cfg(feature = "xdp")]
mod xdp;

/// The command.
const PATHCALL: &str = env!("CARGO_BIN_EXE_pathcall");
