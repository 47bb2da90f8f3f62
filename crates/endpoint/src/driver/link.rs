//! A UDP link with batched system calls: what an endpoint and an element send and receive by. Two of one
//! host may share memory instead ([`share_memory`](Link::share_memory)); their frames go by that.
//!
//! ```text
//! socket ─ one call, many datagrams (GRO) ─▶ recv / exchange ─▶ f(from, ce, frame) for each frame
//! queue(to, frame) ─▶ one open batch a destination ─▶ flush ─ one call, many datagrams (GSO) ─▶ socket
//!               rings, if there is one to `to` ─▶ memory of both        (no call; and so on the way in)
//! ```
//!
//! The driver of an endpoint or of an element calls it in a loop: [`readable`](Link::readable),
//! [`recv`](Link::recv) or [`exchange`](Link::exchange), [`queue`](Link::queue),
//! [`flush`](Link::flush); or, for a while, without waiting: [`Looking::Anyway`]. Nothing is
//! allocated per frame once the batches have grown to their size. Where the system has no offload,
//! the same calls send and receive frame by frame.

#[cfg(target_os = "linux")]
mod door;
mod outbox;
mod received;
#[cfg_attr(not(target_os = "linux"), path = "link/no_rings.rs")]
mod rings;
#[cfg(target_os = "linux")]
mod seek;
#[cfg(target_os = "linux")]
mod senders;
mod socket;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use pathcall_wire::Instant;
use pathcall_wire::link::Link as Message;
use quinn_udp::{EcnCodepoint, RecvMeta, UdpSocketState};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;

pub use outbox::{FRAME_BYTES_MAX, OPEN_BATCHES_MAX, Outbox};
pub use rings::RINGS_MAX;

use outbox::Batches;
use received::{ReceiveBuffer, Received};
use rings::{Bells, Rings};
use socket::Io;

/// Receive buffer asked of the system, bytes: frames of many senders that arrive at once wait here.
/// The system may grant less (Linux: `net.core.rmem_max`).
pub const RECV_BUFFER_BYTES: usize = 4 << 20;
/// Send buffer asked of the system, bytes.
pub const SEND_BUFFER_BYTES: usize = 4 << 20;

/// Messages of one receive call at most. Each holds up to 64 frames where the system coalesces (GRO).
const RECV_MESSAGES: usize = quinn_udp::BATCH_SIZE;
/// As many, where few come at a time: room for each is described to the system anew at each call.
const RECV_MESSAGES_FEW: usize = if RECV_MESSAGES < 4 { RECV_MESSAGES } else { 4 };
/// Room for one message: the largest that UDP carries, so that none is ever truncated.
const RECV_MESSAGE_BYTES: usize = 1 << 16;

/// A bound UDP socket with its open send batches.
#[derive(Debug)]
pub struct Link {
    io: Io,
    batches: Batches,
    rings: Option<Box<Rings>>,
    stats: LinkStats,
    /// Bytes received since the receive buffer was last seen empty.
    backlog: usize,
    /// Whether the last batch took everything that was there.
    drained: bool,
    /// Messages that the next receive call asks for.
    asks: usize,
}

/// When to ask the system for frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Looking {
    /// When the runtime has seen that some came: after [`readable`](Link::readable).
    IfReady,
    /// In any case: whoever polls finds frames that the runtime does not know of yet.
    Anyway,
}

/// Who asks whom for shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// An element offers it to endpoints.
    Offer,
    /// An endpoint seeks it with its element, see [`Link::seek`].
    Seek,
}

/// Waits for a link that somebody else holds.
#[derive(Debug, Clone)]
pub struct Readiness {
    socket: Arc<UdpSocket>,
    bells: Option<Bells>,
}

impl Readiness {
    /// As [`Link::readable`], after [`Link::wait`]; `blocked` says whether frames wait for the send buffer.
    ///
    /// # Errors
    /// When the runtime that owns the socket is shut down.
    pub async fn ready(&self, blocked: bool) -> io::Result<()> {
        let interest = match blocked {
            true => Interest::READABLE | Interest::WRITABLE,
            false => Interest::READABLE,
        };
        let Some(bells) = &self.bells else { return self.socket.ready(interest).await.map(drop) };
        tokio::select! {
            ready = self.socket.ready(interest) => ready.map(drop),
            rung = bells.rung() => rung,
        }
    }

    /// As [`ready`](Self::ready), for one who polls; of several that do the last is woken.
    ///
    /// # Errors
    /// As [`ready`](Self::ready).
    pub fn poll_ready(&self, cx: &mut Context<'_>, blocked: bool) -> Poll<io::Result<()>> {
        if blocked && let Poll::Ready(ready) = self.socket.poll_send_ready(cx) {
            return Poll::Ready(ready);
        }
        if let Some(bells) = &self.bells
            && let Poll::Ready(rung) = bells.poll_rung(cx)
        {
            return Poll::Ready(rung);
        }
        self.socket.poll_recv_ready(cx)
    }
}

/// What went over a link since it was bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Frames received, by whichever road.
    pub frames_in: u64,
    /// Bytes of these frames.
    pub bytes_in: u64,
    /// System calls that received something.
    pub calls_in: u64,
    /// Frames handed to the system, or to a peer that shares memory.
    pub frames_out: u64,
    /// Bytes of these frames.
    pub bytes_out: u64,
    /// System calls that sent something.
    pub calls_out: u64,
    /// Frames lost because the send buffer and the batches were full, or a ring was.
    pub lost_full: u64,
    /// Frames lost because the system refused them or never could take them.
    pub lost_error: u64,
    /// Frames that came by shared memory.
    pub ring_frames_in: u64,
    /// Frames that left by shared memory.
    pub ring_frames_out: u64,
    /// How often memory was agreed on with a peer.
    pub rings_agreed: u64,
    /// How often it was refused: no room for one more, no proof of an address, nobody behind the door.
    pub rings_refused: u64,
    /// Rings given up because the peer wrote nonsense into them.
    pub rings_broken: u64,
}

impl Link {
    /// Binds a socket to `addr` and asks the system for large buffers; port 0 takes a free port.
    ///
    /// # Errors
    /// What the system says, `AddrInUse` above all.
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O enabled: the socket belongs to the runtime it is made in.
    pub fn bind(addr: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
        // A smaller buffer than wished for works, and loses more under bursts: no reason to fail.
        let _ = socket.set_recv_buffer_size(RECV_BUFFER_BYTES);
        let _ = socket.set_send_buffer_size(SEND_BUFFER_BYTES);
        socket.set_nonblocking(true)?;
        socket.bind(&addr.into())?;
        let socket = UdpSocket::from_std(socket.into())?;
        let local = socket.local_addr()?;
        let offload = UdpSocketState::new((&socket).into())?;
        Ok(Self {
            io: Io { socket: Arc::new(socket), offload, local },
            batches: Batches::default(),
            rings: None,
            stats: LinkStats::default(),
            backlog: 0,
            drained: true,
            asks: RECV_MESSAGES_FEW,
        })
    }

    /// Shares memory with peers on the same host from now on: their frames go by that, and by UDP as long
    /// as there is none. Each pair takes 1 MiB; an element has [`RINGS_MAX`] at most.
    ///
    /// # Errors
    /// What the system lacks for it.
    pub fn share_memory(&mut self, part: Sharing) -> io::Result<()> {
        self.rings = Some(Box::new(match part {
            Sharing::Offer => Rings::offering()?,
            Sharing::Seek => Rings::seeking()?,
        }));
        Ok(())
    }

    /// Time has passed for a link that seeks memory, with this element and no other: to be called now and
    /// then while frames are sent.
    pub fn seek(&mut self, now: Instant, element: Option<SocketAddr>) {
        if let Some(rings) = &mut self.rings
            && let Some((to, hello)) = rings.seek(now, element)
        {
            self.io.tell(to, &hello);
        }
    }

    /// The peers that memory is shared with now.
    pub fn memory_peers(&self) -> impl Iterator<Item = SocketAddr> {
        self.rings.iter().flat_map(|rings| rings.peers())
    }

    /// The address bound, with its port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.io.local
    }

    /// Waits until frames may have come or, while frames wait for the send buffer, until
    /// [`flush`](Self::flush) can send some of them. May return with nothing to do.
    ///
    /// # Errors
    /// When the runtime that owns the socket is shut down.
    pub async fn readable(&mut self) -> io::Result<()> {
        if !self.wait() {
            // The runtime has its turn all the same: it is who knows of the socket.
            tokio::task::yield_now().await;
            return Ok(());
        }
        self.readiness().ready(self.is_blocked()).await
    }

    /// Before [`Readiness::ready`]: asks peers that share memory to say when they send; false when they
    /// have, and there is nothing to wait for. [`Looking::IfReady`] takes it back.
    #[must_use = "there may be frames"]
    pub fn wait(&mut self) -> bool {
        self.rings.as_mut().is_none_or(|rings| rings.wait())
    }

    /// Takes back [`wait`](Self::wait) on behalf of one who looks by itself.
    pub fn look(&mut self) {
        if let Some(rings) = &mut self.rings {
            rings.look();
        }
    }

    /// What waits for the link on its behalf.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        let bells = self.rings.as_ref().map(|rings| rings.bells());
        Readiness { socket: Arc::clone(&self.io.socket), bells }
    }

    /// Receives at most one batch without waiting and hands each frame to `f`: who sent it, whether
    /// the network marked it "congestion experienced", and its bytes, which `f` may change.
    ///
    /// Returns the number of frames; 0 when nothing is there.
    ///
    /// # Errors
    /// What the system says, except that nothing is there.
    pub fn recv(&mut self, mut f: impl FnMut(SocketAddr, bool, &mut [u8])) -> io::Result<usize> {
        self.exchange(Looking::IfReady, |_, from, ce, frame| f(from, ce, frame))
    }

    /// Like [`recv`](Self::recv), with the sending side at hand: `f` may queue frames, the received
    /// one included. What is left of them when the batch is done waits for [`flush`](Self::flush).
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn exchange(
        &mut self,
        looking: Looking,
        mut f: impl FnMut(&mut Outbox<'_>, SocketAddr, bool, &mut [u8]),
    ) -> io::Result<usize> {
        let mut received = ReceiveBuffer::of_this_thread();
        let mut frames = 0;
        if let Some(rings) = &mut self.rings {
            rings.attend(looking, &mut self.stats);
            let buffer = &mut received.get().bytes[..RECV_MESSAGE_BYTES];
            frames = rings.take(buffer, &mut self.stats, |senders, stats, from, ce, frame| {
                f(
                    &mut Outbox::new(&mut self.io, &mut self.batches, stats, Some(senders), self.backlog),
                    from,
                    ce,
                    frame,
                );
            });
            if rings.spares_the_socket(looking, frames) {
                return Ok(frames);
            }
        }
        Ok(frames + self.exchange_by_socket(looking, received.get(), f)?)
    }

    /// As [`exchange`](Self::exchange), of what the socket has.
    fn exchange_by_socket(
        &mut self,
        looking: Looking,
        Received { bytes: received, meta }: &mut Received,
        mut f: impl FnMut(&mut Outbox<'_>, SocketAddr, bool, &mut [u8]),
    ) -> io::Result<usize> {
        let messages = match self.io.recv(looking, received, &mut meta[..self.asks]) {
            Ok(messages) => messages,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => 0,
            Err(e) => return Err(e),
        };
        let messages = &meta[..messages];
        self.note_backlog(messages);

        let mut frames = 0;
        for (message, bytes) in messages.iter().zip(received.chunks_exact_mut(RECV_MESSAGE_BYTES)) {
            let from = SocketAddr::new(message.addr.ip().to_canonical(), message.addr.port());
            let ce = message.ecn == Some(EcnCodepoint::Ce);
            // A message is a run of frames of `stride` bytes, the last may be shorter; a datagram
            // without bytes has stride 0 and is one frame.
            let mut rest = &mut bytes[..message.len];
            let mut first = true;
            loop {
                let (frame, after) = rest.split_at_mut(message.stride.min(rest.len()));
                if let Ok(message) = Message::new_checked(&*frame) {
                    if let Some(answer) =
                        self.rings.as_mut().and_then(|rings| rings.hear(from, &message.repr(), &mut self.stats))
                    {
                        self.io.tell(from, &answer);
                    }
                } else {
                    if std::mem::take(&mut first)
                        && let Some(rings) = &mut self.rings
                    {
                        rings.came_beside(from);
                    }
                    let rings = self.rings.as_mut().map(|rings| &mut rings.senders);
                    let stats = &mut self.stats;
                    f(&mut Outbox::new(&mut self.io, &mut self.batches, stats, rings, self.backlog), from, ce, frame);
                    frames += 1;
                }
                if after.is_empty() || frame.is_empty() {
                    break;
                }
                rest = after;
            }
        }
        self.stats.frames_in += frames as u64;
        Ok(frames)
    }

    /// Queues a frame to `to`. Frames of one length to one destination leave in one system call, the
    /// last may be shorter; the order per destination is kept. A destination's full batch is sent.
    ///
    /// A frame is lost, and counted, when the send buffer and its batch are full, or when it could
    /// never be sent: empty, longer than [`FRAME_BYTES_MAX`], or to an address out of reach.
    #[inline]
    pub fn queue(&mut self, to: SocketAddr, frame: &[u8]) {
        let rings = self.rings.as_mut().map(|rings| &mut rings.senders);
        Outbox::new(&mut self.io, &mut self.batches, &mut self.stats, rings, self.backlog).queue(to, frame);
    }

    /// Sends what is queued. What the send buffer does not take stays queued; then
    /// [`readable`](Self::readable) returns as well when it is worth calling `flush` again.
    pub fn flush(&mut self) {
        if let Some(rings) = &mut self.rings {
            rings.senders.flush();
        }
        self.batches.flush(&mut self.io, &mut self.stats);
    }

    /// Whether frames wait for room in the send buffer: only ever true after a `queue` or `flush`
    /// that found it full, until all of them are sent.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.batches.is_blocked()
    }

    /// Bytes received since the receive buffer was last seen empty: what was waiting at the last
    /// [`recv`](Self::recv) when that took everything, and more the longer it never does.
    #[must_use]
    pub fn backlog(&self) -> usize {
        self.backlog
    }

    /// Counts of frames, bytes and system calls.
    #[must_use]
    pub fn stats(&self) -> LinkStats {
        self.stats
    }

    fn note_backlog(&mut self, messages: &[RecvMeta]) {
        let bytes: usize = messages.iter().map(|message| message.len).sum();
        self.backlog = if self.drained { bytes } else { self.backlog.saturating_add(bytes) };
        self.drained = messages.len() < self.asks;
        self.asks = if self.drained && messages.len() <= RECV_MESSAGES_FEW { RECV_MESSAGES_FEW } else { RECV_MESSAGES };
        self.stats.bytes_in += bytes as u64;
        self.stats.calls_in += u64::from(!messages.is_empty());
    }
}
