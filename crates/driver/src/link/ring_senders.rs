//! Sending rings of a link, used in place of its socket.
//!
//! Queued frames are pushed into the ring, and published at the flush: once for the whole batch.

use std::net::SocketAddr;
use std::sync::Arc;

use pathcall_shm::ring::PushError;
use pathcall_shm::{MemoryPeer, Producer, RingMap};

use super::LinkStats;

/// Unpublished words at which frames are published before the flush, so that the peer can begin to process them.
const UNPUBLISHED_MAX: u64 = 4096;

/// Sending rings of a link.
#[derive(Debug, Default)]
pub(super) struct RingSenders {
    senders: Vec<RingSender>,
    /// Index of the ring of the last frame: the next frame usually goes to the same one or to the next.
    last: usize,
}

#[derive(Debug)]
struct RingSender {
    to: SocketAddr,
    producer: Producer<RingMap>,
    peer: Arc<MemoryPeer>,
    corrupt: bool,
}

impl RingSenders {
    /// Appends a ring.
    pub(super) fn add(&mut self, to: SocketAddr, producer: Producer<RingMap>, peer: Arc<MemoryPeer>) {
        self.senders.push(RingSender { to, producer, peer, corrupt: false });
    }

    /// Removes a ring; the last one takes its index.
    pub(super) fn swap_remove(&mut self, index: usize) {
        self.senders.swap_remove(index);
    }

    /// Queues a frame if there is a ring to `to`; returns whether there is one. A frame that finds the ring full is
    /// lost.
    #[inline]
    pub(super) fn queue(&mut self, to: SocketAddr, frame: &[u8], stats: &mut LinkStats) -> bool {
        let before = self.last.min(self.senders.len());
        let (before, after) = self.senders.split_at(before);
        let index = after.iter().position(|sender| sender.to == to).map(|index| before.len() + index);
        let Some(index) = index.or_else(|| before.iter().position(|sender| sender.to == to)) else { return false };
        self.last = index;
        self.senders[index].push(frame, stats);
        true
    }

    /// Index of a ring whose peer has corrupted its positions.
    pub(super) fn corrupt(&self) -> Option<usize> {
        self.senders.iter().position(|sender| sender.corrupt)
    }

    /// Publishes the queued frames and wakes the peers that wait.
    pub(super) fn flush(&mut self) {
        self.senders.iter_mut().for_each(RingSender::publish);
    }
}

impl RingSender {
    fn push(&mut self, frame: &[u8], stats: &mut LinkStats) {
        match self.producer.push(frame) {
            Ok(()) => {
                stats.frames_out += 1;
                stats.ring_frames_out += 1;
                stats.bytes_out += frame.len() as u64;
                if self.producer.unpublished_words() >= UNPUBLISHED_MAX {
                    self.publish();
                }
            }
            Err(PushError::Full) => stats.lost_full += 1,
            Err(PushError::Length { .. }) => stats.lost_error += 1,
            Err(PushError::Corrupt(_)) => {
                stats.lost_error += 1;
                self.corrupt = true;
            }
        }
    }

    fn publish(&mut self) {
        if self.producer.publish() {
            self.peer.wake();
        }
    }
}
