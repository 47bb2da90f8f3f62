//! Reads of keys by callers that combine the base with the key's register in the element.
//!
//! ```text
//! read ─► server: lends the base of generation g ─► caller ─► element: register of g ─► caller: base + register
//!                     addition in software ─► waits ─► g is closed, or the lease has ended ─► base changes
//! ```
//!
//! The base of a generation contains all earlier generations. The element's answer names the open generation, so a base
//! of another one has no effect. While a base is lent, it must not change: an addition in software waits until the
//! element has closed the generation. After that no caller can use the base any more. If the epoch ends, the lease
//! limits this time. A caller that reads [recent](pathcall_wire::policy::ReadMode::Recent) values borrows nothing.

use std::collections::BTreeMap;

use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::pairs::{self, ANSWER_LEN, MAX_ENTRIES, PairAnswer, PairStatus};
use pathcall_wire::{BaseRepr, Flags, FrameKind, Instant, MapFlags, MapFrame, MapRepr, Mutant, mutant};

use super::super::super::lease::READ_LEASE;
use super::super::super::{Dest, FrameSink};
use super::super::OwnerContext;
use super::table::KeyTable;
use super::{KeyedStore, count_entries};
use crate::tables::SeededHashMap;

/// Maximum number of waiting frames; further ones are dropped, and their callers repeat them.
const WAITING_MAX: usize = 1 << 12;

/// Answer to a read of a key that is not possible yet.
const LATER: PairAnswer = PairAnswer { status: PairStatus::Denied, lane: 0, row: 0, value: 0 };

/// Lent bases, and frames that wait.
#[derive(Default)]
pub(super) struct Reads {
    /// Keys whose bases are lent in the open generation, with the end of the lease.
    lent: SeededHashMap<u32, Instant>,
    /// The same in ended epochs.
    ended: SeededHashMap<u32, Instant>,
    /// Time until which every base counts as lent: a former owner may have lent it.
    all_until: Option<Instant>,
    /// Reads and additions that wait, by endpoint, flow and sequence number.
    waiting: BTreeMap<(u32, u32, u32), WaitingFrame>,
    /// Whether an addition waits for the close of the generation.
    wants_close: bool,
    /// Whether to try the waiting frames again at the next poll, and the time to try them again at the latest.
    retry: bool,
    retry_at: Option<Instant>,
    /// Whether an addition that is no frame waits for the event.
    tells_end: bool,
    /// Number of the last committed harvest.
    committed_harvest: u32,
}

/// Frame that waits.
struct WaitingFrame {
    bytes: Box<[u8]>,
    /// Number of the harvest whose commit a read waits for; 0 for other frames.
    harvest: u32,
}

impl Reads {
    /// Records that the element has closed the generation, so no lent base of it is used any more.
    pub(super) fn on_closed(&mut self) {
        self.lent.clear();
        self.wants_close = false;
        self.retry = true;
    }

    /// Records the commit of a harvest.
    pub(super) fn on_committed(&mut self, harvest: u32) {
        self.committed_harvest = harvest;
        self.retry = true;
    }

    /// Records a change after which waiting frames may be possible.
    pub(super) fn note_change(&mut self) {
        self.retry = true;
    }

    /// Records the end of the epoch: callers may use its bases until they learn of it.
    pub(super) fn end_epoch(&mut self) {
        self.ended.extend(self.lent.drain());
        self.waiting.values_mut().for_each(|frame| frame.harvest = 0);
        (self.wants_close, self.retry) = (false, true);
    }

    /// Records that all callers know of the ends of epochs.
    pub(super) fn on_all_settled(&mut self) {
        self.ended.clear();
        self.all_until = None;
    }

    /// Records that a former owner may have lent all bases until now.
    pub(super) fn lend_all(&mut self, now: Instant) {
        self.all_until = Some(now + READ_LEASE);
    }

    /// Removes the waiting frames of a caller.
    pub(super) fn remove_caller(&mut self, endpoint: u32) {
        self.waiting.retain(|(of, ..), _| *of != endpoint);
        self.retry = true;
    }

    /// Whether a harvest is wanted that begins after the one with this number.
    pub(super) fn wants_harvest(&self, latest: u32) -> bool {
        self.wants_close || self.waiting.values().any(|frame| frame.harvest > latest)
    }

    /// Whether a read waits for the commit of this harvest.
    fn has_reads_of(&self, harvest: u32) -> bool {
        self.waiting.values().any(|frame| frame.harvest != 0 && frame.harvest <= harvest)
    }

    /// Whether a base is lent; then records what has to happen before it can change.
    fn is_lent(&mut self, now: Instant, id: u32) -> bool {
        if mutant::on(Mutant::ReadUnclaimed) {
            return false;
        }
        let until = |lent: &SeededHashMap<u32, Instant>| lent.get(&id).copied().filter(|until| *until > now);
        let open = until(&self.lent);
        self.wants_close |= open.is_some();
        let later = [open, until(&self.ended), self.all_until.filter(|until| *until > now)];
        let Some(last) = later.into_iter().flatten().max() else { return false };
        self.wake_by(last);
        true
    }

    fn wake_by(&mut self, at: Instant) {
        self.retry_at = Some(self.retry_at.map_or(at, |earlier| earlier.min(at)));
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Forgets leases that have ended.
    fn expire(&mut self, now: Instant) {
        self.ended.retain(|_, until| *until > now);
        self.all_until = self.all_until.filter(|until| *until > now);
    }
}

impl KeyedStore {
    /// Whether an addition to one of these keys must wait because their values are being read in the element.
    /// Then the end of the reads is an event.
    pub(in super::super) fn must_wait<'a>(&mut self, now: Instant, keys: impl Iterator<Item = &'a [u8]>) -> bool {
        let read = self.is_read(now, keys);
        self.reads.tells_end |= read;
        read
    }

    fn is_read<'a>(&mut self, now: Instant, keys: impl Iterator<Item = &'a [u8]>) -> bool {
        let ids: Vec<u32> = keys.filter_map(|key| self.table.id(key)).collect();
        ids.into_iter().any(|id| self.is_base_in_use(now, id))
    }

    /// Whether a base must not change now: it is lent, or a harvest makes it a part of the answer to a read.
    fn is_base_in_use(&mut self, now: Instant, id: u32) -> bool {
        let harvested = self.harvest.as_ref().is_some_and(|harvest| !harvest.is_committed())
            && self.table.state(id).is_mapped()
            && self.reads.has_reads_of(self.harvest_count);
        self.reads.is_lent(now, id) || harvested
    }

    /// Executes a frame that bypasses the element, unless it has to wait for reads.
    pub(in super::super) fn on_past_element(
        &mut self,
        now: Instant,
        frame: &MapFrame<&[u8]>,
        shared: &mut OwnerContext,
        out: &mut impl FrameSink,
    ) -> Option<()> {
        let is_whole = frame.kind() == FrameKind::MapPairs;
        let (map, changes) = (frame.map(), MapFlags::ADD | MapFlags::COUNT | MapFlags::CLEAR);
        if is_whole && map.has(MapFlags::GET) && map.flags() & changes == 0 {
            return self.on_read(now, frame, shared, out);
        }
        if map.has(MapFlags::ADD) && self.holds_addition(now, frame, shared, out) {
            return Some(());
        }
        if is_whole { self.on_pairs(frame, shared, out) } else { self.on_logical(frame, shared, out) }
    }

    /// Lets an addition wait if it changes the value of a key that is being read. Returns whether it waits.
    fn holds_addition(
        &mut self,
        now: Instant,
        frame: &MapFrame<&[u8]>,
        shared: &mut OwnerContext,
        out: &mut impl FrameSink,
    ) -> bool {
        let read = if frame.kind() == FrameKind::MapPairs {
            self.is_read(now, pairs::entries(frame.payload()).map(|(key, _)| key))
        } else {
            let marked = (0..frame.lane_count()).filter(|lane| frame.marked(*lane));
            let addresses: Vec<u32> = marked.filter_map(|lane| Some(frame.keyed(lane)?.0)).collect();
            let ids: Vec<u32> = addresses.into_iter().filter_map(|at| Some(self.table.by_logical(at)?.id)).collect();
            ids.into_iter().any(|id| self.is_base_in_use(now, id))
        };
        if read {
            self.wait(frame, 0, shared, out);
        }
        read
    }

    /// Keeps a frame until it is possible, and tells its caller.
    fn wait(
        &mut self,
        frame: &MapFrame<&[u8]>,
        harvest: u32,
        shared: &mut OwnerContext,
        out: &mut impl FrameSink,
    ) -> Option<()> {
        let base = frame.base();
        let place = (base.src(), base.slot(), base.seq());
        if self.reads.waiting.len() < WAITING_MAX {
            let first = WaitingFrame { bytes: frame.as_bytes().into(), harvest };
            self.reads.waiting.entry(place).or_insert(first).harvest = harvest;
        }
        shared.answer_held(frame, out)
    }

    /// Answers a read of whole keys, lends bases for a read in the element, or lets the frame wait.
    fn on_read(
        &mut self,
        now: Instant,
        frame: &MapFrame<&[u8]>,
        shared: &mut OwnerContext,
        out: &mut impl FrameSink,
    ) -> Option<()> {
        let (base, map) = (frame.base(), frame.map());
        let by_element = shared.members.get(&base.src())?.member.element;
        let count = count_entries(frame).filter(|_| base.has(Flags::CROSS))?;
        let settled = shared.all_settled() || mutant::on(Mutant::ReadUnsettled);
        let in_element = self.is_partly_in_element(shared) && self.loss_reason.is_none();
        let is_mapped = |table: &KeyTable, key| table.get(key).is_some_and(|state| state.is_mapped());
        let mapped =
            settled && in_element && pairs::entries(frame.payload()).any(|(key, _)| is_mapped(&self.table, key));
        let lends = by_element && !shared.config.acked && !map.has(MapFlags::WAIT);
        let uncommitted = self.harvest.as_ref().is_some_and(|harvest| !harvest.is_committed());
        if mapped && lends && uncommitted && !mutant::on(Mutant::ReadInHarvest) {
            return self.wait(frame, 0, shared, out);
        }
        if mapped && !lends && !mutant::on(Mutant::ReadUnharvested) {
            let place = (base.src(), base.slot(), base.seq());
            let asked = self.reads.waiting.get(&place).map_or(0, |frame| frame.harvest);
            let harvest = if asked == 0 { self.harvest_count + 1 } else { asked };
            if self.reads.committed_harvest < harvest {
                return self.wait(frame, harvest, shared, out);
            }
        }
        self.reads.waiting.remove(&(base.src(), base.slot(), base.seq()));
        let mut answers = [0; MAX_ENTRIES * ANSWER_LEN];
        let mut rest = &mut answers[..];
        for (key, _) in pairs::entries(frame.payload()) {
            // A waiting read would take the room of the notice that it waits for.
            let later = !settled && self.loss_reason.is_none();
            let answer = if later { LATER } else { self.read(now, key, in_element && lends, map.has(MapFlags::CLAIM)) };
            rest = pairs::put_answer(rest, &answer)?;
        }
        let base = BaseRepr { round: self.version, ..shared.answer(FrameKind::MapPairsAck, frame) };
        let payload = count * ANSWER_LEN;
        // The bases contain all generations before this one.
        let index = self.committed + 1 + u32::from(uncommitted && mutant::on(Mutant::ReadInHarvest));
        let repr = MapRepr { flags: MapFlags::BARE, index, payload_len: payload as u16, ..MapRepr::default() };
        let len = frame_len(repr.flags, 0, payload);
        emit(&base, &repr, shared.scratch.get_mut(..len)?).payload_mut().copy_from_slice(&answers[..payload]);
        shared.send(Dest::Endpoint(base.dst), len, out);
        Some(())
    }

    /// Value of a key; or its base, lent to the caller, if it has a register and `lends`.
    fn read(&mut self, now: Instant, key: &[u8], lends: bool, claims: bool) -> PairAnswer {
        let nothing = PairAnswer { status: PairStatus::Whole, lane: 0, row: 0, value: 0 };
        if self.loss_reason.is_some() {
            return PairAnswer { status: PairStatus::Moved, ..nothing };
        }
        let Some(state) = self.table.get(key) else { return nothing };
        let Some(value) = state.value() else { return PairAnswer { status: PairStatus::Overflow, ..nothing } };
        if !(lends && state.is_mapped()) {
            return PairAnswer { value, ..nothing };
        }
        let (lane, row) = state.position();
        if claims {
            self.reads.lent.insert(state.id, now + READ_LEASE);
        }
        PairAnswer { status: PairStatus::Mapped, lane, row, value }
    }

    /// Tries the waiting frames again, if something has changed. Returns whether to tell the end of reads.
    pub(super) fn poll_reads(&mut self, now: Instant, shared: &mut OwnerContext, out: &mut impl FrameSink) -> bool {
        let due = self.reads.retry_at.is_some_and(|at| at <= now);
        if !std::mem::take(&mut self.reads.retry) && !due {
            return false;
        }
        self.reads.retry_at = None;
        self.reads.expire(now);
        let again: Vec<Box<[u8]>> = self.reads.waiting.values().map(|frame| frame.bytes.clone()).collect();
        for bytes in &again {
            let Ok(frame) = MapFrame::new_checked(&bytes[..]) else { continue };
            let base = frame.base();
            let place = (base.src(), base.slot(), base.seq());
            let known = shared.members.get(&base.src()).map(|state| state.member.incarnation);
            if known != Some(base.src_incarnation()) {
                self.reads.waiting.remove(&place);
            } else {
                if frame.map().has(MapFlags::ADD) {
                    self.reads.waiting.remove(&place);
                }
                self.on_past_element(now, &frame, shared, out);
            }
        }
        std::mem::take(&mut self.reads.tells_end)
    }
}
