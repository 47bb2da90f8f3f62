//! Frames of a caller: those of a flow's items, and words that are none of one, which are said again when
//! they had no effect.

use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{BaseRepr, Flags, Instant, Kind, MapFlags, MapFrame, MapRepr};

use super::super::{CallError, Dest, Outbox};
use super::keyed::Ask;
use super::{Item, MapClient, Place, frame};

impl MapClient {
    /// Writes the frame or frames of an item and hands them out.
    pub(super) fn emit(&mut self, now: Instant, place: Place, item: Item, out: &mut impl Outbox) {
        let Self { config, sums, keyed, votes, stats, scratch, .. } = self;
        let send = |to: Dest, frame: &[u8], lane_bytes: u64| {
            stats.frames_sent += 1;
            stats.bytes_sent += frame.len() as u64;
            stats.lane_bytes_sent += lane_bytes;
            out.send(to, frame);
        };
        match item {
            Item::Chunk(chunk) => sums.emit(chunk, place, config, scratch, send),
            Item::Keyed(id, index) => keyed.emit(id, index, (now, place), config, scratch, send),
            Item::Vote(id, index) => votes.emit(id, index, place, config, scratch, send),
            Item::Settled { epoch, leaving } => {
                let base = BaseRepr { epoch, ..frame::base(Kind::MapSettled, place, Flags::CROSS, 0, config) };
                let flags = MapFlags::BARE | if leaving { MapFlags::CLEAR } else { 0 };
                let len = frame::bare(&base, flags, scratch);
                let mut send = send;
                send(Dest::Endpoint(config.server), &scratch[..len], 0);
            }
            Item::Hello => {
                // An element on the way takes its mark off; `round`: that is known, both ways.
                let flags = Flags::CROSS | Flags::NOT_ADMITTED;
                // It is as long as a frame can be: an element on the way sees none that came in fragments.
                let base = frame::base(Kind::MapHello, place, flags, config.inline.into(), config);
                let len = frame::full(&base, scratch);
                let mut send = send;
                send(Dest::Endpoint(config.server), &scratch[..len], 0);
            }
        }
    }

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

    /// With clear policy *shadow*: says where this worker stands, until the server has heard it. No item of a flow: those
    /// that wait for other workers may leave no room, and the others wait for this.
    pub(super) fn say_where_it_stands(&mut self, now: Instant, out: &mut impl Outbox) {
        let Some((_, pause)) = self.standing.filter(|(at, _)| *at <= now) else { return };
        let Some((index, threshold)) = self.sums.stands() else { return };
        self.standing = Some((now + pause, (pause * 2).min(self.config.timing.rto_max)));
        let base = frame::base(Kind::MapHello, Place { flow: 0, seq: 0 }, Flags::CROSS, 0, &self.config);
        let tag = self.config.era.number();
        let map = MapRepr { flags: MapFlags::BARE, index, threshold, tag, ..MapRepr::default() };
        let len = frame_len(map.flags, 0, 0);
        emit(&base, &map, &mut self.scratch[..len]);
        self.hand_out(len, out);
    }

    /// Whether an answer is to that; then it is done.
    pub(super) fn has_said_where_it_stands(&mut self, answer: &MapFrame<&[u8]>) -> bool {
        let said = answer.base().seq() == 0 && answer.base().has(Flags::CROSS);
        if said && answer.map().tag() == self.config.era.number() {
            self.standing = None;
        }
        said
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
    pub(super) fn hand_out(&mut self, len: usize, out: &mut impl Outbox) {
        self.stats.frames_sent += 1;
        self.stats.bytes_sent += len as u64;
        out.send(Dest::Endpoint(self.config.server), &self.scratch[..len]);
    }
}
