//! One call's keys, and the frames that carry them.

use std::collections::BTreeMap;

use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::pairs::{self, MAX_ENTRIES};
use pathcall_wire::{Flags, Instant, Kind, MAX_UNSIGNED, MapFlags, MapRepr, Target};

use super::super::super::ballot::row_of;
use super::super::super::{CallError, Dest, Key, Operation, Output};
use super::super::{ClientConfig, Place, frame};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    Count {
        threshold: u32,
        to: Target,
    },
    Clear,
    /// Tells the server of votes that the element had acknowledged.
    Claim {
        threshold: u32,
        to: Target,
    },
}

pub(super) struct Call {
    pub(super) work: Work,
    pub(super) keys: Vec<Key>,
    pub(super) values: Vec<i64>,
    pub(super) frames: Vec<Frame>,
    /// First frame that was not sent.
    pub(super) next_frame: usize,
    /// Frames without an answer, unsent ones included.
    pub(super) open: usize,
    /// Keys that are to come again.
    pub(super) later: Vec<u32>,
    /// Keys whose votes are counted and that wait for the decision, with the round of their ballots if
    /// this epoch's element has counted them.
    pub(super) waiting: BTreeMap<u32, Option<u32>>,
    /// Keys of a decision that was heard before the answer to their votes, which may come by another
    /// road; with its round in the element if that is known.
    pub(super) told: BTreeMap<u32, Option<u32>>,
    /// How often it has paused since a key last got further.
    pub(super) pauses: u32,
    pub(super) timer: Option<Instant>,
    /// A vote of it has decided its ballot.
    pub(super) won: bool,
    pub(super) detached: bool,
    pub(super) error: Option<CallError>,
}

pub(super) struct Frame {
    /// Row in the element; `None`: past it.
    pub(super) row: Option<u32>,
    pub(super) members: Vec<u32>,
    /// It asks whether the ballots that it voted in are decided.
    pub(super) asks: bool,
    pub(super) done: bool,
    /// Sent at least once.
    pub(super) emitted: bool,
}

impl Work {
    /// Whether its caller waits for the decision.
    pub(super) fn waits(self) -> bool {
        matches!(self, Self::Count { to: Target::All | Target::Src, .. })
    }

    /// Whether an answer with this value says that the vote has decided its ballot.
    pub(super) fn wins(self, value: i64) -> bool {
        matches!(self, Self::Count { threshold, to: Target::Server } if value == i64::from(threshold))
    }
}

impl Call {
    /// The call of an operation.
    ///
    /// # Panics
    /// When it neither counts nor clears.
    pub(super) fn new(operation: Operation) -> Self {
        match operation {
            Operation::Count { keys, threshold, to } => {
                let values = vec![1; keys.len()];
                Self::of(Work::Count { threshold, to }, keys, values)
            }
            Operation::Clear { keys, .. } => {
                let values = vec![0; keys.len()];
                Self::of(Work::Clear, keys, values)
            }
            Operation::Sum { .. } | Operation::Add { .. } => unreachable!("no votes"),
        }
    }

    pub(super) fn of(work: Work, keys: Vec<Key>, values: Vec<i64>) -> Self {
        Self {
            won: work.waits(),
            work,
            keys,
            values,
            frames: Vec::new(),
            next_frame: 0,
            open: 0,
            later: Vec::new(),
            waiting: BTreeMap::new(),
            told: BTreeMap::new(),
            pauses: 0,
            timer: None,
            detached: false,
            error: None,
        }
    }

    pub(super) fn output(&self) -> Output {
        match self.work {
            Work::Count { .. } => Output::Counted { forwarded: self.won },
            Work::Clear | Work::Claim { .. } => Output::Done,
        }
    }

    /// Packs keys into frames: by the element one each, past it as many as fit.
    pub(super) fn plan(&mut self, members: &[u32], rows: u32) {
        let rows = if matches!(self.work, Work::Claim { .. }) { 0 } else { rows };
        let mut past = Vec::new();
        for &i in members {
            match row_of(self.keys[i as usize].as_bytes(), rows) {
                Some(row) => self.push_frame(Some(row), vec![i], false),
                None => past.push(i),
            }
        }
        self.push_past(&past, false);
    }

    /// Forgets its frames if all are answered.
    pub(super) fn forget_answered(&mut self) {
        if self.open == 0 {
            self.frames.clear();
            self.next_frame = 0;
        }
    }

    /// The vote for a key is counted, in this round if the element did it: it waits for the decision.
    pub(super) fn wait(&mut self, member: u32, round: Option<u32>) {
        match self.told.remove(&member) {
            None => drop(self.waiting.insert(member, round)),
            Some(told) if told.is_some() && told == round => {}
            Some(_) => self.push_past(&[member], true),
        }
    }

    /// What was counted, or decided, in a round of this epoch's element is now known to have been, no more.
    pub(super) fn forget_rounds(&mut self) {
        self.waiting.values_mut().chain(self.told.values_mut()).for_each(|round| *round = None);
    }

    /// Hears that a key's ballot is decided, in the element's `round` if that is known; whether it
    /// waited for it.
    pub(super) fn hear(&mut self, key: &[u8], round: Option<u32>) -> bool {
        let Self { waiting, keys, .. } = self;
        let (mut ask, before) = (Vec::new(), waiting.len());
        waiting.retain(|i, counted| {
            let other = keys[*i as usize].as_bytes() != key;
            if !other && (round.is_none() || *counted != round) {
                ask.push(*i);
            }
            other
        });
        let heard = waiting.len() < before;
        let Self { told, frames, keys, .. } = self;
        let open = frames.iter().filter(|frame| frame.emitted && !frame.done);
        let early = open.flat_map(|frame| &frame.members).filter(|i| keys[**i as usize].as_bytes() == key);
        told.extend(early.map(|i| (*i, round)));
        self.push_past(&ask, true);
        heard
    }

    pub(super) fn push_past(&mut self, members: &[u32], asks: bool) {
        let mut rest = members;
        while !rest.is_empty() {
            let (frame, later) = rest.split_at(self.fitting(rest));
            self.push_frame(None, frame.to_vec(), asks);
            rest = later;
        }
    }

    pub(super) fn push_frame(&mut self, row: Option<u32>, members: Vec<u32>, asks: bool) {
        self.frames.push(Frame { row, members, asks, done: false, emitted: false });
        self.open += 1;
    }

    /// How many of these keys fit one frame; at least 1.
    pub(super) fn fitting(&self, members: &[u32]) -> usize {
        let room = MAX_UNSIGNED - frame_len(MapFlags::BARE, 0, 0);
        let mut used = 0;
        let fitting = members.iter().take(MAX_ENTRIES).take_while(|i| {
            used += pairs::entry_len(self.keys[**i as usize].as_bytes().len());
            used <= room
        });
        fitting.count().max(1)
    }

    /// Writes frame `index`; where it goes, its length, and its bytes of lanes.
    pub(super) fn emit(
        &mut self,
        index: usize,
        place: Place,
        config: &ClientConfig,
        out: &mut [u8],
    ) -> (Dest, usize, u64) {
        let (flags, threshold, to) = match self.work {
            Work::Count { threshold, to } => (MapFlags::COUNT, threshold, to),
            Work::Claim { threshold, to } => (MapFlags::COUNT | MapFlags::CLAIM, threshold, to),
            Work::Clear => (MapFlags::CLEAR, 0, Target::Src),
        };
        let Frame { row, members, asks, emitted, .. } = &mut self.frames[index];
        let flags = flags | if *asks { MapFlags::GET } else { 0 };
        let base_flags = if row.is_some() { 0 } else { Flags::CROSS };
        let base = frame::base(Kind::MapPairs, place, base_flags, 0, config);
        let payload: usize = members.iter().map(|i| pairs::entry_len(self.keys[*i as usize].as_bytes().len())).sum();
        let map = MapRepr {
            to: to as u8,
            flags: MapFlags::BARE | flags,
            index: row.unwrap_or(0),
            threshold,
            payload_len: payload as u16,
            ..MapRepr::default()
        };
        let len = frame_len(map.flags, 0, payload);
        let mut written = emit(&base, &map, &mut out[..len]);
        let mut rest = written.payload_mut();
        for &i in members.iter() {
            let i = i as usize;
            rest = pairs::put(rest, self.keys[i].as_bytes(), self.values[i]).expect("counted above");
        }
        let lane_bytes = if std::mem::replace(emitted, true) { 0 } else { payload as u64 };
        (if row.is_some() { frame::by_element(config) } else { Dest::Endpoint(config.server) }, len, lane_bytes)
    }
}
