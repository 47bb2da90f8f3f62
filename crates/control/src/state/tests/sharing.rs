//! Tests of shares, quotas, and idle applications.

use pathcall_proto::v1::MemoryRecall;
use proptest::prelude::*;

use super::super::shares::{MemoryClaim, MemorySize, fair_rows, memory_bytes};
use super::*;

const STEP: Duration = Duration::from_millis(100);
const WIDTH: u32 = 32;

/// Network with owners that yield when their memory is recalled.
struct SharedNetwork {
    net: TestNetwork,
    owners: BTreeMap<String, (ControlCallId, RegisterApplicationRequest)>,
    /// Epochs that were recalled, in order.
    recalled: Vec<(String, u32, MemoryRecall)>,
    /// Owners that do not answer recalls.
    deaf: BTreeSet<String>,
}

impl SharedNetwork {
    fn new(rows: u32, lanes: u32) -> Self {
        let mut net = TestNetwork::new();
        net.element(rows, lanes, 64);
        Self { net, owners: BTreeMap::new(), recalled: Vec::new(), deaf: BTreeSet::new() }
    }

    fn with(rows: u32, lanes: u32, policy: MemoryPolicy) -> Self {
        let mut network = Self::new(rows, lanes);
        network.net.state.set_policy(policy);
        network
    }

    fn register(&mut self, name: &str, rows: u32, width: u32) {
        let incarnation = 1 + self.owners.len() as u32;
        let request = RegisterApplicationRequest { width, ..application(name, incarnation, rows) };
        self.ask(name, request);
    }

    fn ask(&mut self, name: &str, request: RegisterApplicationRequest) {
        let call =
            self.net.register(RegisterApplicationRequest { yielded_epoch: request.yielded_epoch, ..request.clone() });
        assert_eq!(self.net.refusal(call), None);
        self.owners.insert(name.to_owned(), (call, request));
        self.net.deliver_all();
    }

    fn end(&mut self, name: &str) {
        let (call, _) = self.owners.remove(name).expect("an owner");
        self.net.input(Input::Ended(call));
    }

    fn grant(&self, name: &str) -> ApplicationGrant {
        self.net.grants(self.owners[name].0).pop().expect("a grant")
    }

    fn rows(&self, name: &str) -> u32 {
        self.grant(name).memory.map_or(0, |memory| memory.rows)
    }

    /// Advances the time; elements confirm, and owners yield.
    fn pass(&mut self, time: Duration) {
        for _ in 0..time.as_millis() / STEP.as_millis() {
            self.net.pass(STEP);
            self.net.deliver_all();
            self.answer_recalls();
        }
        self.net.assert_tables_are_as_recorded();
    }

    fn answer_recalls(&mut self) {
        for (name, (_, request)) in self.owners.clone() {
            let grant = self.grant(&name);
            let known = self.recalled.iter().any(|(of, epoch, _)| (of, *epoch) == (&name, grant.epoch));
            if grant.recall() == MemoryRecall::Unspecified || known {
                continue;
            }
            self.recalled.push((name.clone(), grant.epoch, grant.recall()));
            if self.deaf.contains(&name) {
                continue;
            }
            let rows = if grant.recall() == MemoryRecall::Idle { 0 } else { request.rows };
            self.ask(&name, RegisterApplicationRequest { rows, yielded_epoch: grant.epoch, ..request });
        }
    }

    /// Reports that the element has admitted no frame of these applications for a time, and just now one of all others.
    fn report_idle(&mut self, idle: &[&str], time: Duration) {
        let (element, boot_id) = self.net.elements[0].open.expect("in service");
        let ages = self.owners.keys().map(|name| {
            let gaid = self.grant(name).gaid;
            (gaid, if idle.contains(&name.as_str()) { time } else { Duration::ZERO })
        });
        let ages = ages.collect();
        self.net.input(Input::LastFrames { element, boot_id, ages });
    }

    fn recalls_of(&self, name: &str) -> Vec<MemoryRecall> {
        self.recalled.iter().filter(|(of, ..)| of == name).map(|(.., reason)| *reason).collect()
    }
}

#[test]
fn newcomer_gets_fair_share_of_full_element() {
    let mut network = SharedNetwork::new(1000, 1 << 20);
    network.register("A", 1000, WIDTH);
    network.register("B", 1000, WIDTH);
    let before = network.grant("A");
    assert_eq!((network.rows("A"), network.rows("B")), (1000, 0), "first come, first served");
    network.net.pass(Duration::from_secs(1));
    let recalled = network.grant("A");
    assert_eq!(
        (recalled.epoch, recalled.recall()),
        (before.epoch, MemoryRecall::Share),
        "the memory has not moved yet"
    );
    assert_eq!(recalled.memory, before.memory);
    network.pass(STEP);
    assert_eq!((network.rows("A"), network.rows("B")), (500, 500));
    let after = network.grant("A");
    assert!(after.epoch > before.epoch && after.recall() == MemoryRecall::Unspecified);
    network.pass(Duration::from_secs(60));
    assert_eq!(network.recalled.len(), 1, "{:?}", network.recalled);
}

#[test]
fn silent_owner_loses_share_at_time_limit() {
    let mut network = SharedNetwork::new(1000, 1 << 20);
    network.register("A", 1000, WIDTH);
    network.deaf.insert("A".into());
    network.register("B", 1000, WIDTH);
    network.pass(Duration::from_millis(3900));
    assert_eq!((network.rows("A"), network.rows("B")), (1000, 0));
    network.pass(Duration::from_millis(200));
    assert_eq!((network.rows("A"), network.rows("B")), (500, 500));
}

#[test]
fn application_within_its_share_keeps_its_memory() {
    let mut network = SharedNetwork::new(1000, 1 << 20);
    network.register("small", 100, WIDTH);
    network.register("A", 900, WIDTH);
    let small = network.grant("small");
    for name in ["B", "C"] {
        network.register(name, 900, WIDTH);
    }
    network.pass(Duration::from_secs(5));
    assert_eq!(network.grant("small"), small);
    assert_eq!(["A", "B", "C"].map(|name| network.rows(name)), [300; 3]);
}

#[test]
fn idle_application_gives_memory_to_newcomer_and_gets_it_back_on_request() {
    let policy = MemoryPolicy { idle: Duration::from_secs(20), ..MemoryPolicy::default() };
    let mut network = SharedNetwork::with(1000, 1 << 20, policy);
    network.register("A", 600, WIDTH);
    network.register("B", 400, WIDTH);
    network.pass(Duration::from_secs(30));
    network.report_idle(&["A"], Duration::from_secs(30));
    network.pass(Duration::from_secs(10));
    assert_eq!(network.rows("A"), 600, "nobody wants its memory");
    network.register("C", 400, WIDTH);
    network.pass(Duration::from_secs(5));
    assert_eq!((network.rows("A"), network.rows("B"), network.rows("C")), (0, 400, 400));
    assert_eq!((network.recalls_of("A"), network.recalls_of("B")), (vec![MemoryRecall::Idle], vec![]));
    network.pass(Duration::from_secs(30));
    assert_eq!(network.rows("A"), 0, "it does not ask");
    // Its next call.
    let (_, request) = network.owners["A"].clone();
    network.ask("A", RegisterApplicationRequest { rows: 600, yielded_epoch: 0, ..request });
    assert_eq!(network.rows("A"), 200, "what is free, at once");
    network.pass(Duration::from_secs(30));
    assert_eq!(["A", "B", "C"].map(|name| network.rows(name)), [333, 333, 333]);
}

#[test]
fn deaf_idle_owner_is_not_offered_its_memory_again() {
    let policy = MemoryPolicy { idle: Duration::from_secs(20), ..MemoryPolicy::default() };
    let mut network = SharedNetwork::with(1000, 1 << 20, policy);
    network.register("A", 1000, WIDTH);
    network.deaf.insert("A".into());
    network.pass(Duration::from_secs(30));
    network.report_idle(&["A"], Duration::from_secs(30));
    network.register("B", 1000, WIDTH);
    network.pass(Duration::from_secs(60));
    assert_eq!((network.rows("A"), network.rows("B")), (0, 1000));
}

#[test]
fn long_idle_application_always_gives_its_memory_back() {
    let mut network = SharedNetwork::new(1000, 1 << 20);
    network.register("A", 600, WIDTH);
    network.net.pass(IDLE_MAX_DEFAULT);
    network.report_idle(&["A"], IDLE_MAX_DEFAULT - STEP);
    network.pass(Duration::from_secs(5));
    assert_eq!(network.rows("A"), 600);
    network.report_idle(&["A"], IDLE_MAX_DEFAULT);
    network.pass(Duration::from_secs(5));
    assert_eq!((network.rows("A"), network.net.state.status().elements[0].rows_used), (0, 0));
}

#[test]
fn element_is_asked_for_last_frames_while_it_has_applications() {
    let mut network = SharedNetwork::new(1000, 1 << 20);
    let asked = |network: &SharedNetwork| {
        network.net.answers.iter().filter(|output| matches!(output, Output::AskLastFrames { .. })).count()
    };
    network.pass(Duration::from_secs(60));
    assert_eq!(asked(&network), 0);
    network.register("A", 600, WIDTH);
    network.pass(Duration::from_secs(60));
    assert_eq!(asked(&network), 4, "at a quarter of the idle time");
    // An answer of an earlier start is ignored.
    let gaid = network.grant("A").gaid;
    network.net.input(Input::LastFrames { element: 1, boot_id: 1, ages: vec![(gaid, IDLE_MAX_DEFAULT * 2)] });
    network.pass(Duration::from_secs(5));
    assert_eq!(network.rows("A"), 600);
    let status = network.net.state.status().applications;
    assert_eq!(status[0].idle_ms, Some(0));
}

#[test]
fn quota_limits_memory_and_weight_multiplies_share() {
    let policy = MemoryPolicy {
        weights: [("heavy".to_owned(), 3)].into(),
        quotas: [("limited".to_owned(), memory_bytes(100, WIDTH))].into(),
        ..MemoryPolicy::default()
    };
    let mut network = SharedNetwork::with(1000, 1 << 20, policy.clone());
    network.register("limited", 1000, WIDTH);
    assert_eq!(network.rows("limited"), 100);
    network.register("light", 1000, WIDTH);
    network.register("heavy", 1000, WIDTH);
    network.pass(Duration::from_secs(5));
    assert_eq!(["limited", "light", "heavy"].map(|name| network.rows(name)), [100, 225, 675]);
    let status = network.net.state.status().applications;
    let shown: Vec<_> = status.iter().map(|a| (a.weight, a.quota_bytes, a.memory_bytes, a.share_bytes)).collect();
    let bytes = |rows| memory_bytes(rows, WIDTH);
    assert_eq!(
        shown,
        [
            (1, Some(bytes(100)), bytes(100), bytes(100)),
            (1, None, bytes(225), bytes(225)),
            (3, None, bytes(675), bytes(675))
        ]
    );
    // A smaller quota after a restart of the controller takes memory away.
    network
        .net
        .state
        .set_policy(MemoryPolicy { quotas: [("limited".to_owned(), memory_bytes(40, WIDTH))].into(), ..policy });
    network.pass(Duration::from_secs(60));
    assert_eq!(["limited", "light", "heavy"].map(|name| network.rows(name)), [40, 225, 675]);
}

#[test]
fn freed_memory_goes_to_those_below_their_shares() {
    let mut network = SharedNetwork::new(1000, 1 << 20);
    for name in ["A", "B", "C", "D"] {
        network.register(name, 1000, WIDTH);
    }
    network.pass(Duration::from_secs(5));
    assert_eq!(["A", "B", "C", "D"].map(|name| network.rows(name)), [250; 4]);
    network.end("D");
    network.pass(Duration::from_secs(5));
    assert_eq!(["A", "B", "C"].map(|name| network.rows(name)), [250; 3], "shares have just changed");
    network.pass(Duration::from_secs(20));
    assert_eq!(["A", "B", "C"].map(|name| network.rows(name)), [333; 3]);
    let recalls = network.recalled.len();
    network.pass(Duration::from_secs(120));
    assert_eq!(network.recalled.len(), recalls);
}

#[test]
fn small_newcomer_moves_one_application() {
    let mut network = SharedNetwork::new(1000, 1 << 20);
    for name in 0..10 {
        network.register(&format!("app-{name}"), 100, WIDTH);
    }
    network.register("small", 9, WIDTH);
    network.pass(Duration::from_secs(60));
    assert_eq!((network.rows("small"), network.recalled.len()), (9, 1), "{:?}", network.recalled);
    assert_eq!([0, 1].map(|name| network.rows(&format!("app-{name}"))), [91, 100], "its share is 99");
}

#[test]
fn further_parts_move_if_free_parts_are_too_small() {
    let mut network = SharedNetwork::new(1000, 1 << 20);
    for name in 0..10 {
        network.register(&format!("app-{name}"), 100, WIDTH);
    }
    for name in [1, 3, 5, 7, 9] {
        network.end(&format!("app-{name}"));
    }
    network.pass(Duration::from_secs(5));
    assert_eq!(network.net.state.status().elements[0].rows_used, 500);
    network.register("large", 450, WIDTH);
    assert_eq!(network.rows("large"), 100, "the largest free part");
    network.pass(Duration::from_secs(5));
    assert_eq!(network.rows("large"), 450);
    assert_eq!([0, 2, 4, 6, 8].map(|name| network.rows(&format!("app-{name}"))), [100; 5]);
}

#[test]
fn newcomer_goes_to_element_with_more_for_it() {
    let mut network = SharedNetwork::new(100, 1 << 20);
    network.net.element(400, 1 << 20, 64);
    for name in ["A", "B", "C"] {
        network.register(name, 400, WIDTH);
    }
    network.pass(Duration::from_secs(5));
    assert_eq!(["A", "B", "C"].map(|name| network.rows(name)), [200, 100, 200]);
}

/// Jain's index of fairness: 1 if all are equal, 1/n if one has everything.
pub(super) fn jains_index(values: &[f64]) -> f64 {
    let (sum, squares) = (values.iter().sum::<f64>(), values.iter().map(|value| value * value).sum::<f64>());
    if squares == 0.0 { 1.0 } else { sum * sum / (values.len() as f64 * squares) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    #[test]
    fn random_claims_get_fair_shares_without_flapping(
        rows in 300u32..2000,
        claims in prop::collection::vec((0u32..800, prop::sample::select(vec![1u32, 64, 256]), 1u32..5, 0u64..4000), 2..20),
        leaving in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let size = MemorySize { rows, lanes: rows * 64 };
        let name = |i: usize| format!("app-{i:02}");
        let weights = claims.iter().enumerate().map(|(i, (_, _, weight, _))| (name(i), *weight)).collect();
        let mut network = SharedNetwork::with(size.rows, size.lanes, MemoryPolicy { weights, ..MemoryPolicy::default() });
        for (i, &(rows, width, _, pause)) in claims.iter().enumerate() {
            network.register(&name(i), rows, width);
            network.pass(Duration::from_millis(pause / 100 * 100));
        }
        let leaving: BTreeSet<_> = leaving.iter().map(|index| index.index(claims.len())).collect();
        leaving.iter().for_each(|i| network.end(&name(*i)));
        network.pass(Duration::from_secs(60));

        let stay: Vec<_> = (0..claims.len()).filter(|i| !leaving.contains(i)).collect();
        let claim = |i: &usize| {
            let (rows, width, weight, _) = claims[*i];
            MemoryClaim { rows, rows_min: rows.min(ROWS_MIN), width, weight }
        };
        let ideal = fair_rows(size, &stay.iter().map(claim).collect::<Vec<_>>());
        let got: Vec<_> = stay.iter().map(|i| network.rows(&name(*i))).collect();
        // The last ones go without if there is too little for the minimum of all.
        let served = ideal.iter().zip(&stay).all(|(rows, i)| *rows > 0 || claims[*i].0 == 0);
        for (i, (ideal, got)) in ideal.iter().zip(&got).enumerate().filter(|_| served) {
            let least = *ideal - ideal / 4;
            prop_assert!(*got + 1 >= least, "claim {i} of {claims:?}: {got} of {ideal} rows");
        }
        let ratios: Vec<f64> =
            ideal.iter().zip(&got).filter(|(ideal, _)| **ideal > 0).map(|(ideal, got)| f64::from(*got) / f64::from(*ideal)).collect();
        prop_assert!(!served || jains_index(&ratios) >= 0.95, "{ratios:?}");

        let recalls = network.recalled.len();
        network.pass(Duration::from_secs(60));
        prop_assert_eq!(network.recalled.len(), recalls, "shares change though nothing else does");
    }
}
