//! Network functions live: an element in the kernel with its controller, servers on packet sockets (CLIP §III, §V).
//!
//! ```text
//!             ┌──────────── element ────────────┐              ┌──────────── server ────────────┐
//!  network ══ │ XDP: root ─► function            │ ══ requests ►│ packet socket ─► Member        │
//!  network ══ │        tables │ ▲ digests        │◄══ responses │                    │  handler  │
//!             │ thread: Controller ◄─ service ◄──┼── gRPC ──────┼─ session ◄─────────┘           │
//!             └──────────────────────────────────┘              └────────────────────────────────┘
//! ```
//!
//! What is decided is decided in [`pathcall_function::live`]; here are threads, sockets and words. `element` loads the
//! function, attaches it, and drives its controller on a thread of its own; `service` takes calls for it. [`server`] is
//! one server: `packets` receives and sends frames in batches, `words` is what both say to each other, as it travels.

#![warn(missing_docs)]

#[cfg(all(feature = "kernel", target_os = "linux"))]
pub mod element;
mod error;
#[cfg(target_os = "linux")]
mod interface;
#[cfg(target_os = "linux")]
mod packets;
#[cfg(target_os = "linux")]
pub mod server;
#[cfg(all(feature = "kernel", target_os = "linux"))]
mod service;
#[cfg(target_os = "linux")]
mod wake;
mod words;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use pathcall_function::ir::Program;

pub use error::Error;

/// Where the controller of a function listens if not told otherwise.
pub const LISTEN_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7703);

/// What tells a function from others, and from itself split otherwise: of all that its element and its servers have to
/// agree in. `entries`: what the element holds of each mirrored table; `phv`: bytes of its header vector, if they are few.
#[must_use]
pub fn digest(program: &Program, entries: u32, phv: Option<u32>) -> u64 {
    // FNV-1a: nobody gains anything by two functions with one digest.
    let text = format!("{program}\n{:?}\n{entries}\n{phv:?}", program.handler);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
