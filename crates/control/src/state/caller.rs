//! Callers: the endpoints that owners let into their applications, and their slots.

use pathcall_proto::v1::{EndpointGrant, RegisterEndpointRequest, ReleaseEndpointRequest};

use super::ids::Kind;
use super::{
    CALLERS_MAX, CallId, EndpointRecord, FLOWS_MAX, Output, Refusal, SlotsRecord, State, Waiting, check_data_address,
    reaches, record,
};

impl State {
    /// Registers a caller. The same incarnation at the same address is the same endpoint: it keeps
    /// its id and slots, and gets slots now if there were none before.
    pub(super) fn register_endpoint(&mut self, call: CallId, request: RegisterEndpointRequest) {
        let gaid = request.gaid;
        match self.let_in(request) {
            Ok(endpoint) => self.answer_caller(call, gaid, endpoint),
            Err(refusal) => self.outputs.push(Output::Endpoint(call, Err(refusal))),
        }
    }

    fn let_in(&mut self, request: RegisterEndpointRequest) -> Result<u32, Refusal> {
        check_data_address(&request.data_address)?;
        if self.pools.contains_key(&request.gaid) {
            return self.let_into_pool(request);
        }
        let RegisterEndpointRequest { gaid, incarnation, data_address, flows, endpoint, .. } = request;
        let Some(application) = self.applications.get(&gaid) else {
            return Err(Refusal::UnknownApplication(gaid.to_string()));
        };
        if application.lease.is_over() {
            return Err(Refusal::NoOwner { name: application.record.name.clone() });
        }
        let known = application.callers.get(&(incarnation, data_address.clone())).copied();
        let endpoint = match known {
            Some(endpoint) => endpoint,
            None => {
                let record = EndpointRecord { endpoint, gaid, incarnation, data_address, ..EndpointRecord::default() };
                self.new_caller(record)?
            }
        };
        if self.lease_slots(endpoint, flows.min(FLOWS_MAX)) {
            self.push_endpoints(gaid, vec![endpoint]);
            self.push_group(gaid);
        }
        Ok(endpoint)
    }

    /// A caller that is not known here; of its record the endpoint is what it goes by already.
    fn new_caller(&mut self, record: EndpointRecord) -> Result<u32, Refusal> {
        let callers = self.applications.get(&record.gaid).map_or(0, |application| application.callers.len());
        if callers >= CALLERS_MAX {
            return Err(Refusal::Full { what: "caller", limit: CALLERS_MAX as u32 });
        }
        let endpoint = self.kept_or_next_id(Kind::Endpoint, record.endpoint)?;
        if let Some(application) = self.applications.get_mut(&record.gaid) {
            application.callers.insert((record.incarnation, record.data_address.clone()), endpoint);
        }
        self.endpoints.insert(endpoint, EndpointRecord { endpoint, ..record });
        self.changed.endpoints.insert(endpoint);
        Ok(endpoint)
    }

    /// Leases slots of the application's element to a caller that has none and that it can send to: `flows`, or as many
    /// as there are in a row. False when nothing has changed.
    fn lease_slots(&mut self, endpoint: u32, flows: u32) -> bool {
        let Some(caller) = self.endpoints.get_mut(&endpoint).filter(|caller| caller.slots == 0) else { return false };
        let memory = self.applications.get(&caller.gaid).and_then(|application| application.record.memory);
        let Some(element) = memory.and_then(|memory| self.elements.get_mut(&memory.element)) else { return false };
        if !reaches(&element.record.data_address, &caller.data_address) {
            return false;
        }
        let slots = flows.min(element.slots.largest());
        let Some(slot_base) = element.slots.take(slots) else { return false };
        (caller.slot_base, caller.slots) = (slot_base, slots);
        self.changed.endpoints.insert(endpoint);
        true
    }

    /// Answers when the element admits the caller's frames, so that its first frame is not lost on it.
    fn answer_caller(&mut self, call: CallId, gaid: u32, endpoint: u32) {
        let through = self.endpoints.get(&endpoint).is_some_and(|caller| caller.slots > 0);
        let element = match self.pools.get(&gaid) {
            Some(pool) => pool.record.element,
            None => self.element_of(gaid).filter(|_| through),
        };
        match element {
            Some(element) => self.wait(element, Waiting::Endpoint { call, gaid, endpoint }),
            None => self.tell_caller(call, gaid, endpoint),
        }
    }

    /// Tells where a caller stands now.
    pub(super) fn tell_caller(&mut self, call: CallId, gaid: u32, endpoint: u32) {
        let answer = match self.endpoints.get(&endpoint) {
            Some(&EndpointRecord { slot_base, slots, .. }) => Ok(EndpointGrant { endpoint, slot_base, flows: slots }),
            None => Err(Refusal::UnknownEndpoint { gaid, endpoint }),
        };
        self.outputs.push(Output::Endpoint(call, answer));
    }

    /// A caller has left: its slots are free again after a quarantine. One that has left already may be released again.
    pub(super) fn release_endpoint(&mut self, call: CallId, request: &ReleaseEndpointRequest) {
        let &ReleaseEndpointRequest { gaid, endpoint, .. } = request;
        let answer = match self.endpoints.get(&endpoint).map(|caller| caller.gaid) {
            Some(of) if of != gaid => Err(Refusal::UnknownEndpoint { gaid, endpoint }),
            Some(_) if self.pools.contains_key(&gaid) => {
                self.release_from_pool(request);
                Ok(())
            }
            Some(_) => {
                self.release(endpoint);
                Ok(())
            }
            None => Ok(()),
        };
        self.outputs.push(Output::Released(call, answer));
    }

    fn release(&mut self, endpoint: u32) {
        let Some(caller) = self.endpoints.remove(&endpoint) else { return };
        self.changed.endpoints.insert(endpoint);
        self.let_go(Kind::Endpoint, endpoint);
        let Some(application) = self.applications.get_mut(&caller.gaid) else { return };
        application.callers.remove(&(caller.incarnation, caller.data_address));
        let Some(memory) = application.record.memory.filter(|_| caller.slots > 0) else { return };
        let Some(element) = self.elements.get_mut(&memory.element) else { return };
        element.quarantine(self.now, SlotsRecord { base: caller.slot_base, slots: caller.slots });
        record::insert(&mut element.record.stale_endpoints, endpoint);
        self.changed.elements.insert(memory.element);
        self.push_group(caller.gaid);
        self.push_removals(memory.element, &[endpoint], &[]);
    }
}
