//! Locks of a caller: held locks with their tokens, acquisitions, releases and claims.
//!
//! A lock in the element is acquired there, one frame per lock. A caller that the element denies a lock waits in the
//! lock's queue at the server, with a frame for this lock only. A release names the grant: by the acquisition's tag in
//! the element, by the fencing token at the server. When the epoch ends, the holder claims its locks at the server.
//! When the lease ends, the holder has lost all locks.

use std::collections::BTreeMap;

use pathcall_wire::map::LOCK_TAG;
use pathcall_wire::pairs::{PairAnswer, PairStatus};
use pathcall_wire::{ForwardTarget, Instant, MapFlags, MapFrame, Mutant, mutant};

use super::super::super::{Ack, Key, Operation};
use super::super::{CallId, ClientConfig};
use super::call::{KeyedCall, KeyedOp};
use super::key_cache::KeyLocation;
use super::lease::{CallerLease, LeaseRequest};
use super::{KeyedCalls, OWN_CALLS};

/// Number of grants of a lock by the element above which a new epoch is requested, before the counter overflows.
const GRANTS_MANY: u32 = 1 << 31;

/// Held locks and open claims.
#[derive(Default)]
pub(super) struct Locks {
    held: BTreeMap<Key, HeldLock>,
    tags: u32,
    /// Number of unanswered claims. Other frames wait for them, since a release must not overtake the claim of its
    /// lock.
    claims: usize,
    pub(super) lease: CallerLease,
    /// Whether a grant counter of the element needs a new epoch.
    pub(super) needs_new_epoch: bool,
}

/// Held lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HeldLock {
    pub(super) token: u64,
    /// Call that acquired the lock.
    call: CallId,
    /// Row and tag, if the lock is in the element.
    pub(super) element: Option<(u32, u32)>,
}

impl Locks {
    /// Removes a held lock for its release, if `token` is its token or 0.
    pub(super) fn take_released(&mut self, key: &Key, token: u64) -> Option<HeldLock> {
        self.held.get(key).filter(|held| token == 0 || held.token == token)?;
        self.held.remove(key)
    }

    pub(super) fn has_held(&self) -> bool {
        !self.held.is_empty()
    }

    pub(super) fn has_open_claims(&self) -> bool {
        self.claims > 0
    }

    /// Records that the server has answered a claim.
    pub(super) fn on_claim_answered(&mut self, call: &KeyedCall) {
        self.claims -= usize::from(call.claim);
    }
}

impl KeyedCalls {
    /// Adds a frame for the first pending locks: one lock in the element, one lock to wait for at the server, or
    /// several locks at the server.
    pub(super) fn request_next_locks(&mut self, call: &mut KeyedCall, by_element: bool) {
        let position = |i: &u32| match self.key_cache.find(&call.keys[*i as usize]) {
            Some(KeyLocation::Mapped { row, .. }) if by_element && !call.claim => Some(row),
            _ => None,
        };
        let Some(first) = call.pending_locks.first() else { return };
        if let Some(denied_for) = call.denied_grant.take() {
            call.push_waiting(denied_for);
        } else if let Some(row) = position(first) {
            let i = call.pending_locks.remove(0);
            self.locks.tags = ((self.locks.tags + 1) & LOCK_TAG).max(1);
            call.push_lock(i, row, self.locks.tags);
        } else {
            let whole = call.pending_locks.iter().take_while(|i| position(i).is_none()).count();
            if call.count_fitting_locks(whole) == 1 { call.push_waiting(0) } else { call.push_next_locks(whole) }
        }
    }

    /// Handles the element's answer to a lock frame.
    pub(super) fn on_element_answer(
        &mut self,
        now: Instant,
        (id, call): (CallId, &mut KeyedCall),
        index: usize,
        frame: &MapFrame<&[u8]>,
        config: &ClientConfig,
    ) {
        if !matches!(call.op, KeyedOp::Count { .. }) {
            return;
        }
        let (i, row) = call.lock_of(index);
        let (tag, session, grants) = (call.frames[index].tag, call.frames[index].session, frame.base().round());
        let denied = frame.map().has(MapFlags::DENIED);
        if denied {
            call.requeue_locks(vec![i]);
            // Without a grant number, the lock is free by now: try again in the element.
            call.denied_grant = (grants > 0).then_some(grants);
        } else if self.is_current_session(now, session, config) {
            let token = if mutant::on(Mutant::TokenResetByEpoch) { grants.into() } else { config.era.token(grants) };
            self.locks.needs_new_epoch |= grants > GRANTS_MANY;
            self.add_grant(call, i, HeldLock { token, call: id, element: Some((row, tag)) });
        } else {
            // A grant of an ended session is useless; the lock may be freed already.
            call.requeue_locks(vec![i]);
            self.release_unheld(call.keys[i as usize].clone(), Some((row, tag)), 0);
        }
    }

    /// Handles the server's answer for a lock. A grant of an ended session is void.
    pub(super) fn on_server_answer(
        &mut self,
        now: Instant,
        (id, call): (CallId, &mut KeyedCall),
        (i, index): (u32, usize),
        answer: &PairAnswer,
        config: &ClientConfig,
    ) {
        let session = call.frames[index].session;
        match answer.status {
            PairStatus::Mapped => call.moved.push(i),
            PairStatus::Whole | PairStatus::Logical if call.claim => {}
            _ if call.claim => drop(self.locks.held.remove(&call.keys[i as usize])),
            PairStatus::Whole | PairStatus::Logical if self.is_current_session(now, session, config) => {
                // The lock may be in the element the next time.
                self.key_cache.forget(&call.keys[i as usize]);
                self.add_grant(call, i, HeldLock { token: answer.value as u64, call: id, element: None });
            }
            PairStatus::Full => call.apply_answer(i, answer),
            _ => call.denied.push(i),
        }
    }

    fn add_grant(&mut self, call: &mut KeyedCall, i: u32, held: HeldLock) {
        call.add_grant(i, held.token);
        self.locks.held.insert(call.keys[i as usize].clone(), held);
    }

    fn is_current_session(&self, now: Instant, session: u32, config: &ClientConfig) -> bool {
        let current = self.locks.lease.session(now, config);
        current == Some(session) || mutant::on(Mutant::GrantOfOldSession)
    }

    /// Releases the locks of a finished call that was cancelled before its outcome was delivered.
    pub(super) fn release_all(&mut self, now: Instant, id: CallId, config: &ClientConfig) {
        let granted = self.locks.held.iter().filter(|(_, held)| held.call == id);
        let (keys, tokens): (Vec<Key>, Vec<u64>) = granted.map(|(key, held)| (key.clone(), held.token)).unzip();
        if !keys.is_empty() {
            self.release(now, keys, tokens, config);
        }
    }

    /// Releases locks with a call of the client itself.
    pub(super) fn release(&mut self, now: Instant, keys: Vec<Key>, tokens: Vec<u64>, config: &ClientConfig) {
        self.own += 1;
        let mut release = KeyedCall::new(Operation::Clear { keys, tokens });
        release.detached = true;
        self.queue_call(now, CallId(OWN_CALLS | self.own), release, config);
    }

    /// Releases a lock that no call holds.
    fn release_unheld(&mut self, key: Key, element: Option<(u32, u32)>, token: u64) {
        let mut release = KeyedCall::new(Operation::Clear { keys: vec![key], tokens: Vec::new() });
        release.detached = true;
        match element {
            Some((row, tag)) => release.push_lock(0, row, tag),
            None => {
                release.values[0] = token as i64;
                release.push_whole(&[0]);
            }
        }
        self.own += 1;
        let id = CallId(OWN_CALLS | self.own);
        self.ready.push_back(id);
        self.calls.insert(id, release);
    }

    /// Claims at the server all locks held in the element, with their tokens, after the end of an epoch.
    pub(super) fn claim(&mut self) {
        let gone = self.locks.held.iter_mut().filter(|(_, held)| held.element.is_some());
        let (keys, tokens): (Vec<Key>, Vec<i64>) = gone
            .map(|(key, held)| {
                held.element = None;
                (key.clone(), held.token as i64)
            })
            .unzip();
        if keys.is_empty() {
            return;
        }
        let mut call =
            KeyedCall::new(Operation::Count { keys, threshold: 1, to: ForwardTarget::Src, ack: Ack::Element });
        (call.claim, call.detached, call.values) = (true, true, tokens);
        self.own += 1;
        self.locks.claims += 1;
        let id = CallId(OWN_CALLS | self.own);
        self.unacked.mark_repeating(id);
        // All at once: held locks need no order.
        let all = call.in_key_order();
        call.push_whole(&all);
        self.ready.push_front(id);
        self.calls.insert(id, call);
    }

    /// Session in which locks are held, by this caller's clock.
    pub(in super::super) fn session(&self, now: Instant, config: &ClientConfig) -> Option<u32> {
        self.locks.lease.session(now, config)
    }

    /// Drops all locks if the lease has expired; open calls acquire their locks again.
    pub(in super::super) fn check_lease(&mut self, now: Instant, config: &ClientConfig) {
        if self.locks.lease.end_if_expired(now, config) {
            self.drop_all_locks(now);
        }
    }

    fn drop_all_locks(&mut self, now: Instant) {
        self.locks.held.clear();
        for call in self.calls.values_mut().filter(|call| call.takes_locks() && !call.claim) {
            call.drop_grants();
        }
        self.waiting_frames.ask_now(now, |_| true);
    }

    /// Lease request to send now, if any. `Err` if the server did not answer for the give-up time.
    pub(in super::super) fn next_lease_request(
        &mut self,
        now: Instant,
        config: &ClientConfig,
    ) -> Result<Option<LeaseRequest>, ()> {
        if !self.locks.lease.is_due(now) {
            return Ok(None);
        }
        let wanted = !self.locks.held.is_empty() || self.calls.values().any(|call| call.takes_locks());
        if wanted && self.locks.lease.silence(now) >= config.timing.give_up {
            return Err(());
        }
        Ok(self.locks.lease.next_request(now, wanted, config))
    }

    /// Handles the server's answer to a lease request.
    pub(in super::super) fn on_lease_answer(
        &mut self,
        now: Instant,
        frame: &MapFrame<&[u8]>,
        config: &ClientConfig,
    ) -> Option<()> {
        let (request, session) = (frame.base().round(), frame.map().tag());
        if frame.map().has(MapFlags::CLEAR) {
            self.locks.lease.on_session_ended(request).then_some(())?;
            self.drop_all_locks(now);
            return Some(());
        }
        self.locks.lease.on_lease_answer(now, request, session, config).then_some(())
    }

    /// Whether to request a new epoch because a grant counter is near its end; resets the flag.
    pub(in super::super) fn take_needs_new_epoch(&mut self) -> bool {
        std::mem::take(&mut self.locks.needs_new_epoch)
    }
}
