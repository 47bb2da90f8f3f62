//! Driver of live network functions: an element in the kernel with its controller, servers on packet sockets (CLIP
//! §III, §V).
//!
//! ```text
//!             ┌──────────── element ────────────┐              ┌──────────── server ────────────┐
//!  network ══ │ XDP: root ─► function            │ ══ requests ►│ packet socket ─► GroupServer   │
//!  network ══ │        tables │ ▲ digests        │◄══ responses │                    │  handler  │
//!             │ thread: Controller ◄─ service ◄──┼── gRPC ──────┼─ session ◄─────────┘           │
//!             └──────────────────────────────────┘              └────────────────────────────────┘
//! ```
//!
//! The state machines are in [`pathcall_netfn::live`]; this crate has threads, sockets and message encoding.
//! `element` loads the function, attaches it, and runs its controller on a thread; `service` is the gRPC service of
//! that thread. [`server`] is one server; `packet_socket` receives and sends its frames in batches. `messages` encodes
//! the control messages.

#![warn(missing_docs)]

#[cfg(all(feature = "kernel", target_os = "linux"))]
pub mod element;
mod error;
#[cfg(target_os = "linux")]
mod interface;
mod messages;
#[cfg(target_os = "linux")]
mod packet_socket;
#[cfg(target_os = "linux")]
pub mod server;
#[cfg(all(feature = "kernel", target_os = "linux"))]
mod service;
#[cfg(target_os = "linux")]
mod waker;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use pathcall_p4::ir::Program;

pub use error::Error;

/// Default listen address of a function's controller.
pub const LISTEN_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7703);

/// Digest by which element and servers check that they run the same function, split in the same way. `entries`: entries
/// of each mirrored table in the element; `phv`: bytes of the target's header vector, if limited.
#[must_use]
pub fn digest(program: &Program, entries: u32, phv: Option<u32>) -> u64 {
    // FNV-1a is enough: nobody gains by two functions with the same digest.
    let text = format!("{program}\n{:?}\n{entries}\n{phv:?}", program.handler);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
