//! Elements: the memory that they offer, and their tables, which follow the records.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use pathcall_proto::v1::{ElementApplication, EndpointEntry, RegisterElementRequest};
use pathcall_wire::Instant;

use super::ids::IdKind;
use super::push::{ENTRIES_MAX, PushSubject};
use super::{
    ControlCallId, ControllerState, ELEMENTS_MAX, Element, ElementRecord, Lease, Output, PUSHES_MAX, Push, Ranges,
    Registrant, RegistrationRefusal, TEXT_MAX, WaitingParty, check_data_address, check_rack, record, truncated,
};

impl ControllerState {
    /// Registers an element with its memory. The answer waits until the element has confirmed its tables.
    pub(super) fn register_element(&mut self, call: ControlCallId, request: RegisterElementRequest) {
        match self.admit_element(request) {
            Ok(id) => {
                let Some(element) = self.elements.get_mut(&id) else { return };
                if let Lease::Held(earlier) = std::mem::replace(&mut element.lease, Lease::Held(call)) {
                    self.streams.remove(&earlier);
                    self.outputs.push(Output::Element(earlier, Err(RegistrationRefusal::Replaced)));
                }
                self.streams.insert(call, Registrant::Element(id));
                self.synchronize(id);
                self.wait(&[id], WaitingParty::Element(call));
            }
            Err(refusal) => self.outputs.push(Output::Element(call, Err(refusal))),
        }
    }

    /// Finds or creates the element. It is identified by the address of its control service; only an exact repeat of
    /// its registration is the same start.
    fn admit_element(&mut self, request: RegisterElementRequest) -> Result<u32, RegistrationRefusal> {
        check(&request)?;
        let named = |e: &&Element| e.record.control_address == request.control_address;
        let known = self.elements.values().find(named).map(|element| element.record.clone());
        let Some(mut record) = known else {
            return self.new_element(request);
        };
        let id = record.element;
        let same = is_same_start(&record, &request);
        if !same {
            let reason = "it has restarted";
            self.take_out_of_service(id, reason);
            if record.boot_id == request.boot_id {
                // Its tables are not empty: entries that were withdrawn just now still have to be removed.
                record = self.elements.get(&id).map_or(record, |element| element.record.clone());
            } else {
                record.stale_applications.clear();
                record.stale_endpoints.clear();
                record.quarantined.clear();
                // Another process is another endpoint.
                record.endpoint = self.next_id(IdKind::Endpoint)?;
            }
            // Push numbers continue, so that late answers to earlier pushes are detected.
            let pushed = self.elements.get(&id).map_or(0, |element| element.pushed);
            self.elements.insert(id, Element { pushed, ..Element::new(registered(request, record), self.now) });
        } else if let Some(element) = self.elements.get_mut(&id) {
            element.record.alive = true;
        }
        self.changed.elements.insert(id);
        Ok(id)
    }

    fn new_element(&mut self, request: RegisterElementRequest) -> Result<u32, RegistrationRefusal> {
        if self.elements.len() >= ELEMENTS_MAX {
            let dead = self.elements.iter().find(|(_, element)| element.lease.is_expired()).map(|(&id, _)| id);
            let full = RegistrationRefusal::Full { what: "element", limit: ELEMENTS_MAX as u32 };
            let dead = dead.ok_or(full)?;
            self.elements.remove(&dead);
            self.changed.elements.insert(dead);
        }
        let endpoint = self.next_id(IdKind::Endpoint)?;
        let element = self.element_id(request.element)?;
        let record = registered(request, ElementRecord { element, endpoint, ..ElementRecord::default() });
        self.elements.insert(element, Element::new(record, self.now));
        self.changed.elements.insert(element);
        Ok(element)
    }

    /// Opens the link to an element and pushes its complete tables. Parties that wait for earlier pushes now wait for
    /// the last of these.
    pub(super) fn synchronize(&mut self, id: u32) {
        let Some(element) = self.elements.get_mut(&id) else { return };
        element.serving = false;
        element.unconfirmed.clear();
        element.progress = self.now;
        let ElementRecord { boot_id, ref control_address, ref stale_applications, ref stale_endpoints, .. } =
            element.record;
        let (removed, endpoints) = (stale_applications.clone(), stale_endpoints.clone());
        self.outputs.push(Output::Open { element: id, boot_id, control_address: control_address.clone() });
        let (installed, pools) = (self.installed_on(id), self.pools_on(id));
        self.push(id, Push::Retain([&installed[..], &pools].concat()), PushSubject::UnknownApplications);
        self.push_removals(id, &endpoints, &removed);
        for gaid in installed {
            self.install(gaid);
        }
        for gaid in pools {
            self.install_pool(gaid, id);
        }
        let Some(element) = self.elements.get_mut(&id) else { return };
        for waiter in &mut element.waiters {
            (waiter.after, waiter.since) = (element.pushed, self.now);
        }
    }

    /// Pushes an application's admission entry, its endpoints and its group.
    pub(super) fn install(&mut self, gaid: u32) {
        let Some(application) = self.applications.get(&gaid) else { return };
        let Some(memory) = application.record.memory else { return };
        let entry = ElementApplication {
            gaid,
            epoch: application.record.epoch,
            owner: application.record.endpoint,
            row_base: memory.row_base,
            rows: memory.rows,
            lane_base: memory.lane_base,
            width: memory.width,
            token_key: application.record.token_key,
        };
        let mut endpoints = vec![application.record.endpoint];
        endpoints.extend(self.group(gaid));
        self.push(memory.element, Push::Install(entry), PushSubject::Application(gaid));
        self.push_endpoints(gaid, endpoints);
        self.push_group(gaid);
    }

    /// Pushes the entries of an application's endpoints.
    pub(super) fn push_endpoints(&mut self, gaid: u32, endpoints: Vec<u32>) {
        let Some(element) = self.element_of(gaid) else { return };
        for endpoints in endpoints.chunks(ENTRIES_MAX) {
            let entries = endpoints.iter().filter_map(|&endpoint| self.entry(gaid, endpoint)).collect();
            self.push(element, Push::SetEndpoints(entries), PushSubject::Application(gaid));
        }
    }

    /// Pushes the multicast group of an application: the callers that use the element.
    pub(super) fn push_group(&mut self, gaid: u32) {
        let Some(element) = self.element_of(gaid) else { return };
        let endpoints = self.group(gaid);
        self.push(element, Push::SetGroup { gaid, endpoints }, PushSubject::Application(gaid));
    }

    /// Pushes the removal of endpoints, then of applications.
    pub(super) fn push_removals(&mut self, element: u32, endpoints: &[u32], applications: &[u32]) {
        for endpoints in endpoints.chunks(ENTRIES_MAX) {
            let push = Push::RemoveEndpoints(endpoints.to_vec());
            self.push(element, push, PushSubject::RemovedEndpoints(endpoints.to_vec()));
        }
        for &gaid in applications {
            self.push(element, Push::Remove(gaid), PushSubject::Removed(gaid));
        }
    }

    /// Pushes a change to an element in service. An element out of service gets its complete tables when it returns.
    pub(super) fn push(&mut self, id: u32, push: Push, subject: PushSubject) {
        let Some(element) = self.elements.get_mut(&id).filter(|element| !element.lease.is_expired()) else { return };
        if element.unconfirmed.is_empty() {
            element.progress = self.now;
        }
        element.pushed += 1;
        element.unconfirmed.push_back((element.pushed, subject));
        self.outputs.push(Output::Push { element: id, seq: element.pushed, push });
    }

    /// Handles the confirmation of all changes up to `seq`.
    pub(super) fn confirmed(&mut self, id: u32, seq: u64) {
        let Some(element) = self.elements.get_mut(&id) else { return };
        while element.unconfirmed.front().is_some_and(|(pushed, _)| *pushed <= seq) {
            let Some((_, subject)) = element.unconfirmed.pop_front() else { break };
            element.progress = self.now;
            let confirmed = match &subject {
                // Unless the application was installed and removed again since.
                PushSubject::Removed(gaid) if !element.unconfirmed.iter().any(|(_, later)| *later == subject) => {
                    record::remove(&mut element.record.stale_applications, *gaid)
                }
                PushSubject::RemovedEndpoints(endpoints) => {
                    let again = |endpoint: &u32| {
                        element.unconfirmed.iter().any(
                            |(_, later)| matches!(later, PushSubject::RemovedEndpoints(ids) if ids.contains(endpoint)),
                        )
                    };
                    let gone: Vec<_> = endpoints.iter().copied().filter(|endpoint| !again(endpoint)).collect();
                    let stale = &mut element.record.stale_endpoints;
                    gone.into_iter().fold(false, |any, endpoint| record::remove(stale, endpoint) | any)
                }
                PushSubject::Removed(_) | PushSubject::UnknownApplications | PushSubject::Application(_) => false,
            };
            if confirmed {
                self.changed.elements.insert(id);
            }
        }
        self.wake_waiters(id);
    }

    /// Handles the refusal of a change: the application continues without the element. If the element refuses a
    /// removal, its tables are wrong, and it is taken out of service.
    pub(super) fn refused(&mut self, id: u32, seq: u64, reason: &str) {
        let Some(element) = self.elements.get_mut(&id) else { return };
        let Some((_, subject)) = element.unconfirmed.iter().find(|(pushed, _)| *pushed == seq) else { return };
        let &PushSubject::Application(gaid) = subject else {
            return self.take_out_of_service(id, &format!("it refused a table change: {reason}"));
        };
        element.refused.insert(gaid);
        // The application may have moved to another element since.
        if self.element_of(gaid) == Some(id) {
            self.withdraw(gaid);
            self.send_application_grant(gaid);
        }
        if self.pools_on(id).contains(&gaid) {
            self.withdraw_pool(gaid, id);
            self.place_pool(gaid);
            self.send_pool_grants_when_confirmed(gaid);
        }
        self.confirmed(id, seq);
    }

    /// Handles the answer of another start of the element: this start has ended.
    pub(super) fn restarted(&mut self, id: u32, seq: u64) {
        let pending = |element: &Element| element.unconfirmed.iter().any(|(pushed, _)| *pushed == seq);
        if self.elements.get(&id).is_some_and(pending) {
            self.take_out_of_service(id, "it has restarted");
        }
    }

    /// Takes an element out of service: its registers cannot be trusted any more. It may register again.
    pub(super) fn take_out_of_service(&mut self, id: u32, reason: &str) {
        let Some(element) = self.elements.get_mut(&id) else { return };
        let lease = std::mem::replace(&mut element.lease, Lease::Expired);
        if lease.is_expired() {
            return;
        }
        element.record.alive = false;
        element.serving = false;
        element.unconfirmed.clear();
        let waiters = std::mem::take(&mut element.waiters);
        let control_address = element.record.control_address.clone();
        self.changed.elements.insert(id);
        self.outputs.push(Output::Close { element: id, reason: reason.to_owned() });
        if let Lease::Held(call) = lease {
            self.streams.remove(&call);
            let reason = reason.to_owned();
            let refusal = RegistrationRefusal::OutOfService { element: id, control_address, reason };
            self.outputs.push(Output::Element(call, Err(refusal)));
        }
        for gaid in self.installed_on(id) {
            self.withdraw(gaid);
            self.send_application_grant(gaid);
        }
        for gaid in self.pools_on(id) {
            self.withdraw_pool(gaid, id);
            self.place_pool(gaid);
            self.send_pool_grants_when_confirmed(gaid);
        }
        self.answer(waiters.into_iter().map(|waiter| waiter.party));
    }

    /// Takes elements with too many unconfirmed pushes out of service.
    pub(super) fn remove_overloaded_elements(&mut self) {
        let overfull = |element: &Element| element.unconfirmed.len() > PUSHES_MAX;
        let overfull: Vec<_> = self.elements.iter().filter(|(_, e)| overfull(e)).map(|(&id, _)| id).collect();
        for id in overfull {
            self.take_out_of_service(id, "too many of its table changes are unconfirmed");
        }
    }

    /// Element of an application's memory.
    pub(super) fn element_of(&self, gaid: u32) -> Option<u32> {
        self.applications.get(&gaid)?.record.memory.map(|memory| memory.element)
    }

    /// Applications with memory of an element.
    pub(super) fn installed_on(&self, id: u32) -> Vec<u32> {
        let on = |a: &super::Application| a.record.memory.is_some_and(|memory| memory.element == id);
        self.applications.iter().filter(|(_, a)| on(a)).map(|(&gaid, _)| gaid).collect()
    }

    /// Callers of an application that use its element, in ascending order.
    fn group(&self, gaid: u32) -> Vec<u32> {
        let Some(application) = self.applications.get(&gaid) else { return Vec::new() };
        let through = |endpoint: &u32| self.endpoints.get(endpoint).is_some_and(|caller| caller.slots > 0);
        let mut group: Vec<_> = application.callers.values().copied().filter(through).collect();
        group.sort_unstable();
        group
    }

    /// Table entry of an endpoint, owner or caller, for an element.
    pub(super) fn entry(&self, gaid: u32, endpoint: u32) -> Option<EndpointEntry> {
        let owner = &self.applications.get(&gaid)?.record;
        Some(match self.endpoints.get(&endpoint) {
            Some(caller) => EndpointEntry {
                endpoint,
                incarnation: caller.incarnation,
                data_address: caller.data_address.clone(),
                gaid,
                slot_base: caller.slot_base,
                slots: caller.slots,
            },
            None => EndpointEntry {
                endpoint: owner.endpoint,
                incarnation: owner.incarnation,
                data_address: owner.data_address.clone(),
                gaid,
                slot_base: 0,
                slots: 0,
            },
        })
    }
}

impl Element {
    pub(super) fn new(record: ElementRecord, now: Instant) -> Self {
        let (rows, lanes, slots) = (record.rows, record.lanes, record.slots);
        let mut element = Self {
            quarantine: VecDeque::new(),
            record,
            lease: Lease::Expired,
            serving: false,
            rows: Ranges::new(rows),
            lanes: Ranges::new(lanes),
            slots: Ranges::new(slots),
            pushed: 0,
            unconfirmed: VecDeque::new(),
            progress: now,
            waiters: Vec::new(),
            refused: BTreeSet::new(),
            poll_at: None,
        };
        element.begin_quarantine(now);
        element
    }

    /// Time at which the element counts as silent: after its last confirmation, or after a party began to wait.
    pub(super) fn silent_at(&self, confirm: Duration) -> Option<Instant> {
        let in_service = self.waiters.iter().filter(|_| self.serving);
        let since = in_service.map(|waiter| waiter.since).min().map_or(self.progress, |since| since.min(self.progress));
        (!self.unconfirmed.is_empty()).then(|| since + confirm)
    }
}

fn is_same_start(record: &ElementRecord, request: &RegisterElementRequest) -> bool {
    record.boot_id == request.boot_id
        && record.data_address == request.data_address
        && record.rack == request.rack
        && (record.rows, record.lanes, record.slots) == (request.rows, request.lanes, request.slots)
        && record.holds_hedges == request.holds_hedges
        && record.frame_lanes == request.frame_lanes
        && (record.without_map, record.without_pools) == (request.without_map, request.without_pools)
}

/// Record `of` with the content of a registration.
fn registered(request: RegisterElementRequest, of: ElementRecord) -> ElementRecord {
    let RegisterElementRequest {
        boot_id,
        data_address,
        control_address,
        rows,
        lanes,
        slots,
        rack,
        element: _,
        holds_hedges,
        frame_lanes,
        without_map,
        without_pools,
    } = request;
    ElementRecord {
        boot_id,
        data_address,
        control_address,
        rows,
        lanes,
        slots,
        rack,
        holds_hedges,
        frame_lanes,
        without_map,
        without_pools,
        alive: true,
        ..of
    }
}

fn check(request: &RegisterElementRequest) -> Result<(), RegistrationRefusal> {
    let address = &request.control_address;
    let uri = address.parse::<http::Uri>().ok();
    let usable = uri.filter(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.port().is_some() && address.len() <= TEXT_MAX
    });
    if usable.is_none() {
        let (field, expected) = ("control_address", "http://ip:port or https://ip:port");
        return Err(RegistrationRefusal::Invalid { field, expected, got: truncated(address) });
    }
    check_rack(&request.rack)?;
    check_data_address(&request.data_address)
}
