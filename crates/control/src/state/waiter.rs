//! Parties that wait for the confirmations of elements, so that nobody sends a frame that an element does not admit yet.
//!
//! A party waits for all pushes so far of one element, or of several elements, and is answered once, after the last of
//! them.

use pathcall_proto::v1::ElementGrant;
use pathcall_wire::Instant;

use super::{ControlCallId, ControllerState, ElementRecord, Lease, Output, Registrant};

/// Party that waits for an element's confirmation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiter {
    /// Number of the last push that concerns the party.
    pub(super) after: u64,
    pub(super) since: Instant,
    pub(super) party: WaitingParty,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitingParty {
    Application(u32),
    /// Servers of a pool, which wait for all of its elements.
    Pool(u32),
    /// Element that gets a pool: the others and the pool's parties may then send to it.
    PoolElement {
        gaid: u32,
        element: u32,
    },
    Endpoint {
        call: ControlCallId,
        gaid: u32,
        endpoint: u32,
    },
    Element(ControlCallId),
}

impl WaitingParty {
    /// Whether the party belongs to this application or pool.
    pub(super) fn concerns(self, application: u32) -> bool {
        match self {
            Self::Application(gaid)
            | Self::Pool(gaid)
            | Self::PoolElement { gaid, .. }
            | Self::Endpoint { gaid, .. } => gaid == application,
            Self::Element(_) => false,
        }
    }
}

impl ControllerState {
    /// Makes a party wait until all pushes so far of these elements are confirmed. A party that already waits waits for
    /// the later ones.
    pub(super) fn wait(&mut self, elements: &[u32], party: WaitingParty) {
        for id in elements {
            let Some(element) = self.elements.get_mut(id) else { continue };
            element.waiters.retain(|waiter| waiter.party != party);
            element.waiters.push(Waiter { after: element.pushed, since: self.now, party });
        }
        for &id in elements {
            self.wake_waiters(id);
        }
    }

    /// Answers the parties whose pushes are confirmed. An element that has confirmed its complete tables for the first
    /// time comes into service, and is offered to applications without memory and to the pools of its rack.
    pub(super) fn wake_waiters(&mut self, id: u32) {
        let Some(element) = self.elements.get_mut(&id) else { return };
        let pending = element.unconfirmed.front().map_or(u64::MAX, |(seq, _)| *seq);
        let ready: Vec<_> = element.waiters.extract_if(.., |waiter| waiter.after < pending).collect();
        let begins = !element.serving && !element.lease.is_expired() && element.unconfirmed.is_empty();
        element.serving |= begins;
        self.answer(ready.into_iter().map(|waiter| waiter.party));
        if begins {
            self.begin_polling(id);
            self.note_memory_change();
            let held = |lease| matches!(lease, Lease::Held(_));
            let without = self.applications.iter().filter(|(_, a)| held(a.lease) && a.record.memory.is_none());
            let without: Vec<_> = without.map(|(&gaid, _)| gaid).collect();
            for gaid in without {
                self.offer(gaid);
                self.answer_when_confirmed(gaid);
            }
            for gaid in self.pools.keys().copied().collect::<Vec<_>>() {
                self.place_pool(gaid);
                self.send_pool_grants_when_confirmed(gaid);
            }
        }
    }

    /// Answers parties, except those that wait for another element, too.
    pub(super) fn answer(&mut self, waiting: impl Iterator<Item = WaitingParty>) {
        for party in waiting {
            if self.still_waits(party) {
                continue;
            }
            match party {
                WaitingParty::Application(gaid) => self.send_application_grant(gaid),
                WaitingParty::Pool(gaid) => self.send_pool_grants(gaid),
                WaitingParty::PoolElement { gaid, element } => self.element_joined(gaid, element),
                WaitingParty::Endpoint { call, gaid, endpoint } => self.answer_endpoint(call, gaid, endpoint),
                WaitingParty::Element(call) => self.send_element_grant(call),
            }
        }
    }

    /// Whether a party waits for any element.
    pub(super) fn still_waits(&self, party: WaitingParty) -> bool {
        self.elements.values().any(|element| element.waiters.iter().any(|waiter| waiter.party == party))
    }

    fn send_element_grant(&mut self, call: ControlCallId) {
        let Some(Registrant::Element(id)) = self.streams.get(&call) else { return };
        let Some(ElementRecord { element, endpoint, .. }) = self.elements.get(id).map(|element| &element.record) else {
            return;
        };
        let grant = ElementGrant { element: *element, endpoint: *endpoint };
        self.outputs.push(Output::Element(call, Ok(grant)));
    }
}
