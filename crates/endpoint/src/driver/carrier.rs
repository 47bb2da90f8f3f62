//! Frames carried in a stream, between hosts that UDP does not connect.
//!
//! ```text
//! queue(frame) ─► batch ─ flush ─► a bounded queue ─► whoever writes the stream
//! whoever reads the stream ─► a party's `Feed` ─► frames(batch)
//! ```
//!
//! A batch is frames, each with its length before it in 16 bits. What finds the queue full is lost, as
//! on any link, and sent again by its flow: so a slow peer holds no memory. What comes in is as
//! hostile as what comes by UDP.

use tokio::sync::mpsc;

/// A batch is handed on at this length, bytes; a last frame may exceed it.
pub const BATCH_BYTES: usize = 64 << 10;
/// Batches that wait at an end of a stream.
pub const BATCHES_WAITING: usize = 16;

/// What was carried in streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CarriedStats {
    /// Streams open now.
    pub open: u64,
    /// Frames that came by streams.
    pub frames_in: u64,
    /// Frames that left by streams.
    pub frames_out: u64,
    /// Frames lost because a stream took no more.
    pub lost_full: u64,
    /// Frames dropped because they were of another endpoint than the stream.
    pub foreign: u64,
}

impl CarriedStats {
    /// Has a frame carried.
    pub(super) fn take(&mut self, carrier: &mut Carrier, frame: &[u8]) {
        let taken = carrier.queue(frame);
        self.frames_out += u64::from(taken);
        self.lost_full += u64::from(!taken);
    }
}

/// The sending side of a stream.
#[derive(Debug)]
pub struct Carrier {
    batches: mpsc::Sender<Vec<u8>>,
    batch: Vec<u8>,
}

impl Carrier {
    /// Sends batches there; they should be taken on to the stream at once.
    #[must_use]
    pub fn new(batches: mpsc::Sender<Vec<u8>>) -> Self {
        Self { batches, batch: Vec::new() }
    }

    /// Whether the stream has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.batches.is_closed()
    }

    /// Takes a frame; whether there was room.
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

    /// Hands on what there is, if there is room; else it waits for the next time.
    pub(super) fn flush(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        if let Ok(room) = self.batches.try_reserve() {
            room.send(std::mem::take(&mut self.batch));
        }
    }
}

/// The frames of a batch; a last one that is cut off is none.
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
    fn what_does_not_fit_is_lost_and_counted_by_the_caller() {
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
    fn a_batch_that_is_cut_off_has_the_frames_before_it() {
        let batch = [0, 2, 1, 2, 0, 0, 0, 5, 1];
        assert_eq!(frames(&batch).collect::<Vec<_>>(), [&[1, 2][..], &[]]);
        assert_eq!(frames(&batch[..3]).count() + frames(&batch[..1]).count() + frames(&[]).count(), 0);
    }
}
