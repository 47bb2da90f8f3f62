//! SyncAgtr calls: arrays in chunks; each chunk is a contribution to one round of one row.
//!
//! The arrays of all calls of an application form one sequence of chunks, with the same numbers at all workers: chunk c
//! uses the row and round of [`ChunkNumbering`] (NetRPC §5.2.2: circular buffers). A chunk is sent to the element with
//! 32-bit lanes. If the element cannot sum it, the chunk is sent past the element to the server, in two parts with
//! 64-bit lanes if necessary.

mod call;
mod handled;
mod shadow;

use std::collections::VecDeque;

use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{Flags, ForwardTarget, FrameKind, MapFlags, MapFrame, MapRepr, Mutant, OpType, mutant};

use super::{CallError, CallId, ClientConfig, ClientStats, Dest, FlowPosition, Item, Output, frames};
use crate::map::chunks::ChunkNumbering;
use crate::map::lanes::{LaneSlice, Lanes, WIDE_PART, any_saturated, wide_lanes};
use crate::map::{ClearPolicy, Modify};
use call::SumCall;
use shadow::SumHistory;

/// Flags of a contribution.
const CONTRIBUTION: u16 = MapFlags::COUNT | MapFlags::ADD | MapFlags::LINEAR | MapFlags::ROUND;
/// Number of `MapHeld` answers after which a chunk is sent past the element (not with clear policy *copy*).
const HOLDS_BEFORE_DIVERT: u32 = 3;

/// State of a chunk in the window.
#[derive(Clone, Copy)]
struct ChunkState {
    position: FlowPosition,
    /// Whether the chunk is sent past the element.
    soft: bool,
    wide: bool,
    first_time: bool,
    /// Bit mask of received parts of the result.
    got: u8,
    done: bool,
}

/// Effect of a result on its chunk.
pub(super) enum ChunkOutcome {
    /// The chunk is complete.
    Done(FlowPosition),
    /// A lane is saturated: the chunk must be sent again, past the element.
    Saturated(FlowPosition),
}

/// Array additions of a caller.
pub(super) struct SumCalls {
    width: usize,
    numbering: ChunkNumbering,
    clear: ClearPolicy,
    element: bool,
    /// Sums that other workers may need (not with clear policy *copy*).
    history: Option<SumHistory>,
    calls: VecDeque<SumCall>,
    /// Number of the first chunk of the next call.
    next_call: u64,
    /// Number of the next chunk to send.
    next_send: u64,
    /// Number of the chunk in `window[0]`: the oldest without a result.
    start: u64,
    window: VecDeque<ChunkState>,
    done: VecDeque<(CallId, Lanes)>,
}

impl SumCalls {
    pub(super) fn new(config: &ClientConfig) -> Self {
        let numbering = ChunkNumbering::new(config.rows);
        Self {
            width: usize::from(config.width.max(1)),
            numbering,
            clear: config.clear,
            element: config.element,
            history: config.clear.is_by_element().then(|| SumHistory::new(numbering.rows())),
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
        (threshold, to): (u32, ForwardTarget),
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
        self.queue(SumCall::new(id, lanes, modify, (threshold, to), count));
        Ok(None)
    }

    fn queue(&mut self, call: SumCall) {
        let first = self.next_call;
        self.next_call += u64::from(call.left);
        self.calls.push_back(SumCall { first, ..call });
    }

    /// Cancels a call; false if there is no such call. The last call is removed if it is unsent; other calls continue
    /// without a waiting caller.
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

    /// Next chunk to send, if the window of rows has room.
    pub(super) fn peek(&self) -> Option<Item> {
        (self.next_send < self.next_call && self.next_send < self.start + self.ahead())
            .then_some(Item::Chunk(self.next_send))
    }

    /// Maximum number of chunks in flight.
    fn ahead(&self) -> u64 {
        let rows = u64::from(self.numbering.rows());
        if self.clear == ClearPolicy::Shadow { (rows / 2).max(1) } else { rows }
    }

    pub(super) fn on_sent(&mut self, position: FlowPosition) {
        let wide = !self.lanes_of(self.next_send).1.is_narrow();
        self.window.push_back(ChunkState {
            position,
            soft: wide || !self.uses_element(),
            wide,
            first_time: true,
            got: 0,
            done: false,
        });
        self.next_send += 1;
    }

    /// Whether chunks are sent to the element. Clear policy *shadow* needs at least two rows.
    fn uses_element(&self) -> bool {
        self.element && (self.clear != ClearPolicy::Shadow || self.numbering.rows() >= 2)
    }

    /// Row and round of the oldest chunk without a result, except with clear policy *copy*.
    pub(super) fn oldest_open_position(&self) -> Option<(u32, u32)> {
        self.history.as_ref().map(|_| self.numbering.position(self.start))
    }

    /// Call of a chunk, and the chunk's lanes.
    fn lanes_of(&self, chunk: u64) -> (&SumCall, LaneSlice<'_>) {
        let call = &self.calls[self.call_index(chunk)];
        (call, call.lanes.slice(call.range(chunk, self.width)))
    }

    fn call_index(&self, chunk: u64) -> usize {
        self.calls.partition_point(|call| call.first <= chunk) - 1
    }

    pub(super) fn emit(
        &mut self,
        chunk: u64,
        position: FlowPosition,
        config: &ClientConfig,
        scratch: &mut [u8],
        mut send: impl FnMut(Dest, &[u8], u64),
    ) {
        let index = (chunk - self.start) as usize;
        let ChunkState { soft, wide, first_time, .. } = self.window[index];
        self.window[index].first_time = false;
        let (call, lanes) = self.lanes_of(chunk);
        let (row, round) = self.numbering.position(chunk);
        let (to, base_flags) =
            if soft { (Dest::Endpoint(config.server), Flags::CROSS) } else { (frames::element_dest(config), 0) };
        let base = frames::base_header(FrameKind::MapData, position, base_flags, round, config);
        let map = MapRepr {
            op: call.modify.op as u8,
            to: call.to as u8,
            flags: CONTRIBUTION | if self.history.is_some() && !soft { MapFlags::CLEAR } else { 0 },
            para: call.modify.para,
            index: row,
            threshold: call.threshold,
            worker: config.worker,
            tag: call.tag(chunk),
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

    /// Writes a frame with the next sums that the server has requested, and returns its length.
    pub(super) fn emit_requested_sums(&mut self, config: &ClientConfig, scratch: &mut [u8]) -> Option<usize> {
        let history = self.history.as_mut()?;
        let chunk = history.next_requested()?;
        let (row, round) = self.numbering.position(chunk);
        let (tag, lanes) = self.history.as_ref()?.get(chunk)?;
        let base =
            frames::base_header(FrameKind::MapData, FlowPosition { flow: 0, seq: 0 }, Flags::CROSS, round, config);
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

    /// Number of the chunk of a result or an announcement. The server may be in another epoch: its frames carry the
    /// number of rows.
    fn chunk_of(&self, frame: &MapFrame<&[u8]>) -> Option<u64> {
        let (row, round, rows) = (frame.map().index(), frame.base().round(), frame.map().threshold());
        let is_of_server = frame.base().has(Flags::FROM_SERVER) && rows > 0 && !mutant::on(Mutant::RowsOfOwnEpoch);
        let numbering = if is_of_server { ChunkNumbering::new(rows) } else { self.numbering };
        let round = if mutant::on(Mutant::ResultOfAnyRound) { numbering.position(self.start).1 } else { round };
        numbering.chunk(row, round)
    }

    /// Number of the chunk of a result or an announcement, if in flight.
    fn open_chunk_of(&self, frame: &MapFrame<&[u8]>) -> Option<u64> {
        let chunk = self.chunk_of(frame)?;
        let index = usize::try_from(chunk.checked_sub(self.start)?).ok()?;
        self.window.get(index).is_some_and(|c| !c.done).then_some(chunk)
    }

    /// Handles a result or a part of a result. Returns the effect on the chunk if the result is whole.
    pub(super) fn on_result(&mut self, frame: &MapFrame<&[u8]>, stats: &mut ClientStats) -> Option<ChunkOutcome> {
        let chunk = self.open_chunk_of(frame)?;
        let map = frame.map();
        let from_element = !frame.base().has(Flags::FROM_SERVER);
        let soft = self.window[(chunk - self.start) as usize].soft;
        if from_element && (self.history.is_none() || soft) {
            // The server gives the result of a chunk that was sent past the element, the same to all workers.
            return None;
        }
        let index = self.call_index(chunk);
        let call = &mut self.calls[index];
        let range = call.range(chunk, self.width);
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
                return Some(ChunkOutcome::Saturated(state.position));
            }
            if let Some(history) = self.history.as_mut().filter(|_| from_element) {
                history.store(chunk, call.tag(chunk), frame.lanes());
            }
            call.lanes.copy_narrow(range.clone(), frame.lanes());
        }
        state.done = true;
        let position = state.position;
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
        Some(ChunkOutcome::Done(position))
    }

    /// Handles the announcement that the server sums a round. Returns the position of the chunk to send again, past the
    /// element. If this worker has the sums of the element already, they are sent to the server.
    pub(super) fn on_software_round(&mut self, frame: &MapFrame<&[u8]>) -> Option<FlowPosition> {
        let Some(chunk) = self.open_chunk_of(frame) else {
            let chunk = self.chunk_of(frame)?;
            if !mutant::on(Mutant::ShadowForgotten) {
                self.history.as_mut()?.request(chunk);
            }
            return None;
        };
        let state = &mut self.window[(chunk - self.start) as usize];
        if std::mem::replace(&mut state.soft, true) {
            return None;
        }
        Some(state.position)
    }

    /// Sends a chunk past the element after several `MapHeld` answers (not with clear policy *copy*): other workers may
    /// have its sums, while the element lost them in a restart. Returns whether to send the chunk again.
    pub(super) fn divert_if_stuck(&mut self, chunk: u64, holds: u32) -> bool {
        let index = chunk.checked_sub(self.start).and_then(|index| usize::try_from(index).ok());
        let state = index.and_then(|index| self.window.get_mut(index));
        let Some(state) = state.filter(|_| self.history.is_some() && holds >= HOLDS_BEFORE_DIVERT) else {
            return false;
        };
        !std::mem::replace(&mut state.soft, true)
    }

    /// Applies a change of epoch: all chunks in flight are sent past the element. Returns their positions.
    pub(super) fn renew(&mut self, element: bool, rows: u32) -> impl Iterator<Item = FlowPosition> + '_ {
        self.element = element;
        self.numbering = ChunkNumbering::new(rows);
        if let Some(history) = &mut self.history {
            history.grow(rows);
        }
        self.window.iter_mut().filter(|chunk| !chunk.done).map(|chunk| {
            chunk.soft = true;
            chunk.position
        })
    }

    pub(super) fn next_done(&mut self) -> Option<(CallId, Lanes)> {
        self.done.pop_front()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.calls.is_empty()
    }

    /// Removes all calls, and returns those with a waiting caller.
    pub(super) fn drain(&mut self) -> Vec<CallId> {
        self.window.clear();
        (self.next_send, self.start) = (self.next_call, self.next_call);
        let waiting = self.calls.iter().filter(|call| !call.detached && call.left > 0).map(|call| call.id).collect();
        self.calls.clear();
        waiting
    }
}
