//! Queries, and the harvests that make their answers exact.
//!
//! A query is answered from the bases alone, at the commit of a generation that was closed after it
//! came: so it sees whatever was acknowledged before. After a change of epoch it also waits for the
//! callers to repeat what only the element had.

use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{Flags, Instant, Kind, MapFlags, MapFrame, MapRepr, Mutant, mutant};

use super::super::super::{CallError, Dest, Key, Outbox};
use super::super::{Ended, Event, Events, Left, QueryId, ServerConfig, Shared, Values};
use super::harvest::{Harvest, Progress};
use super::{KeyedTruth, meet, room};

impl KeyedTruth {
    pub(in super::super) fn query(
        &mut self,
        now: Instant,
        id: QueryId,
        keys: Option<Vec<Key>>,
        shared: &Shared,
        events: &mut Events,
    ) {
        let queue = if mutant::on(Mutant::QueryFromOlderReading) && self.harvest.is_some() {
            &mut self.reading
        } else {
            &mut self.waiting
        };
        queue.push((id, keys));
        self.proceed(now, shared, events);
    }

    /// A caller is gone: what it held is free again.
    pub(in super::super) fn leave(
        &mut self,
        now: Instant,
        endpoint: u32,
        left: Left,
        shared: &Shared,
        events: &mut Events,
    ) {
        self.refused.retain(|(owner, ..), _| *owner != endpoint);
        self.leases.forget(endpoint);
        self.release_all(endpoint);
        self.reopen = true;
        self.left.1 |= left == Left::Uncommitted;
        self.complete |= self.harvest.as_mut().is_some_and(|harvest| harvest.forget(now, endpoint));
        if left == Left::Unsettled && shared.config.mapping && !shared.config.acked {
            self.lost = Some("a caller left before it could repeat what the element had held of it");
        }
        self.proceed(now, shared, events);
    }

    /// The element, its memory or the epoch is another, or there is none; `config` is what holds now.
    pub(in super::super) fn renew(
        &mut self,
        now: Instant,
        reason: &'static str,
        config: &ServerConfig,
        shared: &mut Shared,
        events: &mut Events,
    ) {
        let mapping = shared.config.mapping && !shared.config.acked;
        if mapping && self.table.mapped() > 0 && (self.left.0 || self.left.1) {
            self.lost = Some(reason);
        }
        for (endpoint, state) in shared.members.iter_mut().filter(|(_, state)| state.ended.is_none()) {
            let known = |_: &_| !mutant::on(Mutant::RecordIgnored);
            let applied = self.record.remove(endpoint).filter(known).unwrap_or_default();
            let committed = if mutant::on(Mutant::CommitsForgotten) { 0 } else { self.committed };
            state.ended = Some(Ended { committed, applied });
            state.settled &= !state.member.element || state.clean;
        }
        self.table.map_anew(room(config));
        self.evictions.start_anew();
        self.forget_freeing();
        self.lines.renew();
        self.reopen = true;
        self.record.clear();
        (self.harvest, self.complete) = (None, false);
        self.waiting.splice(..0, self.reading.drain(..));
        (self.version, self.committed, self.wanted, self.left) = (0, 0, 0, (false, false));
        self.proceed(now, shared, events);
    }

    /// Answers what can be answered now, and has the next generation harvested if that is wanted.
    pub(in super::super) fn proceed(&mut self, now: Instant, shared: &Shared, events: &mut Events) {
        let held_by_element = self.is_away(shared);
        let settled = shared.members.values().all(|state| state.settled || mutant::on(Mutant::QueryUnsettled));
        if settled && (self.lost.is_some() || !held_by_element) {
            for (id, keys) in std::mem::take(&mut self.waiting) {
                events.push_back(Event::Answered(id, self.collect(keys)));
            }
        }
        let asked = settled && !self.waiting.is_empty();
        let change = self.change_due(shared).is_some_and(|due| due <= now);
        let wanted = asked || change || self.wanted > self.committed || self.left.1;
        if self.harvest.is_some() || !held_by_element || !wanted {
            return;
        }
        if asked {
            self.reading = std::mem::take(&mut self.waiting);
        }
        self.left = (self.left.0 || self.left.1, false);
        self.harvests += 1;
        let mapping = self.evictions.next(self.version);
        self.harvest = Some(Harvest::new(self.committed + 1, mapping, self.harvests, now, self.timing));
    }

    /// Whether the element may hold a part of what is true.
    fn is_away(&self, shared: &Shared) -> bool {
        shared.config.mapping && shared.config.grant.is_some() && self.table.mapped() > 0
    }

    /// When a harvest is wanted so that keys can be given other registers.
    fn change_due(&self, shared: &Shared) -> Option<Instant> {
        self.evictions.due().filter(|_| self.is_away(shared))
    }

    /// Takes an answer of the element.
    pub(in super::super) fn element(
        &mut self,
        now: Instant,
        frame: &MapFrame<&[u8]>,
        shared: &mut Shared,
        events: &mut Events,
        out: &mut impl Outbox,
    ) -> Option<()> {
        if frame.kind() == Kind::MapFreed {
            return self.freed(now, frame, shared, out);
        }
        let harvest = self.harvest.as_mut()?;
        match harvest.take(now, frame, self.table.mapped(), shared)? {
            Progress::Asking => {}
            Progress::Read => self.commit(now, shared, events, out),
            Progress::Wiped => {
                self.harvest = None;
                self.proceed(now, shared, events);
            }
        }
        Some(())
    }

    /// Registers and record are there: makes both the server's in one step, and says so.
    fn commit(&mut self, now: Instant, shared: &mut Shared, events: &mut Events, out: &mut impl Outbox) {
        let Some(harvest) = self.harvest.as_mut() else { return };
        let version = harvest.version();
        let (registers, record) = harvest.commit(now);
        if mutant::on(Mutant::EvictAtOnce) {
            self.evictions.apply(version, &mut self.table);
        }
        self.table.commit(&registers, &self.evictions);
        self.evictions.apply(version, &mut self.table);
        self.version = version;
        self.evictions.choose(now, version, &self.table);
        self.record = record;
        self.committed += 1;
        self.left.0 = false;
        for (id, keys) in std::mem::take(&mut self.reading) {
            events.push_back(Event::Answered(id, self.collect(keys)));
        }
        self.announce(None, shared, out);
    }

    /// A caller wants its generations committed.
    pub(in super::super) fn flush(
        &mut self,
        now: Instant,
        frame: &MapFrame<&[u8]>,
        shared: &mut Shared,
        events: &mut Events,
        out: &mut impl Outbox,
    ) -> Option<()> {
        if frame.base().epoch() != shared.config.epoch {
            return None;
        }
        let generation = frame.base().round();
        if generation <= self.committed {
            self.announce(Some(frame.base().src()), shared, out);
        } else {
            // The element is at most two ahead: one open, one being wiped.
            self.wanted = self.wanted.max(generation.min(self.committed + 2));
            self.proceed(now, shared, events);
        }
        Some(())
    }

    /// A caller has repeated all that an ended epoch had of it. That it leaves nothing behind holds whatever
    /// epoch it knows of: in a later one it has done nothing.
    pub(in super::super) fn settled(
        &mut self,
        now: Instant,
        frame: &MapFrame<&[u8]>,
        shared: &mut Shared,
        events: &mut Events,
        out: &mut impl Outbox,
    ) -> Option<()> {
        let (name, _) = meet(frame, shared)?;
        let (epoch, leaves) = (shared.config.epoch, frame.map().has(MapFlags::CLEAR));
        if let Some(state) = shared.members.get_mut(&name.endpoint) {
            state.clean |= leaves;
            state.settled |= leaves || state.ended.is_none() && frame.base().epoch() == epoch;
            self.reopen = true;
        }
        shared.acknowledge(frame, out)?;
        self.proceed(now, shared, events);
        Some(())
    }

    /// Says up to where generations are committed: to one caller, or to all that the element knows.
    fn announce(&self, to: Option<u32>, shared: &mut Shared, out: &mut impl Outbox) {
        let mut base = shared.base(Kind::MapCommit, if to.is_none() { Flags::MCAST } else { 0 });
        base.round = self.committed + u32::from(mutant::on(Mutant::CommitTooSoon));
        if let Some(state) = to.and_then(|endpoint| shared.members.get(&endpoint)) {
            (base.dst, base.dst_incarnation) = (state.member.endpoint, state.member.incarnation);
        }
        let map = MapRepr { flags: MapFlags::BARE, ..MapRepr::default() };
        let len = frame_len(map.flags, 0, 0);
        emit(&base, &map, &mut shared.scratch[..len]);
        match to {
            None => shared.send_by_element(None, len, out),
            Some(endpoint) => shared.send(Dest::Endpoint(endpoint), len, out),
        }
    }

    pub(in super::super) fn poll(
        &mut self,
        now: Instant,
        shared: &mut Shared,
        out: &mut impl Outbox,
        events: &mut Events,
    ) {
        self.poll_leases(now, shared);
        self.poll_freeing(now, shared, out, events);
        self.poll_lines(now, shared, out, events);
        if std::mem::take(&mut self.complete) {
            self.commit(now, shared, events, out);
        }
        self.evictions.pass(now);
        if self.change_due(shared).is_some_and(|due| due <= now) {
            self.proceed(now, shared, events);
        }
        let Some(harvest) = self.harvest.as_mut() else { return };
        if harvest.poll(now, shared, out) {
            return;
        }
        // What the element holds is not lost as long as its callers are there: without it they
        // repeat it.
        self.harvest = None;
        self.waiting.splice(..0, self.reading.drain(..));
        events.push_back(Event::ElementSilent);
    }

    pub(in super::super) fn deadline(&self, shared: &Shared) -> Option<Instant> {
        let deadlines = [
            self.harvest.as_ref().map(Harvest::deadline).or_else(|| self.change_due(shared)),
            self.freeing.deadline(),
            self.leases.deadline(),
            self.lines.deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// The values of these keys, or of all that were ever added to.
    fn collect(&self, keys: Option<Vec<Key>>) -> Values {
        if let Some(reason) = self.lost {
            return Err(CallError::DataLoss { reason });
        }
        let overflow = |position| CallError::Overflow { position };
        let Some(keys) = keys else {
            let all = self.table.iter().enumerate();
            return all.map(|(i, (key, state))| Ok((key.clone(), state.value().ok_or(overflow(i))?))).collect();
        };
        let value = |(i, key): (usize, Key)| {
            let value = self.table.get(key.as_bytes()).map_or(Some(0), |state| state.value());
            Ok((key, value.ok_or(overflow(i))?))
        };
        keys.into_iter().enumerate().map(value).collect()
    }
}
