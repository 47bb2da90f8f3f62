//! Lock leases at the owner: sessions of callers, and their ends.
//!
//! A caller that needs locks requests a lease and renews it. A caller that is silent for the duration of a lease loses
//! all its locks: at the server at once, in the element by a reclaim, lock by lock ([`super::reclaim`]). The caller
//! gets no new session before the reclaim ends, so that the reclaim never frees a lock of the new session.

use std::collections::BTreeMap;
use std::time::Duration;

use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{BaseRepr, Flags, FrameKind, Instant, MapFlags, MapFrame, MapRepr, Mutant, mutant};

use super::super::super::{Dest, FrameSink};
use super::super::OwnerContext;
use super::KeyedStore;

/// Sessions by endpoint.
pub(super) struct Leases {
    sessions: BTreeMap<u32, Session>,
    lease: Duration,
    /// Next time to check, at or before the first end of a session.
    wake: Option<Instant>,
}

/// Lock session of a caller.
struct Session {
    /// Number of the last request.
    request: u32,
    number: u32,
    /// End of the session; after that, time of the next reclaim in the element.
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

    /// Removes the session of an endpoint that has left.
    pub(super) fn remove(&mut self, endpoint: u32) {
        self.sessions.remove(&endpoint);
    }
}

impl KeyedStore {
    /// Handles a lease request, or the notice that a caller needs no lease.
    pub(in super::super) fn on_lease_request(
        &mut self,
        now: Instant,
        frame: &MapFrame<&[u8]>,
        shared: &mut OwnerContext,
        out: &mut impl FrameSink,
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
            // The caller holds no locks, and no frame of it is in flight.
            session.live = false;
            session.until = Instant(u64::MAX);
            0
        } else if ended {
            // The session has ended, and the caller may have missed the notice.
            0
        } else {
            if session.live && session.number != asked {
                self.end_session(now, endpoint, shared);
            }
            self.renew_session(now, endpoint, asked, settled)
        };
        let base = BaseRepr { flags: Flags::FROM_SERVER | Flags::CROSS, ..shared.answer(FrameKind::MapLent, frame) };
        let flags = MapFlags::BARE | if ended { MapFlags::CLEAR } else { 0 };
        let map = MapRepr { flags, tag: number, ..MapRepr::default() };
        let len = frame_len(map.flags, 0, 0);
        emit(&base, &map, &mut shared.scratch[..len]);
        shared.send(Dest::Endpoint(endpoint), len, out);
        Some(())
    }

    /// Starts or renews the lease of this session. Returns its number, or 0 if no lease is possible yet.
    fn renew_session(&mut self, now: Instant, endpoint: u32, number: u32, settled: bool) -> u32 {
        let freeing = self.reclaim.is_reclaiming(endpoint);
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

    /// Ends a session and frees its locks.
    fn end_session(&mut self, now: Instant, endpoint: u32, shared: &OwnerContext) {
        if let Some(session) = self.leases.sessions.get_mut(&endpoint) {
            session.live = false;
            session.until = now + self.leases.lease;
            self.leases.wake = Some(self.leases.wake.map_or(session.until, |wake| wake.min(session.until)));
        }
        self.release_all(endpoint);
        self.reclaim_from_element(now, endpoint, shared);
        self.recheck_locks = true;
    }

    /// Ends expired sessions. Locks that late frames of an ended session take in the element are freed by the next
    /// reclaim.
    pub(super) fn poll_leases(&mut self, now: Instant, shared: &OwnerContext) {
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
            self.end_session(now, endpoint, shared);
        }
        let ends = self.leases.sessions.values().map(|session| session.until);
        self.leases.wake = ends.filter(|until| until.0 != u64::MAX).min();
    }
}
