//! Checks of pools in several racks: their elements, and the addresses in the tables of these.

use super::*;

impl TestNetwork {
    /// Checks the addresses of a pool's endpoints in an element's table, and returns the endpoints.
    pub(super) fn assert_addresses_are_of_racks(&self, snapshot: &Snapshot, pool: &PoolRecord, id: u32) -> Vec<u32> {
        let elements: Vec<_> = snapshot.elements.iter().filter(|e| pool.elements.contains(&e.element)).collect();
        let of_rack = |rack: &str| elements.iter().find(|element| element.rack == rack);
        let callers = snapshot.endpoints.iter().filter(|caller| caller.gaid == pool.gaid);
        let callers = callers.map(|caller| (caller.endpoint, &caller.data_address, &caller.rack, true));
        let servers = pool.servers.iter().map(|server| (server.endpoint, &server.data_address, &server.rack, false));
        let tables =
            &self.elements.iter().find(|peer| peer.open.is_some_and(|(open, _)| open == id)).unwrap().endpoints;
        let mut endpoints = Vec::new();
        for (endpoint, own, rack, is_caller) in callers.chain(servers) {
            let element = of_rack(rack).or_else(|| of_rack("").or(elements.first()).filter(|_| is_caller));
            let expected = element.filter(|element| element.element != id).map_or(own, |element| &element.data_address);
            assert_eq!(tables.get(&endpoint).map(|entry| &entry.data_address), Some(expected), "at {id}: {pool:?}");
            endpoints.push(endpoint);
        }
        endpoints
    }

    /// Checks that a pool has at most one element of a rack, that racks have the right number of callers, and that no
    /// elements forward a frame to each other without end, although their tables change at different times.
    pub(super) fn check_racks(&self, snapshot: &Snapshot) {
        for (pool, status) in snapshot.pools.iter().zip(self.state.status().pools) {
            let rack = |id: &u32| snapshot.elements.iter().find(|e| e.element == *id).map(|element| &element.rack);
            let racks: BTreeSet<_> = pool.elements.iter().map(rack).collect();
            assert_eq!(racks.len(), pool.elements.len(), "{pool:?}");
            assert!(pool.joining.iter().all(|joining| pool.elements.contains(joining)), "{pool:?}");
            for of_rack in status.racks {
                let of = |caller: &&CallerRecord| caller.gaid == pool.gaid && caller.rack == of_rack.rack;
                assert_eq!(snapshot.endpoints.iter().filter(of).count(), of_rack.callers as usize);
            }
        }
        for start in 0..self.elements.len() {
            for &endpoint in self.elements[start].endpoints.keys() {
                let (mut at, mut hops) = (start, 0);
                loop {
                    let next = self.address_at(at, endpoint);
                    let element = self.elements.iter().position(|peer| peer.request.data_address == next);
                    let Some(element) = element else { break };
                    (at, hops) = (element, hops + 1);
                    assert!(hops <= self.elements.len(), "a frame for {endpoint} goes in a circle from {start}");
                }
            }
        }
    }

    /// Checks that each rack of a pool has an element if one is in service there, and that a pool without such racks has
    /// any element in service.
    pub(super) fn assert_racks_have_elements(&self) {
        let status = self.state.status();
        for pool in status.pools {
            let table = pool.pool.unwrap();
            let takes =
                |id: u32| self.state.elements.get(&id).is_some_and(|e| e.serving && !e.refused.contains(&table.gaid));
            let in_service = |rack: &str| status.elements.iter().any(|e| e.rack == rack && takes(e.element));
            let has = |rack: &str| table.elements.iter().any(|element| element.rack == rack);
            if table.servers.is_empty() {
                assert!(table.elements.is_empty());
                continue;
            }
            let racks = || pool.racks.iter().map(|rack| rack.rack.as_str());
            for rack in racks() {
                assert_eq!(
                    has(rack),
                    in_service(rack) || table.elements.len() == 1 && has(rack),
                    "{rack:?}: {table:?}"
                );
            }
            let any = status.elements.iter().any(|element| takes(element.element));
            assert_eq!(table.elements.is_empty(), !any, "{table:?}");
            let needed = table.elements.iter().filter(|element| racks().any(|rack| rack == element.rack)).count();
            assert!(needed == table.elements.len() || table.elements.len() == 1, "{table:?}");
        }
    }
}
