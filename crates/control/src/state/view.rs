//! Queries of the state.

use pathcall_proto::v1::{ApplicationStatus, ElementStatus, LookupReply, PoolStatus, StatusReply};

use super::{ControllerState, RegistrationRefusal, Snapshot, memory_bytes};

impl ControllerState {
    /// Address of an application's server (NetRPC §3.2: name look-up).
    ///
    /// # Errors
    /// The application is not registered.
    pub fn lookup(&self, name: &str) -> Result<LookupReply, RegistrationRefusal> {
        let application = self.names.get(name).and_then(|gaid| self.applications.get(gaid));
        let Some(application) = application else {
            return Err(RegistrationRefusal::UnknownApplication(format!("{:?}", super::truncated(name))));
        };
        Ok(LookupReply {
            gaid: application.record.gaid,
            service_address: application.record.service_address.clone(),
            alive: !application.lease.is_expired(),
        })
    }

    /// Name of the application or pool with this id.
    #[must_use]
    pub fn name_of(&self, gaid: u32) -> Option<&str> {
        let application = self.applications.get(&gaid).map(|application| application.record.name.as_str());
        application.or_else(|| self.pools.get(&gaid).map(|pool| pool.record.name.as_str()))
    }

    /// Status of all registrations, without the counters of elements.
    #[must_use]
    pub fn status(&self) -> StatusReply {
        let applications = self.applications.values().map(|application| {
            let record = &application.record;
            let owner = (!application.lease.is_expired()).then_some(record.endpoint);
            let endpoints = owner.into_iter().chain(application.callers.values().copied());
            let (rows, width) = record.memory.map_or((0, record.width), |memory| (memory.rows, memory.width));
            let is_idle_known = record.memory.is_some();
            ApplicationStatus {
                name: record.name.clone(),
                gaid: record.gaid,
                epoch: record.epoch,
                alive: !application.lease.is_expired(),
                service_address: record.service_address.clone(),
                authenticated: record.token_key.is_some(),
                memory: self.memory_grant(record),
                no_memory_reason: self.shown_reason(application),
                endpoints: endpoints.filter_map(|endpoint| self.entry(record.gaid, endpoint)).collect(),
                weight: self.policy.weight(&record.name),
                quota_bytes: self.policy.quota(&record.name),
                memory_bytes: memory_bytes(rows, width),
                share_bytes: memory_bytes(self.fair_share(record.gaid), width),
                idle_ms: is_idle_known.then(|| u64::try_from(application.idle.as_millis()).unwrap_or(u64::MAX)),
                requested_rows: record.rows,
            }
        });
        let elements = self.elements.values().map(|element| {
            let record = &element.record;
            ElementStatus {
                element: record.element,
                alive: !element.lease.is_expired(),
                data_address: record.data_address.clone(),
                control_address: record.control_address.clone(),
                rows: record.rows,
                rows_used: element.rows.used(),
                lanes: record.lanes,
                lanes_used: element.lanes.used(),
                slots: record.slots,
                slots_used: element.slots.used(),
                counters: None,
                rack: record.rack.clone(),
                frame_lanes: record.frame_lanes,
                without_map: record.without_map,
                without_pools: record.without_pools,
            }
        });
        let pools = self.pools.iter().map(|(&gaid, pool)| PoolStatus {
            name: pool.record.name.clone(),
            element: self.default_element(pool).map_or(0, |element| element.element),
            pool: self.pool_status(gaid),
            racks: self.racks_of_pool(pool),
            callers: u32::try_from(pool.callers.len()).unwrap_or(u32::MAX),
            authenticated: pool.record.token_key.is_some(),
        });
        StatusReply {
            applications: applications.collect(),
            elements: elements.collect(),
            nodes: Vec::new(),
            pools: pools.collect(),
        }
    }

    /// Records as they should be in the store once all changes are committed.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            ids: Some(self.ids),
            applications: self.applications.values().map(|application| application.record.clone()).collect(),
            endpoints: self.endpoints.values().cloned().collect(),
            elements: self.elements.values().map(|element| element.record.clone()).collect(),
            pools: self.pools.values().map(|pool| pool.record.clone()).collect(),
        }
    }
}
