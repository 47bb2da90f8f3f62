//! Simple peers for tests of the state: a store that is a map, and elements that are tables. The elements check what
//! hardware could not: that no two applications or callers ever share registers or slots.

mod applications;
mod callers;
mod elements;
mod fake_element;
mod pools;
mod profiles;
mod quarantine;
mod rack_checks;
mod racks;
mod random;
mod sharing;
mod tokens;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use pathcall_proto::v1::{
    ApplicationGrant, ElementApplication, ElementGrant, EndpointEntry, EndpointGrant, HeldGrant, JoinPoolRequest,
    PoolGrant, RegisterApplicationRequest, RegisterElementRequest, RegisterEndpointRequest, ReleaseEndpointRequest,
};
use pathcall_proto::{IDS_END, SILENT_MAX};
use pathcall_wire::Instant;

use super::*;
use crate::store::{Store, StoreLocation};

const TIMING: LeaseTiming = LeaseTiming {
    grace: Duration::from_millis(3000),
    restart_grace: Duration::from_millis(10_000),
    confirm: Duration::from_millis(1000),
};
const FIRST_EPOCH: u32 = 77;

/// Controller with its store and elements.
struct TestNetwork {
    state: ControllerState,
    now: Instant,
    calls: u64,
    store: BTreeMap<(u8, u32), RecordChange>,
    /// Real store, if the test uses one.
    database: Option<Store>,
    elements: Vec<FakeElement>,
    /// All answers among the outputs, in order.
    answers: Vec<Output>,
}

/// Tables of an element.
#[derive(Debug, Default)]
struct FakeElement {
    request: RegisterElementRequest,
    /// Whether the element stops answering.
    mute: bool,
    /// Application whose entries the element refuses.
    refuses: Option<u32>,
    /// Applications of which the element has refused an entry.
    refused: BTreeSet<u32>,
    /// Id of the element at the controller, and the boot id to which pushes belong.
    open: Option<(u32, u64)>,
    queue: VecDeque<(u64, Push)>,
    applications: BTreeMap<u32, ElementApplication>,
    endpoints: BTreeMap<u32, EndpointEntry>,
    groups: BTreeMap<u32, Vec<u32>>,
    pools: BTreeMap<u32, ElementPool>,
}

impl TestNetwork {
    fn new() -> Self {
        let state = ControllerState::new(TIMING, FIRST_EPOCH, 1);
        let (store, elements) = (BTreeMap::new(), Vec::new());
        let now = Instant::default();
        let mut net = Self { state, now, calls: 0, store, database: None, elements, answers: Vec::new() };
        net.input(Input::Tick);
        net
    }

    /// Passes an input to the state and delivers the outputs, except pushes to elements.
    fn input(&mut self, input: Input) {
        let effects = self.state.handle(self.now, input);
        self.take(effects);
    }

    fn take(&mut self, effects: Effects) {
        if let Some(database) = &self.database {
            database.commit(&effects.changes).unwrap();
        }
        for change in effects.changes {
            let key = match &change {
                RecordChange::Ids(_) => (0, 0),
                RecordChange::PutApplication(record) => (1, record.gaid),
                RecordChange::RemoveApplication(gaid) => (1, *gaid),
                RecordChange::PutEndpoint(record) => (2, record.endpoint),
                RecordChange::RemoveEndpoint(endpoint) => (2, *endpoint),
                RecordChange::PutElement(record) => (3, record.element),
                RecordChange::RemoveElement(element) => (3, *element),
                RecordChange::PutPool(record) => (4, record.gaid),
                RecordChange::RemovePool(gaid) => (4, *gaid),
            };
            self.store.insert(key, change);
        }
        assert_eq!(self.stored(), self.state.snapshot(), "the store equals the state");
        for output in effects.outputs {
            match output {
                Output::Open { element, boot_id, control_address } => {
                    let peer = self.elements.iter_mut().find(|e| e.request.control_address == control_address).unwrap();
                    peer.open = Some((element, boot_id));
                    peer.queue.clear();
                }
                Output::Push { element, seq, push } => self.peer(element).expect("open").queue.push_back((seq, push)),
                Output::Close { element, .. } => {
                    if let Some(peer) = self.peer(element) {
                        peer.open = None;
                        peer.queue.clear();
                    }
                }
                answer => self.answers.push(answer),
            }
        }
    }

    fn peer(&mut self, element: u32) -> Option<&mut FakeElement> {
        self.elements.iter_mut().find(|peer| peer.open.is_some_and(|(id, _)| id == element))
    }

    /// Content of the store.
    fn stored(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for change in self.store.values() {
            match change {
                RecordChange::Ids(ids) => snapshot.ids = Some(*ids),
                RecordChange::PutApplication(record) => snapshot.applications.push(record.clone()),
                RecordChange::PutEndpoint(record) => snapshot.endpoints.push(record.clone()),
                RecordChange::PutElement(record) => snapshot.elements.push(record.clone()),
                RecordChange::PutPool(record) => snapshot.pools.push(record.clone()),
                RecordChange::RemoveApplication(_)
                | RecordChange::RemoveEndpoint(_)
                | RecordChange::RemoveElement(_)
                | RecordChange::RemovePool(_) => {}
            }
        }
        snapshot
    }

    /// Restarts the controller with the same store. The ends of all streams are lost.
    fn restart_controller(&mut self) {
        for peer in &mut self.elements {
            peer.open = None;
            peer.queue.clear();
        }
        let stored = self.stored();
        if let Some(database) = &self.database {
            assert_eq!(database.load().unwrap(), stored);
        }
        let (state, effects) = ControllerState::restore(TIMING, stored, self.now).unwrap();
        self.state = state;
        self.take(effects);
    }

    /// Advances the time, with ticks at the deadlines of the state.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(deadline) = self.state.deadline().filter(|deadline| *deadline <= end) {
            self.now = self.now.max(deadline);
            self.input(Input::Tick);
            assert!(self.state.deadline().is_none_or(|next| next > deadline), "a tick handles all that was due");
        }
        self.now = end;
    }

    fn call(&mut self) -> ControlCallId {
        self.calls += 1;
        ControlCallId(self.calls)
    }

    fn add_element(&mut self, rows: u32, lanes: u32, slots: u32) -> usize {
        let index = self.elements.len();
        let request = RegisterElementRequest {
            boot_id: 1000 + index as u64,
            data_address: format!("10.0.{}.{}:7702", index / 256, index % 256),
            control_address: format!("http://10.0.{}.{}:7701", index / 256, index % 256),
            rows,
            lanes,
            slots,
            rack: String::new(),
            element: 0,
            holds_hedges: index.is_multiple_of(2),
            ..RegisterElementRequest::default()
        };
        self.elements.push(FakeElement { request, ..FakeElement::default() });
        index
    }

    fn register_element(&mut self, index: usize) -> ControlCallId {
        let call = self.call();
        let request = self.elements[index].request.clone();
        self.input(Input::RegisterElement(call, request));
        call
    }

    /// Adds an element and brings it into service.
    fn element(&mut self, rows: u32, lanes: u32, slots: u32) -> usize {
        let index = self.add_element(rows, lanes, slots);
        self.register_element(index);
        self.deliver_all();
        index
    }

    /// Restarts the element.
    fn restart_element(&mut self, index: usize) {
        let peer = &mut self.elements[index];
        peer.request.boot_id += 1_000_000;
        (peer.applications, peer.endpoints, peer.groups, peer.pools) = Default::default();
    }

    fn register(&mut self, request: RegisterApplicationRequest) -> ControlCallId {
        let call = self.call();
        self.input(Input::RegisterApplication(call, request));
        call
    }

    /// Registers, lets the elements confirm, and expects a grant.
    fn owner(&mut self, name: &str, incarnation: u32, rows: u32) -> (ControlCallId, ApplicationGrant) {
        let call = self.register(application(name, incarnation, rows));
        self.deliver_all();
        let grant = self.grants(call).pop().unwrap_or_else(|| panic!("no grant: {:?}", self.answers.last()));
        (call, grant)
    }

    fn caller(&mut self, gaid: u32, incarnation: u32, flows: u32) -> EndpointGrant {
        let call = self.register_caller(gaid, incarnation, flows);
        self.deliver_all();
        self.endpoint(call).unwrap().unwrap()
    }

    /// Registers a caller that already has an endpoint id.
    fn caller_held(&mut self, gaid: u32, incarnation: u32, flows: u32, endpoint: u32) -> EndpointGrant {
        let call = self.call();
        let data_address = "10.1.0.1:9".into();
        let request =
            RegisterEndpointRequest { gaid, incarnation, data_address, flows, endpoint, ..Default::default() };
        self.input(Input::RegisterEndpoint(call, request));
        self.deliver_all();
        self.endpoint(call).unwrap().unwrap()
    }

    fn register_caller(&mut self, gaid: u32, incarnation: u32, flows: u32) -> ControlCallId {
        let call = self.call();
        let data_address = format!("10.1.0.1:{}", 1 + incarnation % 60_000);
        let request = RegisterEndpointRequest { gaid, incarnation, data_address, flows, ..Default::default() };
        self.input(Input::RegisterEndpoint(call, request));
        call
    }

    fn release(&mut self, gaid: u32, endpoint: u32) -> Result<(), RegistrationRefusal> {
        let call = self.call();
        self.input(Input::ReleaseEndpoint(call, ReleaseEndpointRequest { gaid, endpoint, server: 0 }));
        let released = self.answers.iter().find_map(|output| match output {
            Output::Released(to, result) if *to == call => Some(result.clone()),
            _ => None,
        });
        released.unwrap()
    }

    /// Delivers all pushes to elements that answer.
    fn deliver_all(&mut self) {
        while (0..self.elements.len()).any(|index| self.deliver(index)) {}
    }

    /// Delivers one push; false when there is none, or the element does not answer.
    fn deliver(&mut self, index: usize) -> bool {
        let peer = &mut self.elements[index];
        let Some((element, boot_id)) = peer.open.filter(|_| !peer.mute) else { return false };
        let Some((seq, push)) = peer.queue.pop_front() else { return false };
        let input = if boot_id != peer.request.boot_id {
            Input::Restarted { element, seq }
        } else if let Some(gaid) = gaid_of(&push).filter(|gaid| peer.refuses == Some(*gaid)) {
            peer.refused.insert(gaid);
            Input::Refused { element, seq, reason: "no".into() }
        } else {
            peer.apply(push);
            Input::Confirmed { element, seq }
        };
        self.input(input);
        true
    }

    fn grants(&self, call: ControlCallId) -> Vec<ApplicationGrant> {
        let grant = |output: &Output| match output {
            Output::Application(to, Ok(grant)) if *to == call => Some(grant.clone()),
            _ => None,
        };
        self.answers.iter().filter_map(grant).collect()
    }

    fn refusal(&self, call: ControlCallId) -> Option<RegistrationRefusal> {
        self.answers.iter().find_map(|output| match output {
            Output::Application(to, Err(refusal))
            | Output::Element(to, Err(refusal))
            | Output::Pool(to, Err(refusal))
                if *to == call =>
            {
                Some(refusal.clone())
            }
            _ => None,
        })
    }

    fn element_grant(&self, call: ControlCallId) -> Option<ElementGrant> {
        self.answers.iter().find_map(|output| match output {
            Output::Element(to, Ok(grant)) if *to == call => Some(*grant),
            _ => None,
        })
    }

    fn endpoint(&self, call: ControlCallId) -> Option<Result<EndpointGrant, RegistrationRefusal>> {
        self.answers.iter().find_map(|output| match output {
            Output::Endpoint(to, result) if *to == call => Some(result.clone()),
            _ => None,
        })
    }

    /// Checks that every element that answers has exactly the entries of the records.
    fn assert_tables_are_as_recorded(&self) {
        let snapshot = self.state.snapshot();
        for peer in &self.elements {
            let Some((id, _)) = peer.open else { continue };
            let on = |a: &&ApplicationRecord| a.memory.is_some_and(|memory| memory.element == id);
            let (mut applications, mut endpoints, mut groups) = (Vec::new(), Vec::new(), Vec::new());
            for application in snapshot.applications.iter().filter(on) {
                applications.push((application.gaid, application.epoch));
                let of = |e: &&CallerRecord| e.gaid == application.gaid && e.slots > 0;
                let group: Vec<_> = snapshot.endpoints.iter().filter(of).map(|e| e.endpoint).collect();
                endpoints.push(application.endpoint);
                endpoints.extend(&group);
                groups.push((application.gaid, group));
            }
            for pool in snapshot.pools.iter().filter(|pool| pool.elements.contains(&id)) {
                endpoints.extend(self.assert_addresses_are_of_racks(&snapshot, pool, id));
                let installed = peer.pools.get(&pool.gaid).map(|pool| (pool.version, pool.servers.clone()));
                assert_eq!(installed, Some((pool.version, pool.serving())));
            }
            let on_it = |gaid: &u32| snapshot.pools.iter().any(|p| p.gaid == *gaid && p.elements.contains(&id));
            assert!(peer.pools.keys().all(on_it), "{:?}", peer.pools);
            endpoints.sort_unstable();
            assert_eq!(peer.applications.values().map(|a| (a.gaid, a.epoch)).collect::<Vec<_>>(), applications);
            assert_eq!(peer.endpoints.keys().copied().collect::<Vec<_>>(), endpoints);
            assert_eq!(peer.groups.clone().into_iter().collect::<Vec<_>>(), groups);
        }
    }
}

fn gaid_of(push: &Push) -> Option<u32> {
    match push {
        Push::Install(application) => Some(application.gaid),
        Push::SetEndpoints(entries) => entries.first().map(|entry| entry.gaid),
        Push::SetGroup { gaid, .. } => Some(*gaid),
        Push::InstallPool(pool) => Some(pool.gaid),
        Push::Retain(_) | Push::Remove(_) | Push::RemoveEndpoints(_) => None,
    }
}

fn application(name: &str, incarnation: u32, rows: u32) -> RegisterApplicationRequest {
    RegisterApplicationRequest {
        no_memory_reason: 0,
        name: name.into(),
        filter_digest: 0xd19e57,
        width: 32,
        rows,
        data_address: format!("10.2.0.1:{}", 1 + incarnation % 60_000),
        incarnation,
        service_address: format!("http://server-{incarnation}:50051"),
        authenticate: false,
        held: None,
        silent_elements: Vec::new(),
        yielded_epoch: 0,
        takes_narrow_rows: false,
    }
}
