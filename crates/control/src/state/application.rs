//! Applications: their owners, their epochs and the memory reserved for them.

use std::collections::BTreeMap;

use pathcall_proto::SILENT_MAX;
use pathcall_proto::v1::{ApplicationGrant, MemoryGrant, RegisterApplicationRequest, TokenKey};

use super::ids::Kind;
use super::{
    APPLICATIONS_MAX, Application, ApplicationRecord, CallId, ElementRecord, Lease, MemoryRecord, Output, ROWS_MIN,
    Refusal, Registrant, State, TEXT_MAX, Waiting, check_data_address, record, shortened,
};

impl State {
    /// NetRPC §3.2: registration gives the name its GAID; §5.2.2: first come, first served for memory.
    pub(super) fn register_application(&mut self, call: CallId, request: RegisterApplicationRequest) {
        match self.own(request) {
            Ok(gaid) => {
                let Some(application) = self.applications.get_mut(&gaid) else { return };
                application.untold = true;
                if let Lease::Held(earlier) = std::mem::replace(&mut application.lease, Lease::Held(call)) {
                    self.streams.remove(&earlier);
                    self.outputs.push(Output::Application(earlier, Err(Refusal::Replaced)));
                }
                self.streams.insert(call, Registrant::Application(gaid));
                self.answer_when_confirmed(gaid);
            }
            Err(refusal) => self.outputs.push(Output::Application(call, Err(refusal))),
        }
    }

    /// Finds or makes the application and gives it to who asks.
    fn own(&mut self, request: RegisterApplicationRequest) -> Result<u32, Refusal> {
        check(&request)?;
        let Some(&gaid) = self.names.get(&request.name) else {
            return self.new_application(request, 0);
        };
        let Some(application) = self.applications.get(&gaid) else {
            return Err(Refusal::UnknownApplication(request.name));
        };
        if application.lease.is_over() {
            self.take_over(gaid, request)?;
        } else {
            self.refuse_another(application, &request)?;
            if goes_by_others(application, &request) {
                return self.name_anew(gaid, request);
            }
            self.reconnect(gaid, request);
        }
        Ok(gaid)
    }

    /// The owner had its first caller before it heard what it is to go by.
    fn name_anew(&mut self, gaid: u32, request: RegisterApplicationRequest) -> Result<u32, Refusal> {
        self.withdraw(gaid);
        if let Some(Application { lease: Lease::Held(earlier), .. }) = self.applications.get(&gaid) {
            self.streams.remove(earlier);
            self.outputs.push(Output::Application(*earlier, Err(Refusal::Replaced)));
        }
        let last = self.forget_application(gaid);
        self.new_application(request, last)
    }

    /// `last`: the epoch that an application of this name had here. Fencing tokens grow over all its owners.
    fn new_application(&mut self, mut request: RegisterApplicationRequest, last: u32) -> Result<u32, Refusal> {
        if self.applications.len() >= APPLICATIONS_MAX {
            let disowned = self.applications.iter().find(|(_, a)| a.lease.is_over()).map(|(&gaid, _)| gaid);
            let full = Refusal::Full { what: "application", limit: APPLICATIONS_MAX as u32 };
            let last = self.forget_application(disowned.ok_or(full)?);
            // Its name may come back, and by then nobody knows it.
            self.ids.first_epoch = self.ids.first_epoch.max(next_epoch(last));
            self.changed.ids = true;
        }
        let held = request.held.unwrap_or_default();
        let token_key = self.token_key(&request, held.token_key)?;
        let endpoint = self.kept_or_next_id(Kind::Endpoint, held.endpoint)?;
        let gaid = self.kept_or_next_id(Kind::Application, held.gaid)?;
        let epoch = self.ids.first_epoch.max(next_epoch(held.epoch.max(last)));
        let silent = std::mem::take(&mut request.silent);
        let record = ApplicationRecord { gaid, epoch, token_key, ..owned_by(request, endpoint) };
        self.names.insert(record.name.clone(), gaid);
        let application = Application { record, lease: Lease::Over, callers: BTreeMap::new(), untold: true, silent };
        self.applications.insert(gaid, application);
        self.changed.applications.insert(gaid);
        if let Some(memory) = self.reserve(gaid) {
            self.grant(gaid, memory);
        }
        Ok(gaid)
    }

    /// The last owner's lease is over: its name, not its state, goes to another.
    fn take_over(&mut self, gaid: u32, mut request: RegisterApplicationRequest) -> Result<(), Refusal> {
        let Some(application) = self.applications.get(&gaid) else { return Ok(()) };
        // Another process is another endpoint.
        let same = application.record.incarnation == request.incarnation;
        let kept = application.record.token_key.filter(|_| same);
        let last = application.record.endpoint;
        let endpoint = if same { last } else { self.next_id(Kind::Endpoint)? };
        let token_key = self.token_key(&request, kept)?;
        let Some(application) = self.applications.get_mut(&gaid) else { return Ok(()) };
        let held = request.held.map_or(0, |held| held.epoch);
        let epoch = next_epoch(application.record.epoch.max(held));
        application.silent = std::mem::take(&mut request.silent);
        application.record = ApplicationRecord { gaid, epoch, token_key, ..owned_by(request, endpoint) };
        self.changed.applications.insert(gaid);
        if !same {
            self.let_go(Kind::Endpoint, last);
        }
        if let Some(memory) = self.reserve(gaid) {
            self.grant(gaid, memory);
        }
        Ok(())
    }

    /// The key of an application whose frames are to be signed: the one that its owner knows, or else a
    /// new one, so that callers of an earlier owner no longer speak for it.
    fn token_key(
        &mut self,
        request: &RegisterApplicationRequest,
        kept: Option<TokenKey>,
    ) -> Result<Option<TokenKey>, Refusal> {
        if !request.authenticate {
            return Ok(None);
        }
        let key = kept.or_else(|| self.fresh_key.take());
        key.map(Some).ok_or_else(|| Refusal::NoKey(request.name.clone()))
    }

    /// Only the live owner itself, with the same filters, may register.
    fn refuse_another(&self, application: &Application, request: &RegisterApplicationRequest) -> Result<(), Refusal> {
        let record = &application.record;
        let (name, owner) = (record.name.clone(), record.owner());
        let same = record.incarnation == request.incarnation;
        match application.lease {
            Lease::Lapsing(until) if !same => Err(Refusal::Lapsing { name, owner, left: until.since(self.now) }),
            _ if record.filter_digest != request.filter_digest => Err(Refusal::OtherFilters { name, owner }),
            _ if !same => Err(Refusal::Owned { name, owner }),
            _ => Ok(()),
        }
    }

    /// The owner is back, or asks again: it keeps what it has, unless it wants something else.
    fn reconnect(&mut self, gaid: u32, request: RegisterApplicationRequest) {
        let Some(application) = self.applications.get_mut(&gaid) else { return };
        let RegisterApplicationRequest { width, rows, data_address, service_address, held, silent, .. } = request;
        let record = &mut application.record;
        // What was granted under its epoch is of no use any more.
        let over = held.is_some_and(|held| held.in_software && held.epoch == record.epoch);
        let element = record.memory.and_then(|memory| self.elements.get(&memory.element));
        let answers = element.is_none_or(|element| !silent.contains(&element.record.boot_id));
        let usable = rows > 0 && record.width == width && answers;
        let moved = record.data_address != data_address;
        record.width = width;
        record.rows = rows;
        record.data_address = data_address;
        record.service_address = service_address;
        let memory = record.memory;
        application.silent = silent;
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
            Some(_) => {}
            None => self.offer(gaid),
        }
    }

    /// The lease of an application's owner is over: everything it held is free again.
    pub(super) fn disown(&mut self, gaid: u32) {
        self.withdraw(gaid);
        let Some(application) = self.applications.get_mut(&gaid) else { return };
        application.lease = Lease::Over;
        application.record.owned = false;
        for endpoint in std::mem::take(&mut application.callers).into_values() {
            self.endpoints.remove(&endpoint);
            self.changed.endpoints.insert(endpoint);
            self.let_go(Kind::Endpoint, endpoint);
        }
        self.changed.applications.insert(gaid);
    }

    /// Forgets an application; its last epoch.
    fn forget_application(&mut self, gaid: u32) -> u32 {
        let Some(application) = self.applications.remove(&gaid) else { return 0 };
        self.names.remove(&application.record.name);
        self.changed.applications.insert(gaid);
        self.let_go(Kind::Application, gaid);
        self.let_go(Kind::Endpoint, application.record.endpoint);
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

    /// Reserves memory: all that is wished for on the first element that has it, else the most that
    /// an element has, if it is worth it.
    fn reserve(&mut self, gaid: u32) -> Option<MemoryRecord> {
        let Application { record, silent, .. } = self.applications.get(&gaid)?;
        let &ApplicationRecord { rows, width, memory: None, .. } = record else { return None };
        if rows == 0 {
            return None;
        }
        let mut best: Option<(u32, u32)> = None;
        for (&id, element) in &self.elements {
            if !element.serving || element.refused.contains(&gaid) || silent.contains(&element.record.boot_id) {
                continue;
            }
            let room = rows.min(element.rows.largest()).min(element.lanes.largest() / width);
            if best.is_none_or(|(_, most)| room > most) {
                best = Some((id, room));
            }
        }
        let (id, rows) = best.filter(|&(_, room)| room >= ROWS_MIN.min(rows))?;
        let element = self.elements.get_mut(&id)?;
        let row_base = element.rows.take(rows)?;
        let lane_base = element.lanes.take(rows * width)?;
        Some(MemoryRecord { element: id, row_base, rows, lane_base, width })
    }

    /// Gives reserved memory to an application.
    fn grant(&mut self, gaid: u32, memory: MemoryRecord) {
        let Some(application) = self.applications.get_mut(&gaid) else { return };
        application.record.memory = Some(memory);
        application.untold = true;
        self.changed.applications.insert(gaid);
        self.install(gaid);
    }

    /// Takes an application's memory away; its epoch grows. Its callers keep their ids and work past
    /// the element.
    pub(super) fn withdraw(&mut self, gaid: u32) {
        let Some(application) = self.applications.get_mut(&gaid) else { return };
        let Some(memory) = application.record.memory.take() else { return };
        application.record.epoch = next_epoch(application.record.epoch);
        application.untold = true;
        self.changed.applications.insert(gaid);

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
        let waiters = element.waiters.extract_if(.., |waiter| waiter.who.concerns(gaid)).collect::<Vec<_>>();
        record::insert(&mut element.record.stale_applications, gaid);
        removed.iter().for_each(|&endpoint| record::insert(&mut element.record.stale_endpoints, endpoint));
        self.changed.elements.insert(memory.element);
        self.push_removals(memory.element, &removed, &[gaid]);
        for waiter in waiters {
            // The owner is told by who withdraws: what it waits for may be granted elsewhere.
            if let Waiting::Endpoint { call, gaid, endpoint } = waiter.who {
                self.tell_caller(call, gaid, endpoint);
            }
        }
    }

    /// Tells the owner how it stands as soon as the element, if there is one, has confirmed it.
    pub(super) fn answer_when_confirmed(&mut self, gaid: u32) {
        let Some(application) = self.applications.get(&gaid) else { return };
        match application.record.memory {
            Some(memory) => self.wait(memory.element, Waiting::Application(gaid)),
            None => self.tell(gaid),
        }
    }

    /// Tells the owner how it stands, unless it knows.
    pub(super) fn tell(&mut self, gaid: u32) {
        let Some(application) = self.applications.get_mut(&gaid) else { return };
        let Lease::Held(call) = application.lease else { return };
        if std::mem::take(&mut application.untold)
            && let Some(grant) = self.application_grant(gaid)
        {
            self.outputs.push(Output::Application(call, Ok(grant)));
        }
    }

    fn application_grant(&self, gaid: u32) -> Option<ApplicationGrant> {
        let record = &self.applications.get(&gaid)?.record;
        let memory = self.memory_grant(record);
        let ApplicationRecord { epoch, endpoint, token_key, .. } = *record;
        Some(ApplicationGrant { gaid, epoch, endpoint, memory, token_key })
    }

    /// An application's memory as others see it.
    pub(super) fn memory_grant(&self, record: &ApplicationRecord) -> Option<MemoryGrant> {
        let MemoryRecord { element, row_base, rows, lane_base, width } = record.memory?;
        let ElementRecord { ref data_address, boot_id, .. } = self.elements.get(&element)?.record;
        let data_address = data_address.clone();
        Some(MemoryGrant { element, data_address, row_base, rows, lane_base, width, boot_id })
    }
}

/// Epochs only grow. (At one change a second they last 136 years.)
pub(super) const fn next_epoch(epoch: u32) -> u32 {
    epoch.saturating_add(1)
}

/// Whether an owner's callers know its application by other ids than are known here.
fn goes_by_others(application: &Application, request: &RegisterApplicationRequest) -> bool {
    let ApplicationRecord { gaid, endpoint, .. } = application.record;
    let held = request.held.filter(|held| (held.gaid, held.endpoint) != (gaid, endpoint));
    held.is_some() && application.callers.is_empty()
}

fn check(request: &RegisterApplicationRequest) -> Result<(), Refusal> {
    let invalid = |field, expected, got| Err(Refusal::Invalid { field, expected, got });
    if request.name.is_empty() || request.name.len() > TEXT_MAX {
        return invalid("name", "1 to 255 bytes", shortened(&request.name));
    }
    if request.service_address.len() > TEXT_MAX {
        return invalid("service_address", "up to 255 bytes", shortened(&request.service_address));
    }
    if request.rows > 0 && !(1..=u32::from(u16::MAX)).contains(&request.width) {
        return invalid("width", "1 to 65535 lanes", request.width.to_string());
    }
    if request.silent.len() > SILENT_MAX {
        return invalid("silent", "up to 16 starts", request.silent.len().to_string());
    }
    // As many again are left.
    if let Some(held) = request.held.filter(|held| held.epoch > u32::MAX / 2) {
        return invalid("held.epoch", "at most 2147483647", held.epoch.to_string());
    }
    check_data_address(&request.data_address)
}

/// The record of an application whose owner has just registered; GAID, epoch and key are still to come.
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
