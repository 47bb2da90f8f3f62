//! The command `pathcall` as its users meet it, and whole systems of processes that it starts.

mod apart;
mod bad_input;
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
#[cfg(feature = "xdp")]
mod soak;
mod together;
mod trd;
#[cfg(feature = "xdp")]
mod xdp;

/// The command.
const PATHCALL: &str = env!("CARGO_BIN_EXE_pathcall");
