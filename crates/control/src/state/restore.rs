//! Restoration of the state from its records.

use pathcall_proto::IDS_END;
use pathcall_wire::Instant;

use super::ids::KeptIds;
use super::pool::{NO_SERVER, Pool};
use super::{Application, ControllerState, Effects, Element, Lease, LeaseTiming, Snapshot};

/// Records that contradict each other: this controller did not write the store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the stored records contradict each other: {0}")]
pub struct CorruptStore(String);

/// Whether a controller assigns such ids.
fn is_id(id: u32) -> bool {
    (1..IDS_END).contains(&id)
}

impl ControllerState {
    /// State with these records. All registrations have the restart grace period to return; the tables of elements are
    /// pushed at once.
    ///
    /// # Errors
    /// Records contradict each other.
    pub fn restore(timing: LeaseTiming, snapshot: Snapshot, now: Instant) -> Result<(Self, Effects), CorruptStore> {
        let Some(ids) = snapshot.ids else {
            return Err(CorruptStore("the record of the next ids is missing".into()));
        };
        let mut state = Self::new(timing, ids.first_epoch, ids.first);
        (state.ids, state.kept) = (ids, KeptIds::of(&snapshot, &ids));
        state.now = now;
        state.changed = super::DirtyRecords::default();
        let expiring = Lease::Expiring(now + timing.restart_grace);
        let lease = |runs| if runs { expiring } else { Lease::Expired };

        for record in snapshot.elements {
            let (id, alive) = (record.element, record.alive);
            // The id may have been kept from an earlier controller.
            if !is_id(id) || record.endpoint >= ids.endpoint {
                return Err(CorruptStore(format!("element {id} has ids that were never assigned")));
            }
            let quarantined = record.quarantined.len();
            let element = Element { lease: lease(alive), ..Element::new(record, now) };
            if element.record.quarantined.len() != quarantined {
                return Err(CorruptStore(format!("element {id} has invalid quarantined slots")));
            }
            state.elements.insert(id, element);
        }
        for record in snapshot.applications {
            let gaid = record.gaid;
            // The id may have been kept from an earlier controller.
            if !is_id(gaid) || !is_id(record.endpoint) {
                return Err(CorruptStore(format!("application {gaid} has ids that were never assigned")));
            }
            if let Some(memory) = record.memory {
                let taken = state.elements.get_mut(&memory.element).is_some_and(|element| {
                    let lanes = memory.rows.checked_mul(memory.width).unwrap_or(0);
                    element.rows.take_at(memory.row_base, memory.rows) && element.lanes.take_at(memory.lane_base, lanes)
                });
                if !taken {
                    return Err(CorruptStore(format!("the memory of application {gaid} is invalid or in use")));
                }
            }
            if state.names.insert(record.name.clone(), gaid).is_some() {
                return Err(CorruptStore(format!("two applications have the name {:?}", record.name)));
            }
            let lease = lease(record.owned);
            // The owner reports silent elements again.
            state.applications.insert(gaid, Application::new(record, lease, now));
        }
        for record in snapshot.pools {
            let gaid = record.gaid;
            if gaid >= ids.gaid || record.servers.iter().any(|server| server.endpoint >= ids.endpoint) {
                return Err(CorruptStore(format!("pool {gaid} has ids that were never assigned")));
            }
            if !record.elements.iter().all(|element| state.elements.contains_key(element)) {
                return Err(CorruptStore(format!("an element of pool {gaid} does not exist")));
            }
            if state.applications.contains_key(&gaid) || state.pool_names.insert(record.name.clone(), gaid).is_some() {
                return Err(CorruptStore(format!("the id or the name of pool {:?} is in use", record.name)));
            }
            let leases = record.servers.iter().map(|server| (server.endpoint, expiring)).collect();
            state.pools.insert(gaid, Pool { leases, ..Pool::new(record) });
        }
        for record in snapshot.endpoints {
            let endpoint = record.endpoint;
            if let Some(pool) = state.pools.get_mut(&record.gaid) {
                if endpoint >= ids.endpoint {
                    return Err(CorruptStore(format!("endpoint {endpoint} was never assigned")));
                }
                if record.server == NO_SERVER {
                    state.pool_callers_expiring.insert(endpoint, now + timing.restart_grace);
                }
                pool.add_caller(&record);
                state.endpoints.insert(endpoint, record);
                continue;
            }
            let Some(application) = state.applications.get_mut(&record.gaid) else {
                return Err(CorruptStore(format!("endpoint {endpoint} belongs to no application")));
            };
            if !is_id(endpoint) {
                return Err(CorruptStore(format!("endpoint {endpoint} was never assigned")));
            }
            if record.slots > 0 {
                let element = application.record.memory.and_then(|memory| state.elements.get_mut(&memory.element));
                if !element.is_some_and(|element| element.slots.take_at(record.slot_base, record.slots)) {
                    return Err(CorruptStore(format!("the slots of endpoint {endpoint} are invalid or in use")));
                }
            }
            application.callers.insert((record.incarnation, record.data_address.clone()), endpoint);
            state.endpoints.insert(endpoint, record);
        }

        let alive = state.elements.iter().filter(|(_, element)| !element.lease.is_expired());
        let alive: Vec<_> = alive.map(|(&id, _)| id).collect();
        for id in alive {
            state.synchronize(id);
        }
        state.resume_joins();
        let effects = state.effects();
        Ok((state, effects))
    }
}
