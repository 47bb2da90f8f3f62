//! Rounds of a row at the server: backup of the last complete round, and the open round in software.

use pathcall_wire::{MapFlags, MapFrame, Mutant, mutant};

use super::super::lanes::{LaneSlice, WIDE_PART, narrow_lanes, wide_lanes};
use super::super::{CallError, Lanes};
use super::OwnerContext;
use super::reached::ReachedRound;

/// Last complete round of a row, for answers to late workers.
#[derive(Default)]
pub(super) struct Backup {
    pub(super) round: u32,
    /// Tag of the contributions.
    pub(super) tag: u32,
    pub(super) wide: bool,
    /// Encoded sums.
    pub(super) bytes: Vec<u8>,
}

/// Round summed in software.
#[derive(Default)]
pub(super) struct SoftwareRound {
    sums: Vec<i64>,
    pub(super) tag: u32,
    /// Number of lanes; 0 before the first contribution.
    pub(super) lanes: usize,
    /// Bit masks of the contributing workers, by part of the row.
    workers: [u64; 2],
}

/// Rounds of a row.
#[derive(Default)]
pub(super) struct Row {
    pub(super) backup: Backup,
    pub(super) software: Option<Box<SoftwareRound>>,
    /// The next round, if its sum waits for the handler's result.
    pub(super) reached: Option<Box<ReachedRound>>,
    /// Bit mask of workers that joined after the last complete round and may need its result.
    pub(super) late_workers: u64,
}

impl Row {
    /// Stores a sum of the element as the result of the next round.
    pub(super) fn store_element_sum(&mut self, number: u32, frame: &MapFrame<&[u8]>) {
        (self.software, self.late_workers) = (None, 0);
        let Backup { round, tag, wide, bytes } = &mut self.backup;
        (*round, *tag, *wide) = (number, frame.map().tag(), false);
        bytes.clear();
        bytes.extend_from_slice(frame.lanes());
    }

    /// Stores the handler's result as that of the next round.
    pub(super) fn store_answer(&mut self, round: u32, tag: u32, result: &Lanes) {
        self.software = None;
        self.backup.store(round, tag, result.slice(0..result.len()));
    }

    /// Stores the sum of the software round as the result.
    pub(super) fn store_software_sum(&mut self, round: u32) {
        if let Some(soft) = self.software.take() {
            self.backup.store(round, soft.tag, LaneSlice::Wide(&soft.sums));
            self.late_workers = 0;
        }
    }
}

impl SoftwareRound {
    /// Adds a contribution, once per worker and part. Returns false if the frame is invalid.
    pub(super) fn add(&mut self, frame: &MapFrame<&[u8]>, shared: &mut OwnerContext) -> Result<bool, CallError> {
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
            let overflow = if wide {
                add_all(sums, wide_lanes(frame.lanes()))
            } else {
                add_all(sums, narrow_lanes(&frame.lanes()[at * 4..]).map(|v| i64::from(op.apply(v, para))))
            };
            if let Some(position) = overflow {
                return Err(CallError::Overflow { position: at + position });
            }
        }
        Ok(true)
    }

    /// Whether `threshold` workers have contributed all parts.
    pub(super) fn complete(&self, threshold: u32) -> bool {
        let parts = self.lanes.div_ceil(WIDE_PART);
        parts > 0 && self.workers[..parts].iter().all(|workers| workers.count_ones() >= threshold)
    }

    /// The sums.
    pub(super) fn into_sums(self) -> Vec<i64> {
        self.sums
    }
}

impl Backup {
    fn store(&mut self, round: u32, tag: u32, sums: LaneSlice<'_>) {
        (self.round, self.tag) = (round, tag);
        self.wide = !sums.is_narrow();
        self.bytes.clear();
        self.bytes.resize(sums.len() * if self.wide { 8 } else { 4 }, 0);
        if self.wide { sums.put_wide(&mut self.bytes) } else { sums.put_narrow(&mut self.bytes) }
    }
}

/// Adds lane by lane. Returns the position of the first sum that would exceed 64 bits, if any.
fn add_all(sums: &mut [i64], values: impl Iterator<Item = i64>) -> Option<usize> {
    for (position, (sum, value)) in sums.iter_mut().zip(values).enumerate() {
        match sum.checked_add(value) {
            Some(total) => *sum = total,
            None => return Some(position),
        }
    }
    None
}
