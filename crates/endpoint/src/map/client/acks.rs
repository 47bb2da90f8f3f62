//! Acknowledgements at the caller: matches an answer to an item of a flow, and updates its call.

use pathcall_wire::{Flags, Instant, MapFrame};

use super::keyed::AnswerEffect;
use super::{FlowPosition, Item, MapClient, ServerReachability};

impl MapClient {
    /// Flow, sequence number and item of an answer, if the item is in flight.
    pub(super) fn in_flight_item(&self, frame: &MapFrame<&[u8]>) -> Option<(usize, u32, Item)> {
        let (flow, seq) = self.flow_position(frame)?;
        Some((flow, seq, self.flows.get(flow)?.item(seq)?))
    }

    /// Flow and sequence number of an answer.
    fn flow_position(&self, frame: &MapFrame<&[u8]>) -> Option<(usize, u32)> {
        let base = frame.base();
        let first = if base.has(Flags::CROSS) { 0 } else { self.config.slot_base };
        Some((base.slot().checked_sub(first)? as usize, base.seq()))
    }

    pub(super) fn on_ack(&mut self, now: Instant, frame: &MapFrame<&[u8]>, ecn: bool) -> Option<()> {
        if frame.base().has(Flags::CROSS) {
            self.reach = ServerReachability::Answers;
        }
        let (flow, seq) = self.flow_position(frame)?;
        let item = self.flows.get(flow)?.item(seq).or_else(|| self.keyed.waiting_frames.item(flow as u32, seq))?;
        let (id, index) = match item {
            Item::Vote(id, index) => {
                self.votes.on_answer(now, id, index, frame, &self.config, &mut self.stats)?;
                self.flows[flow].ack(now, seq, ecn);
                self.finish_votes();
                return Some(());
            }
            Item::Keyed(id, index) => (id, index),
            Item::Hello => {
                self.flows[flow].ack(now, seq, ecn);
                self.on_hello_answer(frame);
                return Some(());
            }
            Item::Chunk(_) | Item::Settled { .. } => {
                self.flows[flow].ack(now, seq, ecn);
                self.keyed.on_settled_answer(item);
                return Some(());
            }
        };
        match self.keyed.on_answer(now, id, index, frame, &self.config, &mut self.stats)? {
            AnswerEffect::Held => {
                self.flows[flow].mark_held(now, seq);
                return Some(());
            }
            AnswerEffect::Queued => {
                let position = FlowPosition { flow: flow as u32, seq };
                self.keyed.waiting_frames.insert(now, position, (id, index), &self.config);
            }
            AnswerEffect::Done => self.keyed.waiting_frames.remove(flow as u32, seq),
        }
        self.flows[flow].ack(now, seq, ecn);
        self.finish_keyed();
        Some(())
    }
}
