//! What an owner is told of itself and of its callers.

use std::time::Duration;

use super::super::{ClearPolicy, Grant};
use super::Eviction;
use crate::flow::Timing;

/// Who the owner is and what its application needs.
#[derive(Debug, Clone, Copy)]
pub struct ServerConfig {
    /// Application.
    pub gaid: u32,
    /// Epoch of its registers.
    pub epoch: u32,
    /// This endpoint.
    pub endpoint: u32,
    /// This process's incarnation.
    pub incarnation: u32,
    /// Memory in an element, if any.
    pub grant: Option<Grant>,
    /// SyncAgtr: number of workers. 0: the application is keyed.
    pub threshold: u32,
    /// SyncAgtr: clear policy of arrays.
    pub clear: ClearPolicy,
    /// Keyed: whether the element may hold keys (every method only adds, or queries).
    pub mapping: bool,
    /// Keyed: whether every addition waits until it is committed: what is lost with the element and a
    /// caller together was never reported done.
    pub acked: bool,
    /// Keyed: whether the element may hold locks (every method takes or gives back).
    pub locks: bool,
    /// Keyed: whether every method counts to one threshold above one, or clears.
    pub votes: bool,
    /// Keyed: when keys give their registers to others; `None`: never.
    pub eviction: Option<Eviction>,
    /// Keyed: bytes that keys may take here; further ones are refused. [`KEY_MEMORY`](super::KEY_MEMORY) is usual.
    pub key_memory: usize,
    /// Lanes of a row.
    pub width: u16,
    /// How long locks are lent to a caller that does not ask again; [`LEASE`](crate::map::lease::LEASE) is usual.
    pub lease: Duration,
    /// Timers.
    pub timing: Timing,
}

/// A caller that joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Its endpoint.
    pub endpoint: u32,
    /// Its process's incarnation.
    pub incarnation: u32,
    /// Whether the element knows it.
    pub element: bool,
    /// First of its flow slots in the element.
    pub slot_base: u32,
    /// Number of its flow slots.
    pub flows: u32,
    /// The [`Terms::number`](super::Terms::number) that these slots are of.
    pub terms: u64,
}
