//! Shared-memory rings with peers on the same host, beside the socket of a link.
//!
//! ```text
//! queue(to) ── a ring to there? ──▶ RingSenders ─ flush: publish, wake ──▶ element or endpoint
//! exchange ◀── frames, copied out ── RingReceivers ◀──────────────────────
//!              process_peer_events: new, waking and closed peers   (one epoll of all their sockets)
//! ```
//!
//! An element has a [`ShmListener`]; an endpoint requests memory from its element ([`MemoryRequest`]). A peer that
//! corrupts its memory ends only its own rings: they are dropped, and frames to its address go by UDP again.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant as Clock};

use pathcall_shm::{Consumer, MemoryPeer, RingMap, RingSide, ring_pair};
use pathcall_wire::Instant;
use pathcall_wire::link::{LinkKind, LinkRepr};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::time::Timespec;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::memory_request::MemoryRequest;
use super::shm_listener::{ShmListener, connect, map_and_confirm, random};
use super::{LinkStats, PollMode};

pub(super) use super::ring_senders::RingSenders;

/// Peers that an element shares memory with; others use UDP. Each takes 1 MiB and a descriptor.
pub const RINGS_MAX: usize = 64;

/// Frames received from one ring before the next ring is read.
const RING_BATCH: usize = 64;
/// Busy polls per read of the socket, which is a system call.
const POLLS_PER_SOCKET_READ: u32 = 32;
/// Busy polls per check for new and closed peers.
const POLLS_PER_PEER_CHECK: u32 = 1024;
/// Time after the agreement on a ring in which frames of its endpoint may still arrive by UDP: the endpoint has not
/// learnt of the agreement, or the frames were in flight.
const UDP_GRACE: Duration = Duration::from_secs(1);
/// Events requested of epoll at a time.
const EVENTS_MAX: usize = 16;
/// Epoll key of the listener.
const LISTENER_KEY: u64 = 0;

/// Role of a link in the agreement on memory.
#[derive(Debug)]
enum RingsRole {
    /// An element that offers memory.
    Listener(ShmListener),
    /// An endpoint that requests memory, with its pending connection: key, peer and the memory that it created.
    Requester(MemoryRequest, Option<(u64, MemoryPeer, RingMap)>),
}

/// Shared-memory rings of one link.
#[derive(Debug)]
pub(super) struct Rings {
    role: RingsRole,
    pub(super) senders: RingSenders,
    receivers: Vec<RingReceiver>,
    peer_events: PeerEvents,
    keys: u64,
    polls: u32,
    /// More connections wait at the listener than were accepted at once.
    more_connections: bool,
}

/// Epoll descriptor for all peers of a link: readable when a peer wakes this side, connects or disconnects.
#[derive(Debug, Clone)]
pub(super) struct PeerEvents(Arc<AsyncFd<OwnedFd>>);

/// Ring of incoming frames from the peer with the same index in the senders.
#[derive(Debug)]
struct RingReceiver {
    key: u64,
    from: SocketAddr,
    consumer: Consumer<RingMap>,
    peer: Arc<MemoryPeer>,
    /// Time of the agreement.
    since: Clock,
    waiting: bool,
}

impl Rings {
    /// Creates the rings of an element, which offers memory to endpoints of this host.
    pub(super) fn listener() -> io::Result<Self> {
        let listener = ShmListener::open()?;
        let rings = Self::new(RingsRole::Listener(listener))?;
        if let RingsRole::Listener(listener) = &rings.role {
            rings.peer_events.register(listener, LISTENER_KEY)?;
        }
        Ok(rings)
    }

    /// Creates the rings of an endpoint, which requests memory from its element.
    pub(super) fn requester() -> io::Result<Self> {
        Self::new(RingsRole::Requester(MemoryRequest::new(), None))
    }

    fn new(role: RingsRole) -> io::Result<Self> {
        #[allow(
            deprecated,
            reason = "its replacement is unsafe, because descriptors may close; an owned one stays open"
        )]
        let peer_events = AsyncFd::with_interest(epoll::create(CreateFlags::CLOEXEC)?, Interest::READABLE)?;
        Ok(Self {
            role,
            senders: RingSenders::default(),
            receivers: Vec::new(),
            peer_events: PeerEvents(Arc::new(peer_events)),
            keys: LISTENER_KEY,
            polls: 0,
            more_connections: false,
        })
    }

    /// Returns the readiness of the peers' sockets.
    pub(super) fn peer_events(&self) -> PeerEvents {
        self.peer_events.clone()
    }

    /// Addresses of the peers with which memory is shared.
    pub(super) fn peers(&self) -> impl Iterator<Item = SocketAddr> {
        self.receivers.iter().map(|receiver| receiver.from)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.receivers.is_empty()
    }

    /// Advances an endpoint's request for memory with `element`: returns the hello to send now, and its destination.
    pub(super) fn request_memory(
        &mut self,
        now: Instant,
        element: Option<SocketAddr>,
    ) -> Option<(SocketAddr, LinkRepr)> {
        let RingsRole::Requester(request, joining) = &mut self.role else { return None };
        let element = element.map(|to| SocketAddr::new(to.ip().to_canonical(), to.port()));
        if request.target() != element {
            *joining = None;
            self.senders = RingSenders::default();
            self.receivers.clear();
            // A remote element is remembered as target, but not asked.
            request.set_target(element);
        }
        let hello = request.poll(now, || random().ok())?;
        let to = request.target().filter(|to| is_local(*to))?;
        Some((to, hello))
    }

    /// Handles a message of the peer's link; returns the answer, if there is one.
    pub(super) fn handle_message(
        &mut self,
        from: SocketAddr,
        message: &LinkRepr,
        stats: &mut LinkStats,
    ) -> Option<LinkRepr> {
        match &mut self.role {
            RingsRole::Listener(listener) => message.is(LinkKind::Hello).then(|| listener.offer(from, message)),
            RingsRole::Requester(request, joining) => {
                if !request.accepts(from, message) {
                    return None;
                }
                self.keys += 1;
                let key = self.keys;
                let connected = connect(*message).and_then(|(peer, map)| {
                    self.peer_events.register(&peer, key)?;
                    Ok((key, peer, map))
                });
                match connected {
                    Ok(connected) => {
                        request.start_join();
                        *joining = Some(connected);
                    }
                    Err(_) => {
                        stats.rings_refused += 1;
                        request.fail();
                    }
                }
                None
            }
        }
    }

    /// Records a frame that came by UDP. An endpoint with a ring sends to its element through the ring alone, even when
    /// it is full: so the endpoint at this address has changed, or has lost the ring.
    pub(super) fn note_udp_frame(&mut self, from: SocketAddr) {
        if !matches!(self.role, RingsRole::Listener(_)) {
            return;
        }
        let index = self.receivers.iter().position(|receiver| receiver.from == from);
        if let Some(index) = index.filter(|index| self.receivers[*index].since.elapsed() >= UDP_GRACE) {
            self.drop_ring(index);
        }
    }

    /// Processes new, waking and closed peers: after a wait, and from time to time while busy-polling.
    pub(super) fn process_peer_events(&mut self, mode: PollMode, stats: &mut LinkStats) {
        let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; EVENTS_MAX];
        // Number of events, and whether more may be pending.
        let mut ask = |peer_events: &OwnedFd| {
            let found = epoll::wait(peer_events, &mut events[..], Some(&Timespec::default()))?;
            Ok::<_, io::Error>((found, found == EVENTS_MAX))
        };
        let found = match mode {
            PollMode::IfReady => {
                self.receivers.iter_mut().for_each(RingReceiver::disarm_wakeup);
                let mut found = 0;
                // An error means that there is no event, or no further one: it clears the readiness.
                let _ = self.peer_events.0.try_io(Interest::READABLE, |peer_events| {
                    let more;
                    (found, more) = ask(peer_events)?;
                    if more { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
                });
                found
            }
            PollMode::Always => {
                self.polls = self.polls.wrapping_add(1);
                match self.polls.is_multiple_of(POLLS_PER_PEER_CHECK) {
                    true => ask(self.peer_events.0.get_ref()).map_or(0, |(found, _)| found),
                    false => 0,
                }
            }
        };
        if self.more_connections {
            self.process_peer_event(LISTENER_KEY, stats);
        }
        for event in &events[..found] {
            let data = event.data;
            self.process_peer_event(data.u64(), stats);
        }
    }

    fn process_peer_event(&mut self, key: u64, stats: &mut LinkStats) {
        if let Some(index) = self.receivers.iter().position(|receiver| receiver.key == key) {
            let receiver = &mut self.receivers[index];
            if !receiver.peer.drain_wakeups() {
                // The frames sent before are received; the end of the ring is not announced again.
                let _ = epoll::delete(self.peer_events.0.get_ref(), &*receiver.peer);
                if receiver.consumer.close().is_err() {
                    stats.rings_broken += 1;
                    self.drop_ring(index);
                }
            }
            return;
        }
        match &mut self.role {
            RingsRole::Listener(listener) if key == LISTENER_KEY => {
                self.more_connections = listener.accept_new(|peer| {
                    self.keys += 1;
                    self.peer_events.register(peer, self.keys).map(|()| self.keys)
                });
            }
            RingsRole::Listener(listener) if listener.is_pending(key) => {
                let joined = listener.join(key).and_then(|(from, memory, peer)| {
                    // One ring per address: the peer that proves the address now replaces the former one.
                    if let Some(index) = self.receivers.iter().position(|receiver| receiver.from == from) {
                        self.drop_ring(index);
                    }
                    match self.receivers.len() {
                        ..RINGS_MAX => Ok((from, map_and_confirm(&peer, memory)?, peer)),
                        _ => Err(io::ErrorKind::OutOfMemory.into()),
                    }
                });
                match joined {
                    Ok((from, map, peer)) => {
                        stats.rings_agreed += 1;
                        self.add_ring(key, from, map, peer, RingSide::Receiver);
                    }
                    Err(_) => stats.rings_refused += 1,
                }
            }
            RingsRole::Requester(request, joining) => {
                let Some((_, peer, _)) = joining.as_ref().filter(|(joining, ..)| *joining == key) else { return };
                let welcome = match peer.receive_ready() {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                    welcome => welcome,
                };
                match (welcome, request.target(), joining.take()) {
                    (Ok(()), Some(to), Some((key, peer, map))) => {
                        request.complete();
                        stats.rings_agreed += 1;
                        self.add_ring(key, to, map, peer, RingSide::Creator);
                    }
                    _ => {
                        stats.rings_refused += 1;
                        request.fail();
                    }
                }
            }
            RingsRole::Listener(_) => {}
        }
    }

    /// Receives the frames that are there, up to a limit per ring, and passes each to `f`: its source address, whether
    /// the ring is half full, its bytes. Returns the number of frames.
    pub(super) fn receive(
        &mut self,
        buffer: &mut [u8],
        stats: &mut LinkStats,
        mut f: impl FnMut(&mut RingSenders, &mut LinkStats, SocketAddr, bool, &mut [u8]),
    ) -> usize {
        let mut frames = 0;
        // The first ring that has ended, and whether it is corrupt; the next poll finds further ones.
        let mut ended = self.senders.corrupt().map(|index| (index, true));
        for (index, receiver) in self.receivers.iter_mut().enumerate() {
            for _ in 0..RING_BATCH {
                match receiver.consumer.pop(buffer) {
                    Ok(Some(len)) => {
                        frames += 1;
                        stats.bytes_in += len as u64;
                        let congested = receiver.consumer.is_congested();
                        f(&mut self.senders, stats, receiver.from, congested, &mut buffer[..len]);
                    }
                    Ok(None) => {
                        ended = ended.or(receiver.consumer.is_closed().then_some((index, false)));
                        break;
                    }
                    Err(_) => {
                        ended = ended.or(Some((index, true)));
                        break;
                    }
                }
            }
        }
        stats.frames_in += frames as u64;
        stats.ring_frames_in += frames as u64;
        if let Some((index, broken)) = ended {
            stats.rings_broken += u64::from(broken);
            self.drop_ring(index);
        }
        frames
    }

    /// Returns whether a busy poll that found `frames` frames in rings can skip the socket.
    pub(super) fn can_skip_socket(&self, mode: PollMode, frames: usize) -> bool {
        let often = frames < RING_BATCH && !self.polls.is_multiple_of(POLLS_PER_SOCKET_READ);
        mode == PollMode::Always && !self.is_empty() && often
    }

    /// Asks every sender for a wake-up; false if frames are there already.
    pub(super) fn arm_wakeup(&mut self) -> bool {
        let no_connection_waits = !self.more_connections;
        no_connection_waits
            && self.receivers.iter_mut().all(|receiver| {
                receiver.waiting = true;
                receiver.consumer.arm_wakeup() && !receiver.consumer.is_closed()
            })
    }

    /// Asks the senders for no wake-up.
    pub(super) fn disarm_wakeup(&mut self) {
        self.receivers.iter_mut().for_each(RingReceiver::disarm_wakeup);
    }

    fn add_ring(&mut self, key: u64, peer_at: SocketAddr, map: RingMap, peer: MemoryPeer, side: RingSide) {
        let (producer, consumer) = ring_pair(Arc::new(map), side);
        let peer = Arc::new(peer);
        self.senders.add(peer_at, producer, Arc::clone(&peer));
        self.receivers.push(RingReceiver { key, from: peer_at, consumer, peer, since: Clock::now(), waiting: false });
    }

    /// Removes a ring: unmaps its memory and closes its socket.
    fn drop_ring(&mut self, index: usize) {
        self.senders.swap_remove(index);
        self.receivers.swap_remove(index);
        if let RingsRole::Requester(request, _) = &mut self.role {
            request.fail();
        }
    }
}

impl PeerEvents {
    /// Waits until a peer wakes this side, connects or disconnects; returns at once until the event is processed.
    pub(super) async fn notified(&self) -> io::Result<()> {
        self.0.readable().await.map(drop)
    }

    /// Polls as [`notified`](Self::notified) waits; if several tasks poll, only the last one is woken.
    pub(super) fn poll_notified(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_read_ready(cx).map(|notified| notified.map(drop))
    }

    fn register(&self, source: impl AsFd, key: u64) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::RDHUP;
        Ok(epoll::add(self.0.get_ref(), source, EventData::new_u64(key), flags)?)
    }
}

impl RingReceiver {
    fn disarm_wakeup(&mut self) {
        if self.waiting {
            self.waiting = false;
            self.consumer.disarm_wakeup();
        }
    }
}

/// Returns whether an address belongs to this host: a socket can be bound to it.
fn is_local(to: SocketAddr) -> bool {
    to.ip().is_loopback() || UdpSocket::bind((to.ip(), 0)).is_ok()
}
