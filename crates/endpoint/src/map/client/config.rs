//! What a caller is told of itself and its application, and what it counts.

use std::time::Duration;

use super::super::ClearPolicy;
use super::super::lease::Era;
use crate::flow::Timing;

/// Who this caller is and how its application is laid out: what joining it gave.
#[derive(Debug, Clone, Copy)]
pub struct ClientConfig {
    /// Application.
    pub gaid: u32,
    /// Epoch of its registers.
    pub epoch: u32,
    /// This endpoint.
    pub endpoint: u32,
    /// This process's incarnation.
    pub incarnation: u32,
    /// Endpoint of the owner.
    pub server: u32,
    /// Incarnation of the owner.
    pub server_incarnation: u32,
    /// First of this endpoint's flow slots (SRRT).
    pub slot_base: u32,
    /// Number of flows, at least 1.
    pub flows: u32,
    /// Whether frames go by an element.
    pub element: bool,
    /// Whether that was found on the way to the server, so that frames to it are addressed there. Who
    /// joins does not know yet: a greeting finds out.
    pub inline: bool,
    /// Rows of the application; the server works with as many when there is no element.
    pub rows: u32,
    /// Lanes in a row.
    pub width: u16,
    /// Which of the threshold workers this is.
    pub worker: u16,
    /// Whether every method counts to one threshold above one, or clears.
    pub votes: bool,
    /// Clear policy of arrays.
    pub clear: ClearPolicy,
    /// Chunk that this caller's first array starts at.
    pub start_chunk: u64,
    /// How long the server lends locks to a caller that does not ask again.
    pub lease: Duration,
    /// Upper half of the fencing tokens of locks that the element grants.
    pub era: Era,
    /// Timers.
    pub timing: Timing,
}

/// What a client has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClientStats {
    /// Calls finished.
    pub calls: u64,
    /// Frames sent, retransmissions included.
    pub frames_sent: u64,
    /// Frames that came.
    pub frames_received: u64,
    /// Frames that came and meant nothing here (hostile, late, not ours).
    pub frames_ignored: u64,
    /// Those of them that did not carry the application's token, or one where it has none.
    pub frames_unauthentic: u64,
    /// Items sent again.
    pub retransmits: u64,
    /// Lanes whose effect took place in the element.
    pub lanes_element: u64,
    /// Lanes whose effect took place in the server's software path.
    pub lanes_software: u64,
    /// Bytes of frames sent, retransmissions included.
    pub bytes_sent: u64,
    /// Bytes of lanes sent for the first time.
    pub lane_bytes_sent: u64,
}
