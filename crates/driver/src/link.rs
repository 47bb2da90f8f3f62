//! UDP link with batched system calls, by which endpoints and elements send and receive. Two links of one host may
//! share memory instead ([`share_memory`](Link::share_memory)); frames between them then go through that memory.
//!
//! ```text
//! socket ─ one call, many datagrams (GRO) ─▶ recv / exchange ─▶ f(from, ce, frame) for each frame
//! queue(to, frame) ─▶ one open batch a destination ─▶ flush ─ one call, many datagrams (GSO) ─▶ socket
//!               rings, if there is one to `to` ─▶ memory of both        (no call; the same on the way in)
//! ```
//!
//! The driver of an endpoint or of an element calls the link in a loop: [`readable`](Link::readable),
//! [`recv`](Link::recv) or [`exchange`](Link::exchange), [`queue`](Link::queue), [`flush`](Link::flush). To busy-poll,
//! it does not wait and passes [`PollMode::Always`]. Nothing is allocated per frame once the batches have grown to
//! their size. Where the system has no segmentation offload, the same calls send and receive frame by frame.

#[cfg(target_os = "linux")]
mod memory_request;
mod receive_buffer;
#[cfg(target_os = "linux")]
mod ring_senders;
#[cfg_attr(not(target_os = "linux"), path = "link/no_rings.rs")]
mod rings;
mod send_batches;
#[cfg(target_os = "linux")]
mod shm_listener;
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

pub use rings::RINGS_MAX;
pub use send_batches::{FRAME_BYTES_MAX, LinkOutbox, OPEN_BATCHES_MAX};

use receive_buffer::{ReceiveBuffer, ReceivedMessages};
use rings::{PeerEvents, Rings};
use send_batches::SendBatches;
use socket::LinkSocket;

/// Receive buffer requested of the system, bytes: frames of many senders that arrive at once wait here.
/// The system may grant less (Linux: `net.core.rmem_max`).
pub const RECV_BUFFER_BYTES: usize = 4 << 20;
/// Send buffer requested of the system, bytes.
pub const SEND_BUFFER_BYTES: usize = 4 << 20;

/// Messages of one receive call at most. Each holds up to 64 frames where the system coalesces (GRO).
const RECV_MESSAGES: usize = quinn_udp::BATCH_SIZE;
/// Messages of one receive call while few arrive at a time: each call describes every buffer to the system anew.
const RECV_MESSAGES_MIN: usize = if RECV_MESSAGES < 4 { RECV_MESSAGES } else { 4 };
/// Buffer for one message: the largest UDP payload, so that no message is ever truncated.
const RECV_MESSAGE_BYTES: usize = 1 << 16;

/// Bound UDP socket with its open send batches and shared-memory rings.
#[derive(Debug)]
pub struct Link {
    io: LinkSocket,
    batches: SendBatches,
    rings: Option<Box<Rings>>,
    stats: LinkStats,
    /// Bytes received since the receive buffer was last seen empty.
    backlog: usize,
    /// Whether the last receive call emptied the socket.
    is_drained: bool,
    /// Messages that the next receive call asks for.
    messages_asked: usize,
}

/// Condition under which a receive call asks the system for frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PollMode {
    /// Only when the runtime has seen that frames arrived: after [`readable`](Link::readable).
    IfReady,
    /// Always: a busy poll finds frames that the runtime does not know of yet.
    Always,
}

/// Role of a link in the agreement on shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharingRole {
    /// The link of an element, which offers memory to endpoints.
    Offer,
    /// The link of an endpoint, which requests memory from its element, see [`Link::request_memory`].
    Request,
}

/// Readiness of a link, awaited without holding the link.
#[derive(Debug, Clone)]
pub struct Readiness {
    socket: Arc<UdpSocket>,
    peer_events: Option<PeerEvents>,
}

impl Readiness {
    /// Waits as [`Link::readable`] does, after [`Link::arm_wakeup`]; `blocked`: frames wait for the send buffer.
    ///
    /// # Errors
    /// When the runtime that owns the socket is shut down.
    pub async fn ready(&self, blocked: bool) -> io::Result<()> {
        let interest = match blocked {
            true => Interest::READABLE | Interest::WRITABLE,
            false => Interest::READABLE,
        };
        let Some(peer_events) = &self.peer_events else { return self.socket.ready(interest).await.map(drop) };
        tokio::select! {
            ready = self.socket.ready(interest) => ready.map(drop),
            notified = peer_events.notified() => notified,
        }
    }

    /// Polls as [`ready`](Self::ready) waits. If several tasks poll, only the last one is woken.
    ///
    /// # Errors
    /// As [`ready`](Self::ready).
    pub fn poll_ready(&self, cx: &mut Context<'_>, blocked: bool) -> Poll<io::Result<()>> {
        if blocked && let Poll::Ready(ready) = self.socket.poll_send_ready(cx) {
            return Poll::Ready(ready);
        }
        if let Some(peer_events) = &self.peer_events
            && let Poll::Ready(notified) = peer_events.poll_notified(cx)
        {
            return Poll::Ready(notified);
        }
        self.socket.poll_recv_ready(cx)
    }
}

/// Counters of a link since it was bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Frames received, by UDP and by shared memory.
    pub frames_in: u64,
    /// Bytes of these frames.
    pub bytes_in: u64,
    /// System calls that received something.
    pub calls_in: u64,
    /// Frames passed to the system, or to a peer by shared memory.
    pub frames_out: u64,
    /// Bytes of these frames.
    pub bytes_out: u64,
    /// System calls that sent something.
    pub calls_out: u64,
    /// Frames lost because the send buffer and the batches, or a ring, were full.
    pub lost_full: u64,
    /// Frames lost because the system refused them or could never send them.
    pub lost_error: u64,
    /// Frames received by shared memory.
    pub ring_frames_in: u64,
    /// Frames sent by shared memory.
    pub ring_frames_out: u64,
    /// Agreements with peers on shared memory.
    pub rings_agreed: u64,
    /// Refused agreements: no capacity for another ring, an address that was not proven, no listener.
    pub rings_refused: u64,
    /// Rings closed because the peer wrote invalid data into them.
    pub rings_broken: u64,
}

impl Link {
    /// Binds a socket to `addr` and asks the system for large buffers; port 0 takes a free port.
    ///
    /// # Errors
    /// Errors of the system, `AddrInUse` above all.
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O enabled: the socket belongs to the runtime in which it is created.
    pub fn bind(addr: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
        // A smaller buffer than requested works, and loses more under bursts: no reason to fail.
        let _ = socket.set_recv_buffer_size(RECV_BUFFER_BYTES);
        let _ = socket.set_send_buffer_size(SEND_BUFFER_BYTES);
        socket.set_nonblocking(true)?;
        socket.bind(&addr.into())?;
        let socket = UdpSocket::from_std(socket.into())?;
        let local = socket.local_addr()?;
        let offload = UdpSocketState::new((&socket).into())?;
        Ok(Self {
            io: LinkSocket { socket: Arc::new(socket), offload, local },
            batches: SendBatches::default(),
            rings: None,
            stats: LinkStats::default(),
            backlog: 0,
            is_drained: true,
            messages_asked: RECV_MESSAGES_MIN,
        })
    }

    /// Enables shared memory with peers on the same host: their frames go through it once both sides agree, and by UDP
    /// otherwise. Each pair takes 1 MiB; an element has [`RINGS_MAX`] at most.
    ///
    /// # Errors
    /// Errors of the system: missing facilities for shared memory.
    pub fn share_memory(&mut self, role: SharingRole) -> io::Result<()> {
        self.rings = Some(Box::new(match role {
            SharingRole::Offer => Rings::listener()?,
            SharingRole::Request => Rings::requester()?,
        }));
        Ok(())
    }

    /// Advances the request for memory shared with `element`, and with no other peer. Call it from time to time while
    /// frames are sent.
    pub fn request_memory(&mut self, now: Instant, element: Option<SocketAddr>) {
        if let Some(rings) = &mut self.rings
            && let Some((to, hello)) = rings.request_memory(now, element)
        {
            self.io.send_message(to, &hello);
        }
    }

    /// Addresses of the peers with which memory is shared.
    pub fn memory_peers(&self) -> impl Iterator<Item = SocketAddr> {
        self.rings.iter().flat_map(|rings| rings.peers())
    }

    /// The bound address, with its port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.io.local
    }

    /// Waits until frames may have arrived or, while frames wait for the send buffer, until [`flush`](Self::flush) can
    /// send some of them. May return with nothing to do.
    ///
    /// # Errors
    /// When the runtime that owns the socket is shut down.
    pub async fn readable(&mut self) -> io::Result<()> {
        if !self.arm_wakeup() {
            // Let the runtime run all the same: only the runtime watches the socket.
            tokio::task::yield_now().await;
            return Ok(());
        }
        self.readiness().ready(self.is_blocked()).await
    }

    /// Asks peers that share memory for a wake-up when they send; false if frames are there already. Call it before
    /// [`Readiness::ready`]; a receive call with [`PollMode::IfReady`] disarms the wake-up.
    #[must_use = "there may be frames"]
    pub fn arm_wakeup(&mut self) -> bool {
        self.rings.as_mut().is_none_or(|rings| rings.arm_wakeup())
    }

    /// Disarms the wake-up on behalf of a thread that busy-polls, see [`arm_wakeup`](Self::arm_wakeup).
    pub fn disarm_wakeup(&mut self) {
        if let Some(rings) = &mut self.rings {
            rings.disarm_wakeup();
        }
    }

    /// Returns the readiness of the link, to await without holding the link.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        let peer_events = self.rings.as_ref().map(|rings| rings.peer_events());
        Readiness { socket: Arc::clone(&self.io.socket), peer_events }
    }

    /// Receives at most one batch without waiting and passes each frame to `f`: its source address, whether the network
    /// marked it "congestion experienced", and its bytes, which `f` may change.
    ///
    /// Returns the number of frames; 0 when no frame is there.
    ///
    /// # Errors
    /// Errors of the system, except `WouldBlock`.
    pub fn recv(&mut self, mut f: impl FnMut(SocketAddr, bool, &mut [u8])) -> io::Result<usize> {
        self.exchange(PollMode::IfReady, |_, from, ce, frame| f(from, ce, frame))
    }

    /// Receives like [`recv`](Self::recv), with the sending side at hand: `f` may queue frames, the received one
    /// included. Frames still queued at the end of the batch wait for [`flush`](Self::flush).
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn exchange(
        &mut self,
        mode: PollMode,
        mut f: impl FnMut(&mut LinkOutbox<'_>, SocketAddr, bool, &mut [u8]),
    ) -> io::Result<usize> {
        let mut received = ReceiveBuffer::of_this_thread();
        let mut frames = 0;
        if let Some(rings) = &mut self.rings {
            rings.process_peer_events(mode, &mut self.stats);
            let buffer = &mut received.get().bytes[..RECV_MESSAGE_BYTES];
            frames = rings.receive(buffer, &mut self.stats, |senders, stats, from, ce, frame| {
                f(
                    &mut LinkOutbox::new(&mut self.io, &mut self.batches, stats, Some(senders), self.backlog),
                    from,
                    ce,
                    frame,
                );
            });
            if rings.can_skip_socket(mode, frames) {
                return Ok(frames);
            }
        }
        Ok(frames + self.exchange_by_socket(mode, received.get(), f)?)
    }

    /// Receives from the socket as [`exchange`](Self::exchange) does.
    fn exchange_by_socket(
        &mut self,
        mode: PollMode,
        ReceivedMessages { bytes: received, meta }: &mut ReceivedMessages,
        mut f: impl FnMut(&mut LinkOutbox<'_>, SocketAddr, bool, &mut [u8]),
    ) -> io::Result<usize> {
        let messages = match self.io.recv(mode, received, &mut meta[..self.messages_asked]) {
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
                    if let Some(answer) = self
                        .rings
                        .as_mut()
                        .and_then(|rings| rings.handle_message(from, &message.repr(), &mut self.stats))
                    {
                        self.io.send_message(from, &answer);
                    }
                } else {
                    if std::mem::take(&mut first)
                        && let Some(rings) = &mut self.rings
                    {
                        rings.note_udp_frame(from);
                    }
                    let rings = self.rings.as_mut().map(|rings| &mut rings.senders);
                    let stats = &mut self.stats;
                    f(
                        &mut LinkOutbox::new(&mut self.io, &mut self.batches, stats, rings, self.backlog),
                        from,
                        ce,
                        frame,
                    );
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

    /// Queues a frame to `to`. Frames of one length to one destination leave in one system call; the last one may be
    /// shorter. The order per destination is kept. A full batch is sent.
    ///
    /// A frame is lost, and counted, when the send buffer and its batch are full, or when it can never be sent: empty,
    /// longer than [`FRAME_BYTES_MAX`], or to an unreachable address.
    #[inline]
    pub fn queue(&mut self, to: SocketAddr, frame: &[u8]) {
        let rings = self.rings.as_mut().map(|rings| &mut rings.senders);
        LinkOutbox::new(&mut self.io, &mut self.batches, &mut self.stats, rings, self.backlog).queue(to, frame);
    }

    /// Sends the queued frames. Frames that the send buffer does not take stay queued; then
    /// [`readable`](Self::readable) also returns when calling `flush` again is worthwhile.
    pub fn flush(&mut self) {
        if let Some(rings) = &mut self.rings {
            rings.senders.flush();
        }
        self.batches.flush(&mut self.io, &mut self.stats);
    }

    /// Returns whether frames wait for the send buffer: only after a `queue` or `flush` that found the buffer full,
    /// until all frames are sent.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.batches.is_blocked()
    }

    /// Bytes received since the receive buffer was last seen empty: the bytes that waited at the last
    /// [`recv`](Self::recv) if it took all of them, and more as long as no call empties the buffer.
    #[must_use]
    pub fn backlog(&self) -> usize {
        self.backlog
    }

    /// Counters of frames, bytes and system calls.
    #[must_use]
    pub fn stats(&self) -> LinkStats {
        self.stats
    }

    fn note_backlog(&mut self, messages: &[RecvMeta]) {
        let bytes: usize = messages.iter().map(|message| message.len).sum();
        self.backlog = if self.is_drained { bytes } else { self.backlog.saturating_add(bytes) };
        self.is_drained = messages.len() < self.messages_asked;
        self.messages_asked =
            if self.is_drained && messages.len() <= RECV_MESSAGES_MIN { RECV_MESSAGES_MIN } else { RECV_MESSAGES };
        self.stats.bytes_in += bytes as u64;
        self.stats.calls_in += u64::from(!messages.is_empty());
    }
}
