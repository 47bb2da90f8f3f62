//! Whether the server and the element can be reached: what is done when one of them is silent.
//!
//! A caller greets the server when it has joined, so that a host that UDP does not reach finds out
//! before its first call. Later, what is not answered for long says it.
//!
//! A greeting finds out, too, whether the element is on the way (inline): it is marked as not admitted, as
//! its answer is, and only an element that it passes by takes that off. Each epoch is greeted anew.

use pathcall_wire::{Flags, Instant, Kind, MapFrame};

use super::super::Outbox;
use super::{Item, MapClient};

/// What is known of the way to the server and back, past the element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reach {
    /// Nothing.
    #[default]
    Unknown,
    /// It has answered.
    Answers,
    /// It has not answered for long.
    Silent,
}

impl MapClient {
    /// Asks the server whether it hears this caller; [`MapClient::reach`] says so.
    pub fn greet(&mut self) {
        self.greets = true;
    }

    /// The server has answered: it says in `round` whether an element has admitted the question on its way,
    /// and the answer has lost its mark if one has admitted that. With both, frames to the element are
    /// addressed to the server from now on; who is told so next, for those that go the other way.
    pub(super) fn greeted(&mut self, answer: &MapFrame<&[u8]>) {
        let base = answer.base();
        let met = base.round() == 1 && !base.has(Flags::NOT_ADMITTED) && base.epoch() == self.config.epoch;
        if met && self.config.element && !self.config.inline {
            self.config.inline = true;
            self.greets = true;
        }
    }

    /// What is known of the way to the server and back.
    #[must_use]
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// Frames to the server take another way from now on: all that are under way are sent again, with
    /// all the time that a new one has.
    pub fn reroute(&mut self, now: Instant) {
        self.reach = Reach::Unknown;
        self.nudge_all(now);
    }

    /// Tells the server that the element does not answer, when it has not for long. If nothing comes
    /// of that either, or the item did not go by the element, it is the server that is silent.
    pub(super) fn doubt(&mut self, now: Instant, flow: usize, seq: u32, item: Item, out: &mut impl Outbox) {
        let by_element = self.config.element && !matches!(item, Item::Settled { .. } | Item::Hello);
        let (unheard, silent) = (self.flows[flow].unheard(now, seq), self.config.timing.silent);
        if by_element && unheard >= silent {
            self.tell_silent(now, out);
        }
        if unheard >= if by_element { silent * 2 } else { silent } {
            self.reach = Reach::Silent;
        }
    }

    /// Tells the server that the element does not do its part, unless that was said just now.
    pub(super) fn tell_silent(&mut self, now: Instant, out: &mut impl Outbox) {
        if now >= self.next_doubt {
            self.next_doubt = now + self.config.timing.rto_max;
            self.word(Kind::MapSilent, 0, out);
        }
    }

    /// Sends everything that is under way again.
    pub(super) fn nudge_all(&mut self, now: Instant) {
        for flow in &mut self.flows {
            let seqs: Vec<u32> = flow.items().map(|(seq, _)| seq).collect();
            seqs.into_iter().for_each(|seq| flow.nudge(now, seq));
        }
    }
}
