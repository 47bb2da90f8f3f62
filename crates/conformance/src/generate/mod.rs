//! Random steps from a seed that get deep: valid flows of all kinds, and what disturbs them.
//!
//! ```text
//! seed ─► plan: applications, endpoints ─► weighted choice ─┬─ a valid frame: arrays, keyed, locks, ballots, server
//!              ▲                                            ├─ again: a frame of the past, however old
//!              │ where rounds, generations and locks stand  ├─ forged, or damaged
//!         the reference, one step ahead                     └─ a change of the tables
//! ```
//!
//! The generator has a reference of its own to look into, so that most frames name the round, the
//! version or the lock that is there, and some the one beside it. Keys, rows, slots and numbers are
//! few, so that frames meet each other. Frames are no longer than [`MAX_FRAME`].

mod arrays;
mod ballots;
mod calls;
mod forge;
mod keyed;
mod locks;
mod server;
mod tables;

use std::collections::VecDeque;

use pathcall_program::{CloneSize, Program, Size};
use pathcall_wire::base::flip;
use pathcall_wire::{BaseRepr, Flags, Instant, Kind, MAX_FRAME};

use crate::{Random, Step};
use calls::{POOLS, PoolPlan};
use tables::Plan;

/// Memory that the steps are made for: an execution has at least that much, and refuses no less.
pub const SIZE: Size = Size { rows: 17, lanes: 2048, slots: 17 };

/// Tables for calls that the steps are made for: few slots, so that calls meet in them.
pub const CLONES: CloneSize = CloneSize { pools: 3, requests: 4, filters: 2, slots: 4 };

/// Applications; that of index `i` is known as `i + 1`.
const APPLICATIONS: usize = 4;
/// Frames of the past that may come again.
const PAST: usize = 512;

/// What kinds of steps there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Some applications' frames carry tokens.
    pub tokens: bool,
    /// No changes of the tables after those at the beginning.
    pub steady: bool,
    /// Applications of the hardware profile, with rows of at most 32 lanes or of two banks.
    pub hardware: bool,
}

/// Steps without end; the first of them fill the tables.
#[derive(Debug)]
pub struct Generator {
    random: Random,
    options: Options,
    /// One step ahead of those who are compared.
    program: Program,
    now: u64,
    plans: [Plan; APPLICATIONS],
    pools: [PoolPlan; POOLS],
    /// The last number of each flow slot.
    seqs: [u32; SIZE.slots],
    /// The last frames that were valid when they were made.
    past: Vec<Vec<u8>>,
    /// Steps that are decided already.
    waiting: VecDeque<Step>,
}

/// What a step may be.
#[derive(Debug, Clone, Copy)]
enum Draw {
    Fresh,
    Again,
    Forged,
    Damaged,
    Tables,
}

/// What a frame may be about.
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

/// What is said in an application of arrays.
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
/// What is said in an application of keys.
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
    /// The steps of this seed.
    #[must_use]
    pub fn new(seed: u64, options: Options) -> Self {
        let mut random = Random::new(seed);
        let plans = std::array::from_fn(|index| Plan::new(&mut random, index, options.hardware));
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

    fn draw(&mut self) -> Step {
        let tables = if self.options.steady { 0 } else { 9 };
        let what =
            [(780, Draw::Fresh), (140, Draw::Again), (50, Draw::Forged), (24, Draw::Damaged), (tables, Draw::Tables)];
        let bytes = match self.random.weighted(&what) {
            Draw::Tables => return self.change(),
            Draw::Again if !self.past.is_empty() => {
                // Mostly of the last ones.
                let back = if self.random.percent(70) { 12 } else { PAST as u32 };
                let back = 1 + self.random.index((back as usize).min(self.past.len()));
                let at = (self.now as usize).wrapping_sub(back);
                self.past[at % self.past.len()].clone()
            }
            Draw::Fresh | Draw::Again => {
                let bytes = self.fresh();
                self.remember(&bytes);
                bytes
            }
            Draw::Forged => {
                let bytes = self.fresh();
                self.forge(bytes)
            }
            Draw::Damaged => {
                let bytes = self.fresh();
                self.damage(bytes)
            }
        };
        debug_assert!(bytes.len() <= MAX_FRAME);
        Step::Frame { bytes, congested: self.random.percent(5) }
    }

    /// A frame of one that is in the tables, or was to be.
    fn fresh(&mut self) -> Vec<u8> {
        if self.random.once_in(4) {
            return self.call();
        }
        let a = self.random.index(APPLICATIONS);
        let topic = match self.plans[a].is_of_keys() {
            true => self.random.weighted(&OF_KEYS),
            false => self.random.weighted(&OF_ARRAYS),
        };
        let bytes = match topic {
            Topic::Part => self.part(a),
            Topic::Result => self.result(a),
            Topic::Pairs => self.pairs(a),
            Topic::Lock => self.lock(a),
            Topic::Free => self.free(a),
            Topic::Vote => self.vote(a),
            Topic::Decided => self.decided(a),
            Topic::Move => self.moves(a),
            Topic::Read => self.read(a),
            Topic::Close => self.close(a),
            Topic::Places => self.places(a),
            Topic::Wipe => self.wipe(a),
            Topic::Other => self.other(a),
        };
        self.sealed(a, bytes)
    }

    /// With its token, if the application's frames carry one.
    fn sealed(&self, a: usize, bytes: Vec<u8>) -> Vec<u8> {
        let sealed = self.plans[a].key.and_then(|key| key.seal(&bytes, &mut [0; MAX_FRAME]).map(<[u8]>::to_vec));
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

    /// The base header of a caller's frame to its server.
    fn caller_head(&mut self, a: usize, kind: Kind) -> BaseRepr {
        let caller = self.caller(a);
        let endpoint = self.plans[a].endpoints[caller];
        let slot = endpoint.slot_base + self.random.below(endpoint.slots);
        let seq = self.number(slot);
        let owner = self.plans[a].endpoints[self.plans[a].owner()];
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

    /// The base header of a server's frame to one of its callers, or to all.
    fn server_head(&mut self, a: usize, kind: Kind, mcast: bool) -> BaseRepr {
        let caller = self.caller(a);
        let to = self.plans[a].endpoints[caller];
        let owner = self.plans[a].endpoints[self.plans[a].owner()];
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

    /// A caller, by its place in the plan: mostly one that is in the tables.
    fn caller(&mut self, a: usize) -> usize {
        let drawn = 1 + self.random.index(3);
        let there = |caller: &usize| self.plans[a].present[*caller];
        if there(&drawn) { drawn } else { (1..4).find(there).unwrap_or(drawn) }
    }

    /// The next number of a slot: mostly the next; or a new frame under the last one's, one of those
    /// before it, or windows ahead.
    fn number(&mut self, slot: u32) -> u32 {
        let Some(last) = self.seqs.get_mut(slot as usize) else { return 1 };
        match self.random.below(100) {
            0..4 => *last,
            4..8 => last.saturating_sub(self.random.below(300)),
            8..10 => {
                // The same places again.
                *last = last.wrapping_add(256 * (1 + self.random.below(3))).wrapping_sub(self.random.below(16));
                *last
            }
            _ => {
                *last = last.wrapping_add(1);
                *last
            }
        }
    }

    /// A row: mostly one of the application's.
    fn row(&mut self, a: usize) -> u32 {
        let rows = self.plans[a].application.rows;
        match self.random.below(40) {
            0 => rows + self.random.below(2),
            1 => self.random.pick(&[u32::MAX, 1 << 31, 1 << 16]),
            _ => self.random.below(rows),
        }
    }

    /// Where the row is in the register arrays, if it is the application's.
    fn register(&self, a: usize, row: u32) -> Option<usize> {
        let application = self.plans[a].application;
        (row < application.rows).then(|| (application.row_base + row) as usize)
    }

    /// A number that is mostly this one, or else near it.
    fn near(&mut self, number: u32) -> u32 {
        match self.random.below(20) {
            0 => number.wrapping_add(1),
            1 => number.wrapping_sub(1),
            2 => number.saturating_sub(self.random.below(4)),
            _ => number,
        }
    }
}

impl Iterator for Generator {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let step = match self.waiting.pop_front() {
            Some(step) => step,
            None => self.draw(),
        };
        self.now += 1;
        let now = Instant(self.now);
        if let Step::Frame { bytes, congested } = &step {
            let mut buffer = [0; MAX_FRAME];
            let frame = &mut buffer[..bytes.len()];
            frame.copy_from_slice(bytes);
            self.program.process(now, frame, *congested);
        } else {
            // It has no failures of its own; what it refuses is taken note of.
            let effect = step.apply(now, &mut self.program);
            self.note(&step, effect.is_ok_and(|effect| effect == crate::Effect::Changed));
        }
        Some(step)
    }
}
