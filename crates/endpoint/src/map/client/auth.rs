//! Entry points of a caller for frames and timers: received frames are authenticated, sent frames signed.

use pathcall_wire::{Instant, Mutant, TokenKey, mutant};

use super::{FrameSink, MapClient};
use crate::token::{FrameAuth, set_congestion_flag};

impl MapClient {
    /// Sets the key of the application's frames; `None`: frames have no tokens.
    #[must_use]
    pub fn authenticate(self, key: Option<TokenKey>) -> Self {
        Self { guard: FrameAuth::new(key), ..self }
    }

    /// Handles a received frame.
    pub fn handle(&mut self, now: Instant, bytes: &[u8], _out: &mut impl FrameSink) {
        if self.admits(bytes) && self.handle_admitted(now, bytes).is_none() {
            self.stats.frames_ignored += 1;
        }
    }

    /// Handles a received frame whose IP packet has a congestion mark.
    pub fn handle_marked(&mut self, now: Instant, bytes: &mut [u8], _out: &mut impl FrameSink) {
        if self.admits(bytes) {
            set_congestion_flag(bytes);
            self.stats.frames_ignored += u64::from(self.handle_admitted(now, bytes).is_none());
        }
    }

    /// Whether the token of a frame is valid; counts the frame.
    fn admits(&mut self, bytes: &[u8]) -> bool {
        let admits = self.guard.admits(bytes, mutant::on(Mutant::ClientToken));
        self.stats.frames_received += 1;
        self.stats.frames_ignored += u64::from(!admits);
        self.stats.frames_unauthentic += u64::from(!admits);
        admits
    }

    /// Sends new frames and due retransmissions.
    pub fn poll(&mut self, now: Instant, out: &mut impl FrameSink) {
        let mut guard = std::mem::take(&mut self.guard);
        self.send(now, &mut guard.signing(out));
        self.guard = guard;
    }
}
