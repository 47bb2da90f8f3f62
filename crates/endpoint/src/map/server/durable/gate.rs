//! Output gate of an owner with a store: an output leaves when all changes before it are in the store.
//!
//! ```text
//! input ─► change ─► batch n ──► store ──► "persisted up to n"
//!             └────► output, behind batch n ─────────┴──► network, callers
//! ```
//!
//! So what another party has seen of the owner's state survives the owner, whatever the operation was.

use std::collections::VecDeque;

use pathcall_wire::{Mutant, mutant};

use super::super::super::{Dest, FrameSink};

/// Maximum number of bytes of frames that wait. Further frames are dropped; their receivers ask again.
const HELD_BYTES_MAX: usize = 64 << 20;

/// Gate for the frames of an owner; open for an owner without a store.
#[derive(Debug, Default)]
pub(in super::super) struct OutputGate {
    /// Whether there is a store.
    closed: bool,
    /// Number of the latest batch that was taken, and of the latest that is in the store.
    taken: u64,
    persisted: u64,
    /// Whether there are changes in no batch yet.
    changed: bool,
    /// Frames that wait, in order: batch that each waits for, destination and length.
    held: VecDeque<(u64, Dest, usize)>,
    /// Bytes of the frames, from `start` on. One buffer for all, so that no frame needs an allocation.
    bytes: Vec<u8>,
    start: usize,
}

impl OutputGate {
    /// Gate of an owner with a store.
    pub(in super::super) fn with_store() -> Self {
        Self { closed: true, ..Self::default() }
    }

    /// Whether there is a store.
    pub(in super::super) fn has_store(&self) -> bool {
        self.closed
    }

    /// Records that there are changes in no batch yet.
    pub(in super::super) fn note_change(&mut self) {
        self.changed = true;
    }

    /// Number of the latest batch.
    pub(in super::super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Number of the next batch, which has all changes up to now.
    pub(in super::super) fn take_batch(&mut self) -> u64 {
        self.changed = false;
        self.taken += 1;
        self.taken
    }

    /// Records that batches up to this one are in the store.
    pub(in super::super) fn on_persisted(&mut self, number: u64) {
        self.persisted = self.persisted.max(number.min(self.taken));
    }

    /// Whether an output with this ticket may leave.
    pub(in super::super) fn lets_pass(&self, ticket: u64) -> bool {
        !self.closed || ticket <= self.persisted || mutant::on(Mutant::AckBeforePersist)
    }

    /// Adds a frame that an input has caused. Its ticket is known when all changes of the input are.
    pub(in super::super) fn hold(&mut self, to: Dest, frame: &[u8]) {
        if self.bytes.len() - self.start + frame.len() > HELD_BYTES_MAX {
            return;
        }
        if self.start > self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(frame);
        self.held.push_back((u64::MAX, to, frame.len()));
    }

    /// Ends an input: its frames wait for all changes so far. Sends the frames that may leave.
    pub(in super::super) fn release(&mut self, out: &mut impl FrameSink) {
        let ticket = self.taken + u64::from(self.changed);
        for (at, ..) in self.held.iter_mut().rev().take_while(|(at, ..)| *at == u64::MAX) {
            *at = ticket;
        }
        while let Some((at, ..)) = self.held.front()
            && self.lets_pass(*at)
            && let Some((_, to, len)) = self.held.pop_front()
        {
            let end = self.start + len;
            out.send(to, &self.bytes[self.start..end]);
            self.start = end;
        }
    }
}

/// Sink that holds frames.
pub(in super::super) struct HoldingSink<'a>(pub(in super::super) &'a mut OutputGate);

impl FrameSink for HoldingSink<'_> {
    fn send(&mut self, to: Dest, frame: &[u8]) {
        self.0.hold(to, frame);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Sent(Vec<u8>);

    impl FrameSink for Sent {
        fn send(&mut self, _: Dest, frame: &[u8]) {
            self.0.push(frame[0]);
        }
    }

    #[test]
    fn output_waits_for_changes_before_it() {
        let (mut gate, mut sent) = (OutputGate::with_store(), Sent::default());
        let mut output = |gate: &mut OutputGate, number: u8, changes: bool| {
            gate.hold(Dest::Element, &[number]);
            // A frame may be written before the change that it tells of.
            if changes {
                gate.note_change();
            }
            gate.release(&mut sent);
            std::mem::take(&mut sent.0)
        };
        assert_eq!(output(&mut gate, 1, false), [1], "nothing has changed");
        assert_eq!(output(&mut gate, 2, true), [] as [u8; 0]);
        assert_eq!(gate.take_batch(), 1);
        assert_eq!(output(&mut gate, 3, false), [] as [u8; 0], "batch 1 is not in the store");
        assert_eq!(output(&mut gate, 4, true), [] as [u8; 0]);
        assert_eq!(gate.take_batch(), 2);
        gate.on_persisted(1);
        let mut out = Sent::default();
        gate.release(&mut out);
        assert_eq!(out.0, [2, 3]);
        gate.on_persisted(9);
        gate.release(&mut out);
        assert_eq!((out.0, gate.bytes.len() - gate.start), (vec![2, 3, 4], 0));
    }
}
