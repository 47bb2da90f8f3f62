//! A row's rounds at the server: the last that is complete, and the open one where it is summed here.

use pathcall_wire::{MapFlags, MapFrame, Mutant, mutant};

use super::super::super::CallError;
use super::super::super::lanes::{WIDE_PART, narrow, narrow_lanes, put_narrow, put_wide, wide_lanes};
use super::Shared;

/// The last complete round of a row: what a late worker is answered from.
#[derive(Default)]
pub(super) struct Backup {
    pub(super) round: u32,
    /// What its parts agreed on.
    pub(super) tag: u32,
    pub(super) wide: bool,
    /// As they travel.
    pub(super) bytes: Vec<u8>,
}

/// A round that is summed here.
#[derive(Default)]
pub(super) struct SoftRound {
    sums: Vec<i64>,
    pub(super) tag: u32,
    /// Lanes in the row; 0 until somebody contributed.
    pub(super) lanes: usize,
    /// Workers that contributed, by part of the row.
    workers: [u64; 2],
}

#[derive(Default)]
pub(super) struct Row {
    pub(super) backup: Backup,
    pub(super) soft: Option<Box<SoftRound>>,
    /// Workers that may not have the result of the last complete round, though they have its part from
    /// their predecessors: bits as in a round.
    pub(super) late: u64,
}

impl Row {
    /// A sum of the element is the next round's.
    pub(super) fn take(&mut self, frame: &MapFrame<&[u8]>) {
        (self.soft, self.late) = (None, 0);
        let Backup { round, tag, wide, bytes } = &mut self.backup;
        (*round, *tag, *wide) = (frame.base().round(), frame.map().tag(), false);
        bytes.clear();
        bytes.extend_from_slice(frame.lanes());
    }

    /// The round that is summed here is complete.
    pub(super) fn close(&mut self, round: u32) {
        if let Some(soft) = self.soft.take() {
            soft.store(round, &mut self.backup);
            self.late = 0;
        }
    }
}

impl SoftRound {
    /// Adds a contribution; false when the frame makes no sense. What was added before is not
    /// added again.
    pub(super) fn add(&mut self, frame: &MapFrame<&[u8]>, shared: &mut Shared) -> Result<bool, CallError> {
        let map = frame.map();
        let wide = map.has(MapFlags::WIDE);
        let lanes = match (wide, frame.payload().first_chunk()) {
            (true, Some(total)) => usize::from(u16::from_be_bytes(*total)),
            (true, None) => return Ok(false),
            (false, _) => frame.lane_count(),
        };
        let first = usize::from(map.first_lane());
        let count = frame.lane_count();
        let whole_part = first.is_multiple_of(WIDE_PART) && count == lanes.saturating_sub(first).min(WIDE_PART);
        let fits =
            lanes > 0 && lanes <= usize::from(shared.config.width).min(2 * WIDE_PART) && !map.has(MapFlags::BARE);
        if !fits || (wide && !whole_part) || (!wide && first != 0) {
            return Ok(false);
        }
        if self.lanes == 0 {
            (self.lanes, self.tag) = (lanes, map.tag());
            self.sums.resize(lanes, 0);
        }
        if self.tag != map.tag() || self.lanes != lanes {
            return Err(CallError::Disagree { round: frame.base().round() });
        }
        let bit = 1u64 << map.worker();
        let (op, para) = (frame.op(), map.para());
        for part in 0..lanes.div_ceil(WIDE_PART) {
            let at = part * WIDE_PART;
            if at < first || at >= first + count || self.workers[part] & bit != 0 && !mutant::on(Mutant::ServerWorkers)
            {
                continue;
            }
            self.workers[part] |= bit;
            let sums = &mut self.sums[at..lanes.min(at + WIDE_PART)];
            shared.stats.software_adds += sums.len() as u64;
            let fine = if wide {
                add_all(sums, wide_lanes(frame.lanes()))
            } else {
                add_all(sums, narrow_lanes(&frame.lanes()[at * 4..]).map(|v| i64::from(op.apply(v, para))))
            };
            if let Some(position) = fine {
                return Err(CallError::Overflow { position: at + position });
            }
        }
        Ok(true)
    }

    /// Whether so many workers have contributed all of it.
    pub(super) fn complete(&self, threshold: u32) -> bool {
        let parts = self.lanes.div_ceil(WIDE_PART);
        parts > 0 && self.workers[..parts].iter().all(|workers| workers.count_ones() >= threshold)
    }

    fn store(&self, round: u32, backup: &mut Backup) {
        (backup.round, backup.tag) = (round, self.tag);
        backup.wide = !narrow(&self.sums);
        backup.bytes.clear();
        backup.bytes.resize(self.sums.len() * if backup.wide { 8 } else { 4 }, 0);
        if backup.wide { put_wide(&self.sums, &mut backup.bytes) } else { put_narrow(&self.sums, &mut backup.bytes) }
    }
}

/// Adds lane by lane; the position of the first that would leave 64 bits, if any.
fn add_all(sums: &mut [i64], values: impl Iterator<Item = i64>) -> Option<usize> {
    for (position, (sum, value)) in sums.iter_mut().zip(values).enumerate() {
        match sum.checked_add(value) {
            Some(total) => *sum = total,
            None => return Some(position),
        }
    }
    None
}
