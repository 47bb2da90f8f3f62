//! Callers: the endpoints that owners admit to their applications, and their slots.

use pathcall_proto::v1::{EndpointGrant, RegisterEndpointRequest, ReleaseEndpointRequest};

use super::ids::IdKind;
use super::{
    CALLERS_MAX, CallerRecord, ControlCallId, ControllerState, FLOWS_MAX, Output, RegistrationRefusal, SlotRangeRecord,
    WaitingParty, can_send_to, check_data_address, record,
};

impl ControllerState {
    /// Registers a caller. The same incarnation at the same address is the same endpoint: it keeps its id and slots,
    /// and gets slots now if it had none.
    pub(super) fn register_endpoint(&mut self, call: ControlCallId, request: RegisterEndpointRequest) {
        let gaid = request.gaid;
        match self.admit_caller(request) {
            Ok(endpoint) => self.answer_caller(call, gaid, endpoint),
            Err(refusal) => self.outputs.push(Output::Endpoint(call, Err(refusal))),
        }
    }

    fn admit_caller(&mut self, request: RegisterEndpointRequest) -> Result<u32, RegistrationRefusal> {
        check_data_address(&request.data_address)?;
        if self.pools.contains_key(&request.gaid) {
            return self.admit_pool_caller(request);
        }
        let RegisterEndpointRequest { gaid, incarnation, data_address, flows, endpoint, .. } = request;
        let Some(application) = self.applications.get(&gaid) else {
            return Err(RegistrationRefusal::UnknownApplication(gaid.to_string()));
        };
        if application.lease.is_expired() {
            return Err(RegistrationRefusal::NoOwner { name: application.record.name.clone() });
        }
        let known = application.callers.get(&(incarnation, data_address.clone())).copied();
        let endpoint = match known {
            Some(endpoint) => endpoint,
            None => {
                let record = CallerRecord { endpoint, gaid, incarnation, data_address, ..CallerRecord::default() };
                self.new_caller(record)?
            }
        };
        if self.lease_slots(endpoint, flows.min(FLOWS_MAX)) {
            self.push_endpoints(gaid, vec![endpoint]);
            self.push_group(gaid);
        }
        Ok(endpoint)
    }

    /// Creates a caller that is not known here; `record.endpoint` is the id that it already has, if any.
    fn new_caller(&mut self, record: CallerRecord) -> Result<u32, RegistrationRefusal> {
        let callers = self.applications.get(&record.gaid).map_or(0, |application| application.callers.len());
        if callers >= CALLERS_MAX {
            return Err(RegistrationRefusal::Full { what: "caller", limit: CALLERS_MAX as u32 });
        }
        let endpoint = self.kept_or_next_id(IdKind::Endpoint, record.endpoint)?;
        if let Some(application) = self.applications.get_mut(&record.gaid) {
            application.callers.insert((record.incarnation, record.data_address.clone()), endpoint);
        }
        self.endpoints.insert(endpoint, CallerRecord { endpoint, ..record });
        self.changed.endpoints.insert(endpoint);
        Ok(endpoint)
    }

    /// Leases slots of the application's element to a caller without slots that the element can reach: `flows`, or as
    /// many as are contiguous. False if nothing has changed.
    fn lease_slots(&mut self, endpoint: u32, flows: u32) -> bool {
        let Some(caller) = self.endpoints.get_mut(&endpoint).filter(|caller| caller.slots == 0) else { return false };
        let memory = self.applications.get(&caller.gaid).and_then(|application| application.record.memory);
        let Some(element) = memory.and_then(|memory| self.elements.get_mut(&memory.element)) else { return false };
        if !can_send_to(&element.record.data_address, &caller.data_address) {
            return false;
        }
        let slots = flows.min(element.slots.largest());
        let Some(slot_base) = element.slots.take(slots) else { return false };
        (caller.slot_base, caller.slots) = (slot_base, slots);
        self.changed.endpoints.insert(endpoint);
        true
    }

    /// Answers when the element admits the caller's frames, so that its first frame is not lost.
    fn answer_caller(&mut self, call: ControlCallId, gaid: u32, endpoint: u32) {
        let through = self.endpoints.get(&endpoint).is_some_and(|caller| caller.slots > 0);
        let elements = match self.pools.get(&gaid) {
            Some(pool) => pool.record.elements.clone(),
            None => self.element_of(gaid).filter(|_| through).into_iter().collect(),
        };
        if elements.is_empty() {
            return self.answer_endpoint(call, gaid, endpoint);
        }
        self.wait(&elements, WaitingParty::Endpoint { call, gaid, endpoint });
    }

    /// Answers a registration with the caller's current grant.
    pub(super) fn answer_endpoint(&mut self, call: ControlCallId, gaid: u32, endpoint: u32) {
        let answer = match self.endpoints.get(&endpoint) {
            Some(&CallerRecord { slot_base, slots, .. }) => Ok(EndpointGrant { endpoint, slot_base, flows: slots }),
            None => Err(RegistrationRefusal::UnknownEndpoint { gaid, endpoint }),
        };
        self.outputs.push(Output::Endpoint(call, answer));
    }

    /// Releases a caller; its slots are free after a quarantine. A repeated release is not an error.
    pub(super) fn release_endpoint(&mut self, call: ControlCallId, request: &ReleaseEndpointRequest) {
        let &ReleaseEndpointRequest { gaid, endpoint, .. } = request;
        let answer = match self.endpoints.get(&endpoint).map(|caller| caller.gaid) {
            Some(of) if of != gaid => Err(RegistrationRefusal::UnknownEndpoint { gaid, endpoint }),
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
        self.free_id(IdKind::Endpoint, endpoint);
        let Some(application) = self.applications.get_mut(&caller.gaid) else { return };
        application.callers.remove(&(caller.incarnation, caller.data_address));
        let Some(memory) = application.record.memory.filter(|_| caller.slots > 0) else { return };
        let Some(element) = self.elements.get_mut(&memory.element) else { return };
        element.quarantine(self.now, SlotRangeRecord { base: caller.slot_base, slots: caller.slots });
        record::insert(&mut element.record.stale_endpoints, endpoint);
        self.changed.elements.insert(memory.element);
        self.push_group(caller.gaid);
        self.push_removals(memory.element, &[endpoint], &[]);
    }
}
