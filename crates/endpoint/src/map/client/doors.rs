//! How frames come to a caller and leave it: checked and signed, if its application has tokens.

use pathcall_wire::{Instant, Mutant, TokenKey, mutant};

use super::{MapClient, Outbox};
use crate::token::{Guard, mark};

impl MapClient {
    /// The same with an application whose frames this key signs; `None`: they carry no tokens.
    #[must_use]
    pub fn authenticate(self, key: Option<TokenKey>) -> Self {
        Self { guard: Guard::new(key), ..self }
    }

    /// Takes a frame from the network.
    pub fn handle(&mut self, now: Instant, bytes: &[u8], _out: &mut impl Outbox) {
        if self.admits(bytes) && self.take(now, bytes).is_none() {
            self.stats.frames_ignored += 1;
        }
    }

    /// The same, of a frame that met congestion in the network below.
    pub fn handle_marked(&mut self, now: Instant, bytes: &mut [u8], _out: &mut impl Outbox) {
        if self.admits(bytes) {
            mark(bytes);
            self.stats.frames_ignored += u64::from(self.take(now, bytes).is_none());
        }
    }

    /// Whether a frame carries the token that it should; counts it.
    fn admits(&mut self, bytes: &[u8]) -> bool {
        let admits = self.guard.admits(bytes, mutant::on(Mutant::ClientToken));
        self.stats.frames_received += 1;
        self.stats.frames_ignored += u64::from(!admits);
        self.stats.frames_unauthentic += u64::from(!admits);
        admits
    }

    /// Sends what may be sent and what is due again.
    pub fn poll(&mut self, now: Instant, out: &mut impl Outbox) {
        let mut guard = std::mem::take(&mut self.guard);
        self.send(now, &mut guard.signing(out));
        self.guard = guard;
    }
}
