//! Where the state machines meet the operating system.
//!
//! ```text
//! call, join, … ── command ──▶ ┌─────────┐ ── frames ──▶
//!                              │ Shared  │               link (UDP, or shared memory)
//! answers ◀──────── settle ─── └─────────┘ ◀── frames ── task: waits for frames and deadlines
//! ```
//!
//! A command runs in the thread that gives it, up to the system call that sends its frames: nobody
//! else has to be woken for it. A task waits for what comes back and for time to pass. Both hold one
//! lock, for as long as a batch of frames takes. Where UDP does not get through, frames go by a
//! [`carrier`] and come as commands.
//!
//! That is *map*: [`client`] and [`server`]; and [`mod@clone`]: callers and queues of servers. A [`node`] is
//! *delegate*'s, its messages carried by flows or by [`streams`]; [`turns`] are its task's, and by a
//! [`line`](mod@line) it tells who waits for a call.

pub mod carrier;
pub mod client;
pub mod clone;
mod lapse;
pub mod line;
pub mod link;
pub mod node;
pub mod server;
mod shared;
pub mod streams;
pub mod turns;

use std::io;
use std::net::SocketAddr;

use pathcall_wire::Instant;
use rustix::rand::{GetRandomFlags, getrandom};

/// An endpoint as its driver sees it.
trait Party: Send + 'static {
    type Command: Send;
    fn command(&mut self, now: Instant, command: Self::Command, send: impl FnMut(SocketAddr, &[u8]));
    /// Takes a frame that came from there; `ce`: the network below marked it.
    fn handle(
        &mut self,
        now: Instant,
        from: SocketAddr,
        frame: &mut [u8],
        ce: bool,
        send: impl FnMut(SocketAddr, &[u8]),
    );
    fn poll(&mut self, now: Instant, send: impl FnMut(SocketAddr, &[u8]));
    /// Gives out what was finished, and what is to be carried.
    fn settle(&mut self);
    fn deadline(&self) -> Option<Instant>;
    /// Where most of its frames go, and memory may be shared: its element.
    fn element(&self) -> Option<SocketAddr>;
    /// Nobody commands it any more.
    fn close(&mut self, now: Instant);
    /// Whether nothing is left to be driven to its end.
    fn is_idle(&self) -> bool;
    /// Nobody drives it any more: whoever waits for something of it is told so.
    fn forsake(&mut self);
}

fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}
