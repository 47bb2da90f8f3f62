//! Ids: none is given out twice.
//!
//! A controller counts from a random id on, so that one that has lost its store does not give to somebody what another
//! still has. Whoever had ids from an earlier controller, or chose some at random while there was none, says so when it
//! registers here, and keeps them, unless somebody else has them: to callers an application *is* its GAID.

use std::collections::BTreeSet;

use pathcall_proto::IDS_END;

use super::{IdsRecord, Refusal, Snapshot, State};

/// Ids of one kind that are kept and were not counted here; whoever comes after gets new ones.
const KEPT_MAX: usize = 1 << 16;

/// What an id is of. Applications and pools share GAIDs.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Application,
    Endpoint,
    Element,
}

/// Ids that were not counted here: their holders had them before.
#[derive(Debug, Clone, Default)]
pub(super) struct Kept {
    applications: BTreeSet<u32>,
    endpoints: BTreeSet<u32>,
}

impl Kept {
    /// Of stored records, those that were not counted.
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

impl State {
    /// The next id of a kind; none when all have been used.
    pub(super) fn next_id(&mut self, kind: Kind) -> Result<u32, Refusal> {
        let (next, kept) = match kind {
            Kind::Application => (&mut self.ids.gaid, Some(&self.kept.applications)),
            Kind::Endpoint => (&mut self.ids.endpoint, Some(&self.kept.endpoints)),
            Kind::Element => (&mut self.ids.element, None),
        };
        while kept.is_some_and(|kept| kept.contains(next)) {
            *next += 1;
        }
        let id = *next;
        if id >= IDS_END {
            return Err(Refusal::Full { what: "id: all have been used", limit: IDS_END - 1 });
        }
        *next += 1;
        self.changed.ids = true;
        Ok(id)
    }

    /// The id that its holder has already, if it has one (0: none) and nobody else has it; else the next one. Who was
    /// counted out, and is back, keeps its id, too: an owner may be cut off from here for longer than from its callers.
    pub(super) fn kept_or_next_id(&mut self, kind: Kind, held: u32) -> Result<u32, Refusal> {
        let taken = match kind {
            Kind::Application => self.applications.contains_key(&held) || self.pools.contains_key(&held),
            Kind::Endpoint => self.is_endpoint(held),
            Kind::Element => false,
        };
        let (next, kept) = match kind {
            Kind::Application => (self.ids.gaid, &mut self.kept.applications),
            Kind::Endpoint => (self.ids.endpoint, &mut self.kept.endpoints),
            // Elements begin anew with each controller.
            Kind::Element => return self.next_id(kind),
        };
        let counted = (self.ids.first..next).contains(&held);
        let free = (1..IDS_END).contains(&held) && !taken;
        if free && (counted || kept.len() < KEPT_MAX && kept.insert(held)) {
            return Ok(held);
        }
        self.next_id(kind)
    }

    /// Whether a caller, an owner, an element or a server of a pool has this id.
    fn is_endpoint(&self, id: u32) -> bool {
        self.endpoints.contains_key(&id)
            || self.applications.values().any(|application| application.record.endpoint == id)
            || self.elements.values().any(|element| element.record.endpoint == id)
            || self.pools.values().any(|pool| pool.leases.contains_key(&id))
    }

    /// Nobody has this id any more; should it have been kept, there is room for another.
    pub(super) fn let_go(&mut self, kind: Kind, id: u32) {
        match kind {
            Kind::Application => self.kept.applications.remove(&id),
            Kind::Endpoint => self.kept.endpoints.remove(&id),
            Kind::Element => false,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::super::Timing;
    use super::*;

    #[test]
    fn ids_that_are_kept_are_bounded_and_further_holders_get_new_ones() {
        const AHEAD: u32 = 1 << 20;
        let mut state = State::new(Timing::default(), 77, 1);
        for held in (AHEAD..).take(KEPT_MAX) {
            assert_eq!(state.kept_or_next_id(Kind::Endpoint, held), Ok(held));
        }
        assert_eq!(state.kept_or_next_id(Kind::Endpoint, AHEAD - 1), Ok(1), "there is no room to keep another");
        assert_eq!(state.kept_or_next_id(Kind::Application, AHEAD), Ok(AHEAD), "those of applications are apart");
        state.let_go(Kind::Endpoint, AHEAD);
        assert_eq!(state.kept_or_next_id(Kind::Endpoint, AHEAD - 1), Ok(AHEAD - 1));
    }
}
