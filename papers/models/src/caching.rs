//! Model of cache eviction in a map: hit ratio of the real mapping and of simple rules (NetRPC §6.4, Fig. 12).
//!
//! Two callers count the words of a [`Stream`]. Few words are frequent, and the set of frequent words may change. The
//! element
//! adds the words that have a register, the server adds all others. The hit ratio is the element's share of the
//! additions.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use pathcall_endpoint::map::server::EvictionPolicy;
use pathcall_endpoint::map::{Ack, Key, Modify, Operation};
use pathcall_program::Size;
use pathcall_sim::Simulation;
use pathcall_sim::map::scenario::{ApplicationPlan, MapCallerPlan, RegisterRange, Scenario, Step};
use pathcall_sim::map::{MapOutcome, MapSimulation};
use pathcall_sim::random::Random;
use pathcall_wire::Instant;

/// Number of different words.
const WORDS: u64 = 2_000;
/// Words of one call, repeated words included.
const WORDS_OF_CALL: usize = 60;
/// Rows of an application, and keyed registers per row.
const ROWS: u32 = 4;
const REGISTERS_OF_ROW: u32 = 32;
/// Registers available to words.
pub const REGISTERS: u32 = ROWS * REGISTERS_OF_ROW;
/// Parts of a stream, of equal length. Each part may have its own frequent words.
pub const PARTS: u64 = 6;
/// Pause between two calls of a caller.
const PAUSE: Duration = Duration::from_millis(10);
/// Multiplier that maps consecutive numbers to scattered ones (Knuth's multiplicative hash, in 64 bits).
const SCATTER: u64 = 0x9E37_79B9_7F4A_7C15;

/// Stream of words that two callers count.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stream {
    /// Exponent of Zipf's law: the word of rank k is `k^-skew` times as frequent as the first. 0: all words are equally
    /// frequent.
    pub skew: f64,
    /// Number of changes of the frequent words, at most [`PARTS`] - 1.
    pub drifts: u64,
    /// Calls of each caller in each of the [`PARTS`].
    pub calls: u64,
}

/// Rule that assigns registers to words, without eviction. Modelled without a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegisterRule {
    /// A word gets the register of its hash value, unless another word has that register.
    Hash,
    /// A word gets a free register once the word was used more than this number of times (the power of N). 0: first
    /// come, first served.
    MoreThan(u32),
}

/// Words of one call, each with its number of occurrences.
type WordCounts = BTreeMap<u64, i64>;

impl Stream {
    /// Runs the stream with the real endpoints and the real program. Without an [`EvictionPolicy`], words keep their
    /// registers.
    #[must_use]
    pub fn play(&self, eviction: Option<EvictionPolicy>) -> MapOutcome {
        let callers = (0..).zip(self.callers()).map(|(number, calls)| caller(number, calls)).collect();
        MapSimulation::play(&Scenario {
            seed: 1,
            faults_until: Instant(0) + PAUSE * (PARTS * self.calls) as u32,
            elements: vec![Size { rows: ROWS as usize, lanes: (ROWS * 2 * REGISTERS_OF_ROW) as usize, slots: 2 }],
            applications: vec![ApplicationPlan {
                memory: Some(RegisterRange { element: 0, row_base: 0, rows: ROWS, lane_base: 0, width: 64 }),
                eviction,
                callers,
                ..ApplicationPlan::default()
            }],
            ..Scenario::default()
        })
    }

    /// Share of the additions whose word has a register under `rule`.
    #[must_use]
    pub fn hit_ratio_by_rule(&self, rule: RegisterRule) -> f64 {
        let mut registers = Registers::new(rule);
        let [one, other] = self.callers();
        let (mut hits, mut all) = (0_u32, 0_u32);
        for word in one.iter().zip(&other).flat_map(|(one, other)| one.keys().chain(other.keys())) {
            hits += u32::from(registers.use_word(*word));
            all += 1;
        }
        f64::from(hits) / f64::from(all)
    }

    /// Calls of each caller.
    fn callers(&self) -> [Vec<WordCounts>; 2] {
        let mut random = Random::new(7);
        let mut sum = 0;
        let mut weigh = |rank: u64| {
            sum += (1e6 * (rank as f64).powf(-self.skew)) as u64;
            sum
        };
        let weights: Vec<u64> = (1..=WORDS).map(&mut weigh).collect();
        let shifts = (0..PARTS * self.calls).map(|call| call / self.calls.max(1) * (self.drifts + 1) / PARTS);
        let mut calls = || shifts.clone().map(|shift| words(&mut random, &weights, shift)).collect();
        [calls(), calls()]
    }
}

/// Share of the additions that the element executed.
#[must_use]
pub fn hits(outcome: &MapOutcome) -> f64 {
    let (element, software) = (outcome.counts.lanes_element, outcome.counts.lanes_software);
    element as f64 / (element + software) as f64
}

/// Draws the words of a call. `weights`: cumulative weights of the ranks; `shift`: offset of the mapping from rank to
/// word.
fn words(random: &mut Random, weights: &[u64], shift: u64) -> WordCounts {
    let mut counts = WordCounts::new();
    for _ in 0..WORDS_OF_CALL {
        let point = random.below(weights.last().copied().unwrap_or(1));
        let rank = weights.partition_point(|sum| *sum <= point) as u64;
        *counts.entry((rank * 7 + shift * 331) % WORDS).or_default() += 1;
    }
    counts
}

fn caller(number: u32, calls: Vec<WordCounts>) -> MapCallerPlan {
    let step = |call: WordCounts| {
        let pairs = call.into_iter().map(|(word, count)| (Key::from(format!("word-{word}").as_str()), count)).collect();
        let add = Operation::Add { pairs, modify: Modify::default(), get: false, ack: Ack::Element };
        Step { pause: PAUSE, ..Step::call(add) }
    };
    MapCallerPlan {
        endpoint: 10 + number,
        incarnation: 1,
        slot_base: number,
        flows: 1,
        registered: true,
        by_element: true,
        joins: Instant(0),
        crash: None,
        leaves: None,
        succeeds: None,
        outstanding: 1,
        steps: calls.into_iter().map(step).collect(),
    }
}

/// Registers assigned by a rule, without eviction.
struct Registers {
    rule: RegisterRule,
    /// Owner of each register, for [`RegisterRule::Hash`].
    owners: HashMap<u32, u64>,
    /// Uses of each word, and whether the word has a register.
    words: HashMap<u64, (u32, bool)>,
    free: u32,
}

impl Registers {
    fn new(rule: RegisterRule) -> Self {
        Self { rule, owners: HashMap::new(), words: HashMap::new(), free: REGISTERS }
    }

    /// Counts a use of `word`; true if the word has a register.
    fn use_word(&mut self, word: u64) -> bool {
        match self.rule {
            RegisterRule::Hash => {
                let place = (word.wrapping_mul(SCATTER) >> 32) as u32 % REGISTERS;
                *self.owners.entry(place).or_insert(word) == word
            }
            RegisterRule::MoreThan(often) => {
                let (uses, has) = self.words.entry(word).or_default();
                let hit = *has;
                *uses += 1;
                if !hit && *uses > often && self.free > 0 {
                    (*has, self.free) = (true, self.free - 1);
                }
                hit
            }
        }
    }
}
