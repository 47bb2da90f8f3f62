//! The state made again of its records.

use std::collections::BTreeMap;

use pathcall_proto::IDS_END;
use pathcall_wire::Instant;

use super::ids::Kept;
use super::pool::{NOBODY, Pool};
use super::{Application, Effects, Element, Lease, Snapshot, State, Timing};

/// Records that contradict each other: the store is not one that this controller wrote.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the stored records contradict each other: {0}")]
pub struct Corrupt(String);

/// Whether a controller gives out such ids.
fn is_id(id: u32) -> bool {
    (1..IDS_END).contains(&id)
}

impl State {
    /// The state whose records are `snapshot`. Everything registered has the restart grace to come
    /// back; the tables of elements are pushed at once.
    ///
    /// # Errors
    /// When records contradict each other.
    pub fn restore(timing: Timing, snapshot: Snapshot, now: Instant) -> Result<(Self, Effects), Corrupt> {
        let Some(ids) = snapshot.ids else {
            return Err(Corrupt("no record says where ids go on".into()));
        };
        let mut state = Self::new(timing, ids.first_epoch, ids.first);
        (state.ids, state.kept) = (ids, Kept::of(&snapshot, &ids));
        state.now = now;
        state.changed = super::Changed::default();
        let lapsing = Lease::Lapsing(now + timing.restart_grace);
        let lease = |runs| if runs { lapsing } else { Lease::Over };

        for record in snapshot.elements {
            let (id, alive) = (record.element, record.alive);
            if id >= ids.element || record.endpoint >= ids.endpoint {
                return Err(Corrupt(format!("element {id} has ids that were never given out")));
            }
            let quarantined = record.quarantined.len();
            let element = Element { lease: lease(alive), ..Element::new(record, now) };
            if element.record.quarantined.len() != quarantined {
                return Err(Corrupt(format!("the quarantined slots of element {id} are not its own")));
            }
            state.elements.insert(id, element);
        }
        for record in snapshot.applications {
            let gaid = record.gaid;
            // Maybe kept from an earlier controller, and not counted here.
            if !is_id(gaid) || !is_id(record.endpoint) {
                return Err(Corrupt(format!("application {gaid} has ids that were never given out")));
            }
            if let Some(memory) = record.memory {
                let taken = state.elements.get_mut(&memory.element).is_some_and(|element| {
                    let lanes = memory.rows.checked_mul(memory.width).unwrap_or(0);
                    element.rows.take_at(memory.row_base, memory.rows) && element.lanes.take_at(memory.lane_base, lanes)
                });
                if !taken {
                    return Err(Corrupt(format!("the memory of application {gaid} is not its own")));
                }
            }
            if state.names.insert(record.name.clone(), gaid).is_some() {
                return Err(Corrupt(format!("two applications have the name {:?}", record.name)));
            }
            let lease = lease(record.owned);
            // Its owner says anew which elements are silent.
            let (callers, silent) = (BTreeMap::new(), Vec::new());
            state.applications.insert(gaid, Application { record, lease, callers, untold: true, silent });
        }
        for record in snapshot.pools {
            let gaid = record.gaid;
            if gaid >= ids.gaid || record.servers.iter().any(|server| server.endpoint >= ids.endpoint) {
                return Err(Corrupt(format!("pool {gaid} has ids that were never given out")));
            }
            if record.element.is_some_and(|element| !state.elements.contains_key(&element)) {
                return Err(Corrupt(format!("the element of pool {gaid} is none")));
            }
            if state.applications.contains_key(&gaid) || state.pool_names.insert(record.name.clone(), gaid).is_some() {
                return Err(Corrupt(format!("something else has the id or the name of pool {:?}", record.name)));
            }
            let leases = record.servers.iter().map(|server| (server.endpoint, lapsing)).collect();
            state.pools.insert(gaid, Pool { record, leases, callers: BTreeMap::new(), untold: true });
        }
        for record in snapshot.endpoints {
            let endpoint = record.endpoint;
            if let Some(pool) = state.pools.get_mut(&record.gaid) {
                if endpoint >= ids.endpoint {
                    return Err(Corrupt(format!("endpoint {endpoint} was never given out")));
                }
                if record.server == NOBODY {
                    state.pool_callers_lapsing.insert(endpoint, now + timing.restart_grace);
                }
                pool.callers.insert((record.incarnation, record.data_address.clone()), endpoint);
                state.endpoints.insert(endpoint, record);
                continue;
            }
            let Some(application) = state.applications.get_mut(&record.gaid) else {
                return Err(Corrupt(format!("endpoint {endpoint} belongs to no application")));
            };
            if !is_id(endpoint) {
                return Err(Corrupt(format!("endpoint {endpoint} was never given out")));
            }
            if record.slots > 0 {
                let element = application.record.memory.and_then(|memory| state.elements.get_mut(&memory.element));
                if !element.is_some_and(|element| element.slots.take_at(record.slot_base, record.slots)) {
                    return Err(Corrupt(format!("the slots of endpoint {endpoint} are not its own")));
                }
            }
            application.callers.insert((record.incarnation, record.data_address.clone()), endpoint);
            state.endpoints.insert(endpoint, record);
        }

        let alive = state.elements.iter().filter(|(_, element)| !element.lease.is_over());
        let alive: Vec<_> = alive.map(|(&id, _)| id).collect();
        for id in alive {
            state.synchronize(id);
        }
        let effects = state.effects();
        Ok((state, effects))
    }
}
