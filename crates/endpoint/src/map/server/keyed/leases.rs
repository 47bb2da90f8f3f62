//! Who may hold locks: sessions of callers, and their ends.
//!
//! A caller that wants locks asks for a lease and goes on asking. Whoever is silent for a lease's time
//! has lost all that it held: here at once, in the element when that has been asked lock by lock
//! ([`super::free`]). Until then the caller gets no new session, so that nothing of the new one can be
//! freed for the old one's.

use std::collections::BTreeMap;
use std::time::Duration;

use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{BaseRepr, Flags, Instant, Kind, MapFlags, MapFrame, MapRepr, Mutant, mutant};

use super::super::super::{Dest, Outbox};
use super::super::Shared;
use super::KeyedTruth;

/// Sessions by endpoint.
pub(super) struct Leases {
    sessions: BTreeMap<u32, Session>,
    lease: Duration,
    /// Not later than the first end of one.
    wake: Option<Instant>,
}

struct Session {
    /// The last request that was heard.
    request: u32,
    number: u32,
    /// When it ends; of one that has ended, when the element is asked again.
    until: Instant,
    live: bool,
}

impl Leases {
    pub(super) fn new(lease: Duration) -> Self {
        Self { sessions: BTreeMap::new(), lease, wake: None }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.wake
    }

    /// Whether the endpoint may be granted locks in this session.
    pub(super) fn is_live(&self, endpoint: u32, number: u32) -> bool {
        self.sessions.get(&endpoint).is_some_and(|session| session.live && session.number == number)
    }

    /// Whether the endpoint may hold locks.
    pub(super) fn may_hold(&self, endpoint: u32) -> bool {
        self.sessions.get(&endpoint).is_some_and(|session| session.live)
    }

    /// The endpoint has left.
    pub(super) fn forget(&mut self, endpoint: u32) {
        self.sessions.remove(&endpoint);
    }
}

impl KeyedTruth {
    /// A caller asks for locks to be lent to it, or says that it needs none.
    pub(in super::super) fn lease(
        &mut self,
        now: Instant,
        frame: &MapFrame<&[u8]>,
        shared: &mut Shared,
        out: &mut impl Outbox,
    ) -> Option<()> {
        let (base, asked) = (frame.base(), frame.map().tag());
        let endpoint = base.src();
        let settled = shared.members.get(&endpoint)?.settled;
        let fresh = Session { request: 0, number: 0, until: now, live: false };
        let session = self.leases.sessions.entry(endpoint).or_insert(fresh);
        if base.round() <= session.request || asked == 0 {
            return None;
        }
        session.request = base.round();
        let resigns = frame.map().has(MapFlags::CLEAR);
        let ended = !resigns && !session.live && session.number == asked;
        let number = if resigns {
            // It holds none, and nothing of it is on its way.
            session.live = false;
            session.until = Instant(u64::MAX);
            0
        } else if ended {
            // Its answer may have been lost: so may be all that it held.
            0
        } else {
            if session.live && session.number != asked {
                self.lapse(now, endpoint, shared);
            }
            self.lend(now, endpoint, asked, settled)
        };
        let base = BaseRepr { flags: Flags::FROM_SERVER | Flags::CROSS, ..shared.answer(Kind::MapLent, frame) };
        let flags = MapFlags::BARE | if ended { MapFlags::CLEAR } else { 0 };
        let map = MapRepr { flags, tag: number, ..MapRepr::default() };
        let len = frame_len(map.flags, 0, 0);
        emit(&base, &map, &mut shared.scratch[..len]);
        shared.send(Dest::Endpoint(endpoint), len, out);
        Some(())
    }

    /// Lends locks in this session; 0 as long as that can't be.
    fn lend(&mut self, now: Instant, endpoint: u32, number: u32, settled: bool) -> u32 {
        let freeing = self.freeing.is_about(endpoint);
        let Leases { sessions, lease, wake } = &mut self.leases;
        let Some(session) = sessions.get_mut(&endpoint) else { return 0 };
        if !session.live && (freeing || !settled) {
            return 0;
        }
        (session.number, session.live) = (number, true);
        session.until = now + *lease;
        *wake = Some(wake.map_or(session.until, |wake| wake.min(session.until)));
        session.number
    }

    /// A session is over: what was held in it is free.
    fn lapse(&mut self, now: Instant, endpoint: u32, shared: &Shared) {
        if let Some(session) = self.leases.sessions.get_mut(&endpoint) {
            session.live = false;
            session.until = now + self.leases.lease;
            self.leases.wake = Some(self.leases.wake.map_or(session.until, |wake| wake.min(session.until)));
        }
        self.release_all(endpoint);
        self.free_away(now, endpoint, shared);
        self.reopen = true;
    }

    /// Ends the sessions of callers that were silent for too long. What comes late to the element of
    /// one that has ended is freed in the next round.
    pub(super) fn poll_leases(&mut self, now: Instant, shared: &Shared) {
        if self.leases.wake.is_none_or(|wake| now < wake) {
            return;
        }
        if mutant::on(Mutant::LeaseForEver) {
            self.leases.wake = None;
            return;
        }
        let over = self.leases.sessions.iter().filter(|(_, session)| session.until <= now);
        let over: Vec<u32> = over.map(|(endpoint, _)| *endpoint).collect();
        for endpoint in over {
            self.lapse(now, endpoint, shared);
        }
        let ends = self.leases.sessions.values().map(|session| session.until);
        self.leases.wake = ends.filter(|until| until.0 != u64::MAX).min();
    }
}
