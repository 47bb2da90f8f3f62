//! Elements: the memory they offer, and their tables, which are kept as the records say.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use pathcall_proto::v1::{ElementApplication, ElementGrant, EndpointEntry, RegisterElementRequest};
use pathcall_wire::Instant;

use super::ids::Kind;
use super::push::{ENTRIES_MAX, Subject};
use super::{
    CallId, ELEMENTS_MAX, Element, ElementRecord, Lease, Output, PUSHES_MAX, Push, Ranges, Refusal, Registrant, State,
    TEXT_MAX, Waiter, Waiting, check_data_address, record, shortened,
};

impl State {
    /// An element offers its memory. It is answered when it has confirmed its tables.
    pub(super) fn register_element(&mut self, call: CallId, request: RegisterElementRequest) {
        match self.take_in(request) {
            Ok(id) => {
                let Some(element) = self.elements.get_mut(&id) else { return };
                if let Lease::Held(earlier) = std::mem::replace(&mut element.lease, Lease::Held(call)) {
                    self.streams.remove(&earlier);
                    self.outputs.push(Output::Element(earlier, Err(Refusal::Replaced)));
                }
                self.streams.insert(call, Registrant::Element(id));
                self.synchronize(id);
                self.wait(id, Waiting::Element(call));
            }
            Err(refusal) => self.outputs.push(Output::Element(call, Err(refusal))),
        }
    }

    /// Finds or makes the element. The address of its control service is its name; only an exact
    /// repeat of its registration is the same start of it.
    fn take_in(&mut self, request: RegisterElementRequest) -> Result<u32, Refusal> {
        check(&request)?;
        let named = |e: &&Element| e.record.control_address == request.control_address;
        let known = self.elements.values().find(named).map(|element| element.record.clone());
        let Some(mut record) = known else {
            return self.new_element(request);
        };
        let id = record.element;
        let same = is_same_start(&record, &request);
        if !same {
            let reason = "it has started anew";
            self.take_out_of_service(id, reason);
            if record.boot_id == request.boot_id {
                // Its tables are not empty: what was withdrawn just now is still to be removed.
                record = self.elements.get(&id).map_or(record, |element| element.record.clone());
            } else {
                record.stale_applications.clear();
                record.stale_endpoints.clear();
                record.quarantined.clear();
                // Another process is another endpoint.
                record.endpoint = self.next_id(Kind::Endpoint)?;
            }
            // Pushes are numbered on, so that what is said about an earlier one is known to be late.
            let pushed = self.elements.get(&id).map_or(0, |element| element.pushed);
            self.elements.insert(id, Element { pushed, ..Element::new(registered(request, record), self.now) });
        } else if let Some(element) = self.elements.get_mut(&id) {
            element.record.alive = true;
        }
        self.changed.elements.insert(id);
        Ok(id)
    }

    fn new_element(&mut self, request: RegisterElementRequest) -> Result<u32, Refusal> {
        if self.elements.len() >= ELEMENTS_MAX {
            let dead = self.elements.iter().find(|(_, element)| element.lease.is_over()).map(|(&id, _)| id);
            let full = Refusal::Full { what: "element", limit: ELEMENTS_MAX as u32 };
            let dead = dead.ok_or(full)?;
            self.elements.remove(&dead);
            self.changed.elements.insert(dead);
        }
        let endpoint = self.next_id(Kind::Endpoint)?;
        let element = self.next_id(Kind::Element)?;
        let record = registered(request, ElementRecord { element, endpoint, ..ElementRecord::default() });
        self.elements.insert(element, Element::new(record, self.now));
        self.changed.elements.insert(element);
        Ok(element)
    }

    /// Opens the way to an element and pushes its whole tables. Those who wait for earlier pushes
    /// wait for the last of these.
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
        self.push(id, Push::Retain([&installed[..], &pools].concat()), Subject::Strangers);
        self.push_removals(id, &endpoints, &removed);
        for gaid in installed {
            self.install(gaid);
        }
        for gaid in pools {
            self.install_pool(gaid);
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
        self.push(memory.element, Push::Install(entry), Subject::Application(gaid));
        self.push_endpoints(gaid, endpoints);
        self.push_group(gaid);
    }

    /// Pushes the entries of an application's endpoints.
    pub(super) fn push_endpoints(&mut self, gaid: u32, endpoints: Vec<u32>) {
        let Some(element) = self.element_of(gaid) else { return };
        for endpoints in endpoints.chunks(ENTRIES_MAX) {
            let entries = endpoints.iter().filter_map(|&endpoint| self.entry(gaid, endpoint)).collect();
            self.push(element, Push::SetEndpoints(entries), Subject::Application(gaid));
        }
    }

    /// Pushes whom a multicast of the application reaches: the callers that work through the element.
    pub(super) fn push_group(&mut self, gaid: u32) {
        let Some(element) = self.element_of(gaid) else { return };
        let endpoints = self.group(gaid);
        self.push(element, Push::SetGroup { gaid, endpoints }, Subject::Application(gaid));
    }

    /// Pushes that endpoints, then applications, are gone.
    pub(super) fn push_removals(&mut self, element: u32, endpoints: &[u32], applications: &[u32]) {
        for endpoints in endpoints.chunks(ENTRIES_MAX) {
            let push = Push::RemoveEndpoints(endpoints.to_vec());
            self.push(element, push, Subject::RemovedEndpoints(endpoints.to_vec()));
        }
        for &gaid in applications {
            self.push(element, Push::Remove(gaid), Subject::Removed(gaid));
        }
    }

    /// Pushes a change to an element in service; one that is not gets its whole tables when it returns.
    pub(super) fn push(&mut self, id: u32, push: Push, subject: Subject) {
        let Some(element) = self.elements.get_mut(&id).filter(|element| !element.lease.is_over()) else { return };
        if element.unconfirmed.is_empty() {
            element.progress = self.now;
        }
        element.pushed += 1;
        element.unconfirmed.push_back((element.pushed, subject));
        self.outputs.push(Output::Push { element: id, seq: element.pushed, push });
    }

    /// Lets someone wait until all that was pushed so far is confirmed; who waits already, waits anew.
    pub(super) fn wait(&mut self, id: u32, who: Waiting) {
        let Some(element) = self.elements.get_mut(&id) else { return };
        element.waiters.retain(|waiter| waiter.who != who);
        element.waiters.push(Waiter { after: element.pushed, since: self.now, who });
        self.wake(id);
    }

    /// The element has made all changes up to `seq`.
    pub(super) fn confirmed(&mut self, id: u32, seq: u64) {
        let Some(element) = self.elements.get_mut(&id) else { return };
        while element.unconfirmed.front().is_some_and(|(pushed, _)| *pushed <= seq) {
            let Some((_, subject)) = element.unconfirmed.pop_front() else { break };
            element.progress = self.now;
            let confirmed = match &subject {
                // Unless it was installed and removed again since.
                Subject::Removed(gaid) if !element.unconfirmed.iter().any(|(_, later)| *later == subject) => {
                    record::remove(&mut element.record.stale_applications, *gaid)
                }
                Subject::RemovedEndpoints(endpoints) => {
                    let again = |endpoint: &u32| {
                        let later =
                            |later: &Subject| matches!(later, Subject::RemovedEndpoints(of) if of.contains(endpoint));
                        element.unconfirmed.iter().any(|(_, subject)| later(subject))
                    };
                    let gone: Vec<_> = endpoints.iter().copied().filter(|endpoint| !again(endpoint)).collect();
                    let stale = &mut element.record.stale_endpoints;
                    gone.into_iter().fold(false, |any, endpoint| record::remove(stale, endpoint) | any)
                }
                Subject::Removed(_) | Subject::Strangers | Subject::Application(_) => false,
            };
            if confirmed {
                self.changed.elements.insert(id);
            }
        }
        self.wake(id);
    }

    /// Answers those whose pushes are confirmed; an element that has confirmed its whole tables for
    /// the first time is in service, and applications without memory are offered its.
    fn wake(&mut self, id: u32) {
        let Some(element) = self.elements.get_mut(&id) else { return };
        let pending = element.unconfirmed.front().map_or(u64::MAX, |(seq, _)| *seq);
        let ready: Vec<_> = element.waiters.extract_if(.., |waiter| waiter.after < pending).collect();
        let begins = !element.serving && !element.lease.is_over() && element.unconfirmed.is_empty();
        element.serving |= begins;
        self.answer(ready.into_iter().map(|waiter| waiter.who));
        if begins {
            let held = |lease| matches!(lease, Lease::Held(_));
            let without = self.applications.iter().filter(|(_, a)| held(a.lease) && a.record.memory.is_none());
            let without: Vec<_> = without.map(|(&gaid, _)| gaid).collect();
            for gaid in without {
                self.offer(gaid);
                self.answer_when_confirmed(gaid);
            }
            let without = self.pools.iter().filter(|(_, pool)| pool.record.element.is_none()).map(|(&gaid, _)| gaid);
            for gaid in without.collect::<Vec<_>>() {
                self.offer_pool(gaid);
                self.tell_pool_when_confirmed(gaid);
            }
        }
    }

    fn answer(&mut self, waiting: impl Iterator<Item = Waiting>) {
        for who in waiting {
            match who {
                Waiting::Application(gaid) => self.tell(gaid),
                Waiting::Pool(gaid) => self.tell_pool(gaid),
                Waiting::Endpoint { call, gaid, endpoint } => self.tell_caller(call, gaid, endpoint),
                Waiting::Element(call) => self.tell_element(call),
            }
        }
    }

    fn tell_element(&mut self, call: CallId) {
        let Some(Registrant::Element(id)) = self.streams.get(&call) else { return };
        let Some(ElementRecord { element, endpoint, .. }) = self.elements.get(id).map(|element| &element.record) else {
            return;
        };
        let grant = ElementGrant { element: *element, endpoint: *endpoint };
        self.outputs.push(Output::Element(call, Ok(grant)));
    }

    /// The element refuses a change: the application works without it. If it can't even remove
    /// something, its tables are not what they should be.
    pub(super) fn refused(&mut self, id: u32, seq: u64, reason: &str) {
        let Some(element) = self.elements.get_mut(&id) else { return };
        let Some((_, subject)) = element.unconfirmed.iter().find(|(pushed, _)| *pushed == seq) else { return };
        let &Subject::Application(gaid) = subject else {
            return self.take_out_of_service(id, &format!("it refuses a change of its tables: {reason}"));
        };
        element.refused.insert(gaid);
        // It may have moved on to another element since.
        if self.element_of(gaid) == Some(id) {
            self.withdraw(gaid);
            self.tell(gaid);
        }
        if self.pools_on(id).contains(&gaid) {
            self.withdraw_pool(gaid);
            self.tell_pool(gaid);
        }
        self.confirmed(id, seq);
    }

    /// Another start of the element answers: this one is gone.
    pub(super) fn restarted(&mut self, id: u32, seq: u64) {
        let pending = |element: &Element| element.unconfirmed.iter().any(|(pushed, _)| *pushed == seq);
        if self.elements.get(&id).is_some_and(pending) {
            self.take_out_of_service(id, "it has started anew");
        }
    }

    /// Gives an element up: nobody's registers on it can be trusted any more. It may register again.
    pub(super) fn take_out_of_service(&mut self, id: u32, reason: &str) {
        let Some(element) = self.elements.get_mut(&id) else { return };
        let lease = std::mem::replace(&mut element.lease, Lease::Over);
        if lease.is_over() {
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
            let refusal = Refusal::OutOfService { element: id, control_address, reason };
            self.outputs.push(Output::Element(call, Err(refusal)));
        }
        for gaid in self.installed_on(id) {
            self.withdraw(gaid);
            self.tell(gaid);
        }
        for gaid in self.pools_on(id) {
            self.withdraw_pool(gaid);
            self.offer_pool(gaid);
            self.tell_pool_when_confirmed(gaid);
        }
        self.answer(waiters.into_iter().map(|waiter| waiter.who));
    }

    /// Gives up elements that can't keep up.
    pub(super) fn overfull(&mut self) {
        let overfull = |element: &Element| element.unconfirmed.len() > PUSHES_MAX;
        let overfull: Vec<_> = self.elements.iter().filter(|(_, e)| overfull(e)).map(|(&id, _)| id).collect();
        for id in overfull {
            self.take_out_of_service(id, "too many changes of its tables wait for it");
        }
    }

    /// The element whose memory an application has.
    pub(super) fn element_of(&self, gaid: u32) -> Option<u32> {
        self.applications.get(&gaid)?.record.memory.map(|memory| memory.element)
    }

    /// Applications that have memory of an element.
    fn installed_on(&self, id: u32) -> Vec<u32> {
        let on = |a: &super::Application| a.record.memory.is_some_and(|memory| memory.element == id);
        self.applications.iter().filter(|(_, a)| on(a)).map(|(&gaid, _)| gaid).collect()
    }

    /// Callers of an application that work through its element, ascending.
    fn group(&self, gaid: u32) -> Vec<u32> {
        let Some(application) = self.applications.get(&gaid) else { return Vec::new() };
        let through = |endpoint: &u32| self.endpoints.get(endpoint).is_some_and(|caller| caller.slots > 0);
        let mut group: Vec<_> = application.callers.values().copied().filter(through).collect();
        group.sort_unstable();
        group
    }

    /// The entry of an endpoint, owner or caller, as an element needs it.
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
            lease: Lease::Over,
            serving: false,
            rows: Ranges::new(rows),
            lanes: Ranges::new(lanes),
            slots: Ranges::new(slots),
            pushed: 0,
            unconfirmed: VecDeque::new(),
            progress: now,
            waiters: Vec::new(),
            refused: BTreeSet::new(),
        };
        element.begin_quarantine(now);
        element
    }

    /// When it will have kept us waiting for too long: since its last sign, or since someone waits.
    pub(super) fn silent_at(&self, confirm: Duration) -> Option<Instant> {
        let in_service = self.waiters.iter().filter(|_| self.serving);
        let since = in_service.map(|waiter| waiter.since).min().map_or(self.progress, |since| since.min(self.progress));
        (!self.unconfirmed.is_empty()).then(|| since + confirm)
    }
}

fn is_same_start(record: &ElementRecord, request: &RegisterElementRequest) -> bool {
    record.boot_id == request.boot_id
        && record.data_address == request.data_address
        && (record.rows, record.lanes, record.slots) == (request.rows, request.lanes, request.slots)
}

/// `of` with what its registration says.
fn registered(request: RegisterElementRequest, of: ElementRecord) -> ElementRecord {
    let RegisterElementRequest { boot_id, data_address, control_address, rows, lanes, slots } = request;
    ElementRecord { boot_id, data_address, control_address, rows, lanes, slots, alive: true, ..of }
}

fn check(request: &RegisterElementRequest) -> Result<(), Refusal> {
    let address = &request.control_address;
    let uri = address.parse::<http::Uri>().ok();
    let usable = uri.filter(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.port().is_some() && address.len() <= TEXT_MAX
    });
    if usable.is_none() {
        let (field, expected) = ("control_address", "http://ip:port or https://ip:port");
        return Err(Refusal::Invalid { field, expected, got: shortened(address) });
    }
    check_data_address(&request.data_address)
}
