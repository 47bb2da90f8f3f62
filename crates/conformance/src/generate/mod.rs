//! Random step generator: valid flows of all kinds, and disturbances.
//!
//! ```text
//! seed ─► planned applications, endpoints ─► weighted choice ─┬─ valid frame: arrays, keyed, locks, ballots, server
//!              ▲                                              ├─ repeat of an earlier frame
//!              │ state of rounds, generations and locks       ├─ forged or damaged frame
//!         reference, one step ahead                           └─ change of the tables
//! ```
//!
//! The generator has its own reference program, so that most frames name the current round, version or lock, and some a
//! neighbouring one. Keys, rows, slots and numbers are few, so that frames interact. Frames have at most [`MAX_FRAME`]
//! bytes.

mod arrays;
mod ballots;
mod calls;
mod forge;
mod keyed;
mod locks;
mod server;
mod tables;

use std::collections::VecDeque;

use pathcall_program::{CloneSize, Size, SwitchProgram};
use pathcall_wire::base::flip;
use pathcall_wire::{BaseRepr, Flags, FrameKind, Instant, MAX_FRAME};

use crate::{ProgramStep, RandomChoice};
use calls::{POOLS, PoolPlan};
use pathcall_wire::SplitMix64;
use tables::PlannedApplication;

/// Memory for the generated steps: an execution has at least this size, and refuses requests beyond it.
pub const SIZE: Size = Size { rows: 17, lanes: 2048, slots: 17 };

/// Size of the call tables: few slots, so that calls collide.
pub const CLONES: CloneSize = CloneSize { pools: 3, requests: 4, filters: 2, slots: 4 };

/// Number of applications; the one with index `i` has GAID `i + 1`.
const APPLICATIONS: usize = 4;
/// Number of past frames that may be repeated.
const PAST: usize = 512;

/// Options of the generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GeneratorOptions {
    /// Frames of some applications carry tokens.
    pub tokens: bool,
    /// No table changes after the initial ones.
    pub steady: bool,
    /// Applications of the hardware profile, with rows of at most 32 lanes or of two banks.
    pub hardware: bool,
}

/// Infinite iterator of steps; the first ones fill the tables.
#[derive(Debug)]
pub struct Generator {
    random: SplitMix64,
    options: GeneratorOptions,
    /// Reference program, one step ahead of the compared executions.
    program: SwitchProgram,
    now: u64,
    plans: [PlannedApplication; APPLICATIONS],
    pools: [PoolPlan; POOLS],
    /// Last number of each flow slot.
    seqs: [u32; SIZE.slots],
    /// Recent frames that were valid when generated.
    past: Vec<Vec<u8>>,
    /// Pending steps.
    waiting: VecDeque<ProgramStep>,
}

/// Kind of the next step.
#[derive(Debug, Clone, Copy)]
enum StepKind {
    Fresh,
    Again,
    Forged,
    Damaged,
    Tables,
}

/// Subject of a frame.
#[derive(Debug, Clone, Copy)]
enum Topic {
    Part,
    Result,
    Pairs,
    Lock,
    Free,
    Vote,
    Decided,
    Move,
    Read,
    Close,
    Places,
    Wipe,
    Other,
}

/// Frames in an application of arrays, with weights.
const OF_ARRAYS: [(u32, Topic); 8] = [
    (60, Topic::Part),
    (16, Topic::Result),
    (2, Topic::Pairs),
    (4, Topic::Vote),
    (1, Topic::Decided),
    (6, Topic::Read),
    (1, Topic::Close),
    (6, Topic::Other),
];
/// Frames in an application of keys, with weights.
const OF_KEYS: [(u32, Topic); 13] = [
    (90, Topic::Pairs),
    (40, Topic::Lock),
    (12, Topic::Free),
    (30, Topic::Vote),
    (6, Topic::Decided),
    (1, Topic::Move),
    (8, Topic::Read),
    (5, Topic::Close),
    (6, Topic::Places),
    (8, Topic::Wipe),
    (8, Topic::Part),
    (3, Topic::Result),
    (10, Topic::Other),
];

impl Generator {
    /// Steps of this seed.
    #[must_use]
    pub fn new(seed: u64, options: GeneratorOptions) -> Self {
        let mut random = SplitMix64::new(seed);
        let plans = std::array::from_fn(|index| PlannedApplication::new(&mut random, index, options.hardware));
        let mut generator = Self {
            random,
            options,
            program: crate::program(SIZE),
            now: 0,
            plans,
            pools: std::array::from_fn(PoolPlan::new),
            seqs: [0; SIZE.slots],
            past: Vec::with_capacity(PAST),
            waiting: VecDeque::new(),
        };
        for application in 0..APPLICATIONS {
            generator.install_all(application);
        }
        generator.install_pools();
        generator
    }

    fn draw_step(&mut self) -> ProgramStep {
        let tables = if self.options.steady { 0 } else { 9 };
        let what = [
            (780, StepKind::Fresh),
            (140, StepKind::Again),
            (50, StepKind::Forged),
            (24, StepKind::Damaged),
            (tables, StepKind::Tables),
        ];
        let bytes = match self.random.weighted(&what) {
            StepKind::Tables => return self.table_change(),
            StepKind::Again if !self.past.is_empty() => {
                // Usually one of the most recent frames.
                let back = if self.random.percent(70) { 12 } else { PAST as u32 };
                let back = 1 + self.random.index((back as usize).min(self.past.len()));
                let at = (self.now as usize).wrapping_sub(back);
                self.past[at % self.past.len()].clone()
            }
            StepKind::Fresh | StepKind::Again => {
                let bytes = self.valid_frame();
                self.remember(&bytes);
                bytes
            }
            StepKind::Forged => {
                let bytes = self.valid_frame();
                self.forge(bytes)
            }
            StepKind::Damaged => {
                let bytes = self.valid_frame();
                self.damage(bytes)
            }
        };
        debug_assert!(bytes.len() <= MAX_FRAME);
        ProgramStep::Frame { bytes, congested: self.random.percent(5) }
    }

    /// Frame of an installed or planned sender.
    fn valid_frame(&mut self) -> Vec<u8> {
        if self.random.once_in(4) {
            return self.call_frame();
        }
        let a = self.random.index(APPLICATIONS);
        let topic = match self.plans[a].is_keyed() {
            true => self.random.weighted(&OF_KEYS),
            false => self.random.weighted(&OF_ARRAYS),
        };
        let bytes = match topic {
            Topic::Part => self.worker_part(a),
            Topic::Result => self.round_result(a),
            Topic::Pairs => self.pair_frame(a),
            Topic::Lock => self.lock_frame(a),
            Topic::Free => self.lock_release(a),
            Topic::Vote => self.vote(a),
            Topic::Decided => self.ballot_decision(a),
            Topic::Move => self.ballot_move(a),
            Topic::Read => self.row_read(a),
            Topic::Close => self.generation_close(a),
            Topic::Places => self.places_query(a),
            Topic::Wipe => self.row_clear(a),
            Topic::Other => self.other_frame(a),
        };
        self.with_token(a, bytes)
    }

    /// Adds the token, if the application's frames carry one.
    fn with_token(&self, a: usize, bytes: Vec<u8>) -> Vec<u8> {
        let sealed =
            self.plans[a].key.and_then(|key| key.insert_token(&bytes, &mut [0; MAX_FRAME]).map(<[u8]>::to_vec));
        sealed.unwrap_or(bytes)
    }

    fn remember(&mut self, bytes: &[u8]) {
        if self.past.len() < PAST {
            self.past.push(bytes.to_vec());
        } else {
            let at = self.now as usize % PAST;
            self.past[at].clear();
            self.past[at].extend_from_slice(bytes);
        }
    }

    /// Base header of a caller's frame to its server.
    fn caller_head(&mut self, a: usize, kind: FrameKind) -> BaseRepr {
        let caller = self.pick_caller(a);
        let endpoint = self.plans[a].endpoints[caller];
        let slot = endpoint.slot_base + self.random.below(endpoint.slots);
        let seq = self.next_number(slot);
        let owner = self.plans[a].endpoints[self.plans[a].owner_index()];
        let to = if self.random.percent(97) { owner } else { self.plans[a].endpoints[self.random.index(4)] };
        BaseRepr {
            flags: flip(seq),
            gaid: self.plans[a].application.gaid,
            epoch: self.plans[a].application.epoch,
            src: endpoint.endpoint,
            src_incarnation: endpoint.incarnation,
            dst: to.endpoint,
            dst_incarnation: to.incarnation,
            slot,
            seq,
            ..BaseRepr::new(kind)
        }
    }

    /// Base header of a server's frame to one of its callers, or to all.
    fn server_head(&mut self, a: usize, kind: FrameKind, mcast: bool) -> BaseRepr {
        let caller = self.pick_caller(a);
        let to = self.plans[a].endpoints[caller];
        let owner = self.plans[a].endpoints[self.plans[a].owner_index()];
        BaseRepr {
            flags: Flags::FROM_SERVER | if mcast { Flags::MCAST } else { 0 },
            gaid: self.plans[a].application.gaid,
            epoch: self.plans[a].application.epoch,
            src: owner.endpoint,
            src_incarnation: owner.incarnation,
            dst: to.endpoint,
            dst_incarnation: to.incarnation,
            slot: self.random.below(4),
            seq: self.random.below(300),
            ..BaseRepr::new(kind)
        }
    }

    /// Index of a caller in the plan, usually an installed one.
    fn pick_caller(&mut self, a: usize) -> usize {
        let drawn = 1 + self.random.index(3);
        let there = |caller: &usize| self.plans[a].present[*caller];
        if there(&drawn) { drawn } else { (1..4).find(there).unwrap_or(drawn) }
    }

    /// Next number of a slot; sometimes a new frame with the last number, an earlier number, or a number several
    /// windows ahead.
    fn next_number(&mut self, slot: u32) -> u32 {
        let Some(last) = self.seqs.get_mut(slot as usize) else { return 1 };
        match self.random.below(100) {
            0..4 => *last,
            4..8 => last.saturating_sub(self.random.below(300)),
            8..10 => {
                // Numbers with the same places in the window.
                *last = last.wrapping_add(256 * (1 + self.random.below(3))).wrapping_sub(self.random.below(16));
                *last
            }
            _ => {
                *last = last.wrapping_add(1);
                *last
            }
        }
    }

    /// Row, usually one of the application's.
    fn pick_row(&mut self, a: usize) -> u32 {
        let rows = self.plans[a].application.rows;
        match self.random.below(40) {
            0 => rows + self.random.below(2),
            1 => self.random.pick(&[u32::MAX, 1 << 31, 1 << 16]),
            _ => self.random.below(rows),
        }
    }

    /// Index of a row in the register arrays, if it belongs to the application.
    fn register_index(&self, a: usize, row: u32) -> Option<usize> {
        let application = self.plans[a].application;
        (row < application.rows).then(|| (application.row_base + row) as usize)
    }

    /// Usually the given number, sometimes a near one.
    fn number_near(&mut self, number: u32) -> u32 {
        match self.random.below(20) {
            0 => number.wrapping_add(1),
            1 => number.wrapping_sub(1),
            2 => number.saturating_sub(self.random.below(4)),
            _ => number,
        }
    }
}

impl Iterator for Generator {
    type Item = ProgramStep;

    fn next(&mut self) -> Option<ProgramStep> {
        let step = match self.waiting.pop_front() {
            Some(step) => step,
            None => self.draw_step(),
        };
        self.now += 1;
        let now = Instant(self.now);
        if let ProgramStep::Frame { bytes, congested } = &step {
            let mut buffer = [0; MAX_FRAME];
            let frame = &mut buffer[..bytes.len()];
            frame.copy_from_slice(bytes);
            self.program.process(now, frame, *congested);
        } else {
            // The reference has no transport failures; refusals are recorded in the plan.
            let effect = step.apply(now, &mut self.program);
            self.record_result(&step, effect.is_ok_and(|effect| effect == crate::StepEffect::Changed));
        }
        Some(step)
    }
}
