//! Plan of an application: its properties, and how they are drawn.

use std::time::Duration;

use pathcall_endpoint::flow::FlowTiming;
use pathcall_endpoint::map::client::ClientConfig;
use pathcall_endpoint::map::gradient::GradientFormat;
use pathcall_endpoint::map::lease::DEFAULT_LEASE;
use pathcall_endpoint::map::server::{EvictionPolicy, ServerConfig};
use pathcall_endpoint::map::{Ack, ClearPolicy, Operation};
use pathcall_wire::{ForwardTarget, Instant, KEYED_WIDTH, LINEAR_LANES, TokenKey};

use super::generate::IdAllocator;
use super::{
    ExpectedError, MapCallerPlan, ProcessCrash, Purpose, Query, RegisterRange, Step, StepWork, keyed, sum, votes,
};
use crate::map::{HandlerPlan, StorePlan};
use crate::random::{Chance, Random};

/// Plan of an application.
#[derive(Debug, Clone, PartialEq)]
pub struct ApplicationPlan {
    /// GAID of the application.
    pub gaid: u32,
    /// Initial epoch of its registers.
    pub epoch: u32,
    /// Endpoint id of its owner.
    pub endpoint: u32,
    /// Incarnation of its owner.
    pub incarnation: u32,
    /// Key of its tokens, if its frames carry tokens.
    pub token_key: Option<TokenKey>,
    /// Its memory in an element, if any.
    pub memory: Option<RegisterRange>,
    /// Maximum number of rows that later memory may use; 0: those of `memory`.
    pub rows_max: u32,
    /// Number of lanes of a row.
    pub width: u16,
    /// Time before keys lose their registers in the element.
    pub eviction: Option<EvictionPolicy>,
    /// Purpose of its calls.
    pub purpose: Purpose,
    /// Node that must have an addition before the call is done.
    pub ack: Ack,
    /// Clear policy of its arrays.
    pub clear: ClearPolicy,
    /// Format of its arrays if they are gradients, which the callers quantise.
    pub gradients: Option<GradientFormat>,
    /// Error that the last call of every caller must return, if any.
    pub expected_error: Option<ExpectedError>,
    /// Timers of owner and callers.
    pub timing: FlowTiming,
    /// Lease of its locks.
    pub lease: Duration,
    /// Store of its owner's state, if it has one.
    pub store: Option<StorePlan>,
    /// Handler of its sums, if they are for the server.
    pub handler: Option<HandlerPlan>,
    /// Callers of the application.
    pub callers: Vec<MapCallerPlan>,
    /// Queries of its owner during the calls, by time.
    pub queries: Vec<Query>,
}

/// Additions without callers and without an element.
impl Default for ApplicationPlan {
    fn default() -> Self {
        Self {
            gaid: 1,
            epoch: 1,
            endpoint: 1,
            incarnation: 1,
            token_key: None,
            memory: None,
            rows_max: 0,
            width: KEYED_WIDTH as u16,
            eviction: None,
            purpose: Purpose::Add,
            ack: Ack::Element,
            clear: ClearPolicy::Copy,
            gradients: None,
            expected_error: None,
            timing: FlowTiming::default(),
            lease: DEFAULT_LEASE,
            store: None,
            handler: None,
            callers: Vec::new(),
            queries: Vec::new(),
        }
    }
}

impl ApplicationPlan {
    /// Number of workers of SyncAgtr; 0 for a keyed application.
    #[must_use]
    pub fn workers(&self) -> u32 {
        let workers = self.callers.iter().filter(|caller| caller.succeeds.is_none());
        if self.purpose == Purpose::Sum { workers.count() as u32 } else { 0 }
    }

    /// Element that it starts on.
    #[must_use]
    pub fn element(&self) -> usize {
        self.memory.map_or(0, |memory| memory.element)
    }

    /// Whether its methods count votes.
    #[must_use]
    pub fn counts(&self) -> bool {
        matches!(self.purpose, Purpose::Count { .. })
    }

    /// Whether the element may hold keys: its methods only add, or query.
    #[must_use]
    pub fn mapping(&self) -> bool {
        self.purpose == Purpose::Add
    }

    /// Initial configuration of its owner.
    pub(crate) fn server_config(&self) -> ServerConfig {
        ServerConfig {
            gaid: self.gaid,
            epoch: self.epoch,
            endpoint: self.endpoint,
            incarnation: self.incarnation,
            grant: self.memory.map(RegisterRange::grant),
            rows_max: self.rows_max,
            threshold: self.workers(),
            handled: self.handler.is_some(),
            clear: self.clear,
            mapping: self.mapping(),
            acked: self.ack == Ack::Server,
            locks: self.purpose == Purpose::Lock,
            votes: self.counts(),
            eviction: self.eviction,
            width: self.width,
            lease: self.lease,
            timing: self.timing,
            ..ServerConfig::default()
        }
    }

    /// Configuration that its callers share; the rest comes from the join.
    pub(crate) fn client_config(&self) -> ClientConfig {
        ClientConfig {
            gaid: self.gaid,
            server: self.endpoint,
            server_incarnation: self.incarnation,
            votes: self.counts(),
            clear: self.clear,
            lease: self.lease,
            timing: self.timing,
            ..ClientConfig::default()
        }
    }
}

/// Draws an application.
pub(super) fn draw(
    random: &mut Random,
    index: u32,
    timing: FlowTiming,
    elements: usize,
    ids: &mut IdAllocator,
) -> ApplicationPlan {
    let with_element = elements > 0;
    let callers = random.range(1..=5) as usize;
    let purpose = purpose(random, callers);
    let holds_memory = !matches!(purpose, Purpose::AddGet);
    let mut row_width = || match purpose {
        Purpose::Sum => sum_width(random),
        // A lock and a ballot take a row without lanes.
        Purpose::Lock | Purpose::Count { .. } => 1,
        _ => KEYED_WIDTH as u16,
    };
    let widths = [row_width(), row_width()];
    let memory = (with_element && holds_memory && random.percent(90)).then(|| {
        let width = widths[0];
        let rows = random.pick(&[1, 2, 3, 5, 16, 64, 300]);
        ids.memory(random.index(elements), rows, width)
    });
    let width = memory.map_or(widths[1], |memory| memory.width);
    let mut expected_error = None;
    let (steps, set) = match purpose {
        Purpose::Sum => {
            let scale = sum::Scale {
                width,
                chunks_max: random.pick(&[3, 20, 20, 80, 600 / callers as u64]),
                calls: random.range(1..=6),
            };
            let (steps, why) = sum::steps(random, callers, scale);
            expected_error = why;
            (steps, None)
        }
        Purpose::Add | Purpose::AddGet => {
            let set = keyed::key_set(random);
            (keyed::additions(random, &set, callers, purpose == Purpose::AddGet, memory.is_none()), Some(set))
        }
        Purpose::Count { threshold, to } => (votes::steps(random, callers, threshold, to), None),
        Purpose::Lock => (keyed::locks(random, callers), None),
    };
    let queries = set.map(|set| keyed::queries(random, &set)).unwrap_or_default();
    // A worker that joins after the others' give-up timeout must still find them waiting.
    let joins_within = random.pick(&[0, 0, 1, 1, 50, 50, 50, 9_000].map(Duration::from_millis));
    let defaults = CallerDefaults {
        // An element that knows the callers but has no memory for the application forwards their frames.
        through: with_element && holds_memory && (memory.is_some() || random.percent(30)),
        // The owner takes locks out of the element when a caller cannot reach it; the simulator does not do that.
        strangers: if purpose != Purpose::Lock && random.percent(10) { Chance::percent(40) } else { Chance(0) },
        joins_within,
        in_order: purpose == Purpose::Sum && random.percent(50),
    };
    let mut callers: Vec<_> = steps.into_iter().map(|steps| caller(random, steps, defaults, ids)).collect();
    let may_be_killed = match purpose {
        Purpose::Add | Purpose::AddGet | Purpose::Lock | Purpose::Count { .. } => true,
        Purpose::Sum => {
            expected_error.is_none() && !callers.iter().flat_map(|caller| &caller.steps).any(|step| step.may_never_end)
        }
    };
    if may_be_killed && random.percent(20) {
        let unnoticed = purpose == Purpose::Lock && random.percent(50);
        if unnoticed { hang(random, &mut callers) } else { kill(random, &mut callers, ids) }
    }
    ApplicationPlan {
        gaid: 1000 + index,
        epoch: random.range(1..=5) as u32,
        endpoint: ids.endpoint(),
        incarnation: random.bits() as u32 | 1,
        memory,
        width,
        eviction: (purpose == Purpose::Add).then(|| keyed::eviction(random)).flatten(),
        purpose,
        expected_error,
        timing,
        lease: random.pick(&[100, 100, 300, 1_000, 5_000].map(Duration::from_millis)),
        callers,
        queries,
        ..ApplicationPlan::default()
    }
}

fn purpose(random: &mut Random, callers: usize) -> Purpose {
    match random.below(100) {
        0..40 => Purpose::Sum,
        40..68 => Purpose::Add,
        68..78 => Purpose::AddGet,
        // A threshold of 1 is test-and-set, which is a lock.
        78..88 if callers > 1 => {
            let to =
                random.pick(&[ForwardTarget::All, ForwardTarget::Src, ForwardTarget::Server, ForwardTarget::Server]);
            Purpose::Count { threshold: random.range(2..=callers as u64) as u32, to }
        }
        _ => Purpose::Lock,
    }
}

/// Row width: mostly that of the default profile; narrow rows give many frames of few lanes.
fn sum_width(random: &mut Random) -> u16 {
    match random.below(10) {
        0..5 => LINEAR_LANES as u16,
        5 => random.range(129..=255) as u16,
        6 => 128,
        7 => random.pick(&[1, 2, 3]),
        _ => random.range(4..=40) as u16,
    }
}

/// Properties that the callers of an application share.
#[derive(Clone, Copy)]
struct CallerDefaults {
    /// Whether they send through the element.
    through: bool,
    /// Chance that the element does not know a caller, which then bypasses it.
    strangers: Chance,
    joins_within: Duration,
    /// Whether each caller makes one call at a time.
    in_order: bool,
}

fn caller(random: &mut Random, steps: Vec<Step>, defaults: CallerDefaults, ids: &mut IdAllocator) -> MapCallerPlan {
    let flows = random.pick(&[1, 1, 2, 4]);
    let through = defaults.through && !random.happens(defaults.strangers);
    MapCallerPlan {
        endpoint: ids.endpoint(),
        incarnation: random.bits() as u32 | 1,
        slot_base: ids.slots(flows),
        flows,
        registered: through,
        by_element: through,
        joins: Instant(0) + random.up_to(defaults.joins_within),
        crash: None,
        leaves: None,
        succeeds: None,
        outstanding: if defaults.in_order { 1 } else { random.pick(&[1, 2, 8, 100]) },
        steps,
    }
}

/// Kills a caller's process without detection: only its lease ends its locks.
fn hang(random: &mut Random, callers: &mut [MapCallerPlan]) {
    let (hung, within) = (random.index(callers.len()), random.pick(&[1, 20, 300].map(Duration::from_millis)));
    let at = Instant(0) + random.up_to(within);
    callers[hung].crash = Some(ProcessCrash { at, detected_after: Duration::from_secs(24 * 3600) });
}

/// Kills a caller's process; a new one takes over its slots and a part of its steps.
fn kill(random: &mut Random, callers: &mut Vec<MapCallerPlan>, ids: &mut IdAllocator) {
    let (killed, within) = (random.index(callers.len()), random.pick(&[1, 20, 300].map(Duration::from_millis)));
    let death = ProcessCrash {
        at: Instant(0) + random.up_to(within),
        detected_after: random.up_to(Duration::from_millis(500)),
    };
    callers[killed].crash = Some(death);
    let mut successor = MapCallerPlan {
        endpoint: ids.endpoint(),
        incarnation: random.bits() as u32 | 1,
        joins: death.at + death.detected_after + random.up_to(Duration::from_millis(20)),
        crash: None,
        succeeds: Some(killed),
        ..callers[killed].clone()
    };
    // A cancellable call is marked by a key of its own, so it may be made only once.
    successor.steps.retain(|step| step.cancel_after.is_none());
    for step in &mut successor.steps {
        // Other values than the predecessor's, so that a sum shows whose part it contains.
        if let StepWork::Call(Operation::Sum { lanes, .. }) = &mut step.work {
            *lanes = lanes.iter().map(|value| !value).collect();
        }
    }
    callers.push(successor);
}
