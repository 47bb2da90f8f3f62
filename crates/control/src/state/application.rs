//! Applications: owners, epochs and reserved memory.

use std::time::Duration;

use pathcall_proto::SILENT_MAX;
use pathcall_proto::v1::{ApplicationGrant, MemoryGrant, RegisterApplicationRequest, TokenKey};

use super::ids::IdKind;
use super::{
    APPLICATIONS_MAX, Application, ApplicationRecord, ControlCallId, ControllerState, ElementRecord, Lease,
    MemoryRecord, Output, ROWS_MIN, Registrant, RegistrationRefusal, TEXT_MAX, WaitingParty, check_data_address,
    record, truncated,
};

impl ControllerState {
    /// NetRPC §3.2: registration gives the name its GAID; §5.2.2: memory is assigned first come, first served.
    pub(super) fn register_application(&mut self, call: ControlCallId, request: RegisterApplicationRequest) {
        match self.acquire(request) {
            Ok(gaid) => {
                let Some(application) = self.applications.get_mut(&gaid) else { return };
                application.unreported = true;
                if let Lease::Held(earlier) = std::mem::replace(&mut application.lease, Lease::Held(call)) {
                    self.streams.remove(&earlier);
                    self.outputs.push(Output::Application(earlier, Err(RegistrationRefusal::Replaced)));
                }
                self.streams.insert(call, Registrant::Application(gaid));
                self.note_memory_change();
                self.answer_when_confirmed(gaid);
            }
            Err(refusal) => self.outputs.push(Output::Application(call, Err(refusal))),
        }
    }

    /// Finds or creates the application and gives it to the requesting server.
    fn acquire(&mut self, request: RegisterApplicationRequest) -> Result<u32, RegistrationRefusal> {
        check(&request)?;
        let Some(&gaid) = self.names.get(&request.name) else {
            return self.new_application(request, 0);
        };
        let Some(application) = self.applications.get(&gaid) else {
            return Err(RegistrationRefusal::UnknownApplication(request.name));
        };
        if application.lease.is_expired() {
            self.take_over(gaid, request)?;
        } else {
            self.refuse_another(application, &request)?;
            if has_other_ids(application, &request) {
                return self.reassign_ids(gaid, request);
            }
            self.reconnect(gaid, request);
        }
        Ok(gaid)
    }

    /// Assigns the ids of an owner that had its first caller before it got the controller's ids.
    fn reassign_ids(&mut self, gaid: u32, request: RegisterApplicationRequest) -> Result<u32, RegistrationRefusal> {
        self.withdraw(gaid);
        if let Some(Application { lease: Lease::Held(earlier), .. }) = self.applications.get(&gaid) {
            self.streams.remove(earlier);
            self.outputs.push(Output::Application(*earlier, Err(RegistrationRefusal::Replaced)));
        }
        let last = self.forget_application(gaid);
        self.new_application(request, last)
    }

    /// `last`: epoch that an application of this name had here. Fencing tokens must grow over all its owners.
    fn new_application(
        &mut self,
        mut request: RegisterApplicationRequest,
        last: u32,
    ) -> Result<u32, RegistrationRefusal> {
        if self.applications.len() >= APPLICATIONS_MAX {
            let ownerless = self.applications.iter().find(|(_, a)| a.lease.is_expired()).map(|(&gaid, _)| gaid);
            let full = RegistrationRefusal::Full { what: "application", limit: APPLICATIONS_MAX as u32 };
            let last = self.forget_application(ownerless.ok_or(full)?);
            // The name may be registered again after its epoch has been forgotten.
            self.ids.first_epoch = self.ids.first_epoch.max(next_epoch(last));
            self.changed.ids = true;
        }
        let held = request.held.unwrap_or_default();
        let token_key = self.token_key(&request, held.token_key)?;
        let endpoint = self.kept_or_next_id(IdKind::Endpoint, held.endpoint)?;
        let gaid = self.kept_or_next_id(IdKind::Application, held.gaid)?;
        let epoch = self.ids.first_epoch.max(next_epoch(held.epoch.max(last)));
        let (silent, no_memory_reason) = (std::mem::take(&mut request.silent_elements), request.no_memory_reason);
        let takes_narrow_rows = request.takes_narrow_rows;
        let record = ApplicationRecord { gaid, epoch, token_key, ..owned_by(request, endpoint) };
        self.names.insert(record.name.clone(), gaid);
        let application = Application {
            silent,
            no_memory_reason,
            takes_narrow_rows,
            ..Application::new(record, Lease::Expired, self.now)
        };
        self.applications.insert(gaid, application);
        self.changed.applications.insert(gaid);
        if let Some(memory) = self.reserve(gaid) {
            self.grant(gaid, memory);
        }
        Ok(gaid)
    }

    /// Gives the name, but not the state, to a new owner after the last owner's lease has expired.
    fn take_over(&mut self, gaid: u32, mut request: RegisterApplicationRequest) -> Result<(), RegistrationRefusal> {
        let Some(application) = self.applications.get(&gaid) else { return Ok(()) };
        // Another process is another endpoint.
        let same = application.record.incarnation == request.incarnation;
        let kept = application.record.token_key.filter(|_| same);
        let last = application.record.endpoint;
        let endpoint = if same { last } else { self.next_id(IdKind::Endpoint)? };
        let token_key = self.token_key(&request, kept)?;
        let Some(application) = self.applications.get_mut(&gaid) else { return Ok(()) };
        let held = request.held.map_or(0, |held| held.epoch);
        let epoch = next_epoch(application.record.epoch.max(held));
        application.silent = std::mem::take(&mut request.silent_elements);
        application.no_memory_reason = request.no_memory_reason;
        application.takes_narrow_rows = request.takes_narrow_rows;
        application.record = ApplicationRecord { gaid, epoch, token_key, ..owned_by(request, endpoint) };
        (application.since, application.moved_at, application.parked) = (self.now, None, false);
        self.changed.applications.insert(gaid);
        if !same {
            self.free_id(IdKind::Endpoint, last);
        }
        if let Some(memory) = self.reserve(gaid) {
            self.grant(gaid, memory);
        }
        Ok(())
    }

    /// Key of an application with signed frames: the one that its owner knows, or else a new one, so that callers of an
    /// earlier owner are not accepted.
    fn token_key(
        &mut self,
        request: &RegisterApplicationRequest,
        kept: Option<TokenKey>,
    ) -> Result<Option<TokenKey>, RegistrationRefusal> {
        if !request.authenticate {
            return Ok(None);
        }
        let key = kept.or_else(|| self.fresh_key.take());
        key.map(Some).ok_or_else(|| RegistrationRefusal::NoKey(request.name.clone()))
    }

    /// Refuses any server other than the live owner, and other filters.
    fn refuse_another(
        &self,
        application: &Application,
        request: &RegisterApplicationRequest,
    ) -> Result<(), RegistrationRefusal> {
        let record = &application.record;
        let (name, owner) = (record.name.clone(), record.owner());
        let same = record.incarnation == request.incarnation;
        match application.lease {
            Lease::Expiring(until) if !same => {
                Err(RegistrationRefusal::LeaseExpiring { name, owner, left: until.since(self.now) })
            }
            _ if record.filter_digest != request.filter_digest => {
                Err(RegistrationRefusal::OtherFilters { name, owner })
            }
            _ if !same => Err(RegistrationRefusal::Owned { name, owner }),
            _ => Ok(()),
        }
    }

    /// Handles an owner that reconnects or asks again: it keeps its memory, unless its request has changed.
    fn reconnect(&mut self, gaid: u32, request: RegisterApplicationRequest) {
        let Some(application) = self.applications.get_mut(&gaid) else { return };
        let RegisterApplicationRequest { width, rows, data_address, service_address, held, silent_elements, .. } =
            request;
        application.no_memory_reason = request.no_memory_reason;
        application.parked &= rows == 0;
        application.takes_narrow_rows = request.takes_narrow_rows;
        let record = &mut application.record;
        // The registers of this epoch cannot be used any more.
        let over = held.is_some_and(|held| held.in_software && held.epoch == record.epoch);
        let element = record.memory.and_then(|memory| self.elements.get(&memory.element));
        let answers = element.is_none_or(|element| !silent_elements.contains(&element.record.boot_id));
        let narrow = |granted: u32| request.takes_narrow_rows && granted < width;
        let fits = record.memory.is_none_or(|memory| memory.width == width || narrow(memory.width));
        let usable = rows > 0 && fits && answers;
        let moved = record.data_address != data_address;
        record.width = width;
        record.rows = rows;
        record.data_address = data_address;
        record.service_address = service_address;
        let memory = record.memory;
        application.silent = silent_elements;
        self.changed.applications.insert(gaid);
        match memory {
            Some(_) if !usable => {
                self.withdraw(gaid);
                self.offer(gaid);
            }
            Some(_) if over => {
                application.record.epoch = next_epoch(application.record.epoch);
                self.install(gaid);
            }
            Some(_) if moved => self.install(gaid),
            Some(_) => self.on_yielded(gaid, request.yielded_epoch),
            None => self.offer(gaid),
        }
    }

    /// Frees all that an application's owner had, after its lease has expired.
    pub(super) fn release_ownership(&mut self, gaid: u32) {
        self.withdraw(gaid);
        let Some(application) = self.applications.get_mut(&gaid) else { return };
        application.lease = Lease::Expired;
        application.record.owned = false;
        for endpoint in std::mem::take(&mut application.callers).into_values() {
            self.endpoints.remove(&endpoint);
            self.changed.endpoints.insert(endpoint);
            self.free_id(IdKind::Endpoint, endpoint);
        }
        self.changed.applications.insert(gaid);
    }

    /// Removes an application and returns its last epoch.
    fn forget_application(&mut self, gaid: u32) -> u32 {
        let Some(application) = self.applications.remove(&gaid) else { return 0 };
        self.names.remove(&application.record.name);
        self.changed.applications.insert(gaid);
        self.free_id(IdKind::Application, gaid);
        self.free_id(IdKind::Endpoint, application.record.endpoint);
        application.record.epoch
    }

    /// Offers memory to an application that has none; its epoch grows if it gets some.
    pub(super) fn offer(&mut self, gaid: u32) {
        let Some(memory) = self.reserve(gaid) else { return };
        if let Some(application) = self.applications.get_mut(&gaid) {
            application.record.epoch = next_epoch(application.record.epoch);
        }
        self.grant(gaid, memory);
    }

    /// Reserves memory on an element that serves the application: all requested rows on the first one that has them,
    /// else as many as an element has, if they are enough. Rows of the requested width come before narrower ones.
    fn reserve(&mut self, gaid: u32) -> Option<MemoryRecord> {
        let application = self.applications.get(&gaid)?;
        let ApplicationRecord { memory: None, .. } = application.record else { return None };
        let rows = self.wanted_rows(application);
        if rows == 0 || application.parked {
            return None;
        }
        let mut best: Option<(u32, u32, u32)> = None;
        for (&id, element) in self.elements.iter().filter(|(id, _)| self.may_use(gaid, **id)) {
            let Some(width) = element.width_for(application) else { continue };
            let room = rows.min(element.rows.largest()).min(element.lanes.largest() / width);
            let is_enough = room >= ROWS_MIN.min(rows);
            if is_enough && best.is_none_or(|(_, widest, most)| (width, room) > (widest, most)) {
                best = Some((id, width, room));
            }
        }
        let (id, width, rows) = best?;
        let element = self.elements.get_mut(&id)?;
        let row_base = element.rows.take(rows)?;
        let lane_base = element.lanes.take(rows * width)?;
        Some(MemoryRecord { element: id, row_base, rows, lane_base, width })
    }

    /// Gives reserved memory to an application.
    pub(super) fn grant(&mut self, gaid: u32, memory: MemoryRecord) {
        let Some(application) = self.applications.get_mut(&gaid) else { return };
        application.record.memory = Some(memory);
        (application.granted_at, application.idle) = (self.now, Duration::ZERO);
        application.unreported = true;
        self.changed.applications.insert(gaid);
        self.install(gaid);
        self.begin_polling(memory.element);
        self.note_memory_change();
    }

    /// Withdraws an application's memory; its epoch grows. Its callers keep their ids and do not use the element.
    pub(super) fn withdraw(&mut self, gaid: u32) {
        let Some(application) = self.applications.get_mut(&gaid) else { return };
        let Some(memory) = application.record.memory.take() else { return };
        application.record.epoch = next_epoch(application.record.epoch);
        application.unreported = true;
        (application.recall, application.idle) = (None, Duration::ZERO);
        self.changed.applications.insert(gaid);
        self.note_memory_change();

        let Some(application) = self.applications.get(&gaid) else { return };
        let Some(element) = self.elements.get_mut(&memory.element) else { return };
        element.rows.release(memory.row_base);
        element.lanes.release(memory.lane_base);
        let mut removed = vec![application.record.endpoint];
        for endpoint in application.callers.values() {
            if let Some(caller) = self.endpoints.get_mut(endpoint).filter(|caller| caller.slots > 0) {
                element.slots.release(caller.slot_base);
                (caller.slot_base, caller.slots) = (0, 0);
                self.changed.endpoints.insert(*endpoint);
                removed.push(*endpoint);
            }
        }
        let waiters = element.waiters.extract_if(.., |waiter| waiter.party.concerns(gaid)).collect::<Vec<_>>();
        record::insert(&mut element.record.stale_applications, gaid);
        removed.iter().for_each(|&endpoint| record::insert(&mut element.record.stale_endpoints, endpoint));
        self.changed.elements.insert(memory.element);
        self.push_removals(memory.element, &removed, &[gaid]);
        for waiter in waiters {
            // The owner is notified by the caller of this function: it may get memory elsewhere.
            if let WaitingParty::Endpoint { call, gaid, endpoint } = waiter.party {
                self.answer_endpoint(call, gaid, endpoint);
            }
        }
    }

    /// Sends the owner its grant as soon as the element, if any, has confirmed it.
    pub(super) fn answer_when_confirmed(&mut self, gaid: u32) {
        let Some(application) = self.applications.get(&gaid) else { return };
        match application.record.memory {
            Some(memory) => self.wait(&[memory.element], WaitingParty::Application(gaid)),
            None => self.send_application_grant(gaid),
        }
    }

    /// Sends the owner its grant, unless it has been sent.
    pub(super) fn send_application_grant(&mut self, gaid: u32) {
        let Some(application) = self.applications.get_mut(&gaid) else { return };
        let Lease::Held(call) = application.lease else { return };
        if std::mem::take(&mut application.unreported)
            && let Some(grant) = self.application_grant(gaid)
        {
            self.outputs.push(Output::Application(call, Ok(grant)));
        }
    }

    fn application_grant(&self, gaid: u32) -> Option<ApplicationGrant> {
        let Application { record, recall, .. } = self.applications.get(&gaid)?;
        let memory = self.memory_grant(record);
        let ApplicationRecord { epoch, endpoint, token_key, .. } = *record;
        let recall = recall.map_or(0, |recall| recall.reason.into());
        Some(ApplicationGrant { gaid, epoch, endpoint, memory, token_key, recall })
    }

    /// Memory grant for owners and status.
    pub(super) fn memory_grant(&self, record: &ApplicationRecord) -> Option<MemoryGrant> {
        let MemoryRecord { element, row_base, rows, lane_base, width } = record.memory?;
        let ElementRecord { ref data_address, boot_id, .. } = self.elements.get(&element)?.record;
        let data_address = data_address.clone();
        Some(MemoryGrant { element, data_address, row_base, rows, lane_base, width, boot_id })
    }
}

/// Next epoch. Epochs only grow. (At one change a second they last 136 years.)
pub(super) const fn next_epoch(epoch: u32) -> u32 {
    epoch.saturating_add(1)
}

/// Whether the owner's callers know its application by other ids than the controller.
fn has_other_ids(application: &Application, request: &RegisterApplicationRequest) -> bool {
    let ApplicationRecord { gaid, endpoint, .. } = application.record;
    let held = request.held.filter(|held| (held.gaid, held.endpoint) != (gaid, endpoint));
    held.is_some() && application.callers.is_empty()
}

fn check(request: &RegisterApplicationRequest) -> Result<(), RegistrationRefusal> {
    let invalid = |field, expected, got| Err(RegistrationRefusal::Invalid { field, expected, got });
    if request.name.is_empty() || request.name.len() > TEXT_MAX {
        return invalid("name", "1 to 255 bytes", truncated(&request.name));
    }
    if request.service_address.len() > TEXT_MAX {
        return invalid("service_address", "up to 255 bytes", truncated(&request.service_address));
    }
    if request.rows > 0 && !(1..=u32::from(u16::MAX)).contains(&request.width) {
        return invalid("width", "1 to 65535 lanes", request.width.to_string());
    }
    if request.silent_elements.len() > SILENT_MAX {
        return invalid("silent_elements", "up to 16 starts", request.silent_elements.len().to_string());
    }
    // Leaves as many epochs again.
    if let Some(held) = request.held.filter(|held| held.epoch > u32::MAX / 2) {
        return invalid("held.epoch", "at most 2147483647", held.epoch.to_string());
    }
    check_data_address(&request.data_address)
}

/// Record of an application whose owner has just registered, without GAID, epoch and key.
fn owned_by(request: RegisterApplicationRequest, endpoint: u32) -> ApplicationRecord {
    ApplicationRecord {
        gaid: 0,
        epoch: 0,
        name: request.name,
        filter_digest: request.filter_digest,
        width: request.width,
        rows: request.rows,
        incarnation: request.incarnation,
        endpoint,
        data_address: request.data_address,
        service_address: request.service_address,
        memory: None,
        owned: true,
        token_key: None,
    }
}
