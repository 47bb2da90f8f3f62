//! Who waits for which lock, and locks on their way from the element and back to it.
//!
//! ```text
//! denied in the element ─► in line here ─► its holder's release comes here: parked ─► the next one
//!                                            nobody waits any more: returned  ◄────────────┘
//! ```
//!
//! A lock that is given back while others wait is granted to the first of them at once: its answer needs
//! half a round trip. What is lost is repeated by whom it concerns: the waiter asks now and then, the
//! holder repeats its release until it is answered.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pathcall_wire::map::{LOCK_PARKED, emit, frame_len};
use pathcall_wire::pairs::{ANSWER_LEN, Answer, Status, put_answer};
use pathcall_wire::{BaseRepr, Flags, Instant, Kind, MapFlags, MapFrame, MapRepr};

use super::super::super::{Dest, Outbox};
use super::super::{Event, Events, Shared};
use super::KeyedTruth;
use super::table::FrameName;

/// Locks with something to be done.
#[derive(Default)]
pub(super) struct Lines {
    /// Locks that may be free for the next one.
    changed: BTreeSet<u32>,
    /// Parked locks that nobody has: when the element is to be asked to take them back.
    idle: BTreeMap<u32, Return>,
    /// Somebody has waited in one.
    pub(super) used: bool,
}

#[derive(Clone, Copy)]
struct Return {
    at: Instant,
    /// Between two requests; none was sent yet if it is zero.
    pause: Duration,
    since: Instant,
}

impl Lines {
    /// This lock may be free for the next one.
    pub(super) fn look_at(&mut self, lock: u32) {
        self.changed.insert(lock);
    }

    /// The element has no locks any more.
    pub(super) fn renew(&mut self) {
        self.idle.clear();
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.changed.is_empty() { self.idle.values().map(|back| back.at).min() } else { Some(Instant(0)) }
    }
}

impl KeyedTruth {
    /// Frees what an endpoint holds here.
    pub(super) fn release_all(&mut self, endpoint: u32) {
        let changed = self.table.release_all(endpoint);
        self.lines.changed.extend(changed);
    }

    /// The release of a lock that others wait for: the element leaves it to the server.
    pub(in super::super) fn parked(
        &mut self,
        frame: &MapFrame<&[u8]>,
        shared: &mut Shared,
        out: &mut impl Outbox,
    ) -> Option<()> {
        let (base, map) = (frame.base(), frame.map());
        if base.has(Flags::CROSS) || !map.has(MapFlags::CLEAR) || !shared.config.locks {
            return None;
        }
        self.park(map.index(), base.src(), map.tag(), base.round());
        let answer = BaseRepr { round: 0, ..shared.answer(Kind::MapAck, frame) };
        let repr = MapRepr { flags: MapFlags::BARE, ..MapRepr::default() };
        let len = frame_len(repr.flags, 0, 0);
        emit(&answer, &repr, &mut shared.scratch[..len]);
        shared.send(Dest::Endpoint(base.src()), len, out);
        Some(())
    }

    /// A register says that this owner has given its lock back to the server.
    pub(super) fn park(&mut self, row: u32, owner: u32, tag: u32, grants: u32) {
        let Some(id) = self.table.lock_in(row) else { return };
        if let Some((lock, _)) = self.table.lock_by_id(id)
            && lock.park(owner, tag, grants)
        {
            self.lines.idle.remove(&id);
            self.lines.look_at(id);
        }
    }

    /// A register was freed for the server: those who wait for its lock are to try there.
    pub(super) fn freed_away(&mut self, row: u32, grants: u32, shared: &mut Shared, out: &mut impl Outbox) {
        let Some(id) = self.table.lock_in(row) else { return };
        let Some((lock, _)) = self.table.lock_by_id(id) else { return };
        lock.is_over(grants);
        self.send_away(id, shared, out);
    }

    /// The element has a lock's register again.
    pub(super) fn returned(
        &mut self,
        frame: &MapFrame<&[u8]>,
        shared: &mut Shared,
        out: &mut impl Outbox,
    ) -> Option<()> {
        let map = frame.map();
        let id = self.table.lock_in(map.index())?;
        let (lock, _) = self.table.lock_by_id(id)?;
        let parked = lock.parked.filter(|parked| parked.returning)?;
        if (parked.owner, parked.tag | LOCK_PARKED) != (map.threshold(), map.tag()) {
            return None;
        }
        lock.returned();
        self.lines.idle.remove(&id);
        self.send_away(id, shared, out);
        Some(())
    }

    fn send_away(&mut self, id: u32, shared: &mut Shared, out: &mut impl Outbox) {
        let Some((lock, Some(row))) = self.table.lock_by_id(id) else { return };
        let all: Vec<FrameName> = lock.send_away().collect();
        for name in all {
            self.say(name, Answer { status: Status::Mapped, lane: 0, row, value: 0 }, shared, out);
        }
    }

    /// Grants locks that were given back, and returns to the element those that nobody waits for.
    pub(super) fn poll_lines(&mut self, now: Instant, shared: &mut Shared, out: &mut impl Outbox, events: &mut Events) {
        let rules = self.lock_rules(shared);
        if !rules.closed {
            if std::mem::take(&mut self.reopen) && self.lines.used {
                let wanted: Vec<u32> = self.table.wanted_locks().collect();
                self.lines.changed.extend(wanted);
            }
            for id in std::mem::take(&mut self.lines.changed) {
                let Some((lock, row)) = self.table.lock_by_id(id) else { continue };
                if let Some((name, token)) = lock.hand_out(rules.era, row.is_some()) {
                    let granted = Answer { status: Status::Whole, lane: 0, row: 0, value: token as i64 };
                    self.say(name, granted, shared, out);
                } else if lock.parked.is_some_and(|parked| !parked.returning) && lock.holder.is_none() {
                    let at = now + self.timing.rto_min;
                    self.lines.idle.entry(id).or_insert(Return { at, pause: Duration::ZERO, since: at });
                }
            }
        } else {
            // They are looked at again when the last caller has told what it holds.
            self.lines.changed.clear();
            self.reopen = true;
        }
        self.poll_returns(now, shared, out, events);
    }

    /// Asks the element to take locks back that have been idle for a while.
    fn poll_returns(&mut self, now: Instant, shared: &mut Shared, out: &mut impl Outbox, events: &mut Events) {
        let due: Vec<(u32, Return)> =
            self.lines.idle.iter().filter(|(_, back)| back.at <= now).map(|(id, back)| (*id, *back)).collect();
        for (id, back) in due {
            let Some((lock, Some(row))) = self.table.lock_by_id(id) else { continue };
            let busy = lock.holder.is_some() || lock.is_wanted();
            let Some(parked) = lock.parked.as_mut().filter(|parked| parked.returning || !busy) else {
                self.lines.idle.remove(&id);
                continue;
            };
            parked.returning = true;
            let (owner, tag, grants) = (parked.owner, parked.tag | LOCK_PARKED, lock.grants);
            // Whoever stood still itself has neither asked nor heard.
            let since = now.min(back.since + now.since(back.at));
            if now.since(since) >= self.timing.give_up {
                self.lines.idle.remove(&id);
                events.push_back(Event::ElementSilent);
                continue;
            }
            let pause = (back.pause * 2).clamp(self.timing.rto_min, self.timing.rto_max);
            self.lines.idle.insert(id, Return { at: now + pause, pause, since });
            ask_free(0, row, (owner, tag), grants, shared, out);
        }
    }

    /// Answers a frame of one lock that was in line.
    fn say(&self, name: FrameName, answer: Answer, shared: &mut Shared, out: &mut impl Outbox) {
        let Some(incarnation) = shared.members.get(&name.endpoint).map(|m| m.member.incarnation) else { return };
        let mut base = shared.base(Kind::MapPairsAck, Flags::CROSS);
        (base.dst, base.dst_incarnation, base.slot, base.seq) = (name.endpoint, incarnation, name.flow, name.seq);
        base.round = self.version;
        let map = MapRepr { flags: MapFlags::BARE, payload_len: ANSWER_LEN as u16, ..MapRepr::default() };
        let len = frame_len(map.flags, 0, ANSWER_LEN);
        put_answer(emit(&base, &map, &mut shared.scratch[..len]).payload_mut(), &answer).expect("made for one");
        shared.send(Dest::Endpoint(name.endpoint), len, out);
    }
}

/// Asks the element who has a lock, and to free it if exactly this acquiring of this owner has.
pub(super) fn ask_free(
    number: u32,
    row: u32,
    (owner, tag): (u32, u32),
    grants: u32,
    shared: &mut Shared,
    out: &mut impl Outbox,
) {
    let mut base = shared.base(Kind::MapFree, 0);
    (base.dst, base.dst_incarnation) = (base.src, base.src_incarnation);
    (base.seq, base.round) = (number, grants);
    let map = MapRepr { flags: MapFlags::BARE, index: row, threshold: owner, tag, ..MapRepr::default() };
    let len = frame_len(map.flags, 0, 0);
    emit(&base, &map, &mut shared.scratch[..len]);
    shared.send(Dest::Element, len, out);
}
