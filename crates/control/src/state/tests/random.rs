//! Property tests: invariants of random histories.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::fake_element::are_disjoint;
use super::*;

const NAMES: u32 = 3;
const ELEMENTS: usize = 3;
const RACKS: [&str; 3] = ["", "a", "b"];
const POOLS: u32 = 2;

#[derive(Debug, Clone)]
enum Step {
    Register { name: u32, incarnation: u32, rows: u32, wide: bool, silent: Option<usize> },
    EndOwner { name: u32 },
    Caller { gaid: u32, incarnation: u32, flows: u32 },
    Back { nth: usize },
    Release { nth: usize },
    Join { name: u32, incarnation: u32, rack: usize },
    EndServer { name: u32, incarnation: u32 },
    Follow { pool: usize, server: usize, incarnation: u32, rack: usize },
    NoLongerFollows { nth: usize, server: usize },
    RegisterElement { index: usize },
    EndElement { index: usize },
    RestartElement { index: usize },
    Mute { index: usize, mute: bool },
    Refuses { index: usize, gaid: Option<u32> },
    Deliver { index: usize, pushes: u32 },
    Pass { ms: u64 },
    RestartController,
}

fn step() -> impl Strategy<Value = Step> {
    let index = 0..ELEMENTS;
    let (rows, silent) = (prop::sample::select(vec![0u32, 5, 20, 40]), prop::option::weighted(0.2, index.clone()));
    prop_oneof![
        6 => (0..NAMES, 1u32..4, rows, any::<bool>(), silent).prop_map(|(name, incarnation, rows, wide, silent)|
            Step::Register { name, incarnation, rows, wide, silent }),
        2 => (0..NAMES).prop_map(|name| Step::EndOwner { name }),
        6 => (1..NAMES + 2, 1u32..6, 0u32..5)
            .prop_map(|(gaid, incarnation, flows)| Step::Caller { gaid, incarnation, flows }),
        3 => (0usize..8).prop_map(|nth| Step::Back { nth }),
        3 => (0usize..8).prop_map(|nth| Step::Release { nth }),
        6 => (0..POOLS, 1u32..4, 0..RACKS.len())
            .prop_map(|(name, incarnation, rack)| Step::Join { name, incarnation, rack }),
        4 => (0..POOLS, 1u32..4).prop_map(|(name, incarnation)| Step::EndServer { name, incarnation }),
        4 => (0usize..2, 0usize..3, 1u32..4, 0..RACKS.len())
            .prop_map(|(pool, server, incarnation, rack)| Step::Follow { pool, server, incarnation, rack }),
        2 => (0usize..8, 0usize..3).prop_map(|(nth, server)| Step::NoLongerFollows { nth, server }),
        4 => index.clone().prop_map(|index| Step::RegisterElement { index }),
        1 => index.clone().prop_map(|index| Step::EndElement { index }),
        1 => index.clone().prop_map(|index| Step::RestartElement { index }),
        2 => (index.clone(), any::<bool>()).prop_map(|(index, mute)| Step::Mute { index, mute }),
        1 => (index.clone(), prop::option::of(1..NAMES + 1))
            .prop_map(|(index, gaid)| Step::Refuses { index, gaid }),
        10 => (index, 1u32..12).prop_map(|(index, pushes)| Step::Deliver { index, pushes }),
        4 => prop::sample::select(vec![1u64, 300, 1000, 3000, 11_000]).prop_map(|ms| Step::Pass { ms }),
        1 => Just(Step::RestartController),
    ]
}

/// Incarnation of the owner, its memory, start of the element.
type StandsFor = (u32, Option<MemoryRecord>, Option<u64>);

/// Test network with the observations that invariants need.
struct History {
    net: TestNetwork,
    owners: BTreeMap<u32, ControlCallId>,
    servers: BTreeMap<(u32, u32), ControlCallId>,
    /// Table of each (GAID, version).
    tables: BTreeMap<(u32, u32), Vec<u32>>,
    versions: BTreeMap<u32, u32>,
    streams: BTreeMap<usize, ControlCallId>,
    /// Starts of elements that each application's owner has reported as silent.
    silent: BTreeMap<String, Vec<u64>>,
    /// Meaning of each (GAID, epoch).
    epochs: BTreeMap<(u32, u32), StandsFor>,
    latest: BTreeMap<u32, u32>,
    /// Name of the application with each id.
    gaids: BTreeMap<u32, String>,
    endpoints: BTreeMap<u32, String>,
    /// Registered callers of applications, the latest first.
    callers: VecDeque<CallerRecord>,
    checked: usize,
}

impl History {
    /// `racks` has the rack of each element.
    fn new(racks: [usize; ELEMENTS]) -> Self {
        let mut net = TestNetwork::new();
        for rack in racks {
            let index = net.add_element(64, 64 * 48, 8);
            net.elements[index].request.rack = RACKS[rack].into();
        }
        Self {
            net,
            owners: BTreeMap::new(),
            servers: BTreeMap::new(),
            tables: BTreeMap::new(),
            versions: BTreeMap::new(),
            streams: BTreeMap::new(),
            silent: BTreeMap::new(),
            epochs: BTreeMap::new(),
            latest: BTreeMap::new(),
            gaids: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            callers: VecDeque::new(),
            checked: 0,
        }
    }

    /// The same with a real store.
    fn stored(racks: [usize; ELEMENTS]) -> Self {
        let mut history = Self::new(racks);
        let store = Store::open(&StoreLocation::Memory).unwrap();
        store.commit(&history.net.store.values().cloned().collect::<Vec<_>>()).unwrap();
        history.net.database = Some(store);
        history
    }

    fn step(&mut self, step: Step) {
        let net = &mut self.net;
        match step {
            Step::Register { name, incarnation, rows, wide, silent } => {
                let width = if wide { 64 } else { 32 };
                let incarnation = incarnation * 10 + name;
                let silent: Vec<_> = silent.map(|index| net.elements[index].request.boot_id).into_iter().collect();
                let request = application(&format!("app-{name}"), incarnation, rows);
                let request = RegisterApplicationRequest { width, silent_elements: silent.clone(), ..request };
                let call = net.register(request);
                if net.refusal(call).is_none() {
                    self.silent.insert(format!("app-{name}"), silent);
                    self.owners.insert(name, call);
                }
            }
            Step::EndOwner { name } => {
                if let Some(call) = self.owners.remove(&name) {
                    net.input(Input::Ended(call));
                }
            }
            Step::Caller { gaid, incarnation, flows } => drop(net.register_caller(gaid, incarnation, flows)),
            // A former caller registers again with its id.
            Step::Back { nth } => {
                if let Some(CallerRecord { endpoint, gaid, incarnation, data_address, .. }) = self.callers.get(nth) {
                    let (endpoint, gaid, incarnation) = (*endpoint, *gaid, *incarnation);
                    let data_address = data_address.clone();
                    let call = net.call();
                    let request = RegisterEndpointRequest {
                        gaid,
                        incarnation,
                        data_address,
                        flows: 3,
                        endpoint,
                        ..Default::default()
                    };
                    net.input(Input::RegisterEndpoint(call, request));
                }
            }
            Step::Release { nth } => {
                let snapshot = net.state.snapshot();
                let of_application = |gaid| snapshot.applications.iter().any(|a| a.gaid == gaid);
                if let Some(caller) = snapshot.endpoints.get(nth).filter(|caller| of_application(caller.gaid)) {
                    net.release(caller.gaid, caller.endpoint).unwrap();
                }
            }
            Step::Join { name, incarnation, rack } => {
                let call = net.join_in(&format!("pool-{name}"), incarnation * 10 + name, RACKS[rack]);
                self.servers.insert((name, incarnation), call);
            }
            Step::EndServer { name, incarnation } => {
                if let Some(call) = self.servers.remove(&(name, incarnation)) {
                    net.input(Input::Ended(call));
                }
            }
            Step::Follow { pool, server, incarnation, rack } => {
                let pools = net.state.snapshot().pools;
                let of = pools.get(pool).and_then(|pool| pool.servers.get(server).map(|known| (pool.gaid, known)));
                if let Some((gaid, server)) = of {
                    net.register_follower_in(gaid, server.endpoint, incarnation, RACKS[rack]);
                }
            }
            Step::NoLongerFollows { nth, server } => {
                let snapshot = net.state.snapshot();
                if let Some(caller) = snapshot.endpoints.get(nth)
                    && let Some(pool) = snapshot.pools.iter().find(|pool| pool.gaid == caller.gaid)
                    && let Some(server) = pool.servers.get(server)
                {
                    net.no_longer_follows(caller.gaid, caller.endpoint, server.endpoint);
                }
            }
            Step::RegisterElement { index } => drop(self.streams.insert(index, net.register_element(index))),
            Step::EndElement { index } => {
                if let Some(call) = self.streams.remove(&index) {
                    net.input(Input::Ended(call));
                }
            }
            Step::RestartElement { index } => net.restart_element(index),
            Step::Mute { index, mute } => net.elements[index].mute = mute,
            Step::Refuses { index, gaid } => net.elements[index].refuses = gaid,
            Step::Deliver { index, pushes } => {
                for _ in 0..pushes {
                    net.deliver(index);
                }
            }
            Step::Pass { ms } => net.pass(Duration::from_millis(ms)),
            Step::RestartController => {
                net.restart_controller();
                self.owners.clear();
                self.servers.clear();
                self.streams.clear();
                self.silent.clear();
            }
        }
        self.check();
    }

    fn check(&mut self) {
        let snapshot = self.net.state.snapshot();
        let boot = |id| snapshot.elements.iter().find(|e| e.element == id).map(|element| element.boot_id);
        for (i, a) in snapshot.applications.iter().enumerate() {
            let stands_for = (a.incarnation, a.memory, a.memory.and_then(|memory| boot(memory.element)));
            let before = self.epochs.entry((a.gaid, a.epoch)).or_insert(stands_for);
            assert_eq!(*before, stands_for, "one epoch of {} has two meanings", a.name);
            let latest = self.latest.entry(a.gaid).or_default();
            assert!(*latest <= a.epoch, "an epoch of {} was reused", a.name);
            *latest = a.epoch;
            assert_eq!(self.gaids.entry(a.gaid).or_insert_with(|| a.name.clone()), &a.name);
            let silent = self.silent.get(&a.name).map_or(&[][..], Vec::as_slice);
            let answers = stands_for.2.is_none_or(|start| !silent.contains(&start));
            assert!(answers, "memory of an element that {} can't reach", a.name);
            let owner = format!("{} {}", a.name, a.incarnation);
            assert_eq!(self.endpoints.entry(a.endpoint).or_insert_with(|| owner.clone()), &owner);
            for b in &snapshot.applications[..i] {
                let (Some(x), Some(y)) = (a.memory, b.memory) else { continue };
                assert!(x.element != y.element || are_disjoint(x.row_base, x.rows, y.row_base, y.rows));
                let (x_len, y_len) = (x.rows * x.width, y.rows * y.width);
                assert!(x.element != y.element || are_disjoint(x.lane_base, x_len, y.lane_base, y_len));
            }
        }
        self.check_pools(&snapshot);
        self.net.check_racks(&snapshot);
        let element = |gaid| {
            let application = snapshot.applications.iter().find(|a| a.gaid == gaid);
            application.and_then(|a| a.memory).map(|memory| memory.element)
        };
        for (i, a) in snapshot.endpoints.iter().enumerate() {
            let caller = format!("{} {} {}", a.gaid, a.incarnation, a.data_address);
            if let Some(before) = self.endpoints.insert(a.endpoint, caller.clone()) {
                assert_eq!(before, caller, "an endpoint id was used twice");
            } else if a.server == 0 {
                self.callers.push_front(a.clone());
            }
            assert!(a.slots == 0 || element(a.gaid).is_some(), "slots of no element");
            for b in &snapshot.endpoints[..i] {
                assert!(element(a.gaid) != element(b.gaid) || are_disjoint(a.slot_base, a.slots, b.slot_base, b.slots));
            }
        }
        self.check_answers(&snapshot);
        let used = |id| self.net.state.status().elements.iter().find(|e| e.element == id).map(|e| e.rows_used);
        for e in &snapshot.elements {
            let memory = snapshot.applications.iter().filter_map(|a| a.memory).filter(|m| m.element == e.element);
            assert_eq!(used(e.element), Some(memory.map(|m| m.rows).sum()));
        }
        // The state restored from the records has the same records.
        let (again, _) = ControllerState::restore(TIMING, snapshot.clone(), self.net.now).unwrap();
        assert_eq!(again.snapshot(), snapshot);
    }

    /// Checks that a version has one table and is never reused, and that a table has each server once.
    fn check_pools(&mut self, snapshot: &Snapshot) {
        for pool in &snapshot.pools {
            let serving = pool.serving();
            let latest = self.versions.entry(pool.gaid).or_default();
            assert!(*latest <= pool.version, "a version of {} was reused", pool.name);
            *latest = pool.version;
            let before = self.tables.entry((pool.gaid, pool.version)).or_insert_with(|| serving.clone());
            assert_eq!(*before, serving, "one version of {} has two tables", pool.name);
            assert!(pool.elements.is_empty() || !serving.is_empty(), "a table without servers: {pool:?}");
            let mut endpoints: Vec<_> = pool.servers.iter().map(|server| server.endpoint).collect();
            endpoints.sort_unstable();
            endpoints.dedup();
            assert_eq!(endpoints.len(), pool.servers.len());
            for server in &pool.servers {
                let named = format!("{} {}", pool.gaid, server.incarnation);
                assert_eq!(self.endpoints.entry(server.endpoint).or_insert_with(|| named.clone()), &named);
            }
        }
        let known = |gaid| {
            snapshot.applications.iter().any(|a| a.gaid == gaid) || snapshot.pools.iter().any(|p| p.gaid == gaid)
        };
        assert!(snapshot.endpoints.iter().all(|caller| known(caller.gaid)), "a caller without application or pool");
    }

    /// Checks that no party was granted memory that the element did not have at that time. (Elements are checked after
    /// the step; an element that has restarted since is skipped.)
    fn check_answers(&mut self, snapshot: &Snapshot) {
        for answer in &self.net.answers[self.checked..] {
            let (gaid, endpoint) = match answer {
                Output::Application(_, Ok(grant)) if grant.memory.is_some() => (grant.gaid, grant.endpoint),
                Output::Endpoint(_, Ok(grant)) if grant.flows > 0 => {
                    let Some(caller) = snapshot.endpoints.iter().find(|e| e.endpoint == grant.endpoint) else {
                        continue;
                    };
                    (caller.gaid, grant.endpoint)
                }
                _ => continue,
            };
            let Some(record) = snapshot.applications.iter().find(|a| a.gaid == gaid) else { continue };
            let Some(memory) = record.memory else { continue };
            let peer =
                self.net.elements.iter().find(|peer| {
                    peer.open.is_some_and(|(id, boot)| id == memory.element && boot == peer.request.boot_id)
                });
            let Some(peer) = peer else { continue };
            let told = match answer {
                Output::Application(_, Ok(grant)) => grant.epoch,
                _ => record.epoch,
            };
            if told == record.epoch {
                assert_eq!(peer.applications.get(&gaid).map(|a| a.epoch), Some(told), "{answer:?}");
                assert!(peer.endpoints.contains_key(&endpoint), "{answer:?}");
            }
        }
        self.checked = self.net.answers.len();
    }

    /// Ends the faults, and checks that ended registrations leave no state behind.
    fn settle(&mut self) {
        for index in 0..ELEMENTS {
            self.step(Step::Mute { index, mute: false });
            self.step(Step::Refuses { index, gaid: None });
            self.step(Step::RegisterElement { index });
        }
        self.net.deliver_all();
        self.check();
        self.net.assert_tables_are_as_recorded();
        self.net.assert_racks_have_elements();
        for name in 0..NAMES {
            self.step(Step::EndOwner { name });
        }
        for (name, incarnation) in self.servers.keys().copied().collect::<Vec<_>>() {
            self.step(Step::EndServer { name, incarnation });
        }
        for _ in 0..40 {
            self.step(Step::Pass { ms: 500 });
            self.net.deliver_all();
        }
        self.check();
        let elements = self.net.state.status().elements;
        assert!(elements.iter().all(|e| (e.rows_used, e.lanes_used, e.slots_used) == (0, 0, 0)), "{elements:?}");
        assert_eq!((self.net.state.snapshot().endpoints, self.net.state.snapshot().pools), (vec![], vec![]));
        for peer in &self.net.elements {
            assert!(peer.applications.is_empty() && peer.endpoints.is_empty() && peer.groups.is_empty(), "{peer:?}");
            assert!(peer.pools.is_empty(), "{peer:?}");
        }
        let (_, grant) = self.net.owner("newcomer", 999, 48);
        assert_eq!(grant.memory.map(|memory| memory.rows), Some(48));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn random_history_keeps_invariants(
        racks in prop::array::uniform3(0..RACKS.len()),
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut history = History::new(racks);
        for step in steps {
            history.step(step);
        }
        history.settle();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    #[test]
    fn store_equals_state_after_random_history(
        racks in prop::array::uniform3(0..RACKS.len()),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut history = History::stored(racks);
        for step in steps {
            history.step(step);
        }
        history.step(Step::RestartController);
    }
}
