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
//! Where UDP does not pass, frames travel through a [`carrier`] and are received by commands.
//!
//! The drivers of *map* are [`client`] and [`server`], whose state may be in a [`store`]; those of *clone* are in [`mod@clone`]. A [`node`] drives
//! *delegate*: its messages travel by flows or by [`streams`], [`task_waker`] wakes its task, and an
//! [`event_channel`](mod@event_channel) delivers the events of a call.

#![warn(missing_docs)]

pub mod carrier;
pub mod client;
pub mod clone;
mod endpoint_driver;
pub mod event_channel;
pub mod held_acks;
pub mod link;
pub mod node;
pub mod server;
pub mod store;
pub mod streams;
pub mod task_waker;
#[cfg(test)]
mod tests;

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}
