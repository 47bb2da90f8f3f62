//! One harvest: a generation of values that only the element holds becomes the server's.
//!
//! ```text
//! close ─► read registers and record ─► (the owner commits both) ─► wipe the bank
//! ```
//!
//! Closed registers and the record do not change any more, so all questions may be repeated.

use std::collections::BTreeMap;

use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{Instant, KEYED_LANES, Kind, MapFlags, MapFrame, MapRepr, RECORD_PLACES, W_MAX};

use super::super::super::lanes::narrow_lanes;
use super::super::super::{Applied, Dest, Outbox};
use super::super::Shared;
use super::evict;
use super::sweep::Sweep;
use crate::flow::Timing;

/// Frames that tell of a whole slot.
const PARTS: usize = W_MAX as usize / RECORD_PLACES;

/// By caller: which of its frames the committed generations hold.
pub(super) type Record = BTreeMap<u32, Vec<Applied>>;

/// A flow slot whose record is read.
#[derive(Debug, Clone, Copy)]
struct Slot {
    endpoint: u32,
    flow: u32,
    slot: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Close,
    Read,
    Wipe,
}

/// What an answer has led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// More is to come.
    Asking,
    /// Registers and record are there, to be committed.
    Read,
    /// The bank is wiped.
    Wiped,
}

pub(super) struct Harvest {
    generation: u32,
    /// Tells this harvest's answers from an older one's.
    number: u32,
    /// Mapping version from the closing on, and the registers that it withdraws.
    mapping: (u32, Vec<u32>),
    rows: usize,
    stage: Stage,
    sweep: Sweep,
    timing: Timing,
    registers: Vec<i32>,
    slots: Vec<Slot>,
    record: Record,
    /// Rows to be wiped, ascending.
    wipe: Vec<u32>,
}

impl Harvest {
    /// Of a generation; frames that are new after it carry the version of `mapping`.
    pub(super) fn new(generation: u32, mapping: (u32, Vec<u32>), number: u32, now: Instant, timing: Timing) -> Self {
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
            record: Record::new(),
            wipe: Vec::new(),
        }
    }

    /// Mapping version from the closing on.
    pub(super) fn version(&self) -> u32 {
        self.mapping.0
    }

    pub(super) fn deadline(&self) -> Instant {
        self.sweep.deadline()
    }

    /// Takes an answer of the element; `None` when it is none of this harvest. `mapped`: keys that
    /// have been given a register so far.
    pub(super) fn take(
        &mut self,
        now: Instant,
        frame: &MapFrame<&[u8]>,
        mapped: usize,
        shared: &Shared,
    ) -> Option<Progress> {
        let (base, map) = (frame.base(), frame.map());
        if base.seq() != self.number {
            return None;
        }
        match (self.stage, frame.kind()) {
            (Stage::Close, Kind::MapClosed) if base.round() == self.generation + 1 => {
                // Only now: a key or a caller that came while the generation was open may be in it.
                self.stage = Stage::Read;
                self.rows = mapped.div_ceil(KEYED_LANES);
                self.registers.resize(self.rows * KEYED_LANES, 0);
                self.slots = slots(shared);
                self.sweep = Sweep::new(self.rows + self.slots.len() * PARTS, now, self.timing);
                return Some(Progress::Asking);
            }
            (Stage::Read, Kind::MapValues) => {
                let row = map.index() as usize;
                let registers = self.registers.get_mut(row * KEYED_LANES..)?.get_mut(..KEYED_LANES)?;
                if !map.has(MapFlags::LINEAR)
                    || frame.lanes().len() != KEYED_LANES * 4
                    || !self.sweep.answered(now, row)
                {
                    return None;
                }
                registers.iter_mut().zip(narrow_lanes(frame.lanes())).for_each(|(register, value)| *register = value);
            }
            (Stage::Read, Kind::MapRecord) => self.take_record(now, frame)?,
            (Stage::Wipe, Kind::MapWiped) => {
                let question = self.wipe.binary_search(&map.index()).ok()?;
                self.sweep.answered(now, question).then_some(())?;
            }
            _ => return None,
        }
        Some(match self.stage {
            Stage::Read if self.sweep.is_done() => Progress::Read,
            Stage::Wipe if self.sweep.is_done() => Progress::Wiped,
            _ => Progress::Asking,
        })
    }

    /// A caller has left, and with it its slots: nobody will ask for their record. Whether nothing more
    /// is to come.
    pub(super) fn forget(&mut self, now: Instant, endpoint: u32) -> bool {
        self.record.remove(&endpoint);
        if self.stage != Stage::Read {
            return false;
        }
        for (position, _) in self.slots.iter().enumerate().filter(|(_, slot)| slot.endpoint == endpoint) {
            (0..PARTS).for_each(|part| {
                self.sweep.answered(now, self.rows + position * PARTS + part);
            });
        }
        self.sweep.is_done()
    }

    /// Takes what the element says of a slot's places: numbers, generations, masks.
    fn take_record(&mut self, now: Instant, frame: &MapFrame<&[u8]>) -> Option<()> {
        let map = frame.map();
        let position = self.slots.iter().position(|slot| slot.slot == map.index())?;
        let part = usize::from(map.first_lane()) / RECORD_PLACES;
        let lanes = frame.lanes();
        let fits = part < PARTS && lanes.len() == RECORD_PLACES * 12;
        if !fits || !self.sweep.answered(now, self.rows + position * PARTS + part) {
            return None;
        }
        let (seqs, rest) = lanes.split_at(RECORD_PLACES * 4);
        let (generations, masks) = rest.split_at(RECORD_PLACES * 4);
        let Slot { endpoint, flow, .. } = self.slots[position];
        let applied = self.record.entry(endpoint).or_default();
        for ((seq, generation), left_out) in narrow_lanes(seqs).zip(narrow_lanes(generations)).zip(narrow_lanes(masks))
        {
            let (seq, generation) = (seq.cast_unsigned(), generation.cast_unsigned());
            if (1..=self.generation).contains(&generation) {
                applied.push(Applied { flow, seq, left_out: left_out.cast_unsigned() });
            }
        }
        Some(())
    }

    /// The registers and the record, once [`Progress::Read`] was reported; from here on the bank is
    /// wiped.
    pub(super) fn commit(&mut self, now: Instant) -> (Vec<i32>, Record) {
        let used = self.registers.chunks(KEYED_LANES).enumerate().filter(|(_, row)| row.iter().any(|v| *v != 0));
        self.wipe = used.map(|(row, _)| row as u32).collect();
        if self.wipe.is_empty() {
            // Wiping is how the element learns that the generation is committed.
            self.wipe.push(0);
        }
        self.stage = Stage::Wipe;
        self.sweep = Sweep::new(self.wipe.len(), now, self.timing);
        (std::mem::take(&mut self.registers), std::mem::take(&mut self.record))
    }

    /// Asks what is due; false when the element has not answered for the give-up time.
    pub(super) fn poll(&mut self, now: Instant, shared: &mut Shared, out: &mut impl Outbox) -> bool {
        let Self { stage, sweep, generation, number, mapping, rows, slots, wipe, .. } = self;
        sweep.poll(now, |question| {
            let map = match stage {
                Stage::Close => {
                    let (version, withdrawn) = &*mapping;
                    if !withdrawn.is_empty() {
                        evict::announce(*version, withdrawn, shared, out);
                    }
                    (Kind::MapClose, MapRepr { flags: MapFlags::BARE, index: *version, ..MapRepr::default() })
                }
                Stage::Wipe => {
                    (Kind::MapWipe, MapRepr { flags: MapFlags::BARE, index: wipe[question], ..MapRepr::default() })
                }
                Stage::Read if question < *rows => (Kind::MapRead, of_row(question, *generation)),
                Stage::Read => {
                    let question = question - *rows;
                    (Kind::MapPlaces, of_slot(slots[question / PARTS], question % PARTS))
                }
            };
            ask(map, *generation, *number, shared, out);
        })
    }
}

/// The slots of all callers that the element knows.
fn slots(shared: &Shared) -> Vec<Slot> {
    let known = shared.members.values().map(|state| state.member).filter(|member| member.element);
    known
        .flat_map(|member| {
            (0..member.flows).map(move |flow| Slot { endpoint: member.endpoint, flow, slot: member.slot_base + flow })
        })
        .collect()
}

fn of_row(row: usize, generation: u32) -> MapRepr {
    MapRepr {
        flags: MapFlags::LINEAR | MapFlags::GET,
        lanes: KEYED_LANES as u16,
        first_lane: (generation % 2) as u16 * KEYED_LANES as u16,
        index: row as u32,
        ..MapRepr::default()
    }
}

fn of_slot(slot: Slot, part: usize) -> MapRepr {
    MapRepr {
        flags: MapFlags::LINEAR,
        lanes: RECORD_PLACES as u16 * 3,
        first_lane: (part * RECORD_PLACES) as u16,
        index: slot.slot,
        threshold: slot.endpoint,
        ..MapRepr::default()
    }
}

fn ask((kind, map): (Kind, MapRepr), generation: u32, number: u32, shared: &mut Shared, out: &mut impl Outbox) {
    let mut base = shared.base(kind, 0);
    (base.dst, base.dst_incarnation) = (base.src, base.src_incarnation);
    (base.seq, base.round) = (number, generation);
    let len = frame_len(map.flags, usize::from(map.lanes), 0);
    emit(&base, &map, &mut shared.scratch[..len]);
    shared.send(Dest::Element, len, out);
}
