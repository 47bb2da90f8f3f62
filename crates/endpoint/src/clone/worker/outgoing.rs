//! What a server sends: answers part by part, and word that a request is worked on.

use bytes::Bytes;
use pathcall_wire::clone::emit;
use pathcall_wire::{BaseRepr, CloneFlags, CloneFrame, CloneRepr, Flags, Kind, Mutant, mutant};

use super::super::To;
use super::super::assembly::part_of;
use super::WorkerConfig;

/// What of a request's headers its answer repeats (NetClone §3.2).
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    /// The version of the pool that its group was drawn under.
    version: u32,
    caller: u32,
    incarnation: u32,
    seq: u32,
    by_element: bool,
    clone: CloneRepr,
}

impl Asked {
    pub(super) fn of(frame: &CloneFrame<&[u8]>) -> Self {
        let base = frame.base();
        let clone = frame.head().repr();
        // What only answers say is not repeated from a request.
        let clone = CloneRepr { flags: clone.flags & !CloneFlags::FAILED, ..clone };
        Self {
            version: base.epoch(),
            caller: base.src(),
            incarnation: base.src_incarnation(),
            seq: base.seq(),
            // What an element has not admitted its caller can't be answered by way of it.
            by_element: clone.switch_id != 0 && !base.has(Flags::NOT_ADMITTED),
            clone,
        }
    }

    /// The same of an answer that another server's is better than: no element is to take it for the one that counts.
    pub(super) fn failed(self) -> Self {
        let clone = self.clone;
        let cloned = if clone.clo == 0 { 0 } else { CloneFlags::CLONE };
        let flags = clone.flags & !CloneFlags::CLONE | cloned | CloneFlags::FAILED;
        let clo = if mutant::on(Mutant::CloneFailureFiltered) { clone.clo } else { 0 };
        Self { clone: CloneRepr { flags, clo, ..clone }, ..self }
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
}

/// An answer, or the word that there will be one, whose frames are to be written.
#[derive(Debug)]
pub(super) struct Outgoing {
    kind: Kind,
    asked: Asked,
    payload: Bytes,
    /// Requests that waited when it was made: STATE.
    state: u16,
    parts: u16,
    /// The part that is next.
    part: u16,
}

impl Outgoing {
    pub(super) fn new(kind: Kind, asked: Asked, waiting: usize, payload: Bytes, parts: u16) -> Self {
        let state = u16::try_from(waiting).unwrap_or(u16::MAX);
        Self { kind, asked, payload, state, parts, part: 0 }
    }

    /// Writes the next frame; `None`: all were written.
    pub(super) fn emit(&mut self, config: &WorkerConfig, out: &mut [u8]) -> Option<(To, usize)> {
        if self.part == self.parts {
            return None;
        }
        let Asked { version, caller, incarnation, seq, by_element, clone } = self.asked;
        let base = BaseRepr {
            flags: Flags::FROM_SERVER,
            gaid: config.gaid,
            epoch: version,
            src: config.endpoint,
            src_incarnation: config.incarnation,
            dst: caller,
            dst_incarnation: incarnation,
            seq,
            ..BaseRepr::new(self.kind)
        };
        let clone =
            CloneRepr { sid: config.sid, state: self.state, part: self.part, parts: self.parts, patience: 0, ..clone };
        let payload = part_of(&self.payload, self.part);
        self.part += 1;
        let to = if by_element { To::Element } else { To::Endpoint(caller) };
        Some((to, emit(&base, &clone, payload, out)))
    }
}
