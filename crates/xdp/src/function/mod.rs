//! Network functions in the kernel: compiles what [`pathcall_function::emit::xdp`] writes, loads it, attaches it, and
//! gives a controller its tables, registers and counters.
//!
//! ```text
//! ir::Program ─► C ─ clang ─► object ─ libbpf ─► verifier ─► XdpFunction ─┬─ attach ─► interfaces, as ports
//!                                                   │                     ├─ process ─► BPF_PROG_TEST_RUN, for tests
//!                                                   └► which construct it refuses    └─ tables, registers, digests
//! ```
//!
//! It is an [`Execution`](pathcall_function::exec::Execution): held to the interpreter packet for packet. A program that
//! has what XDP can't do runs in user space, all of it ([`Anywhere`]).

mod anywhere;
mod compile;
mod error;
mod execution;
mod grace;
mod load;
mod log;
mod root;

pub use anywhere::Anywhere;
pub use compile::compile;
pub use error::{Error, Refused};
pub use execution::Repeated;
pub use load::{Config, Lost, XdpFunction};
pub use root::{Root, Rule, SwitchProgram};
