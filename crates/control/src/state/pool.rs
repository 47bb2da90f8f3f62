//! Pools: servers that answer the same cloned calls, and the callers they let in (NetClone §3.3).
//!
//! ```text
//!            JoinPool                     in service            its stream ends          grace is over
//!  server ─────────────▶ its endpoint is ─────────▶ in the table ─────────────▶ not in it ───────────▶ forgotten
//!                        at the element              (a SID)      at once        back: the same endpoint
//! ```
//!
//! A server is in the table for as long as its stream is open: one that dies is out of it as soon as its
//! connection is, one whose host vanishes within two keep-alive intervals. That costs nothing, as the element
//! keeps soft state only. Each change is another version; a leave moves at most one other server to another SID.
//! After a restart of the controller the table stays as it was until the restart grace is over.
//!
//! A caller is registered by the server that it follows, which vouches for it. When that server says that the
//! caller has left, or is gone itself, the caller has the grace to come back by another server.

use std::collections::BTreeMap;

use pathcall_proto::v1::{
    JoinPoolRequest, PoolGrant, PoolServer, PoolTable, RegisterEndpointRequest, ReleaseEndpointRequest,
};
use pathcall_wire::clone::MAX_SERVERS;

use super::application::next_epoch;
use super::ids::Kind;
use super::{
    CALLERS_MAX, CallId, EndpointRecord, Lease, Output, POOLS_MAX, PoolRecord, PoolServerRecord, Refusal, Registrant,
    State, TEXT_MAX, Waiting, check_data_address, shortened,
};

/// The server of a caller that no server vouches for: no endpoint has this id.
pub(super) const NOBODY: u32 = 0;

/// A pool and its leases.
#[derive(Debug, Clone)]
pub(super) struct Pool {
    pub(super) record: PoolRecord,
    /// Of its servers, by endpoint.
    pub(super) leases: BTreeMap<u32, Lease>,
    /// Its callers by incarnation and address.
    pub(super) callers: BTreeMap<(u32, String), u32>,
    /// Servers that have yet to be told how it stands.
    pub(super) untold: bool,
}

impl State {
    /// A server joins. It is answered when the element has it in its table.
    pub(super) fn join_pool(&mut self, call: CallId, request: JoinPoolRequest) {
        match self.enter_pool(request) {
            Ok((gaid, server)) => {
                let Some(pool) = self.pools.get_mut(&gaid) else { return };
                pool.untold = true;
                if let Some(Lease::Held(earlier)) = pool.leases.insert(server, Lease::Held(call)) {
                    self.streams.remove(&earlier);
                    self.outputs.push(Output::Pool(earlier, Err(Refusal::Replaced)));
                }
                self.streams.insert(call, Registrant::Server { gaid, server });
                self.tell_pool_when_confirmed(gaid);
            }
            Err(refusal) => self.outputs.push(Output::Pool(call, Err(refusal))),
        }
    }

    /// Finds or makes the pool, and the server's place in it.
    fn enter_pool(&mut self, request: JoinPoolRequest) -> Result<(u32, u32), Refusal> {
        check(&request)?;
        let gaid = match self.pool_names.get(&request.name) {
            Some(&gaid) => gaid,
            None => self.new_pool(&request)?,
        };
        let Some(pool) = self.pools.get(&gaid) else { return Err(Refusal::UnknownPool(request.name)) };
        let signed = pool.record.token_key.is_some();
        if signed != request.authenticate {
            return Err(Refusal::OtherTokens { name: request.name, signed });
        }
        let here = pool.record.servers.iter().find(|server| is_same(server, &request)).map(|server| server.endpoint);
        let server = match here {
            Some(endpoint) => endpoint,
            None => self.new_server(gaid, &request)?,
        };
        let Some(pool) = self.pools.get_mut(&gaid) else { return Err(Refusal::UnknownPool(request.name)) };
        let Some(known) = pool.record.servers.iter_mut().find(|known| known.endpoint == server) else {
            return Err(Refusal::UnknownEndpoint { gaid, endpoint: server });
        };
        known.service_address = request.service_address;
        let enters = !std::mem::replace(&mut known.serving, true);
        if enters {
            // At the end, so that nobody else's SID changes.
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

    fn new_pool(&mut self, request: &JoinPoolRequest) -> Result<u32, Refusal> {
        if self.pools.len() >= POOLS_MAX {
            return Err(Refusal::Full { what: "pool", limit: POOLS_MAX as u32 });
        }
        let token_key = match request.authenticate {
            true => Some(self.fresh_key.take().ok_or_else(|| Refusal::NoKey(request.name.clone()))?),
            false => None,
        };
        let gaid = self.next_id(Kind::Application)?;
        let version = self.ids.first_epoch;
        let record = PoolRecord { gaid, name: request.name.clone(), version, token_key, ..PoolRecord::default() };
        let pool = Pool { record, leases: BTreeMap::new(), callers: BTreeMap::new(), untold: true };
        self.pool_names.insert(request.name.clone(), gaid);
        self.pools.insert(gaid, pool);
        Ok(gaid)
    }

    fn new_server(&mut self, gaid: u32, request: &JoinPoolRequest) -> Result<u32, Refusal> {
        let servers = self.pools.get(&gaid).map_or(0, |pool| pool.record.servers.len());
        if servers >= MAX_SERVERS {
            return Err(Refusal::Full { what: "server of this pool", limit: MAX_SERVERS as u32 });
        }
        let endpoint = self.next_id(Kind::Endpoint)?;
        if let Some(pool) = self.pools.get_mut(&gaid) {
            pool.record.servers.push(PoolServerRecord {
                endpoint,
                incarnation: request.incarnation,
                data_address: request.data_address.clone(),
                service_address: request.service_address.clone(),
                serving: false,
            });
            pool.leases.insert(endpoint, Lease::Over);
            self.changed.pools.insert(gaid);
        }
        Ok(endpoint)
    }

    /// A server's stream has ended: it is out of the table now, and forgotten after the grace.
    pub(super) fn pool_server_ended(&mut self, gaid: u32, server: u32) {
        let Some(pool) = self.pools.get_mut(&gaid) else { return };
        let servers = &mut pool.record.servers;
        let Some(at) = servers.iter().position(|known| known.endpoint == server) else { return };
        if !std::mem::replace(&mut servers[at].serving, false) {
            return;
        }
        // The last one in the table takes its place: nobody else's SID changes.
        let last = servers.iter().rposition(|known| known.serving).filter(|last| *last > at);
        if let Some(last) = last {
            servers.swap(at, last);
        }
        let left = servers.iter().any(|known| known.serving);
        pool.record.version = next_epoch(pool.record.version);
        pool.untold = true;
        self.changed.pools.insert(gaid);
        if left {
            self.push_pool(gaid);
        } else {
            // An element has no use for a table of nobody.
            self.withdraw_pool(gaid);
        }
        self.tell_pool_when_confirmed(gaid);
    }

    /// A server's lease is over: it is forgotten, and with the last one the pool.
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
            self.no_longer_vouched_for(caller, server);
        }
    }

    fn forget_pool(&mut self, gaid: u32) {
        self.withdraw_pool(gaid);
        let Some(pool) = self.pools.remove(&gaid) else { return };
        self.pool_names.remove(&pool.record.name);
        for endpoint in pool.callers.into_values() {
            self.endpoints.remove(&endpoint);
            self.pool_callers_lapsing.remove(&endpoint);
            self.changed.endpoints.insert(endpoint);
        }
        self.changed.pools.insert(gaid);
    }

    /// Tells the servers how their pool stands as soon as the element, if there is one, has confirmed it.
    pub(super) fn tell_pool_when_confirmed(&mut self, gaid: u32) {
        let Some(pool) = self.pools.get(&gaid) else { return };
        match pool.record.element {
            Some(element) => self.wait(element, Waiting::Pool(gaid)),
            None => self.tell_pool(gaid),
        }
    }

    /// Tells the servers how their pool stands, unless they know.
    pub(super) fn tell_pool(&mut self, gaid: u32) {
        let Some(table) = self.pool_table(gaid) else { return };
        let Some(pool) = self.pools.get_mut(&gaid) else { return };
        if !std::mem::take(&mut pool.untold) {
            return;
        }
        for (&endpoint, lease) in &pool.leases {
            if let Lease::Held(call) = *lease {
                let pool = Some(table.clone());
                self.outputs.push(Output::Pool(call, Ok(PoolGrant { endpoint, pool })));
            }
        }
    }

    /// A pool as its servers and callers see it.
    fn pool_table(&self, gaid: u32) -> Option<PoolTable> {
        let PoolRecord { version, element, token_key, ref servers, .. } = self.pools.get(&gaid)?.record;
        let number = element.unwrap_or_default();
        let element = element.and_then(|element| self.elements.get(&element));
        let servers = servers.iter().filter(|server| server.serving).cloned().map(PoolServer::from).collect();
        let element_address = element.map(|element| element.record.data_address.clone()).unwrap_or_default();
        Some(PoolTable { gaid, version, servers, element_address, token_key, element: number })
    }

    /// As [`pool_table`](Self::pool_table), for operators: without its key.
    pub(super) fn pool_shown(&self, gaid: u32) -> Option<PoolTable> {
        Some(PoolTable { token_key: None, ..self.pool_table(gaid)? })
    }

    /// Registers a caller by a server of the pool. The same incarnation at the same address is the same
    /// endpoint, whichever server it comes by.
    pub(super) fn let_into_pool(&mut self, request: RegisterEndpointRequest) -> Result<u32, Refusal> {
        let RegisterEndpointRequest { gaid, incarnation, data_address, server, .. } = request;
        let Some(pool) = self.pools.get(&gaid) else { return Err(Refusal::UnknownPool(gaid.to_string())) };
        if !pool.leases.contains_key(&server) {
            return Err(Refusal::UnknownEndpoint { gaid, endpoint: server });
        }
        let known = pool.callers.get(&(incarnation, data_address.clone())).copied();
        if let Some(endpoint) = known {
            self.pool_callers_lapsing.remove(&endpoint);
            if let Some(caller) = self.endpoints.get_mut(&endpoint) {
                caller.server = server;
                self.changed.endpoints.insert(endpoint);
            }
            return Ok(endpoint);
        }
        if pool.callers.len() >= CALLERS_MAX {
            return Err(Refusal::Full { what: "caller", limit: CALLERS_MAX as u32 });
        }
        let endpoint = self.next_id(Kind::Endpoint)?;
        if let Some(pool) = self.pools.get_mut(&gaid) {
            pool.callers.insert((incarnation, data_address.clone()), endpoint);
        }
        let record = EndpointRecord { endpoint, gaid, incarnation, data_address, server, ..EndpointRecord::default() };
        self.endpoints.insert(endpoint, record);
        self.changed.endpoints.insert(endpoint);
        self.push_pool_endpoints(gaid, vec![endpoint]);
        Ok(endpoint)
    }

    /// A server no longer vouches for a caller, which may come back by another one meanwhile, or have done so.
    pub(super) fn release_from_pool(&mut self, request: &ReleaseEndpointRequest) {
        self.no_longer_vouched_for(request.endpoint, request.server);
    }

    fn no_longer_vouched_for(&mut self, endpoint: u32, server: u32) {
        let Some(caller) = self.endpoints.get_mut(&endpoint).filter(|caller| caller.server == server) else { return };
        caller.server = NOBODY;
        self.changed.endpoints.insert(endpoint);
        self.pool_callers_lapsing.insert(endpoint, self.now + self.timing.grace);
    }

    /// A caller has not come back.
    pub(super) fn forget_pool_caller(&mut self, endpoint: u32) {
        self.pool_callers_lapsing.remove(&endpoint);
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

fn check(request: &JoinPoolRequest) -> Result<(), Refusal> {
    let invalid = |field, expected, got: &str| Err(Refusal::Invalid { field, expected, got: shortened(got) });
    if request.name.is_empty() || request.name.len() > TEXT_MAX {
        return invalid("name", "1 to 255 bytes", &request.name);
    }
    if request.service_address.len() > TEXT_MAX {
        return invalid("service_address", "up to 255 bytes", &request.service_address);
    }
    check_data_address(&request.data_address)
}
