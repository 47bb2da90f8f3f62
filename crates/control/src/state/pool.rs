//! Pools: servers that answer the same cloned calls, and the callers that they admit (NetClone §3.3).
//!
//! ```text
//!            JoinPool                     in service            its stream ends          grace period over
//!  server ─────────────▶ its endpoint is ─────────▶ in the table ─────────────▶ not in it ───────────▶ removed
//!                        at the element              (a SID)      at once        back: the same endpoint
//! ```
//!
//! A server is in the table while its stream is open: a server that dies leaves the table with its connection; a server
//! whose host fails, within two keep-alive intervals. This is cheap, since the element has only soft state. Each change
//! has a new version; a leave moves at most one other server to another SID. After a restart of the controller the
//! table stays until the restart grace period is over. Servers and callers keep the rack that they named first.
//!
//! A caller is registered by the server that it follows, which is responsible for it. When this server reports that the
//! caller has left, or fails itself, the caller has a grace period in which it may return through another server.

use std::collections::{BTreeMap, BTreeSet};

use pathcall_proto::v1::{
    JoinPoolRequest, PoolGrant, PoolServer, PoolTable, RackElement, RegisterEndpointRequest, ReleaseEndpointRequest,
};
use pathcall_wire::clone::MAX_SERVERS;

use super::application::next_epoch;
use super::ids::IdKind;
use super::{
    CALLERS_MAX, CallerRecord, ControlCallId, ControllerState, Lease, Output, POOLS_MAX, PoolRecord, PoolServerRecord,
    Registrant, RegistrationRefusal, TEXT_MAX, WaitingParty, check_data_address, check_rack, truncated,
};

/// Server of a caller without a responsible server: no endpoint has this id.
pub(super) const NO_SERVER: u32 = 0;

/// Pool with its leases.
#[derive(Debug, Clone)]
pub(super) struct Pool {
    pub(super) record: PoolRecord,
    /// Leases of the servers, by endpoint.
    pub(super) leases: BTreeMap<u32, Lease>,
    /// Callers by incarnation and address.
    pub(super) callers: BTreeMap<(u32, String), u32>,
    /// Number of callers in each rack that has some.
    pub(super) caller_racks: BTreeMap<String, u32>,
    /// Whether the servers' current grant has not been sent yet.
    pub(super) unreported: bool,
    /// Racks without an element that the operator has been told of.
    pub(super) reported_racks: BTreeSet<String>,
}

impl Pool {
    /// Pool of a record, without leases and callers.
    pub(super) fn new(record: PoolRecord) -> Self {
        let (leases, callers, caller_racks) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { record, leases, callers, caller_racks, unreported: true, reported_racks: BTreeSet::new() }
    }

    /// Adds a caller; whether it is the first one of its rack.
    pub(super) fn add_caller(&mut self, caller: &CallerRecord) -> bool {
        self.callers.insert((caller.incarnation, caller.data_address.clone()), caller.endpoint);
        let count = self.caller_racks.entry(caller.rack.clone()).or_default();
        *count += 1;
        *count == 1
    }

    /// Removes a caller; whether it was the last one of its rack.
    fn remove_caller(&mut self, caller: &CallerRecord) -> bool {
        self.callers.remove(&(caller.incarnation, caller.data_address.clone()));
        let Some(count) = self.caller_racks.get_mut(&caller.rack) else { return false };
        *count -= 1;
        let last = *count == 0;
        if last {
            self.caller_racks.remove(&caller.rack);
        }
        last
    }
}

impl ControllerState {
    /// Handles the join of a server. The answer waits until the element has the server in its table.
    pub(super) fn join_pool(&mut self, call: ControlCallId, request: JoinPoolRequest) {
        match self.enter_pool(request) {
            Ok((gaid, server)) => {
                let Some(pool) = self.pools.get_mut(&gaid) else { return };
                pool.unreported = true;
                if let Some(Lease::Held(earlier)) = pool.leases.insert(server, Lease::Held(call)) {
                    self.streams.remove(&earlier);
                    self.outputs.push(Output::Pool(earlier, Err(RegistrationRefusal::Replaced)));
                }
                self.streams.insert(call, Registrant::Server { gaid, server });
                self.send_pool_grants_when_confirmed(gaid);
            }
            Err(refusal) => self.outputs.push(Output::Pool(call, Err(refusal))),
        }
    }

    /// Finds or creates the pool and the server's entry.
    fn enter_pool(&mut self, request: JoinPoolRequest) -> Result<(u32, u32), RegistrationRefusal> {
        check(&request)?;
        let gaid = match self.pool_names.get(&request.name) {
            Some(&gaid) => gaid,
            None => self.new_pool(&request)?,
        };
        let Some(pool) = self.pools.get(&gaid) else { return Err(RegistrationRefusal::UnknownPool(request.name)) };
        let signed = pool.record.token_key.is_some();
        if signed != request.authenticate {
            return Err(RegistrationRefusal::OtherTokens { name: request.name, signed });
        }
        let here = pool.record.servers.iter().find(|server| is_same(server, &request)).map(|server| server.endpoint);
        let server = match here {
            Some(endpoint) => endpoint,
            None => self.new_server(gaid, &request)?,
        };
        let Some(pool) = self.pools.get_mut(&gaid) else { return Err(RegistrationRefusal::UnknownPool(request.name)) };
        let Some(known) = pool.record.servers.iter_mut().find(|known| known.endpoint == server) else {
            return Err(RegistrationRefusal::UnknownEndpoint { gaid, endpoint: server });
        };
        known.service_address = request.service_address;
        let enters = !std::mem::replace(&mut known.serving, true);
        if enters {
            // At the end, so that no other server's SID changes.
            let last = pool.record.servers.len() - 1;
            let at = pool.record.servers.iter().position(|known| known.endpoint == server).unwrap_or(last);
            pool.record.servers[at..].rotate_left(1);
            pool.record.version = next_epoch(pool.record.version);
            for element in pool.record.elements.clone() {
                self.push_pool_endpoints(gaid, element, &[server]);
                self.push_pool(gaid, element);
            }
            self.place_pool(gaid);
        }
        self.changed.pools.insert(gaid);
        Ok((gaid, server))
    }

    fn new_pool(&mut self, request: &JoinPoolRequest) -> Result<u32, RegistrationRefusal> {
        if self.pools.len() >= POOLS_MAX {
            return Err(RegistrationRefusal::Full { what: "pool", limit: POOLS_MAX as u32 });
        }
        let token_key = match request.authenticate {
            true => Some(self.fresh_key.take().ok_or_else(|| RegistrationRefusal::NoKey(request.name.clone()))?),
            false => None,
        };
        let gaid = self.next_id(IdKind::Application)?;
        let version = self.ids.first_epoch;
        let record = PoolRecord { gaid, name: request.name.clone(), version, token_key, ..PoolRecord::default() };
        self.pool_names.insert(request.name.clone(), gaid);
        self.pools.insert(gaid, Pool::new(record));
        Ok(gaid)
    }

    fn new_server(&mut self, gaid: u32, request: &JoinPoolRequest) -> Result<u32, RegistrationRefusal> {
        let servers = self.pools.get(&gaid).map_or(0, |pool| pool.record.servers.len());
        if servers >= MAX_SERVERS {
            return Err(RegistrationRefusal::Full { what: "server of this pool", limit: MAX_SERVERS as u32 });
        }
        self.pools.get(&gaid).map_or(Ok(()), |pool| pool.check_room_for(&request.rack))?;
        let endpoint = self.next_id(IdKind::Endpoint)?;
        if let Some(pool) = self.pools.get_mut(&gaid) {
            pool.record.servers.push(PoolServerRecord {
                endpoint,
                incarnation: request.incarnation,
                data_address: request.data_address.clone(),
                service_address: request.service_address.clone(),
                serving: false,
                rack: request.rack.clone(),
            });
            pool.leases.insert(endpoint, Lease::Expired);
            self.changed.pools.insert(gaid);
        }
        Ok(endpoint)
    }

    /// Handles the end of a server's stream: removes it from the table; the server itself is removed after the grace
    /// period.
    pub(super) fn pool_server_ended(&mut self, gaid: u32, server: u32) {
        let Some(pool) = self.pools.get_mut(&gaid) else { return };
        let servers = &mut pool.record.servers;
        let Some(at) = servers.iter().position(|known| known.endpoint == server) else { return };
        if !std::mem::replace(&mut servers[at].serving, false) {
            return;
        }
        // The last entry takes its SID: no other SID changes.
        let last = servers.iter().rposition(|known| known.serving).filter(|last| *last > at);
        if let Some(last) = last {
            servers.swap(at, last);
        }
        let left = servers.iter().any(|known| known.serving);
        pool.record.version = next_epoch(pool.record.version);
        pool.unreported = true;
        self.changed.pools.insert(gaid);
        for element in pool.record.elements.clone() {
            if left {
                self.push_pool(gaid, element);
            } else {
                // An element does not need an empty table.
                self.withdraw_pool(gaid, element);
            }
        }
        self.send_pool_grants_when_confirmed(gaid);
    }

    /// Removes a server after its lease has expired, and with the last server the pool.
    pub(super) fn forget_server(&mut self, gaid: u32, server: u32) {
        self.pool_server_ended(gaid, server);
        let Some(pool) = self.pools.get_mut(&gaid) else { return };
        pool.leases.remove(&server);
        pool.record.servers.retain(|known| known.endpoint != server);
        let callers: Vec<u32> = pool.callers.values().copied().collect();
        let empty = pool.record.servers.is_empty();
        self.changed.pools.insert(gaid);
        if empty {
            return self.forget_pool(gaid);
        }
        self.remove_pool_endpoints(gaid, &[server]);
        for caller in callers {
            self.end_responsibility(caller, server);
        }
        self.place_pool(gaid);
        self.send_pool_grants_when_confirmed(gaid);
    }

    fn forget_pool(&mut self, gaid: u32) {
        for element in self.pools.get(&gaid).map(|pool| pool.record.elements.clone()).unwrap_or_default() {
            self.withdraw_pool(gaid, element);
        }
        let Some(pool) = self.pools.remove(&gaid) else { return };
        self.pool_names.remove(&pool.record.name);
        for endpoint in pool.callers.into_values() {
            self.endpoints.remove(&endpoint);
            self.pool_callers_expiring.remove(&endpoint);
            self.changed.endpoints.insert(endpoint);
        }
        self.changed.pools.insert(gaid);
    }

    /// Sends the servers the pool's grant, unless it has been sent, as soon as all elements of the pool have confirmed
    /// it.
    pub(super) fn send_pool_grants_when_confirmed(&mut self, gaid: u32) {
        let Some(pool) = self.pools.get(&gaid).filter(|pool| pool.unreported) else { return };
        let elements = pool.record.elements.clone();
        if elements.is_empty() {
            return self.send_pool_grants(gaid);
        }
        self.wait(&elements, WaitingParty::Pool(gaid));
    }

    /// Sends the servers the pool's grant, unless it has been sent.
    pub(super) fn send_pool_grants(&mut self, gaid: u32) {
        let Some(table) = self.pool_table(gaid) else { return };
        let Some(pool) = self.pools.get_mut(&gaid) else { return };
        if !std::mem::take(&mut pool.unreported) {
            return;
        }
        for (&endpoint, lease) in &pool.leases {
            if let Lease::Held(call) = *lease {
                let pool = Some(table.clone());
                self.outputs.push(Output::Pool(call, Ok(PoolGrant { endpoint, pool })));
            }
        }
    }

    /// Table of a pool for its servers and callers.
    fn pool_table(&self, gaid: u32) -> Option<PoolTable> {
        let pool = self.pools.get(&gaid)?;
        let PoolRecord { version, token_key, ref servers, .. } = pool.record;
        let servers = servers.iter().filter(|server| server.serving).cloned().map(PoolServer::from).collect();
        let default = self.default_element(pool);
        let element_address = default.map(|element| element.data_address.clone()).unwrap_or_default();
        let element = default.map_or(0, |element| element.element);
        let elements = self.joined_elements(pool, None).map(|element| RackElement {
            rack: element.rack.clone(),
            element: element.element,
            data_address: element.data_address.clone(),
            holds_hedges: element.holds_hedges,
        });
        let (elements, holds) = (elements.collect(), default.is_some_and(|element| element.holds_hedges));
        Some(PoolTable {
            gaid,
            version,
            servers,
            element_address,
            token_key,
            element,
            elements,
            element_holds_hedges: holds,
        })
    }

    /// As [`pool_table`](Self::pool_table), without its key, for operators.
    pub(super) fn pool_status(&self, gaid: u32) -> Option<PoolTable> {
        Some(PoolTable { token_key: None, ..self.pool_table(gaid)? })
    }

    /// Registers a caller of a server of the pool. The same incarnation at the same address is the same endpoint, for
    /// every server.
    pub(super) fn admit_pool_caller(&mut self, request: RegisterEndpointRequest) -> Result<u32, RegistrationRefusal> {
        let RegisterEndpointRequest { gaid, incarnation, data_address, server, rack, .. } = request;
        check_rack(&rack)?;
        let Some(pool) = self.pools.get(&gaid) else { return Err(RegistrationRefusal::UnknownPool(gaid.to_string())) };
        if !pool.leases.contains_key(&server) {
            return Err(RegistrationRefusal::UnknownEndpoint { gaid, endpoint: server });
        }
        let known = pool.callers.get(&(incarnation, data_address.clone())).copied();
        if let Some(endpoint) = known {
            self.pool_callers_expiring.remove(&endpoint);
            if let Some(caller) = self.endpoints.get_mut(&endpoint) {
                caller.server = server;
                self.changed.endpoints.insert(endpoint);
            }
            return Ok(endpoint);
        }
        if pool.callers.len() >= CALLERS_MAX {
            return Err(RegistrationRefusal::Full { what: "caller", limit: CALLERS_MAX as u32 });
        }
        pool.check_room_for(&rack)?;
        let endpoint = self.next_id(IdKind::Endpoint)?;
        let record =
            CallerRecord { endpoint, gaid, incarnation, data_address, server, rack, ..CallerRecord::default() };
        let Some(pool) = self.pools.get_mut(&gaid) else { return Ok(endpoint) };
        let (first_of_rack, elements) = (pool.add_caller(&record), pool.record.elements.clone());
        self.endpoints.insert(endpoint, record);
        self.changed.endpoints.insert(endpoint);
        for element in elements {
            self.push_pool_endpoints(gaid, element, &[endpoint]);
        }
        if first_of_rack {
            self.place_pool(gaid);
            self.send_pool_grants_when_confirmed(gaid);
        }
        Ok(endpoint)
    }

    /// Handles the report of a server that a caller has left. The caller may return through another server, or has
    /// already done so.
    pub(super) fn release_from_pool(&mut self, request: &ReleaseEndpointRequest) {
        self.end_responsibility(request.endpoint, request.server);
    }

    fn end_responsibility(&mut self, endpoint: u32, server: u32) {
        let Some(caller) = self.endpoints.get_mut(&endpoint).filter(|caller| caller.server == server) else { return };
        caller.server = NO_SERVER;
        self.changed.endpoints.insert(endpoint);
        self.pool_callers_expiring.insert(endpoint, self.now + self.timing.grace);
    }

    /// Removes a caller that has not returned.
    pub(super) fn forget_pool_caller(&mut self, endpoint: u32) {
        self.pool_callers_expiring.remove(&endpoint);
        let Some(caller) = self.endpoints.remove(&endpoint) else { return };
        self.changed.endpoints.insert(endpoint);
        let last_of_rack = self.pools.get_mut(&caller.gaid).is_some_and(|pool| pool.remove_caller(&caller));
        self.remove_pool_endpoints(caller.gaid, &[endpoint]);
        if last_of_rack {
            self.place_pool(caller.gaid);
            self.send_pool_grants_when_confirmed(caller.gaid);
        }
    }
}

impl PoolRecord {
    /// Endpoints in the group table, by SID.
    pub(super) fn serving(&self) -> Vec<u32> {
        self.servers.iter().filter(|server| server.serving).map(|server| server.endpoint).collect()
    }
}

impl From<PoolServerRecord> for PoolServer {
    fn from(record: PoolServerRecord) -> Self {
        let PoolServerRecord { endpoint, incarnation, data_address, service_address, rack, .. } = record;
        Self { endpoint, incarnation, data_address, service_address, rack }
    }
}

fn is_same(server: &PoolServerRecord, request: &JoinPoolRequest) -> bool {
    server.incarnation == request.incarnation && server.data_address == request.data_address
}

fn check(request: &JoinPoolRequest) -> Result<(), RegistrationRefusal> {
    let invalid =
        |field, expected, got: &str| Err(RegistrationRefusal::Invalid { field, expected, got: truncated(got) });
    if request.name.is_empty() || request.name.len() > TEXT_MAX {
        return invalid("name", "1 to 255 bytes", &request.name);
    }
    if request.service_address.len() > TEXT_MAX {
        return invalid("service_address", "up to 255 bytes", &request.service_address);
    }
    check_rack(&request.rack)?;
    check_data_address(&request.data_address)
}
