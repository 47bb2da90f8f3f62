//! Outgoing requests and cancellations of a clone caller, written frame by frame on the driver's demand.

use pathcall_wire::clone::{caller_id, emit};
use pathcall_wire::{BaseRepr, CloneRepr, FrameKind, Instant};

use super::super::CloneDestination;
use super::super::assembly::part_of;
use super::{Call, CloneCallerConfig};

/// Request or cancellation whose frames are to be written.
#[derive(Debug, Clone, Copy)]
pub(super) struct OutgoingRequest {
    pub(super) kind: FrameKind,
    pub(super) seq: u32,
    pub(super) to: CloneDestination,
    pub(super) dst: u32,
    pub(super) version: u32,
    pub(super) grp: u32,
    pub(super) idx: u8,
    pub(super) flags: u8,
    pub(super) attempt: u8,
    /// SID of the winner, in a cancellation.
    pub(super) sid: u16,
    pub(super) parts: u16,
    pub(super) patience: u32,
    /// Time in µs after which the element may send the request to another server, too; 0: it may not.
    pub(super) hedge_after: u32,
    /// Next part to write.
    pub(super) part: u16,
}

impl OutgoingRequest {
    /// Creates a request of one part through the element.
    pub(super) const fn new(seq: u32) -> Self {
        Self {
            kind: FrameKind::CloneRequest,
            seq,
            to: CloneDestination::Element,
            dst: 0,
            version: 0,
            grp: 0,
            idx: 0,
            flags: 0,
            attempt: 0,
            sid: 0,
            parts: 1,
            patience: 0,
            hedge_after: 0,
            part: 0,
        }
    }

    /// Writes the next frame; `None`: all are written, or the call has ended.
    pub(super) fn emit(
        &mut self,
        now: Instant,
        config: &CloneCallerConfig,
        call: Option<&Call>,
        out: &mut [u8],
    ) -> Option<usize> {
        if self.part == self.parts {
            return None;
        }
        let payload = match self.kind {
            FrameKind::CloneCancel => &[],
            _ => part_of(&call?.request, self.part),
        };
        let base = BaseRepr {
            gaid: config.pool.gaid,
            epoch: self.version,
            src: config.endpoint,
            src_incarnation: config.incarnation,
            dst: self.dst,
            seq: self.seq,
            round: self.hedge_after,
            ..BaseRepr::new(self.kind)
        };
        // The element assigns the id of a single-frame request that is sent once (NetClone §3.7).
        let own = self.parts > 1 || self.attempt > 0;
        let clone = CloneRepr {
            req_id: if own { caller_id(config.endpoint, self.seq, self.attempt) } else { 0 },
            grp: self.grp,
            sid: self.sid,
            idx: self.idx,
            attempt: self.attempt,
            flags: self.flags,
            part: self.part,
            parts: self.parts,
            patience: self.patience,
            ..CloneRepr::default()
        };
        let len = emit(&base, &clone, payload, out);
        if let Some(call) = call.filter(|call| call.options.timed && self.part == 0)
            && let Some(left) = out[len - payload.len()..len].first_chunk_mut()
        {
            *left = call.remaining_us(now).to_be_bytes();
        }
        self.part += 1;
        Some(len)
    }
}
