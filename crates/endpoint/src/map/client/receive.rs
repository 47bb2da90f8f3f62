//! Received frames of a caller: each is authenticated, matched to an item of a flow or to a chunk, and updates its call.

use pathcall_wire::{Flags, FrameKind, Instant, MapFlags, MapFrame, Mutant, mutant};

use super::super::{CallError, Output};
use super::keyed::AnswerEffect;
use super::sum::ChunkOutcome;
use super::{FlowPosition, Item, MapClient, ServerReachability};
use crate::token::set_congestion_flag;

impl MapClient {
    /// Handles a received frame; [`poll`](Self::poll) sends what follows from it.
    pub fn handle(&mut self, now: Instant, bytes: &[u8]) {
        if self.admits(bytes) && self.handle_admitted(now, bytes).is_none() {
            self.stats.frames_ignored += 1;
        }
    }

    /// Handles a received frame whose IP packet has a congestion mark.
    pub fn handle_marked(&mut self, now: Instant, bytes: &mut [u8]) {
        if self.admits(bytes) {
            set_congestion_flag(bytes);
            self.stats.frames_ignored += u64::from(self.handle_admitted(now, bytes).is_none());
        }
    }

    /// Whether the token of a frame is valid; counts the frame.
    fn admits(&mut self, bytes: &[u8]) -> bool {
        let admits = self.guard.admits(bytes, mutant::on(Mutant::ClientToken));
        self.stats.frames_received += 1;
        self.stats.frames_ignored += u64::from(!admits);
        self.stats.frames_unauthentic += u64::from(!admits);
        admits
    }

    fn handle_admitted(&mut self, now: Instant, bytes: &[u8]) -> Option<()> {
        let frame = MapFrame::new_checked(bytes).ok()?;
        let base = frame.base();
        // Answers past the element and results of rounds are valid in all epochs.
        let lasting = base.has(Flags::FROM_SERVER)
            && (base.has(Flags::CROSS)
                || matches!(frame.kind(), FrameKind::MapResult | FrameKind::MapSoft | FrameKind::MapError));
        let ours = base.gaid() == self.config.gaid
            && (lasting || base.epoch() == self.config.epoch)
            && base.dst() == self.config.endpoint
            && (base.dst_incarnation() == self.config.incarnation || mutant::on(Mutant::ClientIncarnation));
        if !ours || self.broken.is_some() {
            return None;
        }
        let past = Flags::FROM_SERVER | Flags::NOT_ADMITTED;
        if base.flags() & (past | Flags::CROSS) == past && base.epoch() == self.config.epoch && self.config.element {
            self.bypassed |= self.bypass.observe(now, self.config.timing.silent);
        }
        let ecn = base.has(Flags::ECN);
        match frame.kind() {
            FrameKind::MapResult => {
                match self.sums.on_result(&frame, &mut self.stats)? {
                    ChunkOutcome::Done(position) => {
                        let _ = self.flows[position.flow as usize].ack(now, position.seq, ecn);
                    }
                    ChunkOutcome::Saturated(position) => {
                        self.flows[position.flow as usize].resend_now(now, position.seq)
                    }
                }
                while let Some((id, sums)) = self.sums.next_done() {
                    self.finish(id, Ok(Output::Sums(sums)));
                }
            }
            FrameKind::MapSoft if frame.map().has(MapFlags::COUNT) => {
                self.on_own_decision(now, &frame, ecn);
                self.votes.on_decision(now, &frame, &self.config);
                self.finish_votes();
            }
            // A counter has reached its threshold: resend now to get the answer.
            FrameKind::MapSoft if !frame.map().has(MapFlags::ROUND) => {
                let (flow, seq, _) = self.in_flight_item(&frame)?;
                self.flows[flow].resend_now(now, seq);
            }
            FrameKind::MapSoft => {
                let position = self.sums.on_software_round(&frame)?;
                self.flows[position.flow as usize].resend_now(now, position.seq);
            }
            FrameKind::MapHeld => {
                let (flow, seq, item) = self.in_flight_item(&frame)?;
                let holds = self.flows[flow].mark_held(now, seq);
                let waits_for_server = match item {
                    Item::Chunk(chunk) => self.sums.is_for_handler(chunk),
                    Item::Keyed(id, _) => self.keyed.is_read(id),
                    _ => false,
                };
                if waits_for_server {
                    self.flows[flow].park(seq);
                }
                if let Item::Chunk(chunk) = item
                    && self.sums.divert_if_stuck(chunk, holds)
                {
                    self.flows[flow].resend_now(now, seq);
                }
            }
            FrameKind::MapAck if self.is_progress_answer(&frame) => {}
            FrameKind::MapAck | FrameKind::MapPairsAck => self.on_ack(now, &frame, ecn)?,
            FrameKind::MapRefused => {
                let (flow, seq, item) = self.in_flight_item(&frame)?;
                let Item::Keyed(id, index) = item else { return None };
                self.keyed.on_refused(id, index, base.round(), &self.config)?;
                self.flows[flow].remove(seq);
            }
            FrameKind::MapLent => self.keyed.on_lease_answer(now, &frame, &self.config)?,
            FrameKind::MapCommit => {
                self.keyed.on_commit(base.round());
                self.finish_keyed();
            }
            FrameKind::MapWithdraw => self.keyed.note_withdrawal(&frame, &self.config),
            FrameKind::MapError => {
                let error = CallError::from_frame(&frame)?;
                self.fail(error);
            }
            _ => return None,
        }
        Some(())
    }

    /// Flow, sequence number and item of an answer, if the item is in flight.
    fn in_flight_item(&self, frame: &MapFrame<&[u8]>) -> Option<(usize, u32, Item)> {
        let (flow, seq) = self.flow_position(frame)?;
        Some((flow, seq, self.flows.get(flow)?.item(seq)?))
    }

    /// Flow and sequence number of an answer.
    fn flow_position(&self, frame: &MapFrame<&[u8]>) -> Option<(usize, u32)> {
        let base = frame.base();
        let first = if base.has(Flags::CROSS) { 0 } else { self.config.slot_base };
        Some((base.slot().checked_sub(first)? as usize, base.seq()))
    }

    /// Handles a decision of the element, if a vote in flight of this caller made it: the frame names that vote.
    fn on_own_decision(&mut self, now: Instant, frame: &MapFrame<&[u8]>, ecn: bool) {
        let by_element = !frame.base().has(Flags::FROM_SERVER);
        let Some((flow, seq, Item::Vote(id, index))) = self.in_flight_item(frame).filter(|_| by_element) else {
            return;
        };
        let Some(round) = frame.base().round().checked_sub(1) else { return };
        if self.votes.on_own_decision(now, id, index, round, &self.config, &mut self.stats).is_some() {
            let _ = self.flows[flow].ack(now, seq, ecn);
        }
    }

    fn on_ack(&mut self, now: Instant, frame: &MapFrame<&[u8]>, ecn: bool) -> Option<()> {
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

    /// Handles the answer to a greeting. `round` is 1 if an element admitted the greeting; the flag `NOT_ADMITTED` is
    /// cleared if an element admitted the answer. If both hold, the element is inline: its frames are addressed to the
    /// server from now on, and another greeting tells the server the same for the other direction.
    fn on_hello_answer(&mut self, answer: &MapFrame<&[u8]>) {
        let base = answer.base();
        let met = base.round() == 1 && !base.has(Flags::NOT_ADMITTED) && base.epoch() == self.config.epoch;
        if met && self.config.element && !self.config.inline {
            self.config.inline = true;
            self.hello_pending = true;
        }
    }

    /// Whether an answer is for the progress report; then the report is complete.
    fn is_progress_answer(&mut self, answer: &MapFrame<&[u8]>) -> bool {
        let is_outside_flow = answer.base().seq() == 0 && answer.base().has(Flags::CROSS);
        if is_outside_flow && answer.map().tag() == self.config.era.number() {
            self.progress_report = None;
        }
        is_outside_flow
    }
}
