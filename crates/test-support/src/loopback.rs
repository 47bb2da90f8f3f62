//! Unique loopback addresses for a port that is bound, freed and bound again.
//!
//! A port that the system chose is free as soon as its socket is dropped, and the next socket that binds port 0 may get
//! it. The ports here are below the ephemeral range, and each address is used once.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};

/// Port below the ephemeral range: 32768 and up on Linux, 49152 and up elsewhere.
const PORT: u16 = 20_000;
/// Bits of an address that count the addresses of one process.
const COUNT_BITS: u32 = 9;

/// Unique address in 127.128.0.0/9, with a port that the system never assigns.
///
/// # Panics
/// Panics after 512 addresses in one process.
#[must_use]
pub fn own() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let count = NEXT.fetch_add(1, Ordering::Relaxed);
    assert!(count < 1 << COUNT_BITS, "a process has at most 512 addresses");
    let process = std::process::id() & ((1 << (23 - COUNT_BITS)) - 1);
    let host = 1 << 23 | process << COUNT_BITS | count;
    SocketAddr::new(Ipv4Addr::from(127 << 24 | host).into(), PORT)
}
