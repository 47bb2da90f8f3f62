//! Reading an application's registers, row by row, under loss.

use std::time::Duration;

use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{Instant, KEYED_LANES, Kind, MapFlags, MapFrame, MapRepr};

use super::super::super::lanes::narrow_lanes;
use super::super::super::{Dest, Outbox};
use super::super::Shared;
use crate::flow::Timing;

/// Rows asked for and not there yet.
const WINDOW: usize = 64;

/// One reading of the rows `0..n`. Reading changes nothing, so a row may be asked for again.
pub(super) struct Read {
    /// Tells this reading's answers from an older one's.
    number: u32,
    registers: Vec<i32>,
    there: Vec<bool>,
    /// All rows before it are there.
    oldest: usize,
    /// First row that was not asked for.
    next: usize,
    deadline: Instant,
    pause: Duration,
    heard: Instant,
    timing: Timing,
}

impl Read {
    pub(super) fn new(number: u32, rows: usize, now: Instant, timing: Timing) -> Self {
        Self {
            number,
            registers: vec![0; rows * KEYED_LANES],
            there: vec![false; rows],
            oldest: 0,
            next: 0,
            deadline: now,
            pause: timing.rto_min,
            heard: now,
            timing,
        }
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Takes a row; false when it is none of this reading.
    pub(super) fn take(&mut self, now: Instant, frame: &MapFrame<&[u8]>) -> bool {
        let row = frame.map().index() as usize;
        let ours = frame.base().seq() == self.number
            && frame.map().has(MapFlags::LINEAR)
            && frame.lanes().len() == KEYED_LANES * 4
            && self.there.get(row) == Some(&false);
        if !ours {
            return false;
        }
        let registers = &mut self.registers[row * KEYED_LANES..][..KEYED_LANES];
        registers.iter_mut().zip(narrow_lanes(frame.lanes())).for_each(|(register, value)| *register = value);
        self.there[row] = true;
        self.heard = now;
        self.pause = self.timing.rto_min;
        while self.there.get(self.oldest) == Some(&true) {
            self.oldest += 1;
        }
        // Room in the window: ask on at once.
        self.deadline = if self.next < self.there.len() { now } else { now + self.pause };
        true
    }

    /// All registers, once they are there.
    pub(super) fn finished(&mut self) -> Option<Vec<i32>> {
        (self.oldest == self.there.len()).then(|| std::mem::take(&mut self.registers))
    }

    /// Asks for rows; false when the element has not answered for the give-up time.
    pub(super) fn poll(&mut self, now: Instant, shared: &mut Shared, out: &mut impl Outbox) -> bool {
        if now < self.deadline {
            return true;
        }
        if now.since(self.heard) >= self.timing.give_up {
            return false;
        }
        let fresh = self.next..self.there.len().min(self.oldest + WINDOW);
        if fresh.is_empty() {
            let late: Vec<usize> = (self.oldest..self.next).filter(|row| !self.there[*row]).collect();
            late.into_iter().for_each(|row| self.ask(row, shared, out));
            self.pause = (self.pause * 2).min(self.timing.rto_max);
        }
        self.next = self.next.max(fresh.end);
        fresh.for_each(|row| self.ask(row, shared, out));
        self.deadline = now + self.pause;
        true
    }

    fn ask(&self, row: usize, shared: &mut Shared, out: &mut impl Outbox) {
        let mut base = shared.base(Kind::MapRead, 0);
        (base.dst, base.dst_incarnation) = (base.src, base.src_incarnation);
        base.seq = self.number;
        let map = MapRepr {
            flags: MapFlags::LINEAR | MapFlags::GET,
            lanes: KEYED_LANES as u16,
            index: row as u32,
            ..MapRepr::default()
        };
        let len = frame_len(map.flags, KEYED_LANES, 0);
        emit(&base, &map, &mut shared.scratch[..len]);
        shared.send(Dest::Element, len, out);
    }
}
