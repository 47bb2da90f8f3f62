//! Carrier of frames inside a gRPC stream, for hosts that UDP does not connect.
//!
//! ```text
//! queue(frame) ─► batch ─ flush ─► a bounded queue ─► writer of the stream
//! reader of the stream ─► carrier port of an endpoint ─► frames(batch)
//! ```
//!
//! A batch is a sequence of frames, each with its length before it in 16 bits. A batch that finds the queue full is
//! lost, as on any link, and its flow retransmits it: so a slow peer holds no memory. Received batches are as hostile
//! as UDP datagrams.

use tokio::sync::mpsc;

/// Length at which a batch is passed to the stream, bytes; the last frame may exceed it.
pub const BATCH_BYTES: usize = 64 << 10;
/// Batches that wait at each end of a stream at most.
pub const BATCHES_WAITING: usize = 16;

/// Counters of frames carried in streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CarriedStats {
    /// Streams that are open.
    pub open: u64,
    /// Frames received from streams.
    pub frames_in: u64,
    /// Frames sent to streams.
    pub frames_out: u64,
    /// Frames lost because the stream's queue was full.
    pub lost_full: u64,
    /// Frames dropped because their source is not the endpoint of the stream.
    pub foreign: u64,
}

impl CarriedStats {
    /// Queues a frame on the carrier and counts it as sent or lost.
    pub(super) fn queue(&mut self, carrier: &mut Carrier, frame: &[u8]) {
        let taken = carrier.queue(frame);
        self.frames_out += u64::from(taken);
        self.lost_full += u64::from(!taken);
    }
}

/// Sending side of a stream of carried frames.
#[derive(Debug)]
pub struct Carrier {
    batches: mpsc::Sender<Vec<u8>>,
    batch: Vec<u8>,
}

impl Carrier {
    /// Creates a carrier that sends batches to `batches`; the receiver should write them to the stream at once.
    #[must_use]
    pub fn new(batches: mpsc::Sender<Vec<u8>>) -> Self {
        Self { batches, batch: Vec::new() }
    }

    /// Returns whether the stream has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.batches.is_closed()
    }

    /// Queues a frame; returns false if there is no room.
    fn queue(&mut self, frame: &[u8]) -> bool {
        let Ok(len) = u16::try_from(frame.len()) else { return false };
        if self.batch.len() >= BATCH_BYTES {
            self.flush();
        }
        if self.batch.len() >= BATCH_BYTES {
            return false;
        }
        self.batch.extend_from_slice(&len.to_be_bytes());
        self.batch.extend_from_slice(frame);
        true
    }

    /// Passes the batch to the stream if its queue has room; otherwise the batch stays for the next flush.
    pub(super) fn flush(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        if let Ok(room) = self.batches.try_reserve() {
            room.send(std::mem::take(&mut self.batch));
        }
    }
}

/// Iterates over the frames of a batch; a truncated last frame is dropped.
pub fn frames(batch: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = batch;
    std::iter::from_fn(move || {
        let (len, after) = rest.split_first_chunk()?;
        let (frame, after) = after.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
        rest = after;
        Some(frame)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_beyond_the_queue_are_lost() {
        let (sender, mut receiver) = mpsc::channel(1);
        let mut carrier = Carrier::new(sender);
        let frame = vec![7; 1000];
        let taken = std::iter::repeat_with(|| carrier.queue(&frame)).take(1000).filter(|taken| *taken).count();
        // One batch waits in the queue, one in the carrier.
        assert_eq!(taken, 2 * BATCH_BYTES.div_ceil(1002));
        let first = receiver.try_recv().unwrap();
        carrier.flush();
        let second = receiver.try_recv().unwrap();
        assert!(receiver.try_recv().is_err());
        let got: Vec<&[u8]> = frames(&first).chain(frames(&second)).collect();
        assert_eq!(got.len(), taken);
        assert!(got.iter().all(|got| *got == frame));
        drop(receiver);
        assert!(carrier.is_over());
    }

    #[test]
    fn truncated_batch_yields_its_whole_frames() {
        let batch = [0, 2, 1, 2, 0, 0, 0, 5, 1];
        assert_eq!(frames(&batch).collect::<Vec<_>>(), [&[1, 2][..], &[]]);
        assert_eq!(frames(&batch[..3]).count() + frames(&batch[..1]).count() + frames(&[]).count(), 0);
    }
}
