//! State of one lock at the server: holder, grant counter and queue.

use std::collections::VecDeque;

use pathcall_wire::{Mutant, mutant};

use super::super::super::lease::Era;
use super::table::FrameId;

/// Maximum number of waiters of one lock; further callers poll.
const WAITERS_MAX: usize = 1024;
/// Number of repeats after which a waiter must try in the element, if the lock is there. Otherwise a waiter could wait
/// for ever for a release that the server missed.
const PROBES_MAX: u32 = 3;

/// Holder of a lock that the server granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LockHolder {
    /// Frame that acquired or claimed the lock.
    pub(super) frame: FrameId,
    /// Fencing token of the grant.
    pub(super) token: u64,
}

/// Lock with a register in the element that the server grants at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ParkedLock {
    /// Endpoint that released the lock; with `tag`, content of the register.
    pub(super) owner: u32,
    pub(super) tag: u32,
    /// Whether the return to the element is requested.
    pub(super) returning: bool,
}

/// Waiting frame of a lock.
struct LockWaiter {
    frame: FrameId,
    probes: u32,
}

/// Server's answer to an acquisition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LockAnswer {
    /// Granted, with the fencing token.
    Granted(u64),
    /// The frame is in the queue.
    Waits,
    /// Another caller holds the lock.
    Denied,
    /// The lock is in the element; the caller must try there.
    InElement,
}

/// Lock at the server.
#[derive(Default)]
pub(super) struct LockState {
    pub(super) holder: Option<LockHolder>,
    pub(super) parked: Option<ParkedLock>,
    waiters: VecDeque<LockWaiter>,
    /// Number of grants in this era, as far as known.
    pub(super) grants: u32,
    /// Number of the last grant by the element that has ended.
    over: u32,
}

/// Acquisition requested by a frame past the element.
#[derive(Debug, Clone, Copy)]
pub(super) struct LockRequest {
    pub(super) frame: FrameId,
    pub(super) new: bool,
    /// Whether the frame may wait in the queue.
    pub(super) waits: bool,
    /// Number of the grant for which the element denied the lock; 0 if it did not.
    pub(super) denied_for: u32,
    /// Whether a grant is allowed: `may_wait` holds, and no caller may hold a lock unknown to the server.
    pub(super) may_take: bool,
    /// Whether the session has a lease, and no earlier lock of the frame was denied.
    pub(super) may_wait: bool,
    /// Whether the element has a register for the lock.
    pub(super) mapped: bool,
    /// Era of the server's grants.
    pub(super) era: Era,
}

impl LockState {
    /// Grants the lock or queues the frame. A repeat never gets a grant that the first copy did not get.
    pub(super) fn acquire(&mut self, ask: &LockRequest) -> LockAnswer {
        if let Some(holder) = self.holder.filter(|holder| holder.frame == ask.frame) {
            return LockAnswer::Granted(holder.token);
        }
        let away = ask.mapped && self.parked.is_none();
        if let Some(at) = self.waiters.iter().position(|waiter| waiter.frame == ask.frame) {
            self.waiters[at].probes += 1;
            let lost = away && self.waiters[at].probes > PROBES_MAX;
            if ask.waits && !lost {
                return LockAnswer::Waits;
            }
            self.waiters.remove(at);
            return if lost { LockAnswer::InElement } else { LockAnswer::Denied };
        }
        if !(ask.new || mutant::on(Mutant::RepeatTakesLock)) || !ask.may_wait {
            return LockAnswer::Denied;
        }
        if ask.may_take && away && ask.denied_for <= self.over {
            return LockAnswer::InElement;
        }
        if ask.may_take && self.is_free(ask.mapped) && self.waiters.is_empty() {
            return LockAnswer::Granted(self.grant(ask.frame, ask.era, ask.mapped));
        }
        if !ask.waits || self.waiters.len() >= WAITERS_MAX {
            return LockAnswer::Denied;
        }
        self.waiters.push_back(LockWaiter { frame: ask.frame, probes: 0 });
        LockAnswer::Waits
    }

    /// Grants the lock to the first waiter, if the server has the lock and it is free. Returns frame and token.
    pub(super) fn grant_next(&mut self, era: Era, mapped: bool) -> Option<(FrameId, u64)> {
        if !self.is_free(mapped) {
            return None;
        }
        let frame = self.waiters.pop_front()?.frame;
        Some((frame, self.grant(frame, era, mapped)))
    }

    /// Removes all waiters, which must try in the element.
    pub(super) fn redirect_waiters(&mut self) -> impl Iterator<Item = FrameId> {
        std::mem::take(&mut self.waiters).into_iter().map(|waiter| waiter.frame)
    }

    pub(super) fn is_wanted(&self) -> bool {
        !self.waiters.is_empty()
    }

    /// Whether the server has the lock and it is free.
    fn is_free(&self, mapped: bool) -> bool {
        let here = !mapped || self.parked.is_some_and(|parked| !parked.returning);
        here && self.holder.is_none()
    }

    fn grant(&mut self, frame: FrameId, era: Era, mapped: bool) -> u64 {
        self.grants += 1;
        let era = if mapped { era.of_element() } else { era };
        let token = if mutant::on(Mutant::TokenResetByEpoch) { self.grants.into() } else { era.token(self.grants) };
        self.holder = Some(LockHolder { frame, token });
        token
    }

    /// Releases the lock if `token` is its token.
    pub(super) fn release(&mut self, endpoint: u32, token: u64) {
        let theirs = |holder: &LockHolder| holder.frame.endpoint == endpoint && holder.token == token;
        if self.holder.is_some_and(|holder| theirs(&holder) || mutant::on(Mutant::ReleaseOfAnyToken)) {
            self.holder = None;
        }
    }

    /// Removes the endpoint as holder and waiter. Returns whether anything changed.
    pub(super) fn remove_endpoint(&mut self, endpoint: u32) -> bool {
        let waited = self.waiters.len();
        self.waiters.retain(|waiter| waiter.frame.endpoint != endpoint);
        let held = self.holder.is_some_and(|holder| holder.frame.endpoint == endpoint);
        self.holder = self.holder.filter(|_| !held);
        held || self.waiters.len() < waited
    }

    /// Records that the element granted the lock to this frame's sender. Returns false if another caller holds it. A
    /// repeat has no effect, since the lock may be released by now.
    pub(super) fn claim(&mut self, frame: FrameId, token: u64, new: bool) -> bool {
        if new && self.holder.is_none() {
            self.holder = Some(LockHolder { frame, token });
        }
        self.holder.is_none_or(|holder| holder.frame.endpoint == frame.endpoint)
    }

    /// Moves the lock to the element, where grants are counted from zero.
    pub(super) fn move_to_element(&mut self) {
        (self.grants, self.over) = (0, 0);
    }

    /// Moves the lock back to the server after the end of an epoch.
    pub(super) fn reset_from_element(&mut self) {
        self.parked = None;
        (self.grants, self.over) = (0, 0);
    }

    /// Parks the lock at the server: `owner` has released its grant number `grants` in the element while callers wait.
    /// Returns false if the release is old. A grant number higher than the known one shows that the lock had returned
    /// to the element, even if the confirmation was lost.
    pub(super) fn park(&mut self, owner: u32, tag: u32, grants: u32) -> bool {
        if grants <= self.over.max(self.grants) {
            return false;
        }
        self.parked = Some(ParkedLock { owner, tag, returning: false });
        (self.grants, self.over) = (grants, grants);
        true
    }

    /// Records that the element's grants up to this number have ended.
    pub(super) fn mark_over(&mut self, grants: u32) {
        self.over = self.over.max(grants);
    }

    /// Records that the lock has returned to the element.
    pub(super) fn on_returned(&mut self) {
        self.parked = None;
        self.over = self.over.max(self.grants);
    }
}
