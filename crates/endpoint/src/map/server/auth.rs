//! Entry points of an owner for frames and timers: received frames are authenticated, sent frames signed.

use pathcall_wire::{Instant, Mutant, TokenKey, mutant};

use super::{FrameSink, MapServer};
use crate::token::{FrameAuth, set_congestion_flag};

impl MapServer {
    /// Sets the key of the application's frames; `None`: frames have no tokens.
    #[must_use]
    pub fn authenticate(self, key: Option<TokenKey>) -> Self {
        Self { guard: FrameAuth::new(key), ..self }
    }

    /// Handles a received frame.
    pub fn handle(&mut self, now: Instant, bytes: &[u8], out: &mut impl FrameSink) {
        if self.admits(bytes) {
            self.handle_authentic(now, bytes, out);
        }
    }

    /// Handles a received frame whose IP packet has a congestion mark.
    pub fn handle_marked(&mut self, now: Instant, bytes: &mut [u8], out: &mut impl FrameSink) {
        if self.admits(bytes) {
            set_congestion_flag(bytes);
            self.handle_authentic(now, bytes, out);
        }
    }

    /// Whether the token of a frame is valid; counts the frame.
    fn admits(&mut self, bytes: &[u8]) -> bool {
        let admits = self.guard.admits(bytes, mutant::on(Mutant::ServerToken));
        let stats = &mut self.shared.stats;
        stats.frames_received += 1;
        stats.bytes_received += bytes.len() as u64;
        stats.frames_ignored += u64::from(!admits);
        stats.frames_unauthentic += u64::from(!admits);
        admits
    }

    fn handle_authentic(&mut self, now: Instant, bytes: &[u8], out: &mut impl FrameSink) {
        let mut guard = std::mem::take(&mut self.guard);
        let taken = self.handle_admitted(now, bytes, &mut guard.signing(out));
        self.guard = guard;
        self.shared.stats.frames_ignored += u64::from(taken.is_none());
    }

    /// Sends due frames: announcements of software rounds, reads of registers and others.
    pub fn poll(&mut self, now: Instant, out: &mut impl FrameSink) {
        let mut guard = std::mem::take(&mut self.guard);
        let out = &mut guard.signing(out);
        self.sums.poll(now, &mut self.shared, out);
        self.keyed.poll(now, &mut self.shared, out, &mut self.events);
        self.votes.poll(now, &mut self.shared, out, &mut self.events);
        self.guard = guard;
    }
}
