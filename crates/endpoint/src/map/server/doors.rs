//! How frames come to an owner and leave it: checked and signed, if its application has tokens.

use pathcall_wire::{Instant, Mutant, TokenKey, mutant};

use super::{MapServer, Outbox};
use crate::token::{Guard, mark};

impl MapServer {
    /// The same of an application whose frames this key signs; `None`: they carry no tokens.
    #[must_use]
    pub fn authenticate(self, key: Option<TokenKey>) -> Self {
        Self { guard: Guard::new(key), ..self }
    }

    /// Takes a frame from the network.
    pub fn handle(&mut self, now: Instant, bytes: &[u8], out: &mut impl Outbox) {
        if self.admits(bytes) {
            self.admitted(now, bytes, out);
        }
    }

    /// The same, of a frame that met congestion in the network below.
    pub fn handle_marked(&mut self, now: Instant, bytes: &mut [u8], out: &mut impl Outbox) {
        if self.admits(bytes) {
            mark(bytes);
            self.admitted(now, bytes, out);
        }
    }

    /// Whether a frame carries the token that it should; counts it.
    fn admits(&mut self, bytes: &[u8]) -> bool {
        let admits = self.guard.admits(bytes, mutant::on(Mutant::ServerToken));
        let stats = &mut self.shared.stats;
        stats.frames_received += 1;
        stats.bytes_received += bytes.len() as u64;
        stats.frames_ignored += u64::from(!admits);
        stats.frames_unauthentic += u64::from(!admits);
        admits
    }

    fn admitted(&mut self, now: Instant, bytes: &[u8], out: &mut impl Outbox) {
        let mut guard = std::mem::take(&mut self.guard);
        let taken = self.take(now, bytes, &mut guard.signing(out));
        self.guard = guard;
        self.shared.stats.frames_ignored += u64::from(taken.is_none());
    }

    /// Sends what is due: announcements of software rounds, reads of registers.
    pub fn poll(&mut self, now: Instant, out: &mut impl Outbox) {
        let mut guard = std::mem::take(&mut self.guard);
        let out = &mut guard.signing(out);
        self.sums.poll(now, &mut self.shared, out);
        self.keyed.poll(now, &mut self.shared, out, &mut self.events);
        self.votes.poll(now, &mut self.shared, out, &mut self.events);
        self.guard = guard;
    }
}
