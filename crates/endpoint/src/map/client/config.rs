//! Configuration and counters of a caller.

use std::time::Duration;

use pathcall_wire::KEYED_WIDTH;

use super::super::ClearPolicy;
use super::super::lease::{DEFAULT_LEASE, Era};
use crate::flow::FlowTiming;

/// Configuration of a caller, from joining the application.
#[derive(Debug, Clone, Copy)]
pub struct ClientConfig {
    /// Id of the application.
    pub gaid: u32,
    /// Epoch of the application's registers.
    pub epoch: u32,
    /// Id of this endpoint.
    pub endpoint: u32,
    /// Incarnation of this endpoint.
    pub incarnation: u32,
    /// Endpoint of the owner.
    pub server: u32,
    /// Incarnation of the owner.
    pub server_incarnation: u32,
    /// First of this endpoint's flow slots (SRRT).
    pub slot_base: u32,
    /// Number of flows, at least 1.
    pub flows: u32,
    /// Whether frames use an element.
    pub element: bool,
    /// Whether the element is on the route to the server (inline), so that its frames are addressed to the server.
    /// False after joining; a greeting detects it.
    pub inline: bool,
    /// Rows of the application, also without an element.
    pub rows: u32,
    /// Lanes in a row.
    pub width: u16,
    /// Index of this worker.
    pub worker: u16,
    /// Whether all methods count to one threshold above 1, or clear.
    pub votes: bool,
    /// Clear policy of arrays.
    pub clear: ClearPolicy,
    /// Start chunk of this caller's first array.
    pub start_chunk: u64,
    /// Duration of a lock lease without renewal.
    pub lease: Duration,
    /// Era of fencing tokens that the element grants.
    pub era: Era,
    /// Timer settings of flows.
    pub timing: FlowTiming,
}

/// Caller of a keyed application, with one flow and without an element. The ids are 0.
impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            gaid: 0,
            epoch: 0,
            endpoint: 0,
            incarnation: 0,
            server: 0,
            server_incarnation: 0,
            slot_base: 0,
            flows: 1,
            element: false,
            inline: false,
            rows: 0,
            width: KEYED_WIDTH as u16,
            worker: 0,
            votes: false,
            clear: ClearPolicy::default(),
            start_chunk: 0,
            lease: DEFAULT_LEASE,
            era: Era::of_epoch(0),
            timing: FlowTiming::default(),
        }
    }
}

/// Counters of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClientStats {
    /// Calls finished.
    pub calls: u64,
    /// Frames sent, retransmissions included.
    pub frames_sent: u64,
    /// Frames received.
    pub frames_received: u64,
    /// Received frames that were ignored (hostile, late, or for another endpoint).
    pub frames_ignored: u64,
    /// Ignored frames whose token was missing, wrong or not allowed.
    pub frames_unauthentic: u64,
    /// Retransmitted items.
    pub retransmits: u64,
    /// Lanes applied by the element.
    pub lanes_element: u64,
    /// Lanes applied by the server's software path.
    pub lanes_software: u64,
    /// Bytes of frames sent, retransmissions included.
    pub bytes_sent: u64,
    /// Bytes of lanes sent for the first time.
    pub lane_bytes_sent: u64,
}
