//! One lock, as far as the server has it: its holder, its count of grants, and who waits for it.

use std::collections::VecDeque;

use pathcall_wire::{Mutant, mutant};

use super::super::super::lease::Era;
use super::table::FrameName;

/// Callers that wait in line for one lock; further ones try again now and then.
const LINE_MAX: usize = 1024;
/// After so many times that a waiter has asked again while the element has the lock, it is to try
/// there: it would wait for ever if the release that it waits for were not to be heard of.
const PROBES: u32 = 3;

/// A lock that somebody holds by the server's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Holder {
    /// The frame that took it, or claimed it.
    pub(super) frame: FrameName,
    /// The fencing token that it was granted with.
    pub(super) token: u64,
}

/// A lock that is the server's although the element has a register for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parked {
    /// Who gave it back, and by which acquiring: what the register holds.
    pub(super) owner: u32,
    pub(super) tag: u32,
    /// The element is asked to free the register.
    pub(super) returning: bool,
}

struct Waiter {
    frame: FrameName,
    probes: u32,
}

/// What the server says of an acquiring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    Granted(u64),
    /// It is in line.
    Waits,
    Denied,
    /// Try in the element.
    Away,
}

#[derive(Default)]
pub(super) struct LockState {
    pub(super) holder: Option<Holder>,
    pub(super) parked: Option<Parked>,
    line: VecDeque<Waiter>,
    /// Grants of this era, as far as they are known here.
    pub(super) grants: u32,
    /// Those of the element up to this are over.
    over: u32,
}

/// An acquiring, as a frame of the software path asks for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Acquiring {
    pub(super) frame: FrameName,
    pub(super) new: bool,
    /// It may wait in line.
    pub(super) waits: bool,
    /// The grant for which the element has denied it; 0: it has not.
    pub(super) denied_for: u32,
    /// Its session may hold locks, nobody before it in its call was denied, and nobody may hold locks
    /// that the server does not know of.
    pub(super) may_take: bool,
    /// As far as that is so but for the last.
    pub(super) may_wait: bool,
    /// The element has a register for the lock.
    pub(super) mapped: bool,
    /// Of the server's own grants.
    pub(super) era: Era,
}

impl LockState {
    /// Takes the lock, or puts the frame in line. A repeat takes nothing that the first copy did not.
    pub(super) fn acquire(&mut self, ask: &Acquiring) -> Word {
        if let Some(holder) = self.holder.filter(|holder| holder.frame == ask.frame) {
            return Word::Granted(holder.token);
        }
        let away = ask.mapped && self.parked.is_none();
        if let Some(at) = self.line.iter().position(|waiter| waiter.frame == ask.frame) {
            self.line[at].probes += 1;
            let lost = away && self.line[at].probes > PROBES;
            if ask.waits && !lost {
                return Word::Waits;
            }
            self.line.remove(at);
            return if lost { Word::Away } else { Word::Denied };
        }
        if !(ask.new || mutant::on(Mutant::RepeatTakesLock)) || !ask.may_wait {
            return Word::Denied;
        }
        if ask.may_take && away && ask.denied_for <= self.over {
            return Word::Away;
        }
        if ask.may_take && self.is_free(ask.mapped) && self.line.is_empty() {
            return Word::Granted(self.grant(ask.frame, ask.era, ask.mapped));
        }
        if !ask.waits || self.line.len() >= LINE_MAX {
            return Word::Denied;
        }
        self.line.push_back(Waiter { frame: ask.frame, probes: 0 });
        Word::Waits
    }

    /// Gives the lock to the first in line, if it is the server's and free; whom, and its token.
    pub(super) fn hand_out(&mut self, era: Era, mapped: bool) -> Option<(FrameName, u64)> {
        if !self.is_free(mapped) {
            return None;
        }
        let frame = self.line.pop_front()?.frame;
        Some((frame, self.grant(frame, era, mapped)))
    }

    /// Those in line, who are to try in the element.
    pub(super) fn send_away(&mut self) -> impl Iterator<Item = FrameName> {
        std::mem::take(&mut self.line).into_iter().map(|waiter| waiter.frame)
    }

    pub(super) fn is_wanted(&self) -> bool {
        !self.line.is_empty()
    }

    /// Whether the server may grant it.
    fn is_free(&self, mapped: bool) -> bool {
        let here = !mapped || self.parked.is_some_and(|parked| !parked.returning);
        here && self.holder.is_none()
    }

    fn grant(&mut self, frame: FrameName, era: Era, mapped: bool) -> u64 {
        self.grants += 1;
        let era = if mapped { era.of_element() } else { era };
        let token = if mutant::on(Mutant::TokenResetByEpoch) { self.grants.into() } else { era.token(self.grants) };
        self.holder = Some(Holder { frame, token });
        token
    }

    /// Frees the lock if this is its token.
    pub(super) fn release(&mut self, endpoint: u32, token: u64) {
        let theirs = |holder: &Holder| holder.frame.endpoint == endpoint && holder.token == token;
        if self.holder.is_some_and(|holder| theirs(&holder) || mutant::on(Mutant::ReleaseOfAnyToken)) {
            self.holder = None;
        }
    }

    /// The endpoint holds nothing any more and waits for nothing; whether that changed anything.
    pub(super) fn forget(&mut self, endpoint: u32) -> bool {
        let waited = self.line.len();
        self.line.retain(|waiter| waiter.frame.endpoint != endpoint);
        let held = self.holder.is_some_and(|holder| holder.frame.endpoint == endpoint);
        self.holder = self.holder.filter(|_| !held);
        held || self.line.len() < waited
    }

    /// Notes that this frame's sender was granted the lock by the element; false when somebody else holds
    /// it. A repeat changes nothing: the lock may have been given back since.
    pub(super) fn claim(&mut self, frame: FrameName, token: u64, new: bool) -> bool {
        if new && self.holder.is_none() {
            self.holder = Some(Holder { frame, token });
        }
        self.holder.is_none_or(|holder| holder.frame.endpoint == frame.endpoint)
    }

    /// It is kept in the element from now on, where it is counted anew.
    pub(super) fn move_away(&mut self) {
        (self.grants, self.over) = (0, 0);
    }

    /// It is not kept in the element any more.
    pub(super) fn come_back(&mut self) {
        self.parked = None;
        (self.grants, self.over) = (0, 0);
    }

    /// The element says that `owner` gave it back after its grant with this number, and that somebody
    /// waits; false when that is long ago. A later grant than those known here says that the element has
    /// had it back meanwhile, though its answer has not come.
    pub(super) fn park(&mut self, owner: u32, tag: u32, grants: u32) -> bool {
        if grants <= self.over.max(self.grants) {
            return false;
        }
        self.parked = Some(Parked { owner, tag, returning: false });
        (self.grants, self.over) = (grants, grants);
        true
    }

    /// Nobody has it in the element after this many grants.
    pub(super) fn is_over(&mut self, grants: u32) {
        self.over = self.over.max(grants);
    }

    /// The element has its register again.
    pub(super) fn returned(&mut self) {
        self.parked = None;
        self.over = self.over.max(self.grants);
    }
}
