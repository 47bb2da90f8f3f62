//! Acknowledgements: which item of which flow one means, and what becomes of its call.

use pathcall_wire::{Flags, Instant, MapFrame};

use super::keyed::Verdict;
use super::{Item, MapClient, Place, Reach};

impl MapClient {
    /// The item that an acknowledgement names, if it is in flight.
    pub(super) fn sent(&self, frame: &MapFrame<&[u8]>) -> Option<(usize, u32, Item)> {
        let (flow, seq) = self.named(frame)?;
        Some((flow, seq, self.flows.get(flow)?.item(seq)?))
    }

    /// The flow and the number that an answer names.
    fn named(&self, frame: &MapFrame<&[u8]>) -> Option<(usize, u32)> {
        let base = frame.base();
        let first = if base.has(Flags::CROSS) { 0 } else { self.config.slot_base };
        Some((base.slot().checked_sub(first)? as usize, base.seq()))
    }

    pub(super) fn acknowledged(&mut self, now: Instant, frame: &MapFrame<&[u8]>, ecn: bool) -> Option<()> {
        if frame.base().has(Flags::CROSS) {
            self.reach = Reach::Answers;
        }
        let (flow, seq) = self.named(frame)?;
        let item = self.flows.get(flow)?.item(seq).or_else(|| self.keyed.lines.item(flow as u32, seq))?;
        let (id, index) = match item {
            Item::Vote(id, index) => {
                self.votes.answer(now, id, index, frame, &self.config, &mut self.stats)?;
                self.flows[flow].ack(now, seq, ecn);
                self.finish_votes();
                return Some(());
            }
            Item::Keyed(id, index) => (id, index),
            Item::Hello => {
                self.flows[flow].ack(now, seq, ecn);
                self.greeted(frame);
                return Some(());
            }
            Item::Chunk(_) | Item::Settled { .. } => {
                self.flows[flow].ack(now, seq, ecn);
                self.keyed.settled(item);
                return Some(());
            }
        };
        match self.keyed.answer(now, id, index, frame, &self.config, &mut self.stats)? {
            Verdict::Held => {
                self.flows[flow].held(now, seq);
                return Some(());
            }
            Verdict::InLine => {
                let place = Place { flow: flow as u32, seq };
                self.keyed.lines.stands(now, place, (id, index), &self.config);
            }
            Verdict::Done => self.keyed.lines.leave(flow as u32, seq),
        }
        self.flows[flow].ack(now, seq, ecn);
        self.finish_keyed();
        Some(())
    }
}
