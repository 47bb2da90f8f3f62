//! Locks of this caller: which it holds, by whose word, and what becomes of frames for them.
//!
//! A lock that the server says is in the element is taken there, one frame each. Whoever is denied it
//! waits in line at the server, with a frame for this lock alone. A release names the grant: in the
//! element by the acquiring's tag, at the server by the fencing token. When the epoch ends, the holder
//! claims at the server what it held; when the lease ends, it has lost everything.

use std::collections::BTreeMap;

use pathcall_wire::map::LOCK_TAG;
use pathcall_wire::pairs::{Answer, Status};
use pathcall_wire::{Instant, MapFlags, MapFrame, Mutant, Target, mutant};

use super::super::super::{Key, Operation};
use super::super::{CallId, ClientConfig};
use super::book::KeyPlace;
use super::call::{Call, Work};
use super::lease::{Ask, Lease};
use super::{KeyedCalls, OWN_CALLS};

/// A lock that the element has granted more often than this needs a new epoch before its count ends.
const GRANTS_MANY: u32 = 1 << 31;

#[derive(Default)]
pub(super) struct Locks {
    held: BTreeMap<Key, Held>,
    tags: u32,
    /// Claims that the server has not answered: nothing else is sent before, or a release could
    /// overtake the claim of its lock.
    claims: usize,
    pub(super) lease: Lease,
    /// The element's counts come to their end.
    pub(super) worn_out: bool,
}

/// A lock that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) token: u64,
    /// The call that it was granted to.
    call: CallId,
    /// Row and tag, if it is in the element.
    pub(super) element: Option<(u32, u32)>,
}

impl Locks {
    /// Takes a held lock out, to be given back, if this is its token; 0: whatever it is.
    pub(super) fn give_back(&mut self, key: &Key, token: u64) -> Option<Held> {
        self.held.get(key).filter(|held| token == 0 || held.token == token)?;
        self.held.remove(key)
    }

    pub(super) fn are_held(&self) -> bool {
        !self.held.is_empty()
    }

    pub(super) fn are_claimed(&self) -> bool {
        self.claims > 0
    }

    /// The server knows of the locks of a claim.
    pub(super) fn claimed(&mut self, call: &Call) {
        self.claims -= usize::from(call.claim);
    }
}

impl KeyedCalls {
    /// Sends for the locks at the head of the line: one in the element, one to wait for at the server,
    /// or a frame of several to the server.
    pub(super) fn next_locks(&mut self, call: &mut Call, by_element: bool) {
        let place = |i: &u32| match self.book.find(&call.keys[*i as usize]) {
            Some(KeyPlace::Mapped { row, .. }) if by_element && !call.claim => Some(row),
            _ => None,
        };
        let Some(first) = call.line.first() else { return };
        if let Some(denied_for) = call.queue.take() {
            call.push_waiting(denied_for);
        } else if let Some(row) = place(first) {
            let i = call.line.remove(0);
            self.locks.tags = ((self.locks.tags + 1) & LOCK_TAG).max(1);
            call.push_lock(i, row, self.locks.tags);
        } else {
            let whole = call.line.iter().take_while(|i| place(i).is_none()).count();
            if call.locks_fitting(whole) == 1 { call.push_waiting(0) } else { call.push_next_locks(whole) }
        }
    }

    /// The element has answered a frame of a lock.
    pub(super) fn element_answered(
        &mut self,
        now: Instant,
        (id, call): (CallId, &mut Call),
        index: usize,
        frame: &MapFrame<&[u8]>,
        config: &ClientConfig,
    ) {
        if !matches!(call.work, Work::Count { .. }) {
            return;
        }
        let (i, row) = call.lock_of(index);
        let (tag, session, grants) = (call.frames[index].tag, call.frames[index].session, frame.base().round());
        let denied = frame.map().has(MapFlags::DENIED);
        if denied {
            call.line_up(vec![i]);
            // If nobody has it now, it is tried there again.
            call.queue = (grants > 0).then_some(grants);
        } else if self.is_of_this_session(now, session, config) {
            let token = if mutant::on(Mutant::TokenResetByEpoch) { grants.into() } else { config.era.token(grants) };
            self.locks.worn_out |= grants > GRANTS_MANY;
            self.granted(call, i, Held { token, call: id, element: Some((row, tag)) });
        } else {
            // It may have been taken back already: what was asked for in one session is of no use in another.
            call.line_up(vec![i]);
            self.release_of(call.keys[i as usize].clone(), Some((row, tag)), 0);
        }
    }

    /// The server has answered a whole lock. What it grants in one session it has freed in the next.
    pub(super) fn server_answered(
        &mut self,
        now: Instant,
        (id, call): (CallId, &mut Call),
        (i, index): (u32, usize),
        answer: &Answer,
        config: &ClientConfig,
    ) {
        let session = call.frames[index].session;
        match answer.status {
            Status::Mapped => call.moved.push(i),
            Status::Whole | Status::Logical if call.claim => {}
            _ if call.claim => drop(self.locks.held.remove(&call.keys[i as usize])),
            Status::Whole | Status::Logical if self.is_of_this_session(now, session, config) => {
                // Where it is now it may be next time.
                self.book.forget(&call.keys[i as usize]);
                self.granted(call, i, Held { token: answer.value as u64, call: id, element: None });
            }
            Status::Full => call.take(i, answer),
            _ => call.denied.push(i),
        }
    }

    fn granted(&mut self, call: &mut Call, i: u32, held: Held) {
        call.granted(i, held.token);
        self.locks.held.insert(call.keys[i as usize].clone(), held);
    }

    fn is_of_this_session(&self, now: Instant, session: u32, config: &ClientConfig) -> bool {
        let current = self.locks.lease.session(now, config);
        current == Some(session) || mutant::on(Mutant::GrantOfOldSession)
    }

    /// Gives back what was granted to a call that is done, and that its caller does not hear of.
    pub(super) fn release_all(&mut self, now: Instant, id: CallId, config: &ClientConfig) {
        let granted = self.locks.held.iter().filter(|(_, held)| held.call == id);
        let (keys, tokens): (Vec<Key>, Vec<u64>) = granted.map(|(key, held)| (key.clone(), held.token)).unzip();
        if !keys.is_empty() {
            self.release(now, keys, tokens, config);
        }
    }

    /// Gives locks back for nobody.
    pub(super) fn release(&mut self, now: Instant, keys: Vec<Key>, tokens: Vec<u64>, config: &ClientConfig) {
        self.own += 1;
        let mut release = Call::new(Operation::Clear { keys, tokens });
        release.detached = true;
        self.enter(now, CallId(OWN_CALLS | self.own), release, config);
    }

    /// Gives a lock back that no call holds.
    fn release_of(&mut self, key: Key, element: Option<(u32, u32)>, token: u64) {
        let mut release = Call::new(Operation::Clear { keys: vec![key], tokens: Vec::new() });
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

    /// The epoch has ended: tells the server which locks were held in the element, by which tokens.
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
        let mut call = Call::new(Operation::Count { keys, threshold: 1, to: Target::Src });
        (call.claim, call.detached, call.values) = (true, true, tokens);
        self.own += 1;
        self.locks.claims += 1;
        let id = CallId(OWN_CALLS | self.own);
        self.kept.repeat(id);
        // All at once: they are held, so there is no order to keep.
        let all = call.in_key_order();
        call.push_whole(&all);
        self.ready.push_front(id);
        self.calls.insert(id, call);
    }

    /// The session in which locks are held, as far as this caller knows by its clock.
    pub(in super::super) fn session(&self, now: Instant, config: &ClientConfig) -> Option<u32> {
        self.locks.lease.session(now, config)
    }

    /// Notes that the lease has run out, if it has: nothing is held any more, and calls that held some
    /// of their locks begin anew.
    pub(in super::super) fn look_at_lease(&mut self, now: Instant, config: &ClientConfig) {
        if self.locks.lease.runs_out(now, config) {
            self.lose_all(now);
        }
    }

    fn lose_all(&mut self, now: Instant) {
        self.locks.held.clear();
        for call in self.calls.values_mut().filter(|call| call.takes_locks() && !call.claim) {
            call.lose();
        }
        self.lines.hurry(now, |_| true);
    }

    /// What the server is to be told of the lease now; `Err` when it has not answered for the give-up
    /// time.
    pub(in super::super) fn ask_for_lease(&mut self, now: Instant, config: &ClientConfig) -> Result<Option<Ask>, ()> {
        if !self.locks.lease.is_due(now) {
            return Ok(None);
        }
        let wanted = !self.locks.held.is_empty() || self.calls.values().any(|call| call.takes_locks());
        if wanted && self.locks.lease.unheard(now) >= config.timing.give_up {
            return Err(());
        }
        Ok(self.locks.lease.ask(now, wanted, config))
    }

    /// The server has answered a request for a lease.
    pub(in super::super) fn lent(
        &mut self,
        now: Instant,
        frame: &MapFrame<&[u8]>,
        config: &ClientConfig,
    ) -> Option<()> {
        let (request, session) = (frame.base().round(), frame.map().tag());
        if frame.map().has(MapFlags::CLEAR) {
            self.locks.lease.is_ended(request).then_some(())?;
            self.lose_all(now);
            return Some(());
        }
        self.locks.lease.lent(now, request, session, config).then_some(())
    }

    /// Whether the element is to be left for a while: its counts come to their end.
    pub(in super::super) fn is_worn_out(&mut self) -> bool {
        std::mem::take(&mut self.locks.worn_out)
    }
}
