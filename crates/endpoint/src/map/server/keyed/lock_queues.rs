//! Lock queues of the owner, and transfer of locks between element and server.
//!
//! ```text
//! denied by the element ─► queued at the server ─► release goes to the server: parked ─► next waiter
//!                                                      queue empty: returned to the element ◄──┘
//! ```
//!
//! When a lock is released while callers wait, the server grants it to the first waiter at once, half a round trip
//! later. Lost frames are repeated by their senders: a waiter repeats its request with pauses, a holder its release
//! until it is answered.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pathcall_wire::map::{LOCK_PARKED, emit, frame_len};
use pathcall_wire::pairs::{ANSWER_LEN, PairAnswer, PairStatus, put_answer};
use pathcall_wire::{BaseRepr, Flags, FrameKind, Instant, MapFlags, MapFrame, MapRepr};

use super::super::super::{Dest, FrameSink};
use super::super::{Event, Events, OwnerContext};
use super::KeyedStore;
use super::table::FrameId;

/// Locks that need an action.
#[derive(Default)]
pub(super) struct LockQueues {
    /// Locks that may be free for the next waiter.
    changed: BTreeSet<u32>,
    /// Parked locks without holder, with the time of their return to the element.
    idle: BTreeMap<u32, LockReturn>,
    /// Whether a caller has ever waited.
    pub(super) used: bool,
}

/// Return of a lock to the element.
#[derive(Clone, Copy)]
struct LockReturn {
    at: Instant,
    /// Pause between two requests; zero before the first.
    pause: Duration,
    since: Instant,
}

impl LockQueues {
    /// Marks a lock that may be free for the next waiter.
    pub(super) fn mark_changed(&mut self, lock: u32) {
        self.changed.insert(lock);
    }

    /// Applies a change of epoch: no locks are in the element.
    pub(super) fn renew(&mut self) {
        self.idle.clear();
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.changed.is_empty() { self.idle.values().map(|back| back.at).min() } else { Some(Instant(0)) }
    }
}

impl KeyedStore {
    /// Releases all locks that an endpoint holds at the server.
    pub(super) fn release_all(&mut self, endpoint: u32) {
        let changed = self.table.release_all(endpoint);
        self.lock_queues.changed.extend(changed);
    }

    /// Handles the release of a lock in the element that other callers wait for. The server takes the lock.
    pub(in super::super) fn on_parked_release(
        &mut self,
        frame: &MapFrame<&[u8]>,
        shared: &mut OwnerContext,
        out: &mut impl FrameSink,
    ) -> Option<()> {
        let (base, map) = (frame.base(), frame.map());
        if base.has(Flags::CROSS) || !map.has(MapFlags::CLEAR) || !shared.config.locks {
            return None;
        }
        self.park(map.index(), base.src(), map.tag(), base.round());
        let answer = BaseRepr { round: 0, ..shared.answer(FrameKind::MapAck, frame) };
        let repr = MapRepr { flags: MapFlags::BARE, ..MapRepr::default() };
        let len = frame_len(repr.flags, 0, 0);
        emit(&answer, &repr, &mut shared.scratch[..len]);
        shared.send(Dest::Endpoint(base.src()), len, out);
        Some(())
    }

    /// Parks a lock at the server, after its owner in the element has released it.
    pub(super) fn park(&mut self, row: u32, owner: u32, tag: u32, grants: u32) {
        let Some(id) = self.table.lock_in_row(row) else { return };
        if let Some((lock, _)) = self.table.lock_by_id(id)
            && lock.park(owner, tag, grants)
        {
            self.lock_queues.idle.remove(&id);
            self.lock_queues.mark_changed(id);
        }
    }

    /// Handles a lock register that the server has freed: the waiters must try in the element.
    pub(super) fn on_freed_in_element(
        &mut self,
        row: u32,
        grants: u32,
        shared: &mut OwnerContext,
        out: &mut impl FrameSink,
    ) {
        let Some(id) = self.table.lock_in_row(row) else { return };
        let Some((lock, _)) = self.table.lock_by_id(id) else { return };
        lock.mark_over(grants);
        self.redirect_waiters(id, shared, out);
    }

    /// Handles the element's confirmation that a parked lock has returned.
    pub(super) fn on_returned(
        &mut self,
        frame: &MapFrame<&[u8]>,
        shared: &mut OwnerContext,
        out: &mut impl FrameSink,
    ) -> Option<()> {
        let map = frame.map();
        let id = self.table.lock_in_row(map.index())?;
        let (lock, _) = self.table.lock_by_id(id)?;
        let parked = lock.parked.filter(|parked| parked.returning)?;
        if (parked.owner, parked.tag | LOCK_PARKED) != (map.threshold(), map.tag()) {
            return None;
        }
        lock.on_returned();
        self.lock_queues.idle.remove(&id);
        self.redirect_waiters(id, shared, out);
        Some(())
    }

    fn redirect_waiters(&mut self, id: u32, shared: &mut OwnerContext, out: &mut impl FrameSink) {
        let Some((lock, Some(row))) = self.table.lock_by_id(id) else { return };
        let waiters: Vec<FrameId> = lock.redirect_waiters().collect();
        for frame_id in waiters {
            self.answer_waiter(
                frame_id,
                PairAnswer { status: PairStatus::Mapped, lane: 0, row, value: 0 },
                shared,
                out,
            );
        }
    }

    /// Grants released locks to waiters, and returns locks without waiters to the element.
    pub(super) fn poll_lock_queues(
        &mut self,
        now: Instant,
        shared: &mut OwnerContext,
        out: &mut impl FrameSink,
        events: &mut Events,
    ) {
        let rules = self.lock_rules(shared);
        if !rules.suspended {
            if std::mem::take(&mut self.recheck_locks) && self.lock_queues.used {
                let wanted: Vec<u32> = self.table.wanted_locks().collect();
                self.lock_queues.changed.extend(wanted);
            }
            for id in std::mem::take(&mut self.lock_queues.changed) {
                let Some((lock, row)) = self.table.lock_by_id(id) else { continue };
                if let Some((frame_id, token)) = lock.grant_next(rules.era, row.is_some()) {
                    let granted = PairAnswer { status: PairStatus::Whole, lane: 0, row: 0, value: token as i64 };
                    self.answer_waiter(frame_id, granted, shared, out);
                } else if lock.parked.is_some_and(|parked| !parked.returning) && lock.holder.is_none() {
                    let at = now + self.timing.rto_min;
                    self.lock_queues.idle.entry(id).or_insert(LockReturn { at, pause: Duration::ZERO, since: at });
                }
            }
        } else {
            // Checked again after the last caller has claimed its locks.
            self.lock_queues.changed.clear();
            self.recheck_locks = true;
        }
        self.poll_returns(now, shared, out, events);
    }

    /// Sends due requests that return idle locks to the element.
    fn poll_returns(&mut self, now: Instant, shared: &mut OwnerContext, out: &mut impl FrameSink, events: &mut Events) {
        let due: Vec<(u32, LockReturn)> =
            self.lock_queues.idle.iter().filter(|(_, back)| back.at <= now).map(|(id, back)| (*id, *back)).collect();
        for (id, back) in due {
            let Some((lock, Some(row))) = self.table.lock_by_id(id) else { continue };
            let busy = lock.holder.is_some() || lock.is_wanted();
            let Some(parked) = lock.parked.as_mut().filter(|parked| parked.returning || !busy) else {
                self.lock_queues.idle.remove(&id);
                continue;
            };
            parked.returning = true;
            let (owner, tag, grants) = (parked.owner, parked.tag | LOCK_PARKED, lock.grants);
            // Time in which this process was stopped does not count as silence.
            let since = now.min(back.since + now.since(back.at));
            if now.since(since) >= self.timing.give_up {
                self.lock_queues.idle.remove(&id);
                events.push_back(Event::ElementSilent);
                continue;
            }
            let pause = (back.pause * 2).clamp(self.timing.rto_min, self.timing.rto_max);
            self.lock_queues.idle.insert(id, LockReturn { at: now + pause, pause, since });
            send_free_request(0, row, (owner, tag), grants, shared, out);
        }
    }

    /// Answers a waiting frame.
    fn answer_waiter(
        &self,
        frame_id: FrameId,
        answer: PairAnswer,
        shared: &mut OwnerContext,
        out: &mut impl FrameSink,
    ) {
        let Some(incarnation) = shared.members.get(&frame_id.endpoint).map(|m| m.member.incarnation) else { return };
        let mut base = shared.base(FrameKind::MapPairsAck, Flags::CROSS);
        (base.dst, base.dst_incarnation, base.slot, base.seq) =
            (frame_id.endpoint, incarnation, frame_id.flow, frame_id.seq);
        base.round = self.version;
        let map = MapRepr { flags: MapFlags::BARE, payload_len: ANSWER_LEN as u16, ..MapRepr::default() };
        let len = frame_len(map.flags, 0, ANSWER_LEN);
        put_answer(emit(&base, &map, &mut shared.scratch[..len]).payload_mut(), &answer)
            .expect("buffer for one answer");
        shared.send(Dest::Endpoint(frame_id.endpoint), len, out);
    }
}

/// Requests the state of a lock in the element, which frees the lock if this owner holds it with this tag.
pub(super) fn send_free_request(
    number: u32,
    row: u32,
    (owner, tag): (u32, u32),
    grants: u32,
    shared: &mut OwnerContext,
    out: &mut impl FrameSink,
) {
    let mut base = shared.base(FrameKind::MapFree, 0);
    (base.dst, base.dst_incarnation) = (base.src, base.src_incarnation);
    (base.seq, base.round) = (number, grants);
    let map = MapRepr { flags: MapFlags::BARE, index: row, threshold: owner, tag, ..MapRepr::default() };
    let len = frame_len(map.flags, 0, 0);
    emit(&base, &map, &mut shared.scratch[..len]);
    shared.send(Dest::Element, len, out);
}
