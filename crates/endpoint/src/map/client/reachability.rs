//! Reachability of server and element: greetings, and reports of silence.
//!
//! A caller greets the server after joining, so that it detects blocked UDP before its first call. Later, missing
//! answers show it.
//!
//! A greeting also detects an element on the route (inline): greeting and answer have the flag `NOT_ADMITTED`, and only
//! an element on the route clears it. The caller repeats the greeting in each epoch.

use pathcall_wire::{Flags, FrameKind, Instant, MapFrame};

use super::super::FrameSink;
use super::{Item, MapClient};

/// Reachability of the server past the element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServerReachability {
    /// Not known yet.
    #[default]
    Unknown,
    /// The server has answered.
    Answers,
    /// The server has not answered for the silence time.
    Silent,
}

impl MapClient {
    /// Sends a greeting; [`MapClient::reach`] gives the result.
    pub fn greet(&mut self) {
        self.hello_pending = true;
    }

    /// Handles the answer to a greeting. `round` is 1 if an element admitted the greeting; the flag `NOT_ADMITTED` is
    /// cleared if an element admitted the answer. If both hold, the element is inline: its frames are addressed to the
    /// server from now on, and another greeting tells the server the same for the other direction.
    pub(super) fn on_hello_answer(&mut self, answer: &MapFrame<&[u8]>) {
        let base = answer.base();
        let met = base.round() == 1 && !base.has(Flags::NOT_ADMITTED) && base.epoch() == self.config.epoch;
        if met && self.config.element && !self.config.inline {
            self.config.inline = true;
            self.hello_pending = true;
        }
    }

    /// Reachability of the server.
    #[must_use]
    pub fn reach(&self) -> ServerReachability {
        self.reach
    }

    /// Records that frames to the server use another path from now on. All items in flight are sent again with fresh
    /// timers.
    pub fn reroute(&mut self, now: Instant) {
        self.reach = ServerReachability::Unknown;
        self.resend_all(now);
    }

    /// Reports the element to the server as silent if an item had no answer for the silence time. After twice this
    /// time, or if the item does not use the element, the server counts as silent.
    pub(super) fn check_silence(&mut self, now: Instant, flow: usize, seq: u32, item: Item, out: &mut impl FrameSink) {
        let by_element = self.config.element && !matches!(item, Item::Settled { .. } | Item::Hello);
        let (unheard, silent) = (self.flows[flow].silence(now, seq), self.config.timing.silent);
        if by_element && unheard >= silent {
            self.report_silent_element(now, out);
        }
        if unheard >= if by_element { silent * 2 } else { silent } {
            self.reach = ServerReachability::Silent;
        }
    }

    /// Reports the element to the server as silent, unless reported recently.
    pub(super) fn report_silent_element(&mut self, now: Instant, out: &mut impl FrameSink) {
        if now >= self.next_silence_report {
            self.next_silence_report = now + self.config.timing.rto_max;
            self.send_control(FrameKind::MapSilent, 0, out);
        }
    }

    /// Resends all items in flight.
    pub(super) fn resend_all(&mut self, now: Instant) {
        for flow in &mut self.flows {
            let seqs: Vec<u32> = flow.items().map(|(seq, _)| seq).collect();
            seqs.into_iter().for_each(|seq| flow.resend_now(now, seq));
        }
    }
}
