//! The rings that frames leave a link by, in place of its socket.
//!
//! Frames are pushed as they are queued, and published when they are flushed: once for all of a batch.

use std::net::SocketAddr;
use std::sync::Arc;

use pathcall_shm::ring::Refused;
use pathcall_shm::{Map, Peer, Producer};

use super::LinkStats;

/// What is not published yet may grow to so many words: then it is, so that the peer works meanwhile.
const UNPUBLISHED_MAX: u64 = 4096;

/// The rings that frames leave by.
#[derive(Debug, Default)]
pub(super) struct Senders {
    senders: Vec<Sender>,
    /// Where the last frame went: the next one goes there or to the one after, as a rule.
    last: usize,
}

#[derive(Debug)]
struct Sender {
    to: SocketAddr,
    producer: Producer<Map>,
    peer: Arc<Peer>,
    corrupt: bool,
}

impl Senders {
    /// Adds a ring, at the last place.
    pub(super) fn add(&mut self, to: SocketAddr, producer: Producer<Map>, peer: Arc<Peer>) {
        self.senders.push(Sender { to, producer, peer, corrupt: false });
    }

    /// Forgets a ring; the last one takes its place.
    pub(super) fn swap_remove(&mut self, place: usize) {
        self.senders.swap_remove(place);
    }

    /// Takes a frame if there is a ring to there; whether there is. One that finds it full is lost.
    #[inline]
    pub(super) fn queue(&mut self, to: SocketAddr, frame: &[u8], stats: &mut LinkStats) -> bool {
        let before = self.last.min(self.senders.len());
        let (before, after) = self.senders.split_at(before);
        let place = after.iter().position(|sender| sender.to == to).map(|place| before.len() + place);
        let Some(place) = place.or_else(|| before.iter().position(|sender| sender.to == to)) else { return false };
        self.last = place;
        self.senders[place].push(frame, stats);
        true
    }

    /// A ring whose peer reads what was never written.
    pub(super) fn corrupt(&self) -> Option<usize> {
        self.senders.iter().position(|sender| sender.corrupt)
    }

    /// Shows the peers what was queued, and wakes those that wait.
    pub(super) fn flush(&mut self) {
        self.senders.iter_mut().for_each(Sender::publish);
    }
}

impl Sender {
    fn push(&mut self, frame: &[u8], stats: &mut LinkStats) {
        match self.producer.push(frame) {
            Ok(()) => {
                stats.frames_out += 1;
                stats.ring_frames_out += 1;
                stats.bytes_out += frame.len() as u64;
                if self.producer.unpublished() >= UNPUBLISHED_MAX {
                    self.publish();
                }
            }
            Err(Refused::Full) => stats.lost_full += 1,
            Err(Refused::Length { .. }) => stats.lost_error += 1,
            Err(Refused::Corrupt(_)) => {
                stats.lost_error += 1;
                self.corrupt = true;
            }
        }
    }

    fn publish(&mut self) {
        if self.producer.publish() {
            self.peer.ring();
        }
    }
}
