//! SyncAgtr calls: arrays cut into chunks, each a contribution to one round of one row.
//!
//! The arrays of all calls of an application form one endless sequence of chunks, counted alike
//! by all workers: chunk c lives in row `c % rows`, round `c / rows + 1` (NetRPC §5.2.2: circular
//! buffers). A chunk goes by the element, narrow; or, when the element can't do it, past it to the
//! server, in two wide parts if its values need 64 bits.

mod shadow;

use std::collections::{BTreeMap, VecDeque};

use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{Flags, Kind, MapFlags, MapFrame, MapRepr, Mutant, OpType, Target, mutant};

use super::{CallError, CallId, ClientConfig, ClientStats, Dest, Item, Output, Place, frame};
use crate::map::key::tag;
use crate::map::lanes::{Lanes, Run, WIDE_PART, any_saturated, wide_lanes};
use crate::map::{ClearPolicy, Modify};
use shadow::Kept;

/// What a worker asks for.
const PART: u16 = MapFlags::COUNT | MapFlags::ADD | MapFlags::LINEAR | MapFlags::ROUND;
/// A chunk that is held so often may be held for ever.
const HOLDS: u32 = 3;

struct Call {
    id: CallId,
    /// What it adds; a chunk that is done, and so never sent again, holds its sums.
    lanes: Lanes,
    /// Sums of chunks of which a part is still to come.
    parts: BTreeMap<u64, Vec<i64>>,
    modify: Modify,
    threshold: u32,
    /// First chunk.
    first: u64,
    /// Chunks without a result.
    left: u32,
    /// Nobody waits for it.
    detached: bool,
}

/// A chunk in the window.
#[derive(Clone, Copy)]
struct Chunk {
    place: Place,
    /// Past the element: announced by the server, or too wide.
    soft: bool,
    wide: bool,
    first_time: bool,
    /// Parts of the result that came.
    got: u8,
    done: bool,
}

/// What a result is to the chunk that it is of.
pub(super) enum Outcome {
    /// It has its sums.
    Done(Place),
    /// It is to be sent again, past the element: a lane is at the end of its range.
    Beyond(Place),
}

pub(super) struct SumCalls {
    width: usize,
    rows: u64,
    /// Chunks that may be in flight.
    ahead: u64,
    element: bool,
    /// With clear policy *shadow*: what others may ask for.
    kept: Option<Kept>,
    calls: VecDeque<Call>,
    /// First chunk of the next call.
    next_call: u64,
    /// Next chunk to be sent.
    next_send: u64,
    /// Chunk that `window[0]` stands for: the oldest without a result.
    start: u64,
    window: VecDeque<Chunk>,
    done: VecDeque<(CallId, Lanes)>,
}

impl SumCalls {
    pub(super) fn new(config: &ClientConfig) -> Self {
        let rows = u64::from(config.rows.max(1));
        let shadow = config.clear == ClearPolicy::Shadow;
        Self {
            width: usize::from(config.width.max(1)),
            rows,
            ahead: if shadow { (rows / 2).max(1) } else { rows },
            element: config.element,
            kept: shadow.then(|| Kept::new(rows)),
            calls: VecDeque::new(),
            next_call: config.start_chunk,
            next_send: config.start_chunk,
            start: config.start_chunk,
            window: VecDeque::new(),
            done: VecDeque::new(),
        }
    }

    pub(super) fn start(
        &mut self,
        id: CallId,
        lanes: Lanes,
        modify: Modify,
        threshold: u32,
    ) -> Result<Option<Output>, CallError> {
        if modify.op != OpType::Nop
            && let Lanes::Wide(values) = &lanes
            && let Some(position) = values.iter().position(|v| i32::try_from(*v).is_err())
        {
            return Err(CallError::Range { value: values[position], position, bits: 32 });
        }
        if lanes.is_empty() {
            return Ok(Some(Output::Sums(lanes)));
        }
        let count = u32::try_from(lanes.len().div_ceil(self.width)).map_err(|_| CallError::KeysFull)?;
        let call = Call {
            id,
            lanes,
            parts: BTreeMap::new(),
            modify,
            threshold,
            first: self.next_call,
            left: count,
            detached: false,
        };
        self.next_call += u64::from(count);
        self.calls.push_back(call);
        Ok(None)
    }

    /// Detaches a call; true if it is one of these. The last one, if nothing of it was sent, goes.
    pub(super) fn cancel(&mut self, id: CallId) -> bool {
        let Some(index) = self.calls.iter().position(|call| call.id == id) else { return false };
        let unsent = self.calls[index].first >= self.next_send;
        if unsent && index + 1 == self.calls.len() {
            self.next_call = self.calls[index].first;
            self.calls.pop_back();
        } else {
            self.calls[index].detached = true;
        }
        true
    }

    /// The next chunk that may be sent: inside the window of rows, after its row's last round.
    pub(super) fn peek(&self) -> Option<Item> {
        (self.next_send < self.next_call && self.next_send < self.start + self.ahead)
            .then_some(Item::Chunk(self.next_send))
    }

    pub(super) fn sent(&mut self, place: Place) {
        let wide = !self.lanes_of(self.next_send).1.is_narrow();
        self.window.push_back(Chunk {
            place,
            soft: wide || !self.by_element(),
            wide,
            first_time: true,
            got: 0,
            done: false,
        });
        self.next_send += 1;
    }

    /// Whether chunks go by the element. A row that has to clear itself can't when it is the only one.
    fn by_element(&self) -> bool {
        self.element && (self.kept.is_none() || self.rows >= 2)
    }

    /// The oldest chunk without a result, if nobody but the workers can know which it is.
    pub(super) fn stands(&self) -> Option<(u32, u32)> {
        self.kept.as_ref().map(|_| self.at(self.start))
    }

    /// Row and round of a chunk.
    fn at(&self, chunk: u64) -> (u32, u32) {
        ((chunk % self.rows) as u32, (chunk / self.rows + 1) as u32)
    }

    /// The call a chunk belongs to and the chunk's lanes. The chunk is one of a call.
    fn lanes_of(&self, chunk: u64) -> (&Call, Run<'_>) {
        let call = &self.calls[self.call_index(chunk)];
        (call, call.lanes.run(range(call, chunk, self.width)))
    }

    fn call_index(&self, chunk: u64) -> usize {
        self.calls.partition_point(|call| call.first <= chunk) - 1
    }

    pub(super) fn emit(
        &mut self,
        chunk: u64,
        place: Place,
        config: &ClientConfig,
        scratch: &mut [u8],
        mut send: impl FnMut(Dest, &[u8], u64),
    ) {
        let index = (chunk - self.start) as usize;
        let Chunk { soft, wide, first_time, .. } = self.window[index];
        self.window[index].first_time = false;
        let (call, lanes) = self.lanes_of(chunk);
        let (row, round) = self.at(chunk);
        let (to, base_flags) =
            if soft { (Dest::Endpoint(config.server), Flags::CROSS) } else { (frame::by_element(config), 0) };
        let base = frame::base(Kind::MapData, place, base_flags, round, config);
        let map = MapRepr {
            op: call.modify.op as u8,
            to: Target::All as u8,
            flags: PART | if self.kept.is_some() && !soft { MapFlags::CLEAR } else { 0 },
            para: call.modify.para,
            index: row,
            threshold: call.threshold,
            worker: config.worker,
            tag: tag_of(call, chunk),
            ..MapRepr::default()
        };
        let part_len = if wide { WIDE_PART } else { lanes.len() };
        for first_lane in (0..lanes.len()).step_by(part_len) {
            let values = lanes.part(first_lane..lanes.len().min(first_lane + part_len));
            let map = MapRepr {
                flags: map.flags | if wide { MapFlags::WIDE } else { 0 },
                lanes: values.len() as u16,
                first_lane: first_lane as u16,
                payload_len: if wide { 2 } else { 0 },
                ..map
            };
            let len = frame_len(map.flags, values.len(), usize::from(map.payload_len));
            let mut frame = emit(&base, &map, &mut scratch[..len]);
            for word in 0..values.len().div_ceil(32) {
                frame.set_bitmap(word, u32::MAX >> (32 - (values.len() - word * 32).min(32)));
            }
            let out = frame.bitmap_and_lanes_mut().1;
            if wide {
                values.put_wide(out);
                frame.payload_mut().copy_from_slice(&(lanes.len() as u16).to_be_bytes());
            } else {
                values.put_narrow(out);
            }
            let lane_bytes = if first_time { frame.map().lane_len() * values.len() } else { 0 };
            send(to, &scratch[..len], lane_bytes as u64);
        }
    }

    /// Writes the next sums that the server has asked for; the length of the frame.
    pub(super) fn give(&mut self, config: &ClientConfig, scratch: &mut [u8]) -> Option<usize> {
        let kept = self.kept.as_mut()?;
        let chunk = kept.next_asked()?;
        let (row, round) = self.at(chunk);
        let (tag, lanes) = self.kept.as_ref()?.get(chunk)?;
        let base = frame::base(Kind::MapData, Place { flow: 0, seq: 0 }, Flags::CROSS, round, config);
        let map = MapRepr {
            flags: MapFlags::GET | MapFlags::LINEAR | MapFlags::ROUND,
            lanes: (lanes.len() / 4) as u16,
            index: row,
            worker: config.worker,
            tag,
            ..MapRepr::default()
        };
        let len = frame_len(map.flags, map.lanes.into(), 0);
        emit(&base, &map, &mut scratch[..len]).bitmap_and_lanes_mut().1.copy_from_slice(lanes);
        Some(len)
    }

    /// The chunk that a result or an announcement speaks of.
    fn named(&self, frame: &MapFrame<&[u8]>) -> Option<u64> {
        let (row, round) = (u64::from(frame.map().index()), u64::from(frame.base().round()));
        let round = if mutant::on(Mutant::ResultOfAnyRound) { self.start / self.rows + 1 } else { round };
        let chunk = round.checked_sub(1)?.checked_mul(self.rows)?.checked_add(row)?;
        (row < self.rows).then_some(chunk)
    }

    /// The same, if it is in flight.
    fn find(&self, frame: &MapFrame<&[u8]>) -> Option<u64> {
        let chunk = self.named(frame)?;
        let index = usize::try_from(chunk.checked_sub(self.start)?).ok()?;
        self.window.get(index).is_some_and(|c| !c.done).then_some(chunk)
    }

    /// Takes a result, or a part of one; what became of the chunk, if it is whole.
    pub(super) fn result(&mut self, frame: &MapFrame<&[u8]>, stats: &mut ClientStats) -> Option<Outcome> {
        let chunk = self.find(frame)?;
        let map = frame.map();
        let from_element = !frame.base().has(Flags::FROM_SERVER);
        let soft = self.window[(chunk - self.start) as usize].soft;
        if from_element && (self.kept.is_none() || soft) {
            // What went to the server is the server's to say: all get its result, or none does.
            return None;
        }
        let index = self.call_index(chunk);
        let call = &mut self.calls[index];
        let range = range(call, chunk, self.width);
        let parts = range.len().div_ceil(WIDE_PART);
        let state = &mut self.window[(chunk - self.start) as usize];
        if map.has(MapFlags::WIDE) {
            let first = usize::from(map.first_lane());
            let sums = call.parts.entry(chunk).or_insert_with(|| vec![0; range.len()]).get_mut(first..)?;
            if first % WIDE_PART != 0 || frame.lane_count() != sums.len().min(WIDE_PART) {
                return None;
            }
            sums.iter_mut().zip(wide_lanes(frame.lanes())).for_each(|(sum, v)| *sum = v);
            state.got |= 1 << (first / WIDE_PART);
            if state.got.trailing_ones() < parts as u32 {
                return None;
            }
            let sums = call.parts.remove(&chunk)?;
            call.lanes.widen()[range.clone()].copy_from_slice(&sums);
        } else {
            if !map.has(MapFlags::LINEAR) || frame.lane_count() != range.len() || map.has(MapFlags::BARE) {
                return None;
            }
            if from_element && any_saturated(frame.lanes()) && !mutant::on(Mutant::ShadowSaturated) {
                state.soft = true;
                return Some(Outcome::Beyond(state.place));
            }
            if let Some(kept) = self.kept.as_mut().filter(|_| from_element) {
                kept.keep(chunk, tag_of(call, chunk), frame.lanes());
            }
            call.lanes.take_narrow(range.clone(), frame.lanes());
        }
        state.done = true;
        let place = state.place;
        if state.soft {
            stats.lanes_software += range.len() as u64;
        } else {
            stats.lanes_element += range.len() as u64;
        }
        call.left -= 1;
        if call.left == 0 && !call.detached {
            self.done.push_back((call.id, std::mem::take(&mut call.lanes)));
        }
        while self.window.front().is_some_and(|c| c.done) {
            self.window.pop_front();
            self.start += 1;
        }
        while self.calls.front().is_some_and(|call| call.left == 0) {
            self.calls.pop_front();
        }
        Some(Outcome::Done(place))
    }

    /// The server sums this round: the place of the chunk to be sent again, past the element. If it is done here,
    /// because the element has summed it before, the server gets that.
    pub(super) fn software(&mut self, frame: &MapFrame<&[u8]>) -> Option<Place> {
        let Some(chunk) = self.find(frame) else {
            let chunk = self.named(frame)?;
            if !mutant::on(Mutant::ShadowForgotten) {
                self.kept.as_mut()?.ask(chunk);
            }
            return None;
        };
        let state = &mut self.window[(chunk - self.start) as usize];
        if std::mem::replace(&mut state.soft, true) {
            return None;
        }
        Some(state.place)
    }

    /// A chunk is held, so often. With clear policy *shadow* it goes past the element after a while: it may be one that
    /// others have, and the element does not, because it has started since. True when it is to be sent again.
    pub(super) fn goes_past(&mut self, chunk: u64, holds: u32) -> bool {
        let index = chunk.checked_sub(self.start).and_then(|index| usize::try_from(index).ok());
        let state = index.and_then(|index| self.window.get_mut(index));
        let Some(state) = state.filter(|_| self.kept.is_some() && holds >= HOLDS) else { return false };
        !std::mem::replace(&mut state.soft, true)
    }

    /// The epoch is another: whatever is in flight goes past the element. The places to be sent again.
    pub(super) fn renew(&mut self, element: bool) -> impl Iterator<Item = Place> + '_ {
        self.element = element;
        self.window.iter_mut().filter(|chunk| !chunk.done).map(|chunk| {
            chunk.soft = true;
            chunk.place
        })
    }

    pub(super) fn next_done(&mut self) -> Option<(CallId, Lanes)> {
        self.done.pop_front()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.calls.is_empty()
    }

    /// Forgets all calls; those that somebody waits for are returned.
    pub(super) fn drain(&mut self) -> Vec<CallId> {
        self.window.clear();
        (self.next_send, self.start) = (self.next_call, self.next_call);
        let waiting = self.calls.iter().filter(|call| !call.detached && call.left > 0).map(|call| call.id).collect();
        self.calls.clear();
        waiting
    }
}

/// What all parts of a chunk agree on.
fn tag_of(call: &Call, chunk: u64) -> u32 {
    tag((chunk - call.first) as u32, call.lanes.len(), call.modify)
}

/// Where a chunk's lanes are in its call.
fn range(call: &Call, chunk: u64, width: usize) -> std::ops::Range<usize> {
    let at = (chunk - call.first) as usize * width;
    at..(at + width).min(call.lanes.len())
}
