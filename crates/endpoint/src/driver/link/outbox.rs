//! Send batches: frames come in one by one for any destination, and leave by as few system calls
//! as the destinations and lengths allow.

use std::io;
use std::net::SocketAddr;

use super::rings::Senders;
use super::{Io, LinkStats};

/// Longest frame that a link sends, bytes: what IPv4 and UDP leave of a 64 KiB packet.
pub const FRAME_BYTES_MAX: usize = 65_507;
/// Destinations that frames are gathered for at a time; one more sends all of them first.
/// A multicast to all workers of an application (64) still leaves in batches.
pub const OPEN_BATCHES_MAX: usize = 72;

/// Bytes of one batch: what one send call takes.
const BATCH_BYTES_MAX: usize = FRAME_BYTES_MAX;
/// Frames of one batch: what every system with segmentation offload takes (Linux: `UDP_MAX_SEGMENTS`).
const BATCH_FRAMES_MAX: usize = 64;

/// The sending side of a [`Link`](super::Link), while a received batch is worked on.
#[derive(Debug)]
pub struct Outbox<'a> {
    io: &'a mut Io,
    batches: &'a mut Batches,
    stats: &'a mut LinkStats,
    rings: Option<&'a mut Senders>,
    backlog: usize,
}

impl<'a> Outbox<'a> {
    pub(super) fn new(
        io: &'a mut Io,
        batches: &'a mut Batches,
        stats: &'a mut LinkStats,
        rings: Option<&'a mut Senders>,
        backlog: usize,
    ) -> Self {
        Self { io, batches, stats, rings, backlog }
    }

    /// As [`Link::queue`](super::Link::queue).
    #[inline]
    pub fn queue(&mut self, to: SocketAddr, frame: &[u8]) {
        if let Some(rings) = &mut self.rings
            && rings.queue(to, frame, self.stats)
        {
            return;
        }
        self.batches.queue(self.io, self.stats, to, frame);
    }

    /// As [`Link::backlog`](super::Link::backlog), the batch that is worked on included.
    #[must_use]
    pub fn backlog(&self) -> usize {
        self.backlog
    }
}

/// What takes the batches: the socket, or a test's stand-in.
pub(super) trait Port {
    /// One send call: a run of frames of `segment` bytes, the last may be shorter.
    fn send(&mut self, to: SocketAddr, contents: &[u8], segment: usize) -> io::Result<()>;
    /// Frames that one send call can carry now; falls to 1 when the system refuses offload.
    fn segments_max(&self) -> usize;
    /// Whether a send to there can be meant.
    fn reaches(&self, to: SocketAddr) -> bool;
}

/// The batches of a link: the first `open` hold frames, the others keep their memory for later.
#[derive(Debug, Default)]
pub(super) struct Batches {
    batches: Vec<Batch>,
    open: usize,
    /// Where the last frame went: the next one goes there or to the one after, as a rule.
    last: usize,
    /// Whether a send found the socket's buffer full and frames wait for it.
    blocked: bool,
}

impl Batches {
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked
    }

    pub(super) fn queue(&mut self, port: &mut impl Port, stats: &mut LinkStats, to: SocketAddr, frame: &[u8]) {
        if frame.is_empty() || frame.len() > FRAME_BYTES_MAX || !port.reaches(to) {
            stats.lost_error += 1;
            return;
        }
        let Some(i) = self.batch_for(port, stats, to) else {
            stats.lost_full += 1;
            return;
        };
        self.last = i;
        let batch = &mut self.batches[i];
        if !batch.takes(frame.len()) && !batch.send(port, stats) {
            self.blocked = true;
            stats.lost_full += 1;
            return;
        }
        batch.push(frame);
    }

    /// Sends the batches in the order in which they were opened, until the socket's buffer is full.
    pub(super) fn flush(&mut self, port: &mut impl Port, stats: &mut LinkStats) {
        let open = &mut self.batches[..self.open];
        let sent = open.iter_mut().position(|batch| !batch.send(port, stats)).unwrap_or(open.len());
        open.rotate_left(sent);
        self.open -= sent;
        self.blocked = self.open > 0;
        self.last = 0;
    }

    /// The open batch to `to`, opened if need be; `None` when there are too many that can't be sent.
    fn batch_for(&mut self, port: &mut impl Port, stats: &mut LinkStats, to: SocketAddr) -> Option<usize> {
        let (before, after) = self.batches[..self.open].split_at(self.last);
        if let Some(i) = after.iter().position(|batch| batch.to == to) {
            return Some(self.last + i);
        }
        if let Some(i) = before.iter().position(|batch| batch.to == to) {
            return Some(i);
        }
        if self.open == OPEN_BATCHES_MAX {
            self.flush(port, stats);
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

/// Frames to one destination: a run of `segment` bytes each, closed by a shorter one.
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

    fn takes(&self, len: usize) -> bool {
        let bytes = self.bytes.len();
        bytes == 0
            || len <= self.segment
                && bytes.is_multiple_of(self.segment)
                && bytes / self.segment < BATCH_FRAMES_MAX
                && bytes + len <= BATCH_BYTES_MAX
    }

    fn push(&mut self, frame: &[u8]) {
        debug_assert!(self.takes(frame.len()), "{} bytes after {} of {}", frame.len(), self.bytes.len(), self.segment);
        if self.bytes.is_empty() {
            self.segment = frame.len();
        }
        self.bytes.extend_from_slice(frame);
    }

    /// Sends what is not sent yet; false when the socket's buffer is full, to be called again.
    fn send(&mut self, port: &mut impl Port, stats: &mut LinkStats) -> bool {
        while self.done < self.bytes.len() {
            let segments = port.segments_max();
            let rest = &self.bytes[self.done..];
            let run = &rest[..rest.len().min(self.segment * segments)];
            let frames = run.len().div_ceil(self.segment) as u64;
            match port.send(self.to, run, self.segment) {
                Ok(()) => {
                    stats.frames_out += frames;
                    stats.bytes_out += run.len() as u64;
                    stats.calls_out += 1;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return false,
                // Offload was refused just now: the same frames again, one by one.
                Err(_) if frames > 1 && port.segments_max() < segments => continue,
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

    /// A port with room for so many calls, and offload until it is first used.
    struct Fake {
        room: Cell<usize>,
        segments_max: Cell<usize>,
        refuses_offload: bool,
        calls: RefCell<Vec<(u16, Vec<u8>)>>,
    }

    fn fake(room: usize, refuses_offload: bool) -> Fake {
        Fake { room: Cell::new(room), segments_max: Cell::new(64), refuses_offload, calls: RefCell::default() }
    }

    impl Port for Fake {
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

        fn reaches(&self, _: SocketAddr) -> bool {
            true
        }
    }

    fn to(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn refused_offload_sends_the_same_frames_one_by_one() {
        let (mut port, mut batches, mut stats) = (fake(usize::MAX, true), Batches::default(), LinkStats::default());
        for i in 0..5 {
            batches.queue(&mut port, &mut stats, to(1), &[i; 3]);
        }
        batches.queue(&mut port, &mut stats, to(1), &[5; 2]);
        batches.flush(&mut port, &mut stats);
        let frames: Vec<_> = port.calls.take().into_iter().map(|(_, bytes)| bytes).collect();
        assert_eq!(frames, [&[0; 3][..], &[1; 3], &[2; 3], &[3; 3], &[4; 3], &[5; 2]]);
        assert_eq!((stats.frames_out, stats.bytes_out, stats.calls_out, stats.lost_error), (6, 17, 6, 0));
    }

    #[test]
    fn a_full_socket_keeps_frames_in_order_and_within_bounds() {
        let (mut port, mut batches, mut stats) = (fake(2, false), Batches::default(), LinkStats::default());
        for destination in 1..=4 {
            batches.queue(&mut port, &mut stats, to(destination), &[destination as u8; 9]);
        }
        batches.flush(&mut port, &mut stats);
        assert!(batches.is_blocked());
        // The batches of two are unsent; they take frames up to their size, then lose.
        for _ in 0..100 {
            batches.queue(&mut port, &mut stats, to(4), &[44; 9]);
        }
        assert_eq!(stats.lost_full, 101 - 64);
        // Destinations are bounded too.
        for destination in 5..200 {
            batches.queue(&mut port, &mut stats, to(destination), &[1]);
        }
        assert_eq!(stats.lost_full, 37 + (195 - (OPEN_BATCHES_MAX as u64 - 2)));

        port.room.set(usize::MAX);
        batches.flush(&mut port, &mut stats);
        assert!(!batches.is_blocked());
        let calls = port.calls.take();
        assert_eq!(calls.iter().map(|call| call.0).collect::<Vec<_>>()[..5], [1, 2, 3, 4, 5]);
        assert_eq!(calls[3].1[..18], [[4; 9], [44; 9]].concat());
        assert_eq!(stats.frames_out + stats.lost_full, 4 + 100 + 195);
    }

    #[test]
    fn a_full_socket_in_the_middle_of_a_batch_sends_no_frame_twice() {
        let (mut port, mut batches, mut stats) = (fake(3, true), Batches::default(), LinkStats::default());
        for i in 0..6 {
            batches.queue(&mut port, &mut stats, to(1), &[i]);
        }
        batches.flush(&mut port, &mut stats);
        assert!(batches.is_blocked());
        batches.queue(&mut port, &mut stats, to(1), &[6]);
        port.room.set(usize::MAX);
        batches.flush(&mut port, &mut stats);
        let frames: Vec<_> = port.calls.take().into_iter().map(|(_, bytes)| bytes[0]).collect();
        assert_eq!(frames, [0, 1, 2, 3, 4, 5, 6]);
    }
}
