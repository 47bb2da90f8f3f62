//! Network functions in the kernel: compiles the output of [`pathcall_p4::emit::xdp`], loads it, attaches it, and
//! gives a controller access to its tables, registers and counters.
//!
//! ```text
//! ir::Program ─► C ─ clang ─► object ─ libbpf ─► verifier ─► XdpFunction ─┬─ attach ─► interfaces, as ports
//!                                                   │                     ├─ process ─► BPF_PROG_TEST_RUN, for tests
//!                                                   └► refused construct                └─ tables, registers, digests
//! ```
//!
//! A function in the kernel is an [`Execution`](pathcall_p4::exec::Execution), and is compared with the
//! interpreter packet by packet. A program with constructs that XDP does not support runs as a whole in user space
//! ([`KernelOrInterpreter`]).

mod compile;
mod error;
mod execution;
mod grace_period;
mod kernel_or_interpreter;
mod load;
mod log;
mod root;

pub use compile::compile;
pub use error::{Error, VerifierError};
pub use execution::RepeatedRun;
pub use kernel_or_interpreter::KernelOrInterpreter;
pub use load::{Config, LossReason, XdpFunction};
pub use root::{PacketRule, Root, SwitchProgramRef};
