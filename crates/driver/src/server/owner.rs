//! State of an owner's driver: the state machine, the addresses of its members, and who waits for what.

use std::collections::HashMap;
use std::net::SocketAddr;

use pathcall_wire::{Instant, TokenKey};
use tokio::sync::{oneshot, watch};

use super::EpochInvalidated;
use super::handled::SumCollectors;
use crate::carrier::{CarriedStats, Carrier};
use crate::endpoint_driver::StateMachine;
use crate::store::{StoreState, StoreThread};
use pathcall_endpoint::map::client::CallId;
use pathcall_endpoint::map::server::durable::ResumeSecret;
use pathcall_endpoint::map::server::lone::LoneCallers;
use pathcall_endpoint::map::server::{Event, Joined, MapServer, Member, Permissions, QueryId, QueryResult};
use pathcall_endpoint::map::{CallError, Dest, FrameSink, Output};
use pathcall_endpoint::tables::FixedHashMap;

/// Driver state of an owner.
pub(super) struct Owner {
    pub(super) server: MapServer,
    pub(super) element: Option<SocketAddr>,
    /// Addresses of the members, by endpoint.
    pub(super) members: FixedHashMap<u32, SocketAddr>,
    /// Carriers that replace UDP for a member, as long as their streams last.
    pub(super) carriers: FixedHashMap<u32, Carrier>,
    pub(super) carried: CarriedStats,
    pub(super) queries: HashMap<QueryId, oneshot::Sender<QueryResult>>,
    /// Calls of plain gRPC clients, with the receivers of their outcomes.
    pub(super) lone: LoneCallers,
    pub(super) lone_calls: FixedHashMap<CallId, oneshot::Sender<Result<Output, CallError>>>,
    /// Sums for the server's handler.
    pub(super) handled: SumCollectors,
    /// Additions that wait until no caller reads their keys in the element.
    pub(super) adding: Vec<oneshot::Sender<()>>,
    /// Join requests that cannot be admitted yet.
    pub(super) joining: Vec<JoinRequest>,
    pub(super) next: u64,
    pub(super) terms: u64,
    /// Writer of the owner's state, if it has a store, and the number of snapshots so far.
    pub(super) store: Option<StoreThread>,
    snapshots: u64,
    /// Latest notification that the element's values have become invalid.
    pub(super) invalidated: watch::Sender<Option<EpochInvalidated>>,
    /// Notified when the application is in use again.
    used: watch::Sender<()>,
}

/// Join request of a caller.
pub(super) struct JoinRequest {
    pub(super) member: Member,
    pub(super) may: Permissions,
    /// Source and destination of the caller's frames.
    pub(super) address: Option<SocketAddr>,
    pub(super) secret: ResumeSecret,
    /// Next chunk of a worker of sums that joins again.
    pub(super) next_chunk: Option<u64>,
    pub(super) reply: oneshot::Sender<Result<Joined, CallError>>,
}

/// Router of outgoing frames: to an address, to a carrier, or to a caller in this process.
pub(super) struct FrameRouter<'a, F> {
    pub(super) lone: Option<&'a mut LoneCallers>,
    pub(super) element: Option<SocketAddr>,
    pub(super) members: &'a FixedHashMap<u32, SocketAddr>,
    pub(super) carriers: &'a mut FixedHashMap<u32, Carrier>,
    pub(super) carried: &'a mut CarriedStats,
    pub(super) send: F,
}

impl<F: FnMut(SocketAddr, &[u8])> FrameSink for FrameRouter<'_, F> {
    fn send(&mut self, to: Dest, frame: &[u8]) {
        let to = match to {
            Dest::Element => self.element,
            _ if self.lone.as_mut().is_some_and(|lone| lone.take_frame(to, frame)) => return,
            Dest::Inline(endpoint) => self.members.get(&endpoint).copied(),
            Dest::Endpoint(endpoint) => match self.carriers.get_mut(&endpoint) {
                Some(carrier) => return self.carried.queue(carrier, frame),
                None => self.members.get(&endpoint).copied(),
            },
        };
        if let Some(to) = to {
            (self.send)(to, frame);
        }
    }
}

impl Owner {
    pub(super) fn new(
        server: MapServer,
        key: Option<TokenKey>,
        element: Option<SocketAddr>,
        invalidated: watch::Sender<Option<EpochInvalidated>>,
        used: watch::Sender<()>,
    ) -> Self {
        Self {
            server,
            element,
            members: FixedHashMap::default(),
            carriers: FixedHashMap::default(),
            carried: CarriedStats::default(),
            queries: HashMap::new(),
            lone: LoneCallers::new(key),
            lone_calls: FixedHashMap::default(),
            handled: SumCollectors::default(),
            adding: Vec::new(),
            joining: Vec::new(),
            next: 0,
            terms: 0,
            store: None,
            snapshots: 0,
            invalidated,
            used,
        }
    }

    /// Handles what the store has reached: outputs that have waited for it leave.
    pub(super) fn on_store(&mut self, state: &StoreState) {
        if state.failure.is_some() {
            // Nothing that waits ever leaves.
            self.store = None;
            return;
        }
        self.server.on_persisted(state.persisted);
        if state.snapshots_wanted > self.snapshots {
            self.snapshots = state.snapshots_wanted;
            self.hand_over_changes();
            if let Some(store) = &self.store {
                store.replace(self.server.snapshot());
            }
        }
    }

    /// Hands all changes so far over to the store.
    fn hand_over_changes(&mut self) {
        if let Some(store) = &self.store
            && let Some(batch) = self.server.take_batch()
        {
            store.append(batch);
        }
    }

    fn invalidate_epoch(&mut self, silent: bool) {
        self.invalidated.send_replace(Some(EpochInvalidated { terms: self.terms, silent }));
    }

    /// Admits waiting callers, in the order of their requests.
    fn admit_waiting(&mut self, now: Instant) {
        while !self.joining.is_empty() && self.server.can_admit() {
            let JoinRequest { member, may, address, secret, next_chunk, reply } = self.joining.remove(0);
            if reply.is_closed() {
                continue;
            }
            next_chunk.into_iter().for_each(|chunk| self.server.note_next_chunk(chunk));
            let joined = self.server.join(now, member);
            if joined.is_ok() {
                self.server.set_permissions(member.endpoint, member.incarnation, may);
                self.server.set_secret(member.endpoint, secret);
            }
            if let (Ok(_), Some(address)) = (&joined, address) {
                self.members.insert(member.endpoint, address);
            }
            // If the caller no longer waits, its closed stream reports that it left.
            let _ = reply.send(joined);
        }
    }

    pub(super) fn split<F: FnMut(SocketAddr, &[u8])>(&mut self, send: F) -> (&mut MapServer, FrameRouter<'_, F>) {
        let Self { server, lone, element, members, carriers, carried, .. } = self;
        (server, FrameRouter { lone: Some(lone), element: *element, members, carriers, carried, send })
    }

    /// Exchanges sums and results with the calls of the server's handler.
    fn poll_handled<F: FnMut(SocketAddr, &[u8])>(&mut self, now: Instant, send: F) {
        let Self { server, handled, lone, element, members, carriers, carried, .. } = self;
        let lone = Some(lone);
        handled.exchange(now, server, &mut FrameRouter { lone, element: *element, members, carriers, carried, send });
    }

    /// Exchanges frames with the callers in this process.
    fn poll_lone<F: FnMut(SocketAddr, &[u8])>(&mut self, now: Instant, send: F) {
        let Self { server, lone, element, members, carriers, carried, .. } = self;
        lone.poll(now, server, &mut FrameRouter { lone: None, element: *element, members, carriers, carried, send });
    }
}

impl StateMachine for Owner {
    fn handle(&mut self, now: Instant, _: SocketAddr, frame: &mut [u8], ce: bool, send: impl FnMut(SocketAddr, &[u8])) {
        let (server, mut router) = self.split(send);
        match ce {
            true => server.handle_marked(now, frame, &mut router),
            false => server.handle(now, frame, &mut router),
        }
    }

    fn poll(&mut self, now: Instant, mut send: impl FnMut(SocketAddr, &[u8])) {
        self.admit_waiting(now);
        let (server, mut router) = self.split(&mut send);
        server.poll(now, &mut router);
        self.poll_handled(now, &mut send);
        self.poll_lone(now, send);
    }

    fn deliver_events(&mut self) {
        while let Some(event) = self.server.next_event() {
            match event {
                Event::Answered(id, values) => {
                    if let Some(reply) = self.queries.remove(&id) {
                        let _ = reply.send(values);
                    }
                }
                Event::ElementSilent => self.invalidate_epoch(true),
                Event::EpochEndRequested => self.invalidate_epoch(false),
                Event::ReadsEnded => {
                    for waiter in self.adding.drain(..) {
                        let _ = waiter.send(());
                    }
                }
                Event::Used => self.used.send_replace(()),
            }
        }
        while let Some((id, outcome)) = self.lone.next_event() {
            if let Some(reply) = self.lone_calls.remove(&id) {
                let _ = reply.send(outcome);
            }
        }
        self.carriers.retain(|_, carrier| {
            carrier.flush();
            !carrier.is_over()
        });
        self.carried.open = self.carriers.len() as u64;
        self.hand_over_changes();
    }

    fn deadline(&self) -> Option<Instant> {
        [self.server.deadline(), self.lone.deadline()].into_iter().flatten().min()
    }

    fn element(&self) -> Option<SocketAddr> {
        self.element
    }

    fn close(&mut self, _now: Instant) {}

    /// An owner without a handle serves no one.
    fn is_idle(&self) -> bool {
        true
    }

    fn on_driver_dropped(&mut self) {
        self.queries.clear();
        self.lone_calls.clear();
        self.handled.clear();
        self.joining.clear();
        self.store = None;
    }
}
