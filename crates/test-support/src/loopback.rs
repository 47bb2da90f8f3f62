//! Addresses of the loopback that one test has to itself, for a port that is bound, freed and bound again.
//!
//! A port that the system chose is free again the moment that its socket is dropped, and the next socket that binds port
//! 0 may get it. These ports are below those that the system chooses from, and each address is used once.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};

/// Below the ports that the system chooses from: 32768 and up on Linux, 49152 and up elsewhere.
const PORT: u16 = 20_000;
/// Bits of an address that count the addresses of one process.
const COUNT_BITS: u32 = 9;

/// An address in 127.128.0.0/9 that no other test uses, with a port that the system gives to nobody.
///
/// # Panics
/// When this process has had 512 of them.
#[must_use]
pub fn own() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let count = NEXT.fetch_add(1, Ordering::Relaxed);
    assert!(count < 1 << COUNT_BITS, "512 addresses are all that a process has");
    let process = std::process::id() & ((1 << (23 - COUNT_BITS)) - 1);
    let host = 1 << 23 | process << COUNT_BITS | count;
    SocketAddr::new(Ipv4Addr::from(127 << 24 | host).into(), PORT)
}
