//! Outgoing frames of a server: answers in parts, and reports that a request is in progress.

use bytes::Bytes;
use pathcall_wire::clone::{ServerReport, emit};
use pathcall_wire::{BaseRepr, CloneFlags, CloneFrame, CloneRepr, Flags, FrameKind, Mutant, mutant};

use super::super::assembly::part_of;
use super::super::{CloneDestination, Pushback};
use super::CloneWorkerConfig;

/// Fields of a request's headers that its answer repeats (NetClone §3.2).
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestHeader {
    /// Version of the pool under which the group was drawn.
    version: u32,
    caller: u32,
    incarnation: u32,
    seq: u32,
    by_element: bool,
    clone: CloneRepr,
}

impl RequestHeader {
    pub(super) fn new(frame: &CloneFrame<&[u8]>) -> Self {
        let base = frame.base();
        let clone = frame.head().repr();
        // Flags that only answers use are not copied from a request.
        let clone = CloneRepr { flags: clone.flags & !CloneFlags::FAILED, patience: 0, ..clone };
        Self {
            version: base.epoch(),
            caller: base.src(),
            incarnation: base.src_incarnation(),
            seq: base.seq(),
            // An element that has not admitted the caller cannot pass the answer to it.
            by_element: clone.switch_id != 0 && !base.has(Flags::NOT_ADMITTED),
            clone,
        }
    }

    /// Header of a failure: the element must not take it for the answer that counts.
    pub(super) fn failed(self, pushback: Option<Pushback>) -> Self {
        let clone = self.clone;
        let cloned = if clone.clo == 0 { 0 } else { CloneFlags::CLONE };
        let flags = clone.flags & !CloneFlags::CLONE | cloned | CloneFlags::FAILED;
        let clo = if mutant::on(Mutant::CloneFailureFiltered) { clone.clo } else { 0 };
        Self { clone: CloneRepr { flags, clo, patience: Pushback::encode(pushback), ..clone }, ..self }
    }

    pub(super) const fn attempt(&self) -> u8 {
        self.clone.attempt
    }

    pub(super) const fn by_element(&self) -> bool {
        self.by_element
    }

    pub(super) const fn clo(&self) -> u8 {
        self.clone.clo
    }

    /// Whether the element sent the request to two servers at once. It may hold a copy of a request that it did not
    /// clone, and send it later: a hedge.
    pub(super) const fn is_cloned(&self) -> bool {
        self.clone.clo != 0 && self.clone.flags & CloneFlags::CLONE != 0
    }
}

/// Answer, or report that a request is in progress, whose frames are to be written.
#[derive(Debug)]
pub(super) struct OutgoingAnswer {
    kind: FrameKind,
    header: RequestHeader,
    payload: Bytes,
    /// Queue length when the answer was made.
    report: ServerReport,
    parts: u16,
    /// Next part to write.
    part: u16,
}

impl OutgoingAnswer {
    pub(super) fn new(
        kind: FrameKind,
        header: RequestHeader,
        report: ServerReport,
        payload: Bytes,
        parts: u16,
    ) -> Self {
        Self { kind, header, payload, report, parts, part: 0 }
    }

    /// Writes the next frame; `None`: all are written.
    pub(super) fn emit(&mut self, config: &CloneWorkerConfig, out: &mut [u8]) -> Option<(CloneDestination, usize)> {
        if self.part == self.parts {
            return None;
        }
        let RequestHeader { version, caller, incarnation, seq, by_element, clone } = self.header;
        let base = BaseRepr {
            flags: Flags::FROM_SERVER,
            gaid: config.gaid,
            epoch: version,
            src: config.endpoint,
            src_incarnation: config.incarnation,
            dst: caller,
            dst_incarnation: incarnation,
            seq,
            round: self.report.number,
            ..BaseRepr::new(self.kind)
        };
        let clone =
            CloneRepr { sid: config.sid, state: self.report.state, part: self.part, parts: self.parts, ..clone };
        let payload = part_of(&self.payload, self.part);
        self.part += 1;
        let to = if by_element { CloneDestination::Element } else { CloneDestination::Endpoint(caller) };
        Some((to, emit(&base, &clone, payload, out)))
    }
}
