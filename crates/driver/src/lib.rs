//! Drivers: code that runs the state machines on sockets, shared memory and threads.
//!
//! ```text
//! call, join, … ── command ──▶ ┌─────────┐ ── frames ──▶
//!                              │ Driver  │               link (UDP, or shared memory)
//! answers ◀── deliver_events ─ └─────────┘ ◀── frames ── task: waits for frames and deadlines
//! ```
//!
//! A command runs in the calling thread, up to the system call that sends its frames, so no other thread has to be
//! woken. A task waits for received frames and deadlines. Both hold one lock, for as long as a batch of frames takes.
//! Where UDP does not pass, frames travel through a [`carrier`] and arrive as commands.
//!
//! The drivers of *map* are [`client`] and [`server`]; those of *clone* are in [`mod@clone`]. A [`node`] drives
//! *delegate*: its messages travel by flows or by [`streams`], [`task_waker`] wakes its task, and an
//! [`event_channel`](mod@event_channel) delivers the events of a call.

#![warn(missing_docs)]

pub mod carrier;
pub mod client;
pub mod clone;
mod endpoint_driver;
mod epoch_invalidated;
pub mod event_channel;
pub mod link;
pub mod node;
pub mod server;
pub mod streams;
pub mod task_waker;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;

use pathcall_wire::Instant;
use rustix::rand::{GetRandomFlags, getrandom};

/// State machine of an endpoint, as its driver uses it.
trait StateMachine: Send + 'static {
    type Command: Send;
    fn command(&mut self, now: Instant, command: Self::Command, send: impl FnMut(SocketAddr, &[u8]));
    /// Handles a frame received from `from`; `ce`: the network marked it "congestion experienced".
    fn handle(
        &mut self,
        now: Instant,
        from: SocketAddr,
        frame: &mut [u8],
        ce: bool,
        send: impl FnMut(SocketAddr, &[u8]),
    );
    fn poll(&mut self, now: Instant, send: impl FnMut(SocketAddr, &[u8]));
    /// Delivers finished results to their receivers, and flushes carried frames.
    fn deliver_events(&mut self);
    fn deadline(&self) -> Option<Instant>;
    /// Address of the element, which receives most of the frames and may share memory.
    fn element(&self) -> Option<SocketAddr>;
    /// Called when the last handle was dropped: no more commands come.
    fn close(&mut self, now: Instant);
    /// Returns whether nothing is left to complete.
    fn is_idle(&self) -> bool;
    /// Called when the driver stops: everything that waits for a result is released.
    fn on_driver_dropped(&mut self);
}

fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}
