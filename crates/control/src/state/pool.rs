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
//! table stays until the restart grace period is over.
//!
//! A caller is registered by the server that it follows, which is responsible for it. When this server reports that the
//! caller has left, or fails itself, the caller has a grace period in which it may return through another server.

use std::collections::BTreeMap;

use pathcall_proto::v1::{
    JoinPoolRequest, PoolGrant, PoolServer, PoolTable, RegisterEndpointRequest, ReleaseEndpointRequest,
};
use pathcall_wire::clone::MAX_SERVERS;

use super::application::next_epoch;
use super::ids::IdKind;
use super::{
    CALLERS_MAX, CallerRecord, ControlCallId, ControllerState, Lease, Output, POOLS_MAX, PoolRecord, PoolServerRecord,
    Registrant, RegistrationRefusal, TEXT_MAX, WaitingParty, check_data_address, truncated,
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
    /// Whether the servers' current grant has not been sent yet.
    pub(super) unreported: bool,
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
            if pool.record.element.is_none() {
                self.offer_pool(gaid);
            } else {
                self.push_pool_endpoints(gaid, vec![server]);
                self.push_pool(gaid);
            }
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
        let pool = Pool { record, leases: BTreeMap::new(), callers: BTreeMap::new(), unreported: true };
        self.pool_names.insert(request.name.clone(), gaid);
        self.pools.insert(gaid, pool);
        Ok(gaid)
    }

    fn new_server(&mut self, gaid: u32, request: &JoinPoolRequest) -> Result<u32, RegistrationRefusal> {
        let servers = self.pools.get(&gaid).map_or(0, |pool| pool.record.servers.len());
        if servers >= MAX_SERVERS {
            return Err(RegistrationRefusal::Full { what: "server of this pool", limit: MAX_SERVERS as u32 });
        }
        let endpoint = self.next_id(IdKind::Endpoint)?;
        if let Some(pool) = self.pools.get_mut(&gaid) {
            pool.record.servers.push(PoolServerRecord {
                endpoint,
                incarnation: request.incarnation,
                data_address: request.data_address.clone(),
                service_address: request.service_address.clone(),
                serving: false,
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
        if left {
            self.push_pool(gaid);
        } else {
            // The element does not need an empty table.
            self.withdraw_pool(gaid);
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
    }

    fn forget_pool(&mut self, gaid: u32) {
        self.withdraw_pool(gaid);
        let Some(pool) = self.pools.remove(&gaid) else { return };
        self.pool_names.remove(&pool.record.name);
        for endpoint in pool.callers.into_values() {
            self.endpoints.remove(&endpoint);
            self.pool_callers_expiring.remove(&endpoint);
            self.changed.endpoints.insert(endpoint);
        }
        self.changed.pools.insert(gaid);
    }

    /// Sends the servers the pool's grant as soon as the element, if any, has confirmed it.
    pub(super) fn send_pool_grants_when_confirmed(&mut self, gaid: u32) {
        let Some(pool) = self.pools.get(&gaid) else { return };
        match pool.record.element {
            Some(element) => self.wait(element, WaitingParty::Pool(gaid)),
            None => self.send_pool_grants(gaid),
        }
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
        let PoolRecord { version, element, token_key, ref servers, .. } = self.pools.get(&gaid)?.record;
        let number = element.unwrap_or_default();
        let element = element.and_then(|element| self.elements.get(&element));
        let servers = servers.iter().filter(|server| server.serving).cloned().map(PoolServer::from).collect();
        let element_address = element.map(|element| element.record.data_address.clone()).unwrap_or_default();
        Some(PoolTable { gaid, version, servers, element_address, token_key, element: number })
    }

    /// As [`pool_table`](Self::pool_table), without its key, for operators.
    pub(super) fn pool_status(&self, gaid: u32) -> Option<PoolTable> {
        Some(PoolTable { token_key: None, ..self.pool_table(gaid)? })
    }

    /// Registers a caller of a server of the pool. The same incarnation at the same address is the same endpoint, for
    /// every server.
    pub(super) fn admit_pool_caller(&mut self, request: RegisterEndpointRequest) -> Result<u32, RegistrationRefusal> {
        let RegisterEndpointRequest { gaid, incarnation, data_address, server, .. } = request;
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
        let endpoint = self.next_id(IdKind::Endpoint)?;
        if let Some(pool) = self.pools.get_mut(&gaid) {
            pool.callers.insert((incarnation, data_address.clone()), endpoint);
        }
        let record = CallerRecord { endpoint, gaid, incarnation, data_address, server, ..CallerRecord::default() };
        self.endpoints.insert(endpoint, record);
        self.changed.endpoints.insert(endpoint);
        self.push_pool_endpoints(gaid, vec![endpoint]);
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
        if let Some(pool) = self.pools.get_mut(&caller.gaid) {
            pool.callers.remove(&(caller.incarnation, caller.data_address));
        }
        self.remove_pool_endpoints(caller.gaid, &[endpoint]);
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
        let PoolServerRecord { endpoint, incarnation, data_address, service_address, .. } = record;
        Self { endpoint, incarnation, data_address, service_address }
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
    check_data_address(&request.data_address)
}
