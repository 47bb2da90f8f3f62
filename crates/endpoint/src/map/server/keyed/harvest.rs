//! Harvest: transfer of the registers of one closed generation from the element to the owner.
//!
//! ```text
//! close ─► read registers and record ─► (the owner commits both) ─► clear the bank
//! ```
//!
//! Closed registers and the record do not change, so all requests may be repeated.

use std::collections::BTreeMap;

use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{FrameKind, Instant, KEYED_LANES, MapFlags, MapFrame, MapRepr, RECORD_PLACES, W_MAX};

use super::super::super::lanes::narrow_lanes;
use super::super::super::{CommittedFrame, Dest, FrameSink};
use super::super::OwnerContext;
use super::evict;
use super::sweep::Sweep;
use crate::flow::FlowTiming;

/// Number of frames for the record of a slot.
const PARTS: usize = W_MAX as usize / RECORD_PLACES;

/// Frames in committed generations, by caller.
pub(super) type AppliedRecord = BTreeMap<u32, Vec<CommittedFrame>>;

/// Flow slot whose record is read.
#[derive(Debug, Clone, Copy)]
struct HarvestedSlot {
    endpoint: u32,
    flow: u32,
    slot: u32,
}

/// Stage of a harvest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Close,
    Read,
    Wipe,
}

/// Progress of a harvest after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// Answers are missing.
    Asking,
    /// Registers and record are complete; the owner must commit them.
    Read,
    /// The bank is cleared.
    Wiped,
}

/// Harvest in progress.
pub(super) struct Harvest {
    generation: u32,
    /// Number of this harvest, to recognise its answers.
    number: u32,
    /// Mapping version after the close, and the registers that it withdraws.
    mapping: (u32, Vec<u32>),
    rows: usize,
    stage: Stage,
    sweep: Sweep,
    timing: FlowTiming,
    registers: Vec<i32>,
    slots: Vec<HarvestedSlot>,
    record: AppliedRecord,
    /// Rows to clear, ascending.
    wipe: Vec<u32>,
}

impl Harvest {
    /// Harvest of a generation; new frames after the close have the version of `mapping`.
    pub(super) fn new(
        generation: u32,
        mapping: (u32, Vec<u32>),
        number: u32,
        now: Instant,
        timing: FlowTiming,
    ) -> Self {
        Self {
            generation,
            number,
            mapping,
            rows: 0,
            stage: Stage::Close,
            sweep: Sweep::new(1, now, timing),
            timing,
            registers: Vec::new(),
            slots: Vec::new(),
            record: AppliedRecord::new(),
            wipe: Vec::new(),
        }
    }

    /// Mapping version after the close.
    pub(super) fn version(&self) -> u32 {
        self.mapping.0
    }

    /// Number of this harvest.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Whether the element has closed the generation.
    pub(super) fn is_closed(&self) -> bool {
        self.stage != Stage::Close
    }

    /// Whether the generation is committed.
    pub(super) fn is_committed(&self) -> bool {
        self.stage == Stage::Wipe
    }

    pub(super) fn deadline(&self) -> Instant {
        self.sweep.deadline()
    }

    /// Handles an answer of the element; `None` if it does not belong to this harvest. `mapped` is the number of keys
    /// with a register.
    pub(super) fn take(
        &mut self,
        now: Instant,
        frame: &MapFrame<&[u8]>,
        mapped: usize,
        shared: &OwnerContext,
    ) -> Option<Progress> {
        let (base, map) = (frame.base(), frame.map());
        if base.seq() != self.number {
            return None;
        }
        match (self.stage, frame.kind()) {
            (Stage::Close, FrameKind::MapClosed) if base.round() == self.generation + 1 => {
                // Computed after the close: keys and callers that were new in this generation count.
                self.stage = Stage::Read;
                self.rows = mapped.div_ceil(KEYED_LANES);
                self.registers.resize(self.rows * KEYED_LANES, 0);
                self.slots = slots(shared);
                self.sweep = Sweep::new(self.rows + self.slots.len() * PARTS, now, self.timing);
                return Some(Progress::Asking);
            }
            (Stage::Read, FrameKind::MapValues) => {
                let row = map.index() as usize;
                let registers = self.registers.get_mut(row * KEYED_LANES..)?.get_mut(..KEYED_LANES)?;
                if !map.has(MapFlags::LINEAR)
                    || frame.lanes().len() != KEYED_LANES * 4
                    || !self.sweep.on_answer(now, row)
                {
                    return None;
                }
                registers.iter_mut().zip(narrow_lanes(frame.lanes())).for_each(|(register, value)| *register = value);
            }
            (Stage::Read, FrameKind::MapRecord) => self.take_record(now, frame)?,
            (Stage::Wipe, FrameKind::MapWiped) => {
                let request = self.wipe.binary_search(&map.index()).ok()?;
                self.sweep.on_answer(now, request).then_some(())?;
            }
            _ => return None,
        }
        Some(match self.stage {
            Stage::Read if self.sweep.is_done() => Progress::Read,
            Stage::Wipe if self.sweep.is_done() => Progress::Wiped,
            _ => Progress::Asking,
        })
    }

    /// Removes the slots of a caller that has left. Returns whether the harvest is complete then.
    pub(super) fn remove_caller(&mut self, now: Instant, endpoint: u32) -> bool {
        self.record.remove(&endpoint);
        if self.stage != Stage::Read {
            return false;
        }
        for (position, _) in self.slots.iter().enumerate().filter(|(_, slot)| slot.endpoint == endpoint) {
            (0..PARTS).for_each(|part| {
                self.sweep.on_answer(now, self.rows + position * PARTS + part);
            });
        }
        self.sweep.is_done()
    }

    /// Handles the record of a slot: sequence numbers, generations and masks by window position.
    fn take_record(&mut self, now: Instant, frame: &MapFrame<&[u8]>) -> Option<()> {
        let map = frame.map();
        let position = self.slots.iter().position(|slot| slot.slot == map.index())?;
        let part = usize::from(map.first_lane()) / RECORD_PLACES;
        let lanes = frame.lanes();
        let fits = part < PARTS && lanes.len() == RECORD_PLACES * 12;
        if !fits || !self.sweep.on_answer(now, self.rows + position * PARTS + part) {
            return None;
        }
        let (seqs, rest) = lanes.split_at(RECORD_PLACES * 4);
        let (generations, masks) = rest.split_at(RECORD_PLACES * 4);
        let HarvestedSlot { endpoint, flow, .. } = self.slots[position];
        let applied = self.record.entry(endpoint).or_default();
        for ((seq, generation), overflowed_lanes) in
            narrow_lanes(seqs).zip(narrow_lanes(generations)).zip(narrow_lanes(masks))
        {
            let (seq, generation) = (seq.cast_unsigned(), generation.cast_unsigned());
            if (1..=self.generation).contains(&generation) {
                applied.push(CommittedFrame { flow, seq, overflowed_lanes: overflowed_lanes.cast_unsigned() });
            }
        }
        Some(())
    }

    /// Returns registers and record after [`Progress::Read`], and starts clearing the bank.
    pub(super) fn commit(&mut self, now: Instant) -> (Vec<i32>, AppliedRecord) {
        let used = self.registers.chunks(KEYED_LANES).enumerate().filter(|(_, row)| row.iter().any(|v| *v != 0));
        self.wipe = used.map(|(row, _)| row as u32).collect();
        if self.wipe.is_empty() {
            // The clear request tells the element that the generation is committed.
            self.wipe.push(0);
        }
        self.stage = Stage::Wipe;
        self.sweep = Sweep::new(self.wipe.len(), now, self.timing);
        (std::mem::take(&mut self.registers), std::mem::take(&mut self.record))
    }

    /// Sends due requests. Returns false if the element did not answer for the give-up time.
    pub(super) fn poll(&mut self, now: Instant, shared: &mut OwnerContext, out: &mut impl FrameSink) -> bool {
        let Self { stage, sweep, generation, number, mapping, rows, slots, wipe, .. } = self;
        sweep.poll(now, |request| {
            let map = match stage {
                Stage::Close => {
                    let (version, withdrawn) = &*mapping;
                    if !withdrawn.is_empty() {
                        evict::announce(*version, withdrawn, shared, out);
                    }
                    (FrameKind::MapClose, MapRepr { flags: MapFlags::BARE, index: *version, ..MapRepr::default() })
                }
                Stage::Wipe => {
                    (FrameKind::MapWipe, MapRepr { flags: MapFlags::BARE, index: wipe[request], ..MapRepr::default() })
                }
                Stage::Read if request < *rows => (FrameKind::MapRead, row_request(request, *generation)),
                Stage::Read => {
                    let request = request - *rows;
                    (FrameKind::MapPlaces, slot_request(slots[request / PARTS], request % PARTS))
                }
            };
            send_request(map, *generation, *number, shared, out);
        })
    }
}

/// Slots of all callers that the element admits.
fn slots(shared: &OwnerContext) -> Vec<HarvestedSlot> {
    let known = shared.members.values().map(|state| state.member).filter(|member| member.element);
    known
        .flat_map(|member| {
            (0..member.flows).map(move |flow| HarvestedSlot {
                endpoint: member.endpoint,
                flow,
                slot: member.slot_base + flow,
            })
        })
        .collect()
}

fn row_request(row: usize, generation: u32) -> MapRepr {
    MapRepr {
        flags: MapFlags::LINEAR | MapFlags::GET,
        lanes: KEYED_LANES as u16,
        first_lane: (generation % 2) as u16 * KEYED_LANES as u16,
        index: row as u32,
        ..MapRepr::default()
    }
}

fn slot_request(slot: HarvestedSlot, part: usize) -> MapRepr {
    MapRepr {
        flags: MapFlags::LINEAR,
        lanes: RECORD_PLACES as u16 * 3,
        first_lane: (part * RECORD_PLACES) as u16,
        index: slot.slot,
        threshold: slot.endpoint,
        ..MapRepr::default()
    }
}

fn send_request(
    (kind, map): (FrameKind, MapRepr),
    generation: u32,
    number: u32,
    shared: &mut OwnerContext,
    out: &mut impl FrameSink,
) {
    let mut base = shared.base(kind, 0);
    (base.dst, base.dst_incarnation) = (base.src, base.src_incarnation);
    (base.seq, base.round) = (number, generation);
    let len = frame_len(map.flags, usize::from(map.lanes), 0);
    emit(&base, &map, &mut shared.scratch[..len]);
    shared.send(Dest::Element, len, out);
}
