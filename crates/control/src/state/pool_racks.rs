//! Racks of a pool: the elements that have its table, and the one by which each party is reached (NetClone §3.7).
//!
//! ```text
//! rack a: callers, servers ── element 1 ◀────────────▶ element 2 ── rack b: callers, servers
//!                                 ▲    ╲
//! rack c, without an element: callers    servers
//! ```
//!
//! Each rack with servers or callers of the pool has the table on one element of this rack, if one is in service. If none
//! of these racks has an element, one element of another rack has the table. The *default element* of a pool, that of the
//! rack without a name or else the one with the lowest id, serves the callers of racks without an element. Servers of
//! such racks are reached directly.
//!
//! An element that gets a pool *joins*: nobody sends to it before it has confirmed its tables. Then the other elements
//! get its address for the endpoints of its rack, and after them the pool's servers and callers. So no frame is lost, and
//! no two elements forward a frame to each other: an element has an endpoint's own address before another one names this
//! element for the endpoint. Elements that are no longer needed leave when no other one joins any more.

use std::collections::BTreeSet;

use pathcall_proto::v1::PoolRackStatus;

use super::pool::Pool;
use super::{ControllerState, Element, ElementRecord, Output, RACKS_MAX, RegistrationRefusal, WaitingParty, record};

impl ControllerState {
    /// Brings a pool to the elements that should have it, and withdraws it from others.
    pub(super) fn place_pool(&mut self, gaid: u32) {
        let wanted = self.elements_wanted(gaid);
        let Some(pool) = self.pools.get_mut(&gaid) else { return };
        let had = pool.record.elements.clone();
        let new: Vec<u32> = wanted.iter().copied().filter(|id| !had.contains(id)).collect();
        for &id in &new {
            record::insert(&mut pool.record.elements, id);
            record::insert(&mut pool.record.joining, id);
            self.changed.pools.insert(gaid);
        }
        let joining = !pool.record.joining.is_empty();
        for &element in &new {
            self.install_pool(gaid, element);
        }
        // Not while others are about to take over.
        for element in had.into_iter().filter(|id| !wanted.contains(id) && (!joining || wanted.is_empty())) {
            self.withdraw_pool(gaid, element);
        }
        self.report_racks(gaid);
        for element in new {
            self.wait(&[element], WaitingParty::PoolElement { gaid, element });
        }
    }

    /// Handles an element's confirmation of its first table of a pool.
    pub(super) fn element_joined(&mut self, gaid: u32, element: u32) {
        let Some(pool) = self.pools.get_mut(&gaid) else { return };
        if !record::remove(&mut pool.record.joining, element) {
            return;
        }
        pool.unreported = true;
        self.changed.pools.insert(gaid);
        self.push_moved_endpoints(gaid, element);
        self.place_pool(gaid);
        self.send_pool_grants_when_confirmed(gaid);
    }

    /// Waits again, after a restart, for the elements that have not confirmed a pool.
    pub(super) fn resume_joins(&mut self) {
        let joins = |pool: &Pool| pool.record.joining.clone();
        let joins: Vec<_> = self.pools.iter().map(|(&gaid, pool)| (gaid, joins(pool))).collect();
        for (gaid, elements) in joins {
            for element in elements {
                self.wait(&[element], WaitingParty::PoolElement { gaid, element });
            }
        }
    }

    /// Elements that should have a pool: one of each rack of its parties, else any one. An element that has the pool
    /// keeps it.
    fn elements_wanted(&self, gaid: u32) -> Vec<u32> {
        let Some(pool) = self.pools.get(&gaid) else { return Vec::new() };
        if !pool.record.servers.iter().any(|server| server.serving) {
            return Vec::new();
        }
        let has = |id: &u32| pool.record.elements.contains(id);
        let takes = |id: &u32, element: &Element| {
            !element.lease.is_expired()
                && (element.serving || has(id))
                && !element.refused.contains(&gaid)
                && !element.record.without_pools
        };
        let usable: Vec<_> = self.elements.iter().filter(|(id, element)| takes(id, element)).collect();
        let best = |rack: Option<&str>| {
            let of_rack = usable.iter().filter(|(_, element)| rack.is_none_or(|rack| element.record.rack == rack));
            of_rack.map(|(id, _)| **id).min_by_key(|id| (!has(id), *id))
        };
        let wanted: BTreeSet<u32> = pool.racks().into_iter().filter_map(|rack| best(Some(rack))).collect();
        if wanted.is_empty() {
            return best(None).into_iter().collect();
        }
        wanted.into_iter().collect()
    }

    /// Elements of a pool to which others send: those that have joined, and `at` itself.
    pub(super) fn joined_elements<'a>(
        &'a self,
        pool: &'a Pool,
        at: Option<u32>,
    ) -> impl Iterator<Item = &'a ElementRecord> {
        let joined = move |id: &&u32| at == Some(**id) || !pool.record.joining.contains(id);
        let joined = pool.record.elements.iter().filter(joined);
        joined.filter_map(|id| self.elements.get(id)).map(|element| &element.record)
    }

    /// Element that serves the callers of racks without an element.
    pub(super) fn default_element<'a>(&'a self, pool: &'a Pool) -> Option<&'a ElementRecord> {
        self.default_element_at(pool, None)
    }

    fn default_element_at<'a>(&'a self, pool: &'a Pool, at: Option<u32>) -> Option<&'a ElementRecord> {
        let unnamed = self.joined_elements(pool, at).find(|element| element.rack.is_empty());
        unnamed.or_else(|| self.joined_elements(pool, at).next())
    }

    /// Element by which the element `at` reaches a party of a rack; `None` to reach it directly.
    pub(super) fn element_of_rack<'a>(
        &'a self,
        pool: &'a Pool,
        at: Option<u32>,
        rack: &str,
        caller: bool,
    ) -> Option<&'a ElementRecord> {
        let own = self.joined_elements(pool, at).find(|element| element.rack == rack);
        own.or_else(|| self.default_element_at(pool, at).filter(|_| caller))
    }

    /// Endpoints whose element may have changed because this element has joined or left: those of its rack, and callers
    /// of racks without an element.
    pub(super) fn endpoints_moved_by(&self, pool: &Pool, element: u32) -> Vec<u32> {
        let rack = self.elements.get(&element).map(|element| element.record.rack.as_str()).unwrap_or_default();
        let served: BTreeSet<&str> = self.joined_elements(pool, None).map(|element| element.rack.as_str()).collect();
        let servers = pool.record.servers.iter().filter(|server| server.rack == rack).map(|server| server.endpoint);
        let moved = |endpoint: &u32| {
            let of = self.endpoints.get(endpoint).map(|caller| caller.rack.as_str());
            of.is_some_and(|of| of == rack || !served.contains(of))
        };
        servers.chain(pool.callers.values().copied().filter(moved)).collect()
    }

    /// Reports each rack with a name and without an element, once until it has one.
    fn report_racks(&mut self, gaid: u32) {
        let Some(pool) = self.pools.get(&gaid) else { return };
        let has_element = |rack: &str| {
            let mut elements = pool.record.elements.iter().filter_map(|id| self.elements.get(id));
            elements.any(|element| element.record.rack == rack)
        };
        let without: BTreeSet<String> =
            pool.racks().into_iter().filter(|rack| !rack.is_empty() && !has_element(rack)).map(str::to_owned).collect();
        let name = pool.record.name.clone();
        let Some(pool) = self.pools.get_mut(&gaid) else { return };
        let reported = std::mem::replace(&mut pool.reported_racks, without.clone());
        let new = without.into_iter().filter(|rack| !reported.contains(rack));
        self.outputs.extend(new.map(|rack| Output::RackWithoutElement { pool: name.clone(), rack }));
    }

    /// Status of a pool by rack.
    pub(super) fn racks_of_pool(&self, pool: &Pool) -> Vec<PoolRackStatus> {
        let status = |rack: &str| {
            let servers = pool.record.servers.iter().filter(|server| server.serving && server.rack == rack).count();
            PoolRackStatus {
                rack: rack.to_owned(),
                element: self.element_of_rack(pool, None, rack, true).map_or(0, |element| element.element),
                servers: u32::try_from(servers).unwrap_or(u32::MAX),
                callers: pool.caller_racks.get(rack).copied().unwrap_or_default(),
            }
        };
        pool.racks().into_iter().map(status).collect()
    }
}

impl Pool {
    /// Checks that there is room for a party of this rack.
    pub(super) fn check_room_for(&self, rack: &str) -> Result<(), RegistrationRefusal> {
        let racks = self.racks();
        if racks.contains(rack) || racks.len() < RACKS_MAX {
            return Ok(());
        }
        Err(RegistrationRefusal::Full { what: "rack of this pool", limit: RACKS_MAX as u32 })
    }

    /// Racks of the pool's servers, also of those that may return, and callers.
    fn racks(&self) -> BTreeSet<&str> {
        let servers = self.record.servers.iter().map(|server| server.rack.as_str());
        servers.chain(self.caller_racks.keys().map(String::as_str)).collect()
    }
}
