//! Queries, and the harvests that their answers need.
//!
//! The answer to a query consists of the bases at the commit of a generation that was closed after the query arrived.
//! So it contains all additions acknowledged before. After a change of epoch, a query also waits until all callers have
//! repeated their lost additions.

use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{Flags, FrameKind, Instant, MapFlags, MapFrame, MapRepr, Mutant, mutant};

use super::super::super::{CallError, Dest, FrameSink, Key};
use super::super::{EndedEpoch, Event, Events, Leftover, OwnerContext, QueryId, QueryResult, ServerConfig};
use super::harvest::{Harvest, Progress};
use super::{KeyedStore, classify, register_capacity};

impl KeyedStore {
    pub(in super::super) fn query(
        &mut self,
        now: Instant,
        id: QueryId,
        keys: Option<Vec<Key>>,
        shared: &OwnerContext,
        events: &mut Events,
    ) {
        let queue = if mutant::on(Mutant::QueryFromOlderReading) && self.harvest.is_some() {
            &mut self.harvest_queries
        } else {
            &mut self.waiting_queries
        };
        queue.push((id, keys));
        self.advance(now, shared, events);
    }

    /// Removes a caller and frees its locks.
    pub(in super::super) fn leave(
        &mut self,
        now: Instant,
        endpoint: u32,
        left: Leftover,
        shared: &OwnerContext,
        events: &mut Events,
    ) {
        self.refused.retain(|(owner, ..), _| *owner != endpoint);
        self.leases.remove(endpoint);
        self.reads.remove_caller(endpoint);
        self.release_all(endpoint);
        self.recheck_locks = true;
        self.departed.1 |= left == Leftover::Uncommitted;
        self.changed.note_meta();
        self.harvest_complete |= self.harvest.as_mut().is_some_and(|harvest| harvest.remove_caller(now, endpoint));
        if left == Leftover::Unsettled && shared.config.mapping && !shared.config.acked {
            self.loss_reason = Some("a caller left before it could repeat its uncommitted additions");
        }
        self.advance(now, shared, events);
    }

    /// Applies a change of epoch; `config` is the new configuration.
    pub(in super::super) fn renew(
        &mut self,
        now: Instant,
        reason: &'static str,
        config: &ServerConfig,
        shared: &mut OwnerContext,
        events: &mut Events,
    ) {
        let mapping = shared.config.mapping && !shared.config.acked;
        if mapping && self.table.mapped() > 0 && (self.departed.0 || self.departed.1) {
            self.loss_reason = Some(reason);
        }
        for (endpoint, state) in shared.members.iter_mut().filter(|(_, state)| state.ended.is_none()) {
            let known = |_: &_| !mutant::on(Mutant::RecordIgnored);
            let applied = self.record.remove(endpoint).filter(known).unwrap_or_default();
            let committed = if mutant::on(Mutant::CommitsForgotten) { 0 } else { self.committed };
            state.ended = Some(EndedEpoch { epoch: shared.previous_epoch, committed, applied });
            state.settled &= !state.member.element || state.clean;
        }
        self.table.reset_mapping(register_capacity(config));
        self.evictions.reset();
        self.reads.end_epoch();
        self.abort_reclaim();
        self.lock_queues.renew();
        self.recheck_locks = true;
        self.record.clear();
        (self.harvest, self.harvest_complete) = (None, false);
        self.waiting_queries.splice(..0, self.harvest_queries.drain(..));
        (self.version, self.committed, self.commit_requested, self.departed) = (0, 0, 0, (false, false));
        self.advance(now, shared, events);
    }

    /// Answers possible queries, and starts the next harvest if necessary.
    pub(in super::super) fn advance(&mut self, now: Instant, shared: &OwnerContext, events: &mut Events) {
        let held_by_element = self.is_partly_in_element(shared);
        let settled = shared.all_settled() || mutant::on(Mutant::QueryUnsettled);
        if settled && (self.loss_reason.is_some() || !held_by_element) {
            for (id, keys) in std::mem::take(&mut self.waiting_queries) {
                events.push_back(Event::Answered(id, self.collect(keys)));
            }
        }
        let asked = settled && !self.waiting_queries.is_empty();
        let change = self.change_due(shared).is_some_and(|due| due <= now);
        let read = settled && self.reads.wants_harvest(self.harvest_count);
        let wanted = asked || change || read || self.commit_requested > self.committed || self.departed.1;
        if self.harvest.is_some() || !held_by_element || !wanted {
            return;
        }
        if asked {
            self.harvest_queries = std::mem::take(&mut self.waiting_queries);
        }
        self.departed = (self.departed.0 || self.departed.1, false);
        self.harvest_count += 1;
        let mapping = self.evictions.next(self.version);
        self.harvest = Some(Harvest::new(self.committed + 1, mapping, self.harvest_count, now, self.timing));
    }

    /// Whether the element may hold a part of the values.
    pub(super) fn is_partly_in_element(&self, shared: &OwnerContext) -> bool {
        shared.config.mapping && shared.config.grant.is_some() && self.table.mapped() > 0
    }

    /// Time of the next harvest for a mapping change.
    fn change_due(&self, shared: &OwnerContext) -> Option<Instant> {
        self.evictions.due().filter(|_| self.is_partly_in_element(shared))
    }

    /// Handles an answer of the element.
    pub(in super::super) fn on_element_answer(
        &mut self,
        now: Instant,
        frame: &MapFrame<&[u8]>,
        shared: &mut OwnerContext,
        events: &mut Events,
        out: &mut impl FrameSink,
    ) -> Option<()> {
        if frame.kind() == FrameKind::MapFreed {
            return self.on_freed(now, frame, shared, out);
        }
        let harvest = self.harvest.as_mut()?;
        let was_closed = harvest.is_closed();
        let progress = harvest.take(now, frame, self.table.mapped(), shared)?;
        if harvest.is_closed() && !was_closed {
            self.reads.on_closed();
        }
        match progress {
            Progress::Asking => {}
            Progress::Read => self.commit(now, shared, events, out),
            Progress::Wiped => {
                self.harvest = None;
                self.advance(now, shared, events);
            }
        }
        Some(())
    }

    /// Commits registers and record in one step, and announces the commit.
    fn commit(&mut self, now: Instant, shared: &mut OwnerContext, events: &mut Events, out: &mut impl FrameSink) {
        let Some(harvest) = self.harvest.as_mut() else { return };
        let version = harvest.version();
        self.reads.on_committed(harvest.number());
        let (registers, record) = harvest.commit(now);
        if mutant::on(Mutant::EvictAtOnce) {
            self.evictions.apply(version, &mut self.table);
        }
        self.table.commit(&registers, &self.evictions);
        let used = self.table.owners().iter().zip(&registers).filter(|(_, register)| **register != 0);
        used.for_each(|(owner, _)| self.changed.note(*owner));
        self.changed.note_commit();
        self.evictions.apply(version, &mut self.table);
        self.version = version;
        self.evictions.choose_change(now, version, &self.table);
        self.record = record;
        self.committed += 1;
        self.departed.0 = false;
        for (id, keys) in std::mem::take(&mut self.harvest_queries) {
            events.push_back(Event::Answered(id, self.collect(keys)));
        }
        self.announce(None, shared, out);
    }

    /// Handles a commit request of a caller.
    pub(in super::super) fn on_flush(
        &mut self,
        now: Instant,
        frame: &MapFrame<&[u8]>,
        shared: &mut OwnerContext,
        events: &mut Events,
        out: &mut impl FrameSink,
    ) -> Option<()> {
        if frame.base().epoch() != shared.config.epoch {
            return None;
        }
        let generation = frame.base().round();
        if generation <= self.committed {
            self.announce(Some(frame.base().src()), shared, out);
        } else {
            // The element is at most two generations ahead: one open, one being cleared.
            self.commit_requested = self.commit_requested.max(generation.min(self.committed + 2));
            self.advance(now, shared, events);
        }
        Some(())
    }

    /// Handles the notice that a caller has repeated its lost additions. The notice that nothing of the caller remains
    /// is valid for any epoch, since the caller has sent nothing in a later one.
    pub(in super::super) fn on_settled(
        &mut self,
        now: Instant,
        frame: &MapFrame<&[u8]>,
        shared: &mut OwnerContext,
        events: &mut Events,
        out: &mut impl FrameSink,
    ) -> Option<()> {
        let (frame_id, _) = classify(frame, shared)?;
        let (epoch, leaves) = (shared.config.epoch, frame.map().has(MapFlags::CLEAR));
        if let Some(state) = shared.members.get_mut(&frame_id.endpoint) {
            state.clean |= leaves;
            let has_heard = leaves || state.ended.is_none() && frame.base().epoch() == epoch;
            state.settled |= has_heard;
            if has_heard || state.settled && mutant::on(Mutant::NoticeHeardEarly) {
                // Of all ended epochs. A notice of an earlier epoch may arrive late, and says nothing of the last one.
                state.told.clear();
            }
            shared.changes.note_member(frame_id.endpoint);
            self.recheck_locks = true;
            self.reads.note_change();
        }
        if shared.all_settled() {
            self.reads.on_all_settled();
        }
        shared.acknowledge(frame, out)?;
        self.advance(now, shared, events);
        Some(())
    }

    /// Announces the last committed generation, to one caller or to all that the element admits.
    fn announce(&self, to: Option<u32>, shared: &mut OwnerContext, out: &mut impl FrameSink) {
        let mut base = shared.base(FrameKind::MapCommit, if to.is_none() { Flags::MCAST } else { 0 });
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
        shared: &mut OwnerContext,
        out: &mut impl FrameSink,
        events: &mut Events,
    ) {
        self.poll_leases(now, shared);
        self.poll_reclaim(now, shared, out, events);
        self.poll_lock_queues(now, shared, out, events);
        if self.poll_reads(now, shared, out) {
            events.push_back(Event::ReadsEnded);
        }
        if self.harvest.is_none() && self.reads.wants_harvest(self.harvest_count) {
            self.advance(now, shared, events);
        }
        if std::mem::take(&mut self.harvest_complete) {
            self.commit(now, shared, events, out);
        }
        self.evictions.end_idle_window(now);
        if self.change_due(shared).is_some_and(|due| due <= now) {
            self.advance(now, shared, events);
        }
        let Some(harvest) = self.harvest.as_mut() else { return };
        if harvest.poll(now, shared, out) {
            return;
        }
        // The callers repeat uncommitted values, so nothing is lost.
        self.harvest = None;
        self.waiting_queries.splice(..0, self.harvest_queries.drain(..));
        events.push_back(Event::ElementSilent);
    }

    pub(in super::super) fn deadline(&self, shared: &OwnerContext) -> Option<Instant> {
        let deadlines = [
            self.harvest.as_ref().map(Harvest::deadline).or_else(|| self.change_due(shared)),
            self.reclaim.deadline(),
            self.leases.deadline(),
            self.reads.deadline(),
            self.lock_queues.deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// Values of these keys, or of all keys.
    fn collect(&self, keys: Option<Vec<Key>>) -> QueryResult {
        if let Some(reason) = self.loss_reason {
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
