//! Tables of pools at elements, and their endpoint entries.

use pathcall_proto::v1::EndpointEntry;

use super::push::{ENTRIES_MAX, ElementPool, PushSubject};
use super::{ControllerState, PoolRecord, Push, WaitingParty, can_send_to, record};

impl ControllerState {
    /// Gives an element, if there is one, to a pool that has servers and no element.
    pub(super) fn offer_pool(&mut self, gaid: u32) {
        let takes = |element: &super::Element| element.serving && !element.refused.contains(&gaid);
        let element = self.elements.iter().find(|(_, element)| takes(element)).map(|(&id, _)| id);
        let Some(pool) = self.pools.get_mut(&gaid).filter(|pool| pool.record.element.is_none()) else { return };
        let Some(element) = element.filter(|_| pool.record.servers.iter().any(|server| server.serving)) else { return };
        pool.record.element = Some(element);
        pool.unreported = true;
        self.changed.pools.insert(gaid);
        self.install_pool(gaid);
    }

    /// Pushes all entries of a pool to its element.
    pub(super) fn install_pool(&mut self, gaid: u32) {
        let Some(pool) = self.pools.get(&gaid) else { return };
        let servers = pool.record.servers.iter().map(|server| server.endpoint);
        let endpoints = servers.chain(pool.callers.values().copied()).collect();
        self.push_pool(gaid);
        self.push_pool_endpoints(gaid, endpoints);
    }

    /// Pushes the table of a pool's servers.
    pub(super) fn push_pool(&mut self, gaid: u32) {
        let Some(PoolRecord { version, token_key, element: Some(element), .. }) =
            self.pools.get(&gaid).map(|pool| &pool.record)
        else {
            return;
        };
        let (version, token_key, element) = (*version, *token_key, *element);
        let servers = self.pools.get(&gaid).map(|pool| pool.record.serving()).unwrap_or_default();
        let pool = ElementPool { gaid, version, servers, token_key };
        self.push(element, Push::InstallPool(pool), PushSubject::Application(gaid));
    }

    /// Pushes the entries of a pool's endpoints that the element can reach; calls of others do not use the element.
    pub(super) fn push_pool_endpoints(&mut self, gaid: u32, endpoints: Vec<u32>) {
        let Some(element) = self.pools.get(&gaid).and_then(|pool| pool.record.element) else { return };
        let Some(address) = self.elements.get(&element).map(|element| element.record.data_address.clone()) else {
            return;
        };
        for endpoints in endpoints.chunks(ENTRIES_MAX) {
            let entries = endpoints.iter().filter_map(|&endpoint| self.pool_entry(gaid, endpoint));
            let entries = entries.filter(|entry| can_send_to(&address, &entry.data_address)).collect();
            self.push(element, Push::SetEndpoints(entries), PushSubject::Application(gaid));
        }
    }

    /// Withdraws the element from a pool; its callers send to the servers directly.
    pub(super) fn withdraw_pool(&mut self, gaid: u32) {
        let Some(pool) = self.pools.get_mut(&gaid) else { return };
        let Some(element) = pool.record.element.take() else { return };
        pool.unreported = true;
        let servers = pool.record.servers.iter().map(|server| server.endpoint);
        let endpoints: Vec<u32> = servers.chain(pool.callers.values().copied()).collect();
        self.changed.pools.insert(gaid);
        let Some(known) = self.elements.get_mut(&element) else { return };
        let waiters = known.waiters.extract_if(.., |waiter| waiter.party.concerns(gaid)).collect::<Vec<_>>();
        record::insert(&mut known.record.stale_applications, gaid);
        endpoints.iter().for_each(|&endpoint| record::insert(&mut known.record.stale_endpoints, endpoint));
        self.changed.elements.insert(element);
        self.push_removals(element, &endpoints, &[gaid]);
        for waiter in waiters {
            if let WaitingParty::Endpoint { call, gaid, endpoint } = waiter.party {
                self.answer_endpoint(call, gaid, endpoint);
            }
        }
    }

    pub(super) fn remove_pool_endpoints(&mut self, gaid: u32, endpoints: &[u32]) {
        let Some(element) = self.pools.get(&gaid).and_then(|pool| pool.record.element) else { return };
        let Some(known) = self.elements.get_mut(&element) else { return };
        endpoints.iter().for_each(|&endpoint| record::insert(&mut known.record.stale_endpoints, endpoint));
        self.changed.elements.insert(element);
        self.push_removals(element, endpoints, &[]);
    }

    /// Pools whose table an element has.
    pub(super) fn pools_on(&self, id: u32) -> Vec<u32> {
        let on = |pool: &super::Pool| pool.record.element == Some(id);
        self.pools.iter().filter(|(_, pool)| on(pool)).map(|(&gaid, _)| gaid).collect()
    }

    /// Table entry of a pool's endpoint, server or caller, for an element.
    pub(super) fn pool_entry(&self, gaid: u32, endpoint: u32) -> Option<EndpointEntry> {
        let pool = self.pools.get(&gaid)?;
        let server = pool.record.servers.iter().find(|server| server.endpoint == endpoint);
        let (incarnation, data_address) = match server {
            Some(server) => (server.incarnation, server.data_address.clone()),
            None => self.endpoints.get(&endpoint).map(|caller| (caller.incarnation, caller.data_address.clone()))?,
        };
        Some(EndpointEntry { endpoint, incarnation, data_address, gaid, slot_base: 0, slots: 0 })
    }
}
