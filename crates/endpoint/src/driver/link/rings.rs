//! Shared memory with peers on the same host, beside the socket of a link.
//!
//! ```text
//! queue(to) ── a ring to there? ──▶ Senders ─ flush: publish, wake ──▶ element or endpoint
//! exchange ◀── frames, copied out ── Receivers ◀───────────────────────
//!              attend: who comes, who rings, who is gone   (one epoll of all their sockets)
//! ```
//!
//! An element opens a [`Door`]; an endpoint seeks memory with its element ([`Seek`]). What a peer does to
//! its memory can end its own rings only: they are dropped, and frames to its address go by UDP again.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant as Clock};

use pathcall_shm::{Consumer, Map, Peer, Side, pair};
use pathcall_wire::Instant;
use pathcall_wire::link::{LinkKind, LinkRepr};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::time::Timespec;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::door::{Door, knock, random, welcome};
use super::seek::Seek;
use super::{LinkStats, Looking};

pub(super) use super::senders::Senders;

/// Peers that an element shares memory with; others go by UDP. Each takes 1 MiB and a descriptor.
pub const RINGS_MAX: usize = 64;

/// Frames taken from one ring before the next has its turn.
const TURN: usize = 64;
/// Of so many looks without waiting, one is for the socket: it is a system call.
const LOOKS_PER_SOCKET: u32 = 32;
/// And of so many, one is for who comes and who is gone.
const LOOKS_PER_ATTENDANCE: u32 = 1024;
/// An endpoint's frames by UDP may come for so long after its ring was agreed on: it has not heard of it, or they were
/// on their way.
const SETTLED: Duration = Duration::from_secs(1);
/// Events asked for at a time.
const EVENTS: usize = 16;
/// Key of the door.
const DOOR: u64 = 0;

/// Which part a link takes.
#[derive(Debug)]
enum Part {
    /// An element's.
    Offers(Door),
    /// An endpoint's, with the peer whose door it has come by, its key, and the memory that it brought.
    Seeks(Seek, Option<(u64, Peer, Map)>),
}

/// The shared memory of one link.
#[derive(Debug)]
pub(super) struct Rings {
    part: Part,
    pub(super) senders: Senders,
    receivers: Vec<Receiver>,
    bells: Bells,
    keys: u64,
    looks: u32,
    /// More have come to the door than were taken in at once.
    arrivals: bool,
}

/// One descriptor for all that wake a link: readable when somebody rings, comes or goes.
#[derive(Debug, Clone)]
pub(super) struct Bells(Arc<AsyncFd<OwnedFd>>);

/// The ring that frames come in by, of the sender at the same place.
#[derive(Debug)]
struct Receiver {
    key: u64,
    from: SocketAddr,
    consumer: Consumer<Map>,
    peer: Arc<Peer>,
    /// When it was agreed on.
    since: Clock,
    waiting: bool,
}

impl Rings {
    /// An element's: offers memory to endpoints of this host.
    pub(super) fn offering() -> io::Result<Self> {
        let door = Door::open()?;
        let rings = Self::new(Part::Offers(door))?;
        if let Part::Offers(door) = &rings.part {
            rings.bells.watch(door, DOOR)?;
        }
        Ok(rings)
    }

    /// An endpoint's: seeks memory with its element.
    pub(super) fn seeking() -> io::Result<Self> {
        Self::new(Part::Seeks(Seek::new(), None))
    }

    fn new(part: Part) -> io::Result<Self> {
        #[allow(deprecated, reason = "what replaces it is unsafe, for descriptors that may close: an owned one stays")]
        let bells = AsyncFd::with_interest(epoll::create(CreateFlags::CLOEXEC)?, Interest::READABLE)?;
        Ok(Self {
            part,
            senders: Senders::default(),
            receivers: Vec::new(),
            bells: Bells(Arc::new(bells)),
            keys: DOOR,
            looks: 0,
            arrivals: false,
        })
    }

    /// What waits on behalf of the link.
    pub(super) fn bells(&self) -> Bells {
        self.bells.clone()
    }

    /// The peers that memory is shared with.
    pub(super) fn peers(&self) -> impl Iterator<Item = SocketAddr> {
        self.receivers.iter().map(|receiver| receiver.from)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.receivers.is_empty()
    }

    /// An endpoint's element is there, and time has passed: the hello to send now, and where.
    pub(super) fn seek(&mut self, now: Instant, element: Option<SocketAddr>) -> Option<(SocketAddr, LinkRepr)> {
        let Part::Seeks(seek, joining) = &mut self.part else { return None };
        let element = element.map(|to| SocketAddr::new(to.ip().to_canonical(), to.port()));
        if seek.target() != element {
            *joining = None;
            self.senders = Senders::default();
            self.receivers.clear();
            // Far ones are kept in mind, and not asked.
            seek.aim(element);
        }
        let hello = seek.poll(now, || random().ok())?;
        let to = seek.target().filter(|to| is_here(*to))?;
        Some((to, hello))
    }

    /// A message of the peer's link; the answer, if there is one.
    pub(super) fn hear(&mut self, from: SocketAddr, message: &LinkRepr, stats: &mut LinkStats) -> Option<LinkRepr> {
        match &mut self.part {
            Part::Offers(door) => message.is(LinkKind::Hello).then(|| door.offer(from, message)),
            Part::Seeks(seek, joining) => {
                if !seek.takes_up(from, message) {
                    return None;
                }
                self.keys += 1;
                let key = self.keys;
                let knocked = knock(*message).and_then(|(peer, map)| {
                    self.bells.watch(&peer, key)?;
                    Ok((key, peer, map))
                });
                match knocked {
                    Ok(knocked) => {
                        seek.joins();
                        *joining = Some(knocked);
                    }
                    Err(_) => {
                        stats.rings_refused += 1;
                        seek.lost();
                    }
                }
                None
            }
        }
    }

    /// A frame came by UDP. An endpoint that has a ring sends to its element by that alone, be it full: who is at the
    /// address now is somebody else, or has lost it.
    pub(super) fn came_beside(&mut self, from: SocketAddr) {
        if !matches!(self.part, Part::Offers(_)) {
            return;
        }
        let place = self.receivers.iter().position(|receiver| receiver.from == from);
        if let Some(place) = place.filter(|place| self.receivers[*place].since.elapsed() >= SETTLED) {
            self.drop_ring(place);
        }
    }

    /// Sees who has come, rung or gone: after a wait, and now and then while nobody waits.
    pub(super) fn attend(&mut self, looking: Looking, stats: &mut LinkStats) {
        let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; EVENTS];
        // How many, and whether there may be more.
        let mut ask = |bells: &OwnedFd| {
            let found = epoll::wait(bells, &mut events[..], Some(&Timespec::default()))?;
            Ok::<_, io::Error>((found, found == EVENTS))
        };
        let found = match looking {
            Looking::IfReady => {
                self.receivers.iter_mut().for_each(Receiver::look);
                let mut found = 0;
                // An error is that there is nothing, or no more: it clears the readiness.
                let _ = self.bells.0.try_io(Interest::READABLE, |bells| {
                    let more;
                    (found, more) = ask(bells)?;
                    if more { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
                });
                found
            }
            Looking::Anyway => {
                self.looks = self.looks.wrapping_add(1);
                match self.looks.is_multiple_of(LOOKS_PER_ATTENDANCE) {
                    true => ask(self.bells.0.get_ref()).map_or(0, |(found, _)| found),
                    false => 0,
                }
            }
        };
        if self.arrivals {
            self.attend_to(DOOR, stats);
        }
        for event in &events[..found] {
            let data = event.data;
            self.attend_to(data.u64(), stats);
        }
    }

    fn attend_to(&mut self, key: u64, stats: &mut LinkStats) {
        if let Some(place) = self.receivers.iter().position(|receiver| receiver.key == key) {
            let receiver = &mut self.receivers[place];
            if !receiver.peer.hear() {
                // What it sent before is taken; its end is told no more.
                let _ = epoll::delete(self.bells.0.get_ref(), &*receiver.peer);
                if receiver.consumer.close().is_err() {
                    stats.rings_broken += 1;
                    self.drop_ring(place);
                }
            }
            return;
        }
        match &mut self.part {
            Part::Offers(door) if key == DOOR => {
                self.arrivals = door.arrivals(|peer| {
                    self.keys += 1;
                    self.bells.watch(peer, self.keys).map(|()| self.keys)
                });
            }
            Part::Offers(door) if door.awaits(key) => {
                let joined = door.join(key).and_then(|(from, memory, peer)| {
                    // One address, one ring: who proves to be there is who is there now.
                    if let Some(place) = self.receivers.iter().position(|receiver| receiver.from == from) {
                        self.drop_ring(place);
                    }
                    match self.receivers.len() {
                        ..RINGS_MAX => Ok((from, welcome(&peer, memory)?, peer)),
                        _ => Err(io::ErrorKind::OutOfMemory.into()),
                    }
                });
                match joined {
                    Ok((from, map, peer)) => {
                        stats.rings_agreed += 1;
                        self.add_ring(key, from, map, peer, Side::Taker);
                    }
                    Err(_) => stats.rings_refused += 1,
                }
            }
            Part::Seeks(seek, joining) => {
                let Some((_, peer, _)) = joining.as_ref().filter(|(joining, ..)| *joining == key) else { return };
                let welcome = match peer.is_welcome() {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                    welcome => welcome,
                };
                match (welcome, seek.target(), joining.take()) {
                    (Ok(()), Some(to), Some((key, peer, map))) => {
                        seek.has();
                        stats.rings_agreed += 1;
                        self.add_ring(key, to, map, peer, Side::Maker);
                    }
                    _ => {
                        stats.rings_refused += 1;
                        seek.lost();
                    }
                }
            }
            Part::Offers(_) => {}
        }
    }

    /// Takes the frames that are there, so many of each ring, and hands each to `f`: who sent it, whether
    /// the ring is half full, its bytes; how many.
    pub(super) fn take(
        &mut self,
        buffer: &mut [u8],
        stats: &mut LinkStats,
        mut f: impl FnMut(&mut Senders, &mut LinkStats, SocketAddr, bool, &mut [u8]),
    ) -> usize {
        let mut frames = 0;
        // The first that has ended, and whether by nonsense; another one is found at the next look.
        let mut ended = self.senders.corrupt().map(|place| (place, true));
        for (place, receiver) in self.receivers.iter_mut().enumerate() {
            for _ in 0..TURN {
                match receiver.consumer.pop(buffer) {
                    Ok(Some(len)) => {
                        frames += 1;
                        stats.bytes_in += len as u64;
                        let congested = receiver.consumer.is_congested();
                        f(&mut self.senders, stats, receiver.from, congested, &mut buffer[..len]);
                    }
                    Ok(None) => {
                        ended = ended.or(receiver.consumer.is_closed().then_some((place, false)));
                        break;
                    }
                    Err(_) => {
                        ended = ended.or(Some((place, true)));
                        break;
                    }
                }
            }
        }
        stats.frames_in += frames as u64;
        stats.ring_frames_in += frames as u64;
        if let Some((place, broken)) = ended {
            stats.rings_broken += u64::from(broken);
            self.drop_ring(place);
        }
        frames
    }

    /// Whether a look without waiting that found so many frames in rings may do without the socket.
    pub(super) fn spares_the_socket(&self, looking: Looking, frames: usize) -> bool {
        let often = frames < TURN && !self.looks.is_multiple_of(LOOKS_PER_SOCKET);
        looking == Looking::Anyway && !self.is_empty() && often
    }

    /// Asks to be woken by whoever sends; false when there are frames already.
    pub(super) fn wait(&mut self) -> bool {
        let nobody_comes = !self.arrivals;
        nobody_comes
            && self.receivers.iter_mut().all(|receiver| {
                receiver.waiting = true;
                receiver.consumer.wait() && !receiver.consumer.is_closed()
            })
    }

    /// Asks not to be woken.
    pub(super) fn look(&mut self) {
        self.receivers.iter_mut().for_each(Receiver::look);
    }

    fn add_ring(&mut self, key: u64, peer_at: SocketAddr, map: Map, peer: Peer, side: Side) {
        let (producer, consumer) = pair(Arc::new(map), side);
        let peer = Arc::new(peer);
        self.senders.add(peer_at, producer, Arc::clone(&peer));
        self.receivers.push(Receiver { key, from: peer_at, consumer, peer, since: Clock::now(), waiting: false });
    }

    /// Forgets a ring: its memory is unmapped, its socket closed.
    fn drop_ring(&mut self, place: usize) {
        self.senders.swap_remove(place);
        self.receivers.swap_remove(place);
        if let Part::Seeks(seek, _) = &mut self.part {
            seek.lost();
        }
    }
}

impl Bells {
    /// Waits until somebody rings, comes or goes; returns at once until that has been attended to.
    pub(super) async fn rung(&self) -> io::Result<()> {
        self.0.readable().await.map(drop)
    }

    /// As [`rung`](Self::rung), for one who polls; of several the last is woken.
    pub(super) fn poll_rung(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_read_ready(cx).map(|rung| rung.map(drop))
    }

    fn watch(&self, source: impl AsFd, key: u64) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::RDHUP;
        Ok(epoll::add(self.0.get_ref(), source, EventData::new_u64(key), flags)?)
    }
}

impl Receiver {
    fn look(&mut self) {
        if self.waiting {
            self.waiting = false;
            self.consumer.look();
        }
    }
}

/// Whether an address is one of this host: one can bind to it.
fn is_here(to: SocketAddr) -> bool {
    to.ip().is_loopback() || UdpSocket::bind((to.ip(), 0)).is_ok()
}
