//! Tables of pools at elements, and their endpoint entries.

use pathcall_proto::v1::EndpointEntry;

use super::push::{ENTRIES_MAX, ElementPool, PushSubject};
use super::{ControllerState, PoolRecord, Push, WaitingParty, can_send_to, record};

impl ControllerState {
    /// Pushes all entries of a pool to one of its elements.
    pub(super) fn install_pool(&mut self, gaid: u32, element: u32) {
        let endpoints = self.pool_endpoints(gaid);
        self.push_pool(gaid, element);
        self.push_pool_endpoints(gaid, element, &endpoints);
    }

    /// Pushes the table of a pool's servers to an element.
    pub(super) fn push_pool(&mut self, gaid: u32, element: u32) {
        let Some(pool) = self.pools.get(&gaid) else { return };
        let PoolRecord { version, token_key, .. } = pool.record;
        let pool = ElementPool { gaid, version, servers: pool.record.serving(), token_key };
        self.push(element, Push::InstallPool(pool), PushSubject::Application(gaid));
    }

    /// Pushes the entries of a pool's endpoints that an element can reach; calls of others do not use the element.
    pub(super) fn push_pool_endpoints(&mut self, gaid: u32, element: u32, endpoints: &[u32]) {
        for endpoints in endpoints.chunks(ENTRIES_MAX) {
            let entries = endpoints.iter().filter_map(|&endpoint| self.pool_entry(gaid, endpoint, element)).collect();
            self.push(element, Push::SetEndpoints(entries), PushSubject::Application(gaid));
        }
    }

    /// Pushes to the other elements of a pool the entries that an element changes by joining or leaving.
    pub(super) fn push_moved_endpoints(&mut self, gaid: u32, element: u32) {
        let Some(pool) = self.pools.get(&gaid) else { return };
        let (moved, elements) = (self.endpoints_moved_by(pool, element), pool.record.elements.clone());
        for other in elements.into_iter().filter(|other| *other != element) {
            self.push_pool_endpoints(gaid, other, &moved);
        }
    }

    /// Withdraws an element from a pool. Without another one, the callers send to the servers directly.
    pub(super) fn withdraw_pool(&mut self, gaid: u32, element: u32) {
        let endpoints = self.pool_endpoints(gaid);
        let Some(pool) = self.pools.get_mut(&gaid) else { return };
        if !record::remove(&mut pool.record.elements, element) {
            return;
        }
        record::remove(&mut pool.record.joining, element);
        pool.unreported = true;
        self.changed.pools.insert(gaid);
        self.push_moved_endpoints(gaid, element);
        let Some(known) = self.elements.get_mut(&element) else { return };
        let waiters = known.waiters.extract_if(.., |waiter| waiter.party.concerns(gaid)).collect::<Vec<_>>();
        record::insert(&mut known.record.stale_applications, gaid);
        endpoints.iter().for_each(|&endpoint| record::insert(&mut known.record.stale_endpoints, endpoint));
        self.changed.elements.insert(element);
        self.push_removals(element, &endpoints, &[gaid]);
        // The pool's grant is sent by whoever withdraws the element.
        let callers = waiters.into_iter().map(|waiter| waiter.party);
        self.answer(callers.filter(|party| matches!(party, WaitingParty::Endpoint { .. })));
    }

    pub(super) fn remove_pool_endpoints(&mut self, gaid: u32, endpoints: &[u32]) {
        let elements = self.pools.get(&gaid).map(|pool| pool.record.elements.clone()).unwrap_or_default();
        for element in elements {
            let Some(known) = self.elements.get_mut(&element) else { continue };
            endpoints.iter().for_each(|&endpoint| record::insert(&mut known.record.stale_endpoints, endpoint));
            self.changed.elements.insert(element);
            self.push_removals(element, endpoints, &[]);
        }
    }

    /// Pools whose table an element has.
    pub(super) fn pools_on(&self, id: u32) -> Vec<u32> {
        let on = |pool: &super::Pool| pool.record.elements.contains(&id);
        self.pools.iter().filter(|(_, pool)| on(pool)).map(|(&gaid, _)| gaid).collect()
    }

    /// Servers and callers of a pool.
    fn pool_endpoints(&self, gaid: u32) -> Vec<u32> {
        let Some(pool) = self.pools.get(&gaid) else { return Vec::new() };
        let servers = pool.record.servers.iter().map(|server| server.endpoint);
        servers.chain(pool.callers.values().copied()).collect()
    }

    /// Entry of a pool's endpoint, server or caller, in the table of the element `at`: with the address of the element
    /// of its rack, if that is another one, or else with its own. `None` if `at` can send to neither.
    fn pool_entry(&self, gaid: u32, endpoint: u32, at: u32) -> Option<EndpointEntry> {
        let (pool, here) = (self.pools.get(&gaid)?, &self.elements.get(&at)?.record);
        let server = pool.record.servers.iter().find(|server| server.endpoint == endpoint);
        let (incarnation, own, rack) = match server {
            Some(server) => (server.incarnation, &server.data_address, &server.rack),
            None => self.endpoints.get(&endpoint).map(|c| (c.incarnation, &c.data_address, &c.rack))?,
        };
        let element = self.element_of_rack(pool, Some(at), rack, server.is_none());
        let element = element.filter(|element| element.element != at).map(|element| &element.data_address);
        let reachable = |address: &&String| can_send_to(&here.data_address, address);
        let data_address = element.into_iter().chain([own]).find(reachable)?.clone();
        Some(EndpointEntry { endpoint, incarnation, data_address, gaid, slot_base: 0, slots: 0 })
    }
}
