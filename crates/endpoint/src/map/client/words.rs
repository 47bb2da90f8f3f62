//! What a caller says that is no item of a flow: it is said again when it had no effect.

use pathcall_wire::{Flags, Instant, Kind, MapFlags};

use super::super::{CallError, Dest, Outbox};
use super::keyed::Ask;
use super::{MapClient, Place, frame};

impl MapClient {
    /// Asks the server to make its own what only the element has of this caller.
    pub(super) fn flush(&mut self, now: Instant, out: &mut impl Outbox) {
        let Some(generation) = self.keyed.flush(now, &self.config) else { return };
        self.word(Kind::MapFlush, generation, out);
    }

    /// Asks the server for the lease of locks, and whose turn it is, when it is time; false when it has
    /// not answered for long.
    pub(super) fn keep_lease(&mut self, now: Instant, out: &mut impl Outbox) -> bool {
        let Ok(ask) = self.keyed.ask_for_lease(now, &self.config) else {
            self.lost_server();
            return false;
        };
        loop {
            match self.keyed.lines.due(now, &self.config) {
                Ok(None) => break,
                Ok(Some((place, item))) => {
                    self.stats.retransmits += 1;
                    self.emit(now, place, item, out);
                }
                Err(()) => {
                    self.lost_server();
                    return false;
                }
            }
        }
        if let Some(Ask { request, session, resigns }) = ask {
            let place = Place { flow: 0, seq: 0 };
            let base = frame::base(Kind::MapLease, place, Flags::CROSS, request, &self.config);
            let flags = MapFlags::BARE | if resigns { MapFlags::CLEAR } else { 0 };
            let len = frame::bare_of(&base, flags, session, &mut self.scratch);
            self.hand_out(len, out);
        }
        if self.keyed.is_worn_out() {
            self.word(Kind::MapSilent, 0, out);
        }
        true
    }

    fn lost_server(&mut self) {
        let millis = self.config.timing.give_up.as_millis() as u64;
        self.fail(CallError::Unreachable { who: "the server", millis });
    }

    /// A frame to the server that is not an item of a flow: it is sent again when it had no effect.
    pub(super) fn word(&mut self, kind: Kind, round: u32, out: &mut impl Outbox) {
        let base = frame::base(kind, Place { flow: 0, seq: 0 }, Flags::CROSS, round, &self.config);
        let len = frame::bare(&base, MapFlags::BARE, &mut self.scratch);
        self.hand_out(len, out);
    }

    /// Sends the frame in the scratch to the server.
    fn hand_out(&mut self, len: usize, out: &mut impl Outbox) {
        self.stats.frames_sent += 1;
        self.stats.bytes_sent += len as u64;
        out.send(Dest::Endpoint(self.config.server), &self.scratch[..len]);
    }
}
