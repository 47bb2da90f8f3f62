//! Send batches of a link: frames for any destination come in one by one, and leave by as few system calls as their
//! destinations and lengths allow.

use std::io;
use std::net::SocketAddr;

use super::rings::RingSenders;
use super::{LinkSocket, LinkStats};

/// Longest frame that a link sends, bytes: a 64 KiB packet without its IPv4 and UDP headers.
pub const FRAME_BYTES_MAX: usize = 65_507;
/// Destinations with an open batch at a time; a frame to one more sends all batches first. A multicast to all workers
/// of an application (64) still leaves in batches.
pub const OPEN_BATCHES_MAX: usize = 72;

/// Bytes of one batch: the most that one send call takes.
const BATCH_BYTES_MAX: usize = FRAME_BYTES_MAX;
/// Frames of one batch: the most that every system with segmentation offload takes (Linux: `UDP_MAX_SEGMENTS`).
const BATCH_FRAMES_MAX: usize = 64;

/// Sending side of a [`Link`](super::Link), while a received batch is processed.
#[derive(Debug)]
pub struct LinkOutbox<'a> {
    io: &'a mut LinkSocket,
    batches: &'a mut SendBatches,
    stats: &'a mut LinkStats,
    rings: Option<&'a mut RingSenders>,
    backlog: usize,
}

impl<'a> LinkOutbox<'a> {
    pub(super) fn new(
        io: &'a mut LinkSocket,
        batches: &'a mut SendBatches,
        stats: &'a mut LinkStats,
        rings: Option<&'a mut RingSenders>,
        backlog: usize,
    ) -> Self {
        Self { io, batches, stats, rings, backlog }
    }

    /// Queues a frame as [`Link::queue`](super::Link::queue) does.
    #[inline]
    pub fn queue(&mut self, to: SocketAddr, frame: &[u8]) {
        if let Some(rings) = &mut self.rings
            && rings.queue(to, frame, self.stats)
        {
            return;
        }
        self.batches.queue(self.io, self.stats, to, frame);
    }

    /// Backlog as of [`Link::backlog`](super::Link::backlog), including the batch that is being processed.
    #[must_use]
    pub fn backlog(&self) -> usize {
        self.backlog
    }
}

/// Datagram socket that sends batches; tests replace it.
pub(super) trait BatchSocket {
    /// Sends a run of frames of `segment` bytes each in one call; the last may be shorter.
    fn send(&mut self, to: SocketAddr, contents: &[u8], segment: usize) -> io::Result<()>;
    /// Most frames that one send call can carry; falls to 1 when the system refuses offload.
    fn segments_max(&self) -> usize;
    /// Returns whether the socket can send to this address.
    fn can_reach(&self, to: SocketAddr) -> bool;
}

/// Send batches of a link: the first `open` hold frames, the others keep their memory for later.
#[derive(Debug, Default)]
pub(super) struct SendBatches {
    batches: Vec<Batch>,
    open: usize,
    /// Index of the batch of the last frame: the next frame usually goes to the same one or to the next.
    last: usize,
    /// Whether a send call found the socket's buffer full and frames wait for it.
    blocked: bool,
}

impl SendBatches {
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked
    }

    pub(super) fn queue(&mut self, socket: &mut impl BatchSocket, stats: &mut LinkStats, to: SocketAddr, frame: &[u8]) {
        if frame.is_empty() || frame.len() > FRAME_BYTES_MAX || !socket.can_reach(to) {
            stats.lost_error += 1;
            return;
        }
        let Some(i) = self.batch_for(socket, stats, to) else {
            stats.lost_full += 1;
            return;
        };
        self.last = i;
        let batch = &mut self.batches[i];
        if !batch.fits(frame.len()) && !batch.send(socket, stats) {
            self.blocked = true;
            stats.lost_full += 1;
            return;
        }
        batch.push(frame);
    }

    /// Sends the batches in the order in which they were opened, until the socket's buffer is full.
    pub(super) fn flush(&mut self, socket: &mut impl BatchSocket, stats: &mut LinkStats) {
        let open = &mut self.batches[..self.open];
        let sent = open.iter_mut().position(|batch| !batch.send(socket, stats)).unwrap_or(open.len());
        open.rotate_left(sent);
        self.open -= sent;
        self.blocked = self.open > 0;
        self.last = 0;
    }

    /// Index of the open batch to `to`, opened if necessary; `None` when all batches are open and blocked.
    fn batch_for(&mut self, socket: &mut impl BatchSocket, stats: &mut LinkStats, to: SocketAddr) -> Option<usize> {
        let (before, after) = self.batches[..self.open].split_at(self.last);
        if let Some(i) = after.iter().position(|batch| batch.to == to) {
            return Some(self.last + i);
        }
        if let Some(i) = before.iter().position(|batch| batch.to == to) {
            return Some(i);
        }
        if self.open == OPEN_BATCHES_MAX {
            self.flush(socket, stats);
        }
        match self.batches.get_mut(self.open) {
            Some(batch) => batch.to = to,
            None if self.open < OPEN_BATCHES_MAX => self.batches.push(Batch::new(to)),
            None => return None,
        }
        self.open += 1;
        Some(self.open - 1)
    }
}

/// Frames to one destination: a run of `segment` bytes each, ended by a shorter one.
#[derive(Debug)]
struct Batch {
    to: SocketAddr,
    bytes: Vec<u8>,
    segment: usize,
    /// Bytes at the front that are sent or lost.
    done: usize,
}

impl Batch {
    fn new(to: SocketAddr) -> Self {
        Self { to, bytes: Vec::new(), segment: 0, done: 0 }
    }

    fn fits(&self, len: usize) -> bool {
        let bytes = self.bytes.len();
        bytes == 0
            || len <= self.segment
                && bytes.is_multiple_of(self.segment)
                && bytes / self.segment < BATCH_FRAMES_MAX
                && bytes + len <= BATCH_BYTES_MAX
    }

    fn push(&mut self, frame: &[u8]) {
        debug_assert!(self.fits(frame.len()), "{} bytes after {} of {}", frame.len(), self.bytes.len(), self.segment);
        if self.bytes.is_empty() {
            self.segment = frame.len();
        }
        self.bytes.extend_from_slice(frame);
    }

    /// Sends the unsent frames; false when the socket's buffer is full and the call has to be repeated.
    fn send(&mut self, socket: &mut impl BatchSocket, stats: &mut LinkStats) -> bool {
        while self.done < self.bytes.len() {
            let segments = socket.segments_max();
            let rest = &self.bytes[self.done..];
            let run = &rest[..rest.len().min(self.segment * segments)];
            let frames = run.len().div_ceil(self.segment) as u64;
            match socket.send(self.to, run, self.segment) {
                Ok(()) => {
                    stats.frames_out += frames;
                    stats.bytes_out += run.len() as u64;
                    stats.calls_out += 1;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return false,
                // Offload was refused by this call: send the same frames again, one by one.
                Err(_) if frames > 1 && socket.segments_max() < segments => continue,
                Err(_) => stats.lost_error += frames,
            }
            self.done += run.len();
        }
        self.bytes.clear();
        self.done = 0;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// Socket stand-in with room for `room` calls, and offload until the first use.
    struct Fake {
        room: Cell<usize>,
        segments_max: Cell<usize>,
        refuses_offload: bool,
        calls: RefCell<Vec<(u16, Vec<u8>)>>,
    }

    fn fake(room: usize, refuses_offload: bool) -> Fake {
        Fake { room: Cell::new(room), segments_max: Cell::new(64), refuses_offload, calls: RefCell::default() }
    }

    impl BatchSocket for Fake {
        fn send(&mut self, to: SocketAddr, contents: &[u8], segment: usize) -> io::Result<()> {
            assert!(contents.len() <= segment * self.segments_max());
            if self.refuses_offload && contents.len() > segment {
                self.segments_max.set(1);
                return Err(io::ErrorKind::InvalidInput.into());
            }
            if self.room.get() == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.room.set(self.room.get() - 1);
            self.calls.borrow_mut().push((to.port(), contents.to_vec()));
            Ok(())
        }

        fn segments_max(&self) -> usize {
            self.segments_max.get()
        }

        fn can_reach(&self, _: SocketAddr) -> bool {
            true
        }
    }

    fn to(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn refused_offload_sends_the_same_frames_one_by_one() {
        let (mut socket, mut batches, mut stats) =
            (fake(usize::MAX, true), SendBatches::default(), LinkStats::default());
        for i in 0..5 {
            batches.queue(&mut socket, &mut stats, to(1), &[i; 3]);
        }
        batches.queue(&mut socket, &mut stats, to(1), &[5; 2]);
        batches.flush(&mut socket, &mut stats);
        let frames: Vec<_> = socket.calls.take().into_iter().map(|(_, bytes)| bytes).collect();
        assert_eq!(frames, [&[0; 3][..], &[1; 3], &[2; 3], &[3; 3], &[4; 3], &[5; 2]]);
        assert_eq!((stats.frames_out, stats.bytes_out, stats.calls_out, stats.lost_error), (6, 17, 6, 0));
    }

    #[test]
    fn full_socket_keeps_frame_order_and_bounds() {
        let (mut socket, mut batches, mut stats) = (fake(2, false), SendBatches::default(), LinkStats::default());
        for destination in 1..=4 {
            batches.queue(&mut socket, &mut stats, to(destination), &[destination as u8; 9]);
        }
        batches.flush(&mut socket, &mut stats);
        assert!(batches.is_blocked());
        // The batches of two destinations are unsent; they take frames up to their size, then lose frames.
        for _ in 0..100 {
            batches.queue(&mut socket, &mut stats, to(4), &[44; 9]);
        }
        assert_eq!(stats.lost_full, 101 - 64);
        // The number of destinations is bounded, too.
        for destination in 5..200 {
            batches.queue(&mut socket, &mut stats, to(destination), &[1]);
        }
        assert_eq!(stats.lost_full, 37 + (195 - (OPEN_BATCHES_MAX as u64 - 2)));

        socket.room.set(usize::MAX);
        batches.flush(&mut socket, &mut stats);
        assert!(!batches.is_blocked());
        let calls = socket.calls.take();
        assert_eq!(calls.iter().map(|call| call.0).collect::<Vec<_>>()[..5], [1, 2, 3, 4, 5]);
        assert_eq!(calls[3].1[..18], [[4; 9], [44; 9]].concat());
        assert_eq!(stats.frames_out + stats.lost_full, 4 + 100 + 195);
    }

    #[test]
    fn full_socket_mid_batch_sends_no_frame_twice() {
        let (mut socket, mut batches, mut stats) = (fake(3, true), SendBatches::default(), LinkStats::default());
        for i in 0..6 {
            batches.queue(&mut socket, &mut stats, to(1), &[i]);
        }
        batches.flush(&mut socket, &mut stats);
        assert!(batches.is_blocked());
        batches.queue(&mut socket, &mut stats, to(1), &[6]);
        socket.room.set(usize::MAX);
        batches.flush(&mut socket, &mut stats);
        let frames: Vec<_> = socket.calls.take().into_iter().map(|(_, bytes)| bytes[0]).collect();
        assert_eq!(frames, [0, 1, 2, 3, 4, 5, 6]);
    }
}
