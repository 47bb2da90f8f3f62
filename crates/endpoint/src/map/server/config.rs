//! Configuration of an owner, and data of its members.

use std::time::Duration;

use pathcall_wire::KEYED_WIDTH;

use super::super::lease::DEFAULT_LEASE;
use super::super::{ClearPolicy, RegisterGrant};
use super::{EvictionPolicy, KEY_MEMORY};
use crate::flow::FlowTiming;

/// Configuration of an owner and its application.
#[derive(Debug, Clone, Copy)]
pub struct ServerConfig {
    /// Id of the application.
    pub gaid: u32,
    /// Epoch of the application's registers.
    pub epoch: u32,
    /// Id of this endpoint.
    pub endpoint: u32,
    /// Incarnation of this endpoint.
    pub incarnation: u32,
    /// Memory in an element, if any.
    pub grant: Option<RegisterGrant>,
    /// SyncAgtr: maximum number of rows that a later grant may use; 0: that of `grant`.
    pub rows_max: u32,
    /// SyncAgtr: number of workers. 0: the application is keyed.
    pub threshold: u32,
    /// SyncAgtr: whether the server's handler decides the results of the sums.
    pub handled: bool,
    /// SyncAgtr: clear policy of arrays.
    pub clear: ClearPolicy,
    /// Keyed: whether the element may have registers for keys (all methods only add or query).
    pub mapping: bool,
    /// Keyed: whether each addition waits for its commit, so that no completed addition is lost with element and
    /// caller.
    pub acked: bool,
    /// Keyed: whether the element may hold locks (all methods acquire or release).
    pub locks: bool,
    /// Keyed: whether all methods count to one threshold above 1, or clear.
    pub votes: bool,
    /// Keyed: eviction policy; `None`: no eviction.
    pub eviction: Option<EvictionPolicy>,
    /// Keyed: limit of memory for keys in bytes; further keys are refused. The default is
    /// [`KEY_MEMORY`].
    pub key_memory: usize,
    /// Lanes of a row.
    pub width: u16,
    /// Duration of a lock lease without renewal. The default is [`DEFAULT_LEASE`].
    pub lease: Duration,
    /// Timer settings.
    pub timing: FlowTiming,
}

/// Keyed application without element memory, eviction, and flags of its methods. The ids are 0.
impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            gaid: 0,
            epoch: 0,
            endpoint: 0,
            incarnation: 0,
            grant: None,
            rows_max: 0,
            threshold: 0,
            handled: false,
            clear: ClearPolicy::default(),
            mapping: false,
            acked: false,
            locks: false,
            votes: false,
            eviction: None,
            key_memory: KEY_MEMORY,
            width: KEYED_WIDTH as u16,
            lease: DEFAULT_LEASE,
            timing: FlowTiming::default(),
        }
    }
}

/// Caller that joins an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Endpoint of the caller.
    pub endpoint: u32,
    /// Incarnation of the caller.
    pub incarnation: u32,
    /// Whether the element admits the caller.
    pub element: bool,
    /// First flow slot of the caller in the element.
    pub slot_base: u32,
    /// Number of flow slots of the caller.
    pub flows: u32,
    /// [`ElementTerms::number`](super::ElementTerms::number) of these slots.
    pub terms: u64,
}
