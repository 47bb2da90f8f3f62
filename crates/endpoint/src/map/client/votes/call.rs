//! Ballot call: its keys and frames.

use std::collections::BTreeMap;

use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::pairs::{self, MAX_ENTRIES};
use pathcall_wire::{Flags, ForwardTarget, FrameKind, Instant, MAX_UNSIGNED, MapFlags, MapRepr, Mutant, mutant};

use super::super::super::ballot::row_of;
use super::super::super::{Ack, CallError, Dest, Key, Operation, Output};
use super::super::{ClientConfig, FlowPosition, frames};

/// Operation on ballots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VoteOp {
    Count {
        threshold: u32,
        to: ForwardTarget,
        ack: Ack,
    },
    Clear,
    /// Claim of votes that the element had acknowledged, or of decisions that it had announced.
    Claim {
        threshold: u32,
        to: ForwardTarget,
    },
}

/// Ballot call in progress.
pub(super) struct VoteCall {
    pub(super) op: VoteOp,
    pub(super) keys: Vec<Key>,
    pub(super) values: Vec<i64>,
    pub(super) frames: Vec<Frame>,
    /// First unsent frame.
    pub(super) next_frame: usize,
    /// Number of frames without an answer, unsent frames included.
    pub(super) open: usize,
    /// Keys to send again later.
    pub(super) later: Vec<u32>,
    /// Keys whose votes are counted and that wait for the decision, with the round of the ballot if the element counted
    /// the vote in this epoch.
    pub(super) waiting: BTreeMap<u32, Option<u32>>,
    /// Keys whose decision was announced before the answer to the vote, which may take another path; with the round in
    /// the element, if known.
    pub(super) decided_early: BTreeMap<u32, Option<u32>>,
    /// Number of pauses since the last progress of a key.
    pub(super) pauses: u32,
    pub(super) timer: Option<Instant>,
    /// For each key, whether the vote of this call decided its ballot.
    pub(super) won: Vec<bool>,
    pub(super) detached: bool,
    pub(super) error: Option<CallError>,
}

/// Frame of a ballot call.
pub(super) struct Frame {
    /// Row in the element; `None` for a frame past the element.
    pub(super) row: Option<u32>,
    pub(super) members: Vec<u32>,
    /// Whether the frame queries the decision instead of voting.
    pub(super) is_query: bool,
    pub(super) done: bool,
    /// Whether the frame was sent.
    pub(super) emitted: bool,
}

impl VoteOp {
    /// Whether the caller waits for the decision.
    pub(super) fn waits(self) -> bool {
        matches!(self, Self::Count { to: ForwardTarget::All | ForwardTarget::Src, .. })
    }

    /// Whether an answer with this value says that the vote decided its ballot.
    pub(super) fn is_deciding(self, value: i64) -> bool {
        matches!(self, Self::Count { threshold, to: ForwardTarget::Server, .. } if value == i64::from(threshold))
    }
}

impl VoteCall {
    /// Call of an operation.
    ///
    /// # Panics
    /// If the operation neither counts nor clears.
    pub(super) fn new(operation: Operation) -> Self {
        match operation {
            Operation::Count { keys, threshold, to, ack } => {
                let values = vec![1; keys.len()];
                Self::with_values(VoteOp::Count { threshold, to, ack }, keys, values)
            }
            Operation::Clear { keys, .. } => {
                let values = vec![0; keys.len()];
                Self::with_values(VoteOp::Clear, keys, values)
            }
            Operation::Sum { .. } | Operation::Add { .. } | Operation::Read { .. } => {
                unreachable!("not an operation on ballots")
            }
        }
    }

    pub(super) fn with_values(op: VoteOp, keys: Vec<Key>, values: Vec<i64>) -> Self {
        Self {
            won: vec![op.waits(); keys.len()],
            op,
            keys,
            values,
            frames: Vec::new(),
            next_frame: 0,
            open: 0,
            later: Vec::new(),
            waiting: BTreeMap::new(),
            decided_early: BTreeMap::new(),
            pauses: 0,
            timer: None,
            detached: false,
            error: None,
        }
    }

    pub(super) fn output(&self) -> Output {
        match self.op {
            VoteOp::Count { .. } => Output::Counted { forwarded: self.won.clone() },
            VoteOp::Clear | VoteOp::Claim { .. } => Output::Done,
        }
    }

    /// Packs keys into frames: one key per frame to the element, as many as fit past the element.
    pub(super) fn pack(&mut self, members: &[u32], rows: u32) {
        let rows = if matches!(self.op, VoteOp::Claim { .. }) { 0 } else { rows };
        let mut past = Vec::new();
        for &i in members {
            match row_of(self.keys[i as usize].as_bytes(), rows) {
                Some(row) => self.push_frame(Some(row), vec![i], false),
                None => past.push(i),
            }
        }
        self.push_software(&past, false);
    }

    /// Removes the frames if all are answered.
    pub(super) fn forget_answered(&mut self) {
        if self.open == 0 {
            self.frames.clear();
            self.next_frame = 0;
        }
    }

    /// Records that the vote for a key is counted, with the round if the element counted it. The key waits for the
    /// decision.
    pub(super) fn wait_for_decision(&mut self, member: u32, round: Option<u32>, rows: u32) {
        match self.decided_early.remove(&member) {
            None => drop(self.waiting.insert(member, round)),
            Some(decided_early) if decided_early.is_some() && decided_early == round => {}
            Some(_) => self.push_queries(&[member], rows),
        }
    }

    /// Removes the round numbers of an ended epoch.
    pub(super) fn forget_rounds(&mut self) {
        self.waiting.values_mut().chain(self.decided_early.values_mut()).for_each(|round| *round = None);
    }

    /// Handles the decision of a key's ballot, with the round in the element if known. Returns whether this call waited
    /// for it. `rows`: number of rows in the element.
    pub(super) fn on_decision(&mut self, key: &[u8], round: Option<u32>, rows: u32) -> bool {
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
        let Self { decided_early, frames, keys, .. } = self;
        let open = frames.iter().filter(|frame| frame.emitted && !frame.done);
        let early = open.flat_map(|frame| &frame.members).filter(|i| keys[**i as usize].as_bytes() == key);
        decided_early.extend(early.map(|i| (*i, round)));
        self.push_queries(&ask, rows);
        heard
    }

    /// Whether this call waits for the decision of a key's ballot, or has a vote for it in flight.
    pub(super) fn concerns(&self, key: &[u8]) -> bool {
        let is_key = |i: &u32| self.keys[*i as usize].as_bytes() == key;
        let open = self.frames.iter().filter(|frame| frame.emitted && !frame.done);
        self.waiting.keys().chain(open.flat_map(|frame| &frame.members)).any(is_key)
    }

    /// Packs queries for the decisions of keys: by the element, which may have decided without the server.
    pub(super) fn push_queries(&mut self, members: &[u32], rows: u32) {
        let mut past = Vec::new();
        for &i in members {
            match row_of(self.keys[i as usize].as_bytes(), rows) {
                Some(row) => self.push_frame(Some(row), vec![i], true),
                None => past.push(i),
            }
        }
        self.push_software(&past, true);
    }

    pub(super) fn push_software(&mut self, members: &[u32], is_query: bool) {
        let mut rest = members;
        while !rest.is_empty() {
            let (frame, later) = rest.split_at(self.count_fitting(rest));
            self.push_frame(None, frame.to_vec(), is_query);
            rest = later;
        }
    }

    pub(super) fn push_frame(&mut self, row: Option<u32>, members: Vec<u32>, is_query: bool) {
        self.frames.push(Frame { row, members, is_query, done: false, emitted: false });
        self.open += 1;
    }

    /// Number of these keys that fit a frame; at least 1.
    pub(super) fn count_fitting(&self, members: &[u32]) -> usize {
        let room = MAX_UNSIGNED - frame_len(MapFlags::BARE, 0, 0);
        let mut used = 0;
        let fitting = members.iter().take(MAX_ENTRIES).take_while(|i| {
            used += pairs::entry_len(self.keys[**i as usize].as_bytes().len());
            used <= room
        });
        fitting.count().max(1)
    }

    /// Writes frame `index`. Returns destination, length, and bytes of lanes on the first transmission.
    pub(super) fn emit(
        &mut self,
        index: usize,
        position: FlowPosition,
        config: &ClientConfig,
        out: &mut [u8],
    ) -> (Dest, usize, u64) {
        let (flags, threshold, to) = match self.op {
            VoteOp::Count { threshold, to, ack: Ack::Server } if !mutant::on(Mutant::DecisionTooSoon) => {
                (MapFlags::COUNT | MapFlags::WAIT, threshold, to)
            }
            VoteOp::Count { threshold, to, .. } => (MapFlags::COUNT, threshold, to),
            VoteOp::Claim { threshold, to } => (MapFlags::COUNT | MapFlags::CLAIM, threshold, to),
            VoteOp::Clear => (MapFlags::CLEAR, 0, ForwardTarget::Src),
        };
        let Frame { row, members, is_query, emitted, .. } = &mut self.frames[index];
        let flags = flags | if *is_query { MapFlags::GET } else { 0 };
        let base_flags = if row.is_some() { 0 } else { Flags::CROSS };
        let base = frames::base_header(FrameKind::MapPairs, position, base_flags, 0, config);
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
            rest = pairs::put(rest, self.keys[i].as_bytes(), self.values[i]).expect("length computed above");
        }
        let lane_bytes = if std::mem::replace(emitted, true) { 0 } else { payload as u64 };
        (if row.is_some() { frames::element_dest(config) } else { Dest::Endpoint(config.server) }, len, lane_bytes)
    }
}
