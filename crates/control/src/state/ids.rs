//! Assignment of ids: none is assigned twice.
//!
//! A controller counts from a random id, so that one that has lost its store does not assign an id that another party
//! still has. A party that has ids of an earlier controller, or chose some at random while there was no controller,
//! sends them when it registers and keeps them, unless another party has them: for callers an application *is* its
//! GAID.

use std::collections::BTreeSet;

use pathcall_proto::IDS_END;
use pathcall_wire::clone::switch_id;

use super::{ControllerState, IdsRecord, RegistrationRefusal, Snapshot};

/// Maximum number of kept ids of one kind that this controller has not assigned; further holders get new ids.
const KEPT_MAX: usize = 1 << 16;

/// Kind of an id. Applications and pools share GAIDs.
#[derive(Debug, Clone, Copy)]
pub(super) enum IdKind {
    Application,
    Endpoint,
    Element,
}

/// Ids that this controller has not assigned: their holders had them before.
#[derive(Debug, Clone, Default)]
pub(super) struct KeptIds {
    applications: BTreeSet<u32>,
    endpoints: BTreeSet<u32>,
}

impl KeptIds {
    /// Kept ids among the stored records.
    pub(super) fn of(snapshot: &Snapshot, ids: &IdsRecord) -> Self {
        let owners = snapshot.applications.iter().map(|application| application.endpoint);
        let callers = snapshot.endpoints.iter().map(|caller| caller.endpoint);
        let counted = |next: u32, id: u32| (ids.first..next).contains(&id);
        let applications = snapshot.applications.iter().map(|application| application.gaid);
        Self {
            applications: applications.filter(|&id| !counted(ids.gaid, id)).collect(),
            endpoints: owners.chain(callers).filter(|&id| !counted(ids.endpoint, id)).collect(),
        }
    }
}

impl ControllerState {
    /// Next id of a kind; an error when all have been used.
    pub(super) fn next_id(&mut self, kind: IdKind) -> Result<u32, RegistrationRefusal> {
        let (next, kept) = match kind {
            IdKind::Application => (&mut self.ids.gaid, Some(&self.kept.applications)),
            IdKind::Endpoint => (&mut self.ids.endpoint, Some(&self.kept.endpoints)),
            IdKind::Element => (&mut self.ids.element, None),
        };
        while kept.is_some_and(|kept| kept.contains(next)) {
            *next += 1;
        }
        let id = *next;
        if id >= IDS_END {
            return Err(RegistrationRefusal::Full { what: "id: all have been used", limit: IDS_END - 1 });
        }
        *next += 1;
        self.changed.ids = true;
        Ok(id)
    }

    /// Id that its holder already has (0 for none), if no other party has it; else the next id. A holder that was
    /// removed and returns keeps its id, too: an owner may be cut off from the controller for longer than from its
    /// callers.
    pub(super) fn kept_or_next_id(&mut self, kind: IdKind, held: u32) -> Result<u32, RegistrationRefusal> {
        let taken = match kind {
            IdKind::Application => self.applications.contains_key(&held) || self.pools.contains_key(&held),
            IdKind::Endpoint => self.is_endpoint(held),
            IdKind::Element => false,
        };
        let (next, kept) = match kind {
            IdKind::Application => (self.ids.gaid, &mut self.kept.applications),
            IdKind::Endpoint => (self.ids.endpoint, &mut self.kept.endpoints),
            // Elements have no ids before they register.
            IdKind::Element => return self.next_id(kind),
        };
        let counted = (self.ids.first..next).contains(&held);
        let free = (1..IDS_END).contains(&held) && !taken;
        if free && (counted || kept.len() < KEPT_MAX && kept.insert(held)) {
            return Ok(held);
        }
        self.next_id(kind)
    }

    /// Id of a new element: the one that it has of an earlier registration (0 for none), or else the next one. Frames
    /// name the element that has decided about a call by 16 bits (NetClone §3.7: switch id), which no other known element
    /// shares.
    pub(super) fn element_id(&mut self, held: u32) -> Result<u32, RegistrationRefusal> {
        let is_free = |state: &Self, id: u32| state.elements.keys().all(|known| switch_id(*known) != switch_id(id));
        if (1..IDS_END).contains(&held) && is_free(self, held) {
            return Ok(held);
        }
        loop {
            let id = self.next_id(IdKind::Element)?;
            if is_free(self, id) {
                return Ok(id);
            }
        }
    }

    /// Whether a caller, an owner, an element or a server of a pool has this id.
    fn is_endpoint(&self, id: u32) -> bool {
        self.endpoints.contains_key(&id)
            || self.applications.values().any(|application| application.record.endpoint == id)
            || self.elements.values().any(|element| element.record.endpoint == id)
            || self.pools.values().any(|pool| pool.leases.contains_key(&id))
    }

    /// Records that an id is no longer used; a kept id makes room for another.
    pub(super) fn free_id(&mut self, kind: IdKind, id: u32) {
        match kind {
            IdKind::Application => self.kept.applications.remove(&id),
            IdKind::Endpoint => self.kept.endpoints.remove(&id),
            IdKind::Element => false,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::super::LeaseTiming;
    use super::*;

    #[test]
    fn kept_ids_are_limited() {
        const AHEAD: u32 = 1 << 20;
        let mut state = ControllerState::new(LeaseTiming::default(), 77, 1);
        for held in (AHEAD..).take(KEPT_MAX) {
            assert_eq!(state.kept_or_next_id(IdKind::Endpoint, held), Ok(held));
        }
        assert_eq!(state.kept_or_next_id(IdKind::Endpoint, AHEAD - 1), Ok(1), "there is no room to keep another");
        assert_eq!(state.kept_or_next_id(IdKind::Application, AHEAD), Ok(AHEAD), "those of applications are apart");
        state.free_id(IdKind::Endpoint, AHEAD);
        assert_eq!(state.kept_or_next_id(IdKind::Endpoint, AHEAD - 1), Ok(AHEAD - 1));
    }
}
