//! Rounds of SyncAgtr: sums from the element, or made here; a backup of each row's last round.

mod row;
mod say;

use std::collections::VecDeque;
use std::time::Duration;

use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{Flags, Instant, Kind, MAX_WORKERS, MapFlags, MapFrame, MapRepr, Mutant, mutant};

use super::super::lanes::any_saturated;
use super::super::{CallError, ClearPolicy, Dest, Outbox};
use super::{MapServer, MemberState, Shared};
use row::{Backup, Row};
use say::{announce, past_the_element, report, result};

/// Pause between announcements of a software round: a copy may have been lost.
const ANNOUNCE: Duration = Duration::from_millis(20);
/// Longest pause between reports that the application can't go on; the pause doubles up to it.
const REPORT_MAX: Duration = Duration::from_secs(1);
/// Announcements kept in line; a round beyond it is announced when a worker's frame asks again.
const MAX_ANNOUNCED: usize = 1 << 16;

/// Why some workers get no further sum ([`MemberState::failed`]). A report of it may be lost, and a worker that missed
/// it is held by the element for ever: it is repeated as long as there is such a one.
struct Failed {
    error: CallError,
    /// Whether a worker has joined anew since: who joins before that is one of those.
    begun_anew: bool,
    report_at: Instant,
    pause: Duration,
}

pub(super) struct SumTruth {
    rows: Vec<Row>,
    /// With clear policy *shadow* the server does not see the rounds that the element sums: what it has of a row may be
    /// of any round before. Chunks before this one are done.
    shadow: bool,
    floor: u64,
    /// Software rounds to be announced again: (when, row, round).
    announce: VecDeque<(Instant, u32, u32)>,
    failed: Option<Failed>,
}

impl SumTruth {
    pub(super) fn new(rows: u32, clear: ClearPolicy) -> Self {
        Self {
            rows: (0..rows).map(|_| Row::default()).collect(),
            shadow: clear == ClearPolicy::Shadow,
            floor: 0,
            announce: VecDeque::new(),
            failed: None,
        }
    }

    pub(super) fn rows(&self) -> u32 {
        self.rows.len() as u32
    }

    /// The first chunk that has no result: where a caller that joins starts.
    pub(super) fn first_open_chunk(&self) -> u64 {
        let rows = self.rows.len() as u64;
        let open = self.rows.iter().enumerate().map(|(row, state)| {
            let past = (self.floor + rows - 1).saturating_sub(row as u64) / rows.max(1);
            u64::from(state.backup.round).max(past) * rows + row as u64
        });
        open.min().unwrap_or(0)
    }

    /// With clear policy *shadow*: no worker lacks a chunk before this one; `None`: there is no worker, so none lacks
    /// anything.
    pub(super) fn stand(&mut self, oldest: Option<u64>) {
        let rows = self.rows.len() as u64;
        let last = self.rows.iter().map(|state| u64::from(state.backup.round)).max().unwrap_or(0);
        self.floor = self.floor.max(oldest.unwrap_or(last * rows));
    }

    /// The chunk of a row and round.
    pub(super) fn chunk(&self, row: u32, round: u32) -> Option<u64> {
        let rows = self.rows.len() as u64;
        (u64::from(row) < rows && round > 0).then(|| u64::from(round - 1) * rows + u64::from(row))
    }

    /// A worker's place has a new holder: every open round is summed here from nothing, whatever
    /// the last holder left in the element or here. Workers send again when they are told.
    ///
    /// The new holder begins with the oldest open round, and may ask for later ones that are complete.
    /// An element that started after those were would hold it: it takes them for open.
    pub(super) fn start_anew(&mut self, now: Instant, worker: u16, element: bool) {
        self.failed.iter_mut().for_each(|failed| failed.begun_anew = true);
        let (first, rows) = (self.first_open_chunk(), self.rows.len() as u64);
        for (row, state) in self.rows.iter_mut().enumerate() {
            let complete = u64::from(state.backup.round).checked_sub(1).map(|before| before * rows + row as u64);
            if complete.is_some_and(|chunk| element && chunk > first) {
                state.late |= 1 << worker;
                self.announce.push_back((now, row as u32, state.backup.round));
            }
            let begun = state.soft.as_ref().is_some_and(|soft| soft.lanes > 0);
            if element || state.soft.is_some() {
                state.soft = Some(Box::default());
            }
            if begun {
                self.announce.push_back((now, row as u32, state.backup.round + 1));
            }
        }
    }

    /// Whether a worker that joins now is one of those that have to join anew.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.as_ref().is_some_and(|failed| !failed.begun_anew)
    }

    /// A worker has left: nobody waits in its place for what it has missed.
    pub(super) fn leave(&mut self, worker: u16) {
        self.rows.iter_mut().for_each(|row| row.late &= !(1 << worker));
    }

    /// The element's registers are gone, or no longer ours: every open round is summed here. Callers
    /// send theirs again when they are told of the new epoch; but one that has not sent its part yet
    /// may send it by an element that there was none of when the others sent theirs.
    pub(super) fn renew(&mut self, now: Instant, element: bool) {
        self.announce.clear();
        for (row, state) in self.rows.iter_mut().enumerate() {
            if self.shadow {
                // Whoever still has its place sends again, and is announced then.
                state.soft = Some(Box::default());
            }
            let begun = state.soft.get_or_insert_default().lanes > 0;
            if begun && element && !mutant::on(Mutant::BegunUnannounced) {
                self.announce.push_back((now, row as u32, state.backup.round + 1));
            }
        }
    }

    /// A frame of a worker: a contribution, a whole sum from the element, or a late question.
    pub(super) fn contribution(
        &mut self,
        now: Instant,
        frame: &MapFrame<&[u8]>,
        shared: &mut Shared,
        out: &mut impl Outbox,
    ) -> Option<()> {
        let (base, map) = (frame.base(), frame.map());
        let MemberState { worker, failed, .. } = *shared.members.get(&base.src())?;
        let row = self.rows.get_mut(map.index() as usize)?;
        // Of a row that has had its last round there is no next one.
        let counted = (1..u32::MAX).contains(&base.round());
        let ours = map.has(MapFlags::ROUND | MapFlags::LINEAR) && counted && map.worker() == worker;
        if !ours || map.worker() as usize >= MAX_WORKERS {
            return None;
        }
        let round = base.round();
        if let Some(Failed { error, .. }) = self.failed.as_ref().filter(|_| failed && round != row.backup.round) {
            report(error, shared, out);
            return Some(());
        }
        if self.shadow && round > row.backup.round + 1 && !map.has(MapFlags::OLD) {
            // The element has summed the rounds between, and whoever sends this knows that all have them.
            *row = Row { backup: Backup { round: round - 1, ..Backup::default() }, ..Row::default() };
        }
        if round == row.backup.round {
            return self.late_question(now, frame, shared, out);
        }
        if round != row.backup.round + 1 || map.has(MapFlags::OLD) {
            return None;
        }
        // Sums of the element: by a worker, which has looked whether they can be used, or by itself.
        let by_worker = map.has(MapFlags::GET);
        if by_worker && !(self.shadow && base.has(Flags::CROSS)) {
            return None;
        }
        if by_worker && row.soft.as_ref().is_some_and(|soft| soft.lanes > 0 && soft.tag != map.tag()) {
            // Of a worker that began anew, and has no part in it.
            return self.fail(now, CallError::Disagree { round }, shared, out);
        }
        if by_worker || map.has(MapFlags::REACHED) && row.soft.is_none() {
            if map.has(MapFlags::WIDE) || map.has(MapFlags::BARE) {
                return None;
            }
            if by_worker || !any_saturated(frame.lanes()) || mutant::on(Mutant::SaturatedKept) {
                row.take(frame);
                shared.stats.rounds_element += 1;
                result(&row.backup, frame, None, shared, out);
                return Some(());
            }
        }
        if base.has(Flags::NOT_ADMITTED) && !base.has(Flags::CROSS) && !mutant::on(Mutant::BareSummed) {
            // Were it added here, the next copy might meet the element, which would hold it for ever.
            return past_the_element(frame, shared, out);
        }
        if map.has(MapFlags::REACHED) {
            // The element's sum can't be used; ask for the parts.
            row.soft.get_or_insert_default();
            announce(shared, map.index(), round, out);
            self.announce_again(now, map.index(), round);
            return Some(());
        }
        self.part(now, frame, shared, out)
    }

    /// A frame of the last round that is complete: whoever sends it lacks the result.
    fn late_question(
        &mut self,
        now: Instant,
        frame: &MapFrame<&[u8]>,
        shared: &mut Shared,
        out: &mut impl Outbox,
    ) -> Option<()> {
        let (base, map) = (frame.base(), frame.map());
        let row = self.rows.get_mut(map.index() as usize)?;
        if row.backup.bytes.is_empty() {
            return None;
        }
        if map.tag() != row.backup.tag && !mutant::on(Mutant::BackupForAnybody) {
            // Of a worker that began anew, and has no part in what its predecessor had a part in.
            return self.fail(now, CallError::Disagree { round: base.round() }, shared, out);
        }
        if mutant::on(Mutant::DropBackup) {
            return None;
        }
        row.late &= !(u64::from(base.has(Flags::CROSS)) << map.worker());
        let to = (!map.has(MapFlags::REACHED)).then_some(base.src());
        result(&row.backup, frame, to, shared, out);
        Some(())
    }

    /// A worker's own part of the open round, which is summed here.
    fn part(
        &mut self,
        now: Instant,
        frame: &MapFrame<&[u8]>,
        shared: &mut Shared,
        out: &mut impl Outbox,
    ) -> Option<()> {
        let (round, index) = (frame.base().round(), frame.map().index());
        let row = self.rows.get_mut(index as usize)?;
        let begun = row.soft.as_ref().is_some_and(|soft| soft.lanes > 0);
        let soft = row.soft.get_or_insert_default();
        match soft.add(frame, shared) {
            Ok(true) => {}
            Ok(false) => return None,
            Err(error) => {
                row.soft = None;
                return self.fail(now, error, shared, out);
            }
        }
        if soft.complete(shared.config.threshold) {
            row.close(round);
            shared.stats.rounds_software += 1;
            result(&row.backup, frame, None, shared, out);
            return Some(());
        }
        let by_element = shared.config.grant.is_some();
        if !begun && by_element {
            announce(shared, index, round, out);
        }
        // With clear policy *shadow* somebody may have the sums of an element that is gone.
        if !begun && (by_element || self.shadow) {
            self.announce_again(now, index, round);
        }
        let held = shared.answer(Kind::MapHeld, frame);
        let repr = MapRepr { flags: MapFlags::BARE, index, ..MapRepr::default() };
        let len = frame_len(repr.flags, 0, 0);
        emit(&held, &repr, &mut shared.scratch[..len]);
        shared.send(Dest::Endpoint(frame.base().src()), len, out);
        Some(())
    }

    /// Whoever is a worker now gets no further sum.
    fn fail(&mut self, now: Instant, error: CallError, shared: &mut Shared, out: &mut impl Outbox) -> Option<()> {
        self.all_fail(now, error, shared);
        self.poll(now, shared, out);
        Some(())
    }

    /// The same; they are told when it is polled next.
    pub(super) fn all_fail(&mut self, now: Instant, error: CallError, shared: &mut Shared) {
        shared.members.values_mut().for_each(|state| state.failed = true);
        self.failed = Some(Failed { error, begun_anew: false, report_at: now, pause: ANNOUNCE / 2 });
    }

    fn announce_again(&mut self, now: Instant, row: u32, round: u32) {
        if self.announce.len() < MAX_ANNOUNCED && !mutant::on(Mutant::AnnounceOnce) {
            self.announce.push_back((now + ANNOUNCE, row, round));
        }
    }

    pub(super) fn poll(&mut self, now: Instant, shared: &mut Shared, out: &mut impl Outbox) {
        while let Some((_, row, round)) = self.announce.front().copied().filter(|(at, ..)| *at <= now) {
            self.announce.pop_front();
            let state = &self.rows[row as usize];
            let (open, late) = (state.soft.is_some(), state.late != 0);
            if open && state.backup.round + 1 == round || late && state.backup.round == round {
                announce(shared, row, round, out);
                self.announce_again(now, row, round);
            }
        }
        if !shared.members.values().any(|state| state.failed) {
            self.failed = None;
        }
        if let Some(failed) = self.failed.as_mut().filter(|failed| failed.report_at <= now) {
            report(&failed.error, shared, out);
            failed.pause = (failed.pause * 2).min(REPORT_MAX);
            failed.report_at = now + failed.pause;
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let announce = self.announce.front().map(|(at, ..)| *at);
        [announce, self.failed.as_ref().map(|failed| failed.report_at)].into_iter().flatten().min()
    }
}

impl MapServer {
    /// A caller gives up a sum that its values count in, or may. Whoever is a worker now gets [`CallError::GivenUp`], and no
    /// further sum before it has joined anew: the next one of this caller would be of another step.
    pub fn give_up(&mut self, now: Instant, endpoint: u32, incarnation: u32) {
        let lives = |state: &MemberState| state.member.incarnation == incarnation;
        if self.shared.members.get(&endpoint).is_some_and(lives) && self.shared.config.threshold > 0 {
            self.sums.all_fail(now, CallError::GivenUp, &mut self.shared);
            self.end_epoch_of_sums();
        }
    }
}
