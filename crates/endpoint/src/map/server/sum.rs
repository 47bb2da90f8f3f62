//! SyncAgtr rounds at the owner: sums of the element or of the software path, and a backup of each row's last round.

use std::collections::VecDeque;
use std::time::Duration;

use pathcall_wire::{Flags, Instant, MAX_WORKERS, MapFlags, MapFrame, Mutant, mutant};

use super::super::chunks::ChunkNumbering;
use super::super::lanes::any_saturated;
use super::super::{CallError, ClearPolicy, FrameSink};
use super::frames::{announce_software_round, redirect_past_element, report_failure, send_result};
use super::reached::{ReachedSums, is_for_handler};
use super::round::{Backup, Row};
use super::{MemberState, OwnerContext};

/// Pause between announcements of a software round, which may be lost.
const ANNOUNCE: Duration = Duration::from_millis(20);
/// Maximum pause between failure reports; the pause doubles up to it.
const REPORT_MAX: Duration = Duration::from_secs(1);
/// Maximum number of queued announcements; further rounds are announced when a worker sends again.
const MAX_ANNOUNCED: usize = 1 << 16;
/// Maximum number of epochs whose numbering of chunks is known: callers may not have heard of the latest ones.
const NUMBERINGS_MAX: usize = 16;

/// Failure after which workers get no further sums ([`MemberState::failed`]). Its report is repeated until all these
/// workers have joined again, since the element would hold a worker that missed the report for ever.
struct ApplicationFailure {
    error: CallError,
    /// Whether a worker has joined again since. A caller that joins before that is one of the failed workers.
    has_rejoined_worker: bool,
    report_at: Instant,
    pause: Duration,
}

/// Rounds of all rows. The server counts rounds by its own rows, of which it has as many as the element may ever have;
/// with clear policy *lazy* twice as many, because one worker may be a round ahead of another. Rows and rounds of frames
/// follow the numbering of their epoch.
pub(super) struct SumStore {
    pub(super) rows: Vec<Row>,
    /// Sums for the handler.
    pub(super) reached: ReachedSums,
    /// Maximum number of rows in an epoch.
    rows_max: u32,
    /// Numbering of the chunks by epoch, the latest last.
    numberings: VecDeque<(u32, ChunkNumbering)>,
    /// Clear policy. Unless it is *copy*, the server does not see the element's rounds, so its backup of a row may be of
    /// any earlier round.
    clear: ClearPolicy,
    /// Chunks before this one are complete.
    floor: u64,
    /// Software rounds to announce: (time, row, round).
    announce: VecDeque<(Instant, u32, u32)>,
    failed: Option<ApplicationFailure>,
}

impl SumStore {
    /// `used`: number of rows in the first epoch, at most `rows_max`.
    pub(super) fn new(rows_max: u32, (epoch, used): (u32, u32), clear: ClearPolicy) -> Self {
        let is_doubled = clear == ClearPolicy::Lazy && !mutant::on(Mutant::LazyHalved);
        Self {
            rows: (0..if is_doubled { rows_max * 2 } else { rows_max }).map(|_| Row::default()).collect(),
            reached: ReachedSums::default(),
            rows_max,
            numberings: [(epoch, ChunkNumbering::new(used))].into(),
            clear,
            floor: 0,
            announce: VecDeque::new(),
            failed: None,
        }
    }

    /// Number of rows in this epoch; 0 without sums.
    pub(super) fn rows(&self) -> u32 {
        if self.rows.is_empty() { 0 } else { self.numbering().rows() }
    }

    fn numbering(&self) -> ChunkNumbering {
        self.numberings.back().map_or(ChunkNumbering::new(0), |(_, numbering)| *numbering)
    }

    /// Own numbering of the chunks.
    pub(super) fn own_numbering(&self) -> ChunkNumbering {
        ChunkNumbering::new(self.rows.len() as u32)
    }

    /// Row and round of this epoch for an own row and round.
    pub(super) fn position(&self, row: u32, round: u32) -> (u32, u32) {
        let chunk = self.own_numbering().chunk(row, round);
        chunk.map_or((row, round), |chunk| self.numbering().position(chunk))
    }

    /// Begins an epoch in which the element has `grant` rows; `None`: there is no element, and the maximum is used. The
    /// numbering of an epoch does not change. Returns whether the element has enough rows.
    pub(super) fn begin_epoch(&mut self, epoch: u32, grant: Option<u32>) -> bool {
        if self.rows.is_empty() {
            return true;
        }
        let all = self.rows_max;
        let known = self.numberings.iter().find(|(of, _)| *of == epoch).map(|(_, numbering)| *numbering);
        let numbering = known.unwrap_or_else(|| ChunkNumbering::new(grant.map_or(all, |rows| rows.min(all))));
        self.numberings.retain(|(of, _)| *of != epoch);
        if self.numberings.len() == NUMBERINGS_MAX {
            self.numberings.pop_front();
        }
        self.numberings.push_back((epoch, numbering));
        grant.is_none_or(|rows| rows >= numbering.rows())
    }

    /// First chunk without a result: start chunk of a joining caller.
    pub(super) fn first_open_chunk(&self) -> u64 {
        let rows = self.rows.len() as u64;
        let open = self.rows.iter().enumerate().map(|(row, state)| {
            let past = (self.floor + rows - 1).saturating_sub(row as u64) / rows.max(1);
            u64::from(state.backup.round).max(past) * rows + row as u64
        });
        open.min().unwrap_or(0)
    }

    /// Records that no worker misses a chunk before `oldest` (not with clear policy *copy*); `None` if there are no
    /// workers.
    pub(super) fn set_floor(&mut self, oldest: Option<u64>) {
        let rows = self.rows.len() as u64;
        let last = self.rows.iter().map(|state| u64::from(state.backup.round)).max().unwrap_or(0);
        self.floor = self.floor.max(oldest.unwrap_or(last * rows));
    }

    /// Chunk of a row and round in an epoch.
    pub(super) fn chunk(&self, epoch: u32, row: u32, round: u32) -> Option<u64> {
        let numbering = self.numberings.iter().rfind(|(of, _)| *of == epoch || mutant::on(Mutant::RowsOfLaterEpoch))?.1;
        numbering.chunk(row, round)
    }

    /// Restarts all open rounds in software from zero when a worker index has a new holder, so that contributions of
    /// the previous holder do not count. Workers send again after the announcement.
    ///
    /// The new holder starts with the oldest open round, and may send frames for later complete rounds. An element that
    /// restarted since treats these rounds as open and would hold the frames, so the server announces them.
    pub(super) fn reset_worker(&mut self, now: Instant, worker: u16, element: bool) {
        self.failed.iter_mut().for_each(|failed| failed.has_rejoined_worker = true);
        let (first, rows) = (self.first_open_chunk(), self.rows.len() as u64);
        for (row, state) in self.rows.iter_mut().enumerate() {
            let complete = u64::from(state.backup.round).checked_sub(1).map(|before| before * rows + row as u64);
            if complete.is_some_and(|chunk| element && chunk > first) {
                state.late_workers |= 1 << worker;
                self.announce.push_back((now, row as u32, state.backup.round));
            }
            if let Some(reached) = state.reached.as_mut().filter(|_| !mutant::on(Mutant::ReachedReopened)) {
                reached.note_joined(worker);
                continue;
            }
            state.reached = None;
            let begun = state.software.as_ref().is_some_and(|soft| soft.lanes > 0);
            if element || state.software.is_some() {
                state.software = Some(Box::default());
            }
            if begun {
                self.announce.push_back((now, row as u32, state.backup.round + 1));
            }
        }
    }

    /// Whether a worker that joins now must join again.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.as_ref().is_some_and(|failed| !failed.has_rejoined_worker)
    }

    /// Removes a worker: it needs no missed results.
    pub(super) fn leave(&mut self, worker: u16) {
        self.rows.iter_mut().for_each(|row| row.late_workers &= !(1 << worker));
    }

    /// Applies a change of epoch: the server sums all open rounds. Callers resend their contributions on the notice of
    /// the new epoch; but a caller that has not sent its contribution yet may send it to a new element, so the server
    /// announces the rounds.
    pub(super) fn renew(&mut self, now: Instant, element: bool) {
        self.announce.clear();
        for (row, state) in self.rows.iter_mut().enumerate().filter(|(_, state)| state.reached.is_none()) {
            if self.clear.is_by_element() {
                // Workers send again, and the round is announced then.
                state.software = Some(Box::default());
            }
            let begun = state.software.get_or_insert_default().lanes > 0;
            if begun && element && !mutant::on(Mutant::BegunUnannounced) {
                self.announce.push_back((now, row as u32, state.backup.round + 1));
            }
        }
    }

    /// Handles a frame of a worker: a contribution, a sum of the element, or a frame of a complete round.
    pub(super) fn on_contribution(
        &mut self,
        now: Instant,
        frame: &MapFrame<&[u8]>,
        shared: &mut OwnerContext,
        out: &mut impl FrameSink,
    ) -> Option<()> {
        let (base, map) = (frame.base(), frame.map());
        let MemberState { worker, failed, .. } = *shared.members.get(&base.src())?;
        let chunk = self.chunk(base.epoch(), map.index(), base.round())?;
        let (index, round) = self.own_numbering().position(chunk);
        let clear = self.clear;
        let row = self.rows.get_mut(index as usize)?;
        // The last round number has no next one.
        let is_valid_round = round < u32::MAX && base.round() < u32::MAX;
        let ours = map.has(MapFlags::ROUND | MapFlags::LINEAR) && is_valid_round && map.worker() == worker;
        if !ours || map.worker() as usize >= MAX_WORKERS {
            return None;
        }
        let has_result = round == row.backup.round && !row.backup.bytes.is_empty();
        if let Some(ApplicationFailure { error, .. }) = self.failed.as_ref().filter(|_| failed && !has_result) {
            report_failure(error, shared, out);
            return Some(());
        }
        if clear == ClearPolicy::Lazy && round > row.backup.round && map.has(MapFlags::OLD) {
            // The row is in a later round, so a worker that has begun it has these sums. All workers are asked.
            let numbering = self.numbering();
            let (row, round) = numbering.position(chunk);
            announce_software_round(shared, (row, round, numbering.rows()), out);
            return Some(());
        }
        if clear.is_by_element() && round > row.backup.round + 1 && !map.has(MapFlags::OLD) {
            // The element has summed the rounds in between, and all workers have them.
            *row = Row { backup: Backup { round: round - 1, ..Backup::default() }, ..Row::default() };
        }
        if round == row.backup.round {
            return self.answer_late(now, (index, frame), shared, out);
        }
        if round != row.backup.round + 1 || map.has(MapFlags::OLD) {
            return None;
        }
        if let Some(reached) = &mut row.reached {
            return match reached.accept(frame) {
                true if mutant::on(Mutant::ReachedAgain) && map.has(MapFlags::REACHED) => {
                    self.reach((index, round), frame, true, shared, out)
                }
                true if mutant::on(Mutant::ReachedUnheld) => None,
                true => shared.answer_held(frame, out),
                false => self.fail_now(now, CallError::Disagree { round }, shared, out),
            };
        }
        // Sums of the element: sent by a worker, which has checked them, or by the element.
        let by_worker = map.has(MapFlags::GET);
        if by_worker && !(clear.is_by_element() && base.has(Flags::CROSS)) {
            return None;
        }
        if by_worker && row.software.as_ref().is_some_and(|soft| soft.lanes > 0 && soft.tag != map.tag()) {
            // The worker has restarted and has no contribution in this round.
            return self.fail_now(now, CallError::Disagree { round }, shared, out);
        }
        if by_worker || map.has(MapFlags::REACHED) && row.software.is_none() {
            if map.has(MapFlags::WIDE) || map.has(MapFlags::BARE) {
                return None;
            }
            if by_worker || !any_saturated(frame.lanes()) || mutant::on(Mutant::SaturatedKept) {
                shared.stats.rounds_element += 1;
                if is_for_handler(frame) {
                    return self.reach((index, round), frame, true, shared, out);
                }
                row.store_element_sum(round, frame);
                self.send_sums(index, frame, None, shared, out);
                return Some(());
            }
        }
        if base.has(Flags::NOT_ADMITTED) && !base.has(Flags::CROSS) && !mutant::on(Mutant::BareSummed) {
            // If added here, the next copy might reach an element, which would hold it for ever.
            return redirect_past_element(frame, self.numbering().rows(), shared, out);
        }
        if map.has(MapFlags::REACHED) {
            // The element's sum is saturated; request the contributions.
            row.software.get_or_insert_default();
            self.announce(index, round, shared, out);
            self.announce_again(now, index, round);
            return Some(());
        }
        self.add_contribution(now, (index, round, frame), shared, out)
    }

    /// Announces that the server sums a round, by own numbers.
    fn announce(&self, row: u32, round: u32, shared: &mut OwnerContext, out: &mut impl FrameSink) {
        let (row, round) = self.position(row, round);
        announce_software_round(shared, (row, round, self.numbering().rows()), out);
    }

    /// Sends the backup of a row in answer to a frame, to one member or to all.
    fn send_sums(
        &self,
        index: u32,
        frame: &MapFrame<&[u8]>,
        to: Option<u32>,
        shared: &mut OwnerContext,
        out: &mut impl FrameSink,
    ) {
        let backup = &self.rows[index as usize].backup;
        let (row, round) = self.position(index, backup.round);
        let ecn = frame.base().has(Flags::ECN);
        send_result(backup, (row, round, self.numbering().rows()), (ecn, to), shared, out);
    }

    /// Handles a frame of the last complete round: the sender misses the result.
    fn answer_late(
        &mut self,
        now: Instant,
        (index, frame): (u32, &MapFrame<&[u8]>),
        shared: &mut OwnerContext,
        out: &mut impl FrameSink,
    ) -> Option<()> {
        let (base, map) = (frame.base(), frame.map());
        let row = self.rows.get_mut(index as usize)?;
        if row.backup.bytes.is_empty() {
            return None;
        }
        if map.tag() != row.backup.tag && !mutant::on(Mutant::BackupForAnybody) {
            // The worker has restarted; only its predecessor contributed to this round.
            return self.fail_now(now, CallError::Disagree { round: base.round() }, shared, out);
        }
        if mutant::on(Mutant::DropBackup) {
            return None;
        }
        row.late_workers &= !(u64::from(base.has(Flags::CROSS)) << map.worker());
        let to = (!map.has(MapFlags::REACHED)).then_some(base.src());
        self.send_sums(index, frame, to, shared, out);
        Some(())
    }

    /// Adds a worker's contribution to the open round in software.
    fn add_contribution(
        &mut self,
        now: Instant,
        (index, round, frame): (u32, u32, &MapFrame<&[u8]>),
        shared: &mut OwnerContext,
        out: &mut impl FrameSink,
    ) -> Option<()> {
        let row = self.rows.get_mut(index as usize)?;
        let begun = row.software.as_ref().is_some_and(|soft| soft.lanes > 0);
        let soft = row.software.get_or_insert_default();
        match soft.add(frame, shared) {
            Ok(true) => {}
            Ok(false) => return None,
            Err(error) => {
                row.software = None;
                return self.fail_now(now, error, shared, out);
            }
        }
        if soft.complete(shared.config.threshold) {
            shared.stats.rounds_software += 1;
            if is_for_handler(frame) {
                return self.reach((index, round), frame, false, shared, out);
            }
            row.store_software_sum(round);
            self.send_sums(index, frame, None, shared, out);
            return Some(());
        }
        let by_element = shared.config.grant.is_some();
        if !begun && by_element {
            self.announce(index, round, shared, out);
        }
        // Unless the policy is *copy*, a worker may have the sums of an element that is gone.
        if !begun && (by_element || self.clear.is_by_element()) {
            self.announce_again(now, index, round);
        }
        shared.answer_held(frame, out)
    }

    /// Fails all present workers, and reports it at once.
    fn fail_now(
        &mut self,
        now: Instant,
        error: CallError,
        shared: &mut OwnerContext,
        out: &mut impl FrameSink,
    ) -> Option<()> {
        self.fail_all_workers(now, error, shared);
        self.poll(now, shared, out);
        Some(())
    }

    /// Fails all present workers; the next poll reports it.
    pub(super) fn fail_all_workers(&mut self, now: Instant, error: CallError, shared: &mut OwnerContext) {
        shared.members.values_mut().for_each(|state| state.failed = true);
        // With the other policies, the end of the epoch does this, and no handler gets sums.
        if !self.clear.is_by_element() {
            self.void_rounds(shared.config.handled);
        }
        self.failed =
            Some(ApplicationFailure { error, has_rejoined_worker: false, report_at: now, pause: ANNOUNCE / 2 });
    }

    pub(super) fn announce_again(&mut self, now: Instant, row: u32, round: u32) {
        if self.announce.len() < MAX_ANNOUNCED && !mutant::on(Mutant::AnnounceOnce) {
            self.announce.push_back((now + ANNOUNCE, row, round));
        }
    }

    pub(super) fn poll(&mut self, now: Instant, shared: &mut OwnerContext, out: &mut impl FrameSink) {
        while let Some((_, row, round)) = self.announce.front().copied().filter(|(at, ..)| *at <= now) {
            self.announce.pop_front();
            let state = &self.rows[row as usize];
            let (open, late) = (state.software.is_some(), state.late_workers != 0);
            if open && state.backup.round + 1 == round || late && state.backup.round == round {
                self.announce(row, round, shared, out);
                self.announce_again(now, row, round);
            }
        }
        if !shared.members.values().any(|state| state.failed) {
            self.failed = None;
        }
        if let Some(failed) = self.failed.as_mut().filter(|failed| failed.report_at <= now) {
            report_failure(&failed.error, shared, out);
            failed.pause = (failed.pause * 2).min(REPORT_MAX);
            failed.report_at = now + failed.pause;
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let announce = self.announce.front().map(|(at, ..)| *at);
        [announce, self.failed.as_ref().map(|failed| failed.report_at)].into_iter().flatten().min()
    }
}
