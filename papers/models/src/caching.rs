//! Which keys get an element's registers: the real mapping, played, and rules to compare it with (NetRPC §6.4, Fig. 12).
//!
//! Two callers count words of a [`Stream`], of which few are frequent, and may become others. A word
//! that has a register is added up in the element, any other by the server: the share of the former is the hit ratio.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use pathcall_endpoint::flow::Timing;
use pathcall_endpoint::map::lease::LEASE;
use pathcall_endpoint::map::server::Eviction;
use pathcall_endpoint::map::{Ack, ClearPolicy, Key, Modify, Operation};
use pathcall_program::Size;
use pathcall_sim::random::Random;
use pathcall_sim::scenario::{ApplicationPlan, CallerPlan, Memory, Purpose, Scenario, Step};
use pathcall_sim::{Outcome, play};
use pathcall_wire::Instant;

/// Words that there are.
const WORDS: u64 = 2_000;
/// Words of a call, with those that come twice.
const WORDS_OF_CALL: usize = 60;
/// An application's rows, and the keyed registers of each.
const ROWS: u32 = 4;
const REGISTERS_OF_ROW: u32 = 32;
/// Registers that words can have.
pub const REGISTERS: u32 = ROWS * REGISTERS_OF_ROW;
/// Parts of a stream, of equal length: other words may be frequent in each.
pub const PARTS: u64 = 6;
/// Between two calls of a caller.
const PAUSE: Duration = Duration::from_millis(10);
/// Multiplied with it, numbers in a row are as if drawn (Knuth's multiplicative hash, in 64 bits).
const SCATTER: u64 = 0x9E37_79B9_7F4A_7C15;

/// Words that two callers count.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stream {
    /// The word of rank k comes `k^-skew` times as often as the first (Zipf's law); 0: all alike.
    pub skew: f64,
    /// How often others become the frequent ones: up to [`PARTS`] less one.
    pub drifts: u64,
    /// Calls of each caller in each of the [`PARTS`].
    pub calls: u64,
}

/// How words get registers where nobody evicts: models, played without a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Each has the one that its hash names, if nobody had that before.
    Hash,
    /// Who was used more often than so many times has one from then on, if one is free (the power of N); 0: who comes
    /// first.
    MoreThan(u32),
}

/// A call: its words, and how often each of them came.
type Call = BTreeMap<u64, i64>;

impl Stream {
    /// Plays it with the real endpoints and program. [`Eviction`] says when words lose their registers; never, if `None`.
    #[must_use]
    pub fn play(&self, eviction: Option<Eviction>) -> Outcome {
        let callers = (0..).zip(self.callers()).map(|(number, calls)| caller(number, calls)).collect();
        play(&Scenario {
            seed: 1,
            faults_until: Instant(0) + PAUSE * (PARTS * self.calls) as u32,
            elements: vec![Size { rows: ROWS as usize, lanes: (ROWS * 2 * REGISTERS_OF_ROW) as usize, slots: 2 }],
            applications: vec![ApplicationPlan {
                gaid: 1,
                epoch: 1,
                endpoint: 1,
                token_key: None,
                lease: LEASE,
                incarnation: 1,
                memory: Some(Memory { element: 0, row_base: 0, rows: ROWS, lane_base: 0, width: 64 }),
                width: 64,
                eviction,
                purpose: Purpose::Add,
                ack: Ack::Element,
                clear: ClearPolicy::Copy,
                doom: None,
                timing: Timing::default(),
                callers,
                queries: Vec::new(),
            }],
            ..Scenario::default()
        })
    }

    /// The share of its additions whose words have a register by a rule.
    #[must_use]
    pub fn by_rule(&self, rule: Rule) -> f64 {
        let mut registers = Registers::new(rule);
        let [one, other] = self.callers();
        let (mut hits, mut all) = (0_u32, 0_u32);
        for word in one.iter().zip(&other).flat_map(|(one, other)| one.keys().chain(other.keys())) {
            hits += u32::from(registers.hit(*word));
            all += 1;
        }
        f64::from(hits) / f64::from(all)
    }

    /// The calls of each caller.
    fn callers(&self) -> [Vec<Call>; 2] {
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

/// The share of additions that were made in the element.
#[must_use]
pub fn hits(outcome: &Outcome) -> f64 {
    let (element, software) = (outcome.tally.lanes_element, outcome.tally.lanes_software);
    element as f64 / (element + software) as f64
}

/// Words of a call. `weights`: sums of what the words of the first ranks weigh; `shift`: says which words have which
/// rank.
fn words(random: &mut Random, weights: &[u64], shift: u64) -> Call {
    let mut counts = Call::new();
    for _ in 0..WORDS_OF_CALL {
        let point = random.below(weights.last().copied().unwrap_or(1));
        let rank = weights.partition_point(|sum| *sum <= point) as u64;
        *counts.entry((rank * 7 + shift * 331) % WORDS).or_default() += 1;
    }
    counts
}

fn caller(number: u32, calls: Vec<Call>) -> CallerPlan {
    let step = |call: Call| {
        let pairs = call.into_iter().map(|(word, count)| (Key::from(format!("word-{word}").as_str()), count)).collect();
        let add = Operation::Add { pairs, modify: Modify::default(), get: false, ack: Ack::Element };
        Step { pause: PAUSE, ..Step::call(add) }
    };
    CallerPlan {
        endpoint: 10 + number,
        incarnation: 1,
        slot_base: number,
        flows: 1,
        registered: true,
        by_element: true,
        joins: Instant(0),
        dies: None,
        leaves: None,
        succeeds: None,
        outstanding: 1,
        steps: calls.into_iter().map(step).collect(),
    }
}

/// Registers that are given by a rule, and never taken away.
struct Registers {
    rule: Rule,
    /// By a hash, whose each is that has an owner.
    owners: HashMap<u32, u64>,
    /// How often each word was used, and whether it has a register.
    words: HashMap<u64, (u32, bool)>,
    free: u32,
}

impl Registers {
    fn new(rule: Rule) -> Self {
        Self { rule, owners: HashMap::new(), words: HashMap::new(), free: REGISTERS }
    }

    /// Whether a word that is used has a register.
    fn hit(&mut self, word: u64) -> bool {
        match self.rule {
            Rule::Hash => {
                let place = (word.wrapping_mul(SCATTER) >> 32) as u32 % REGISTERS;
                *self.owners.entry(place).or_insert(word) == word
            }
            Rule::MoreThan(often) => {
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
