//! Writer of a caller's frames: items of flows, and control frames outside of flows, which are repeated until they take
//! effect.

use pathcall_wire::base::flip;
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{BaseRepr, Flags, FrameKind, Instant, MapFlags, MapRepr, Mutant, mutant};

use super::super::{CallError, Dest, FrameSink};
use super::keyed::LeaseRequest;
use super::{ClientConfig, FlowPosition, Item, MapClient};

impl MapClient {
    /// Writes and sends the frame or frames of an item.
    pub(super) fn emit(&mut self, now: Instant, position: FlowPosition, item: Item, out: &mut impl FrameSink) {
        let Self { config, sums, keyed, votes, stats, scratch, .. } = self;
        let send = |to: Dest, frame: &[u8], lane_bytes: u64| {
            stats.frames_sent += 1;
            stats.bytes_sent += frame.len() as u64;
            stats.lane_bytes_sent += lane_bytes;
            out.send(to, frame);
        };
        match item {
            Item::Chunk(chunk) => sums.emit(chunk, position, config, scratch, send),
            Item::Keyed(id, index) => keyed.emit(id, index, (now, position), config, scratch, send),
            Item::Vote(id, index) => votes.emit(id, index, position, config, scratch, send),
            Item::Settled { epoch, leaving } => {
                let base = BaseRepr { epoch, ..base_header(FrameKind::MapSettled, position, Flags::CROSS, 0, config) };
                let flags = MapFlags::BARE | if leaving { MapFlags::CLEAR } else { 0 };
                let len = emit_bare(&base, flags, 0, scratch);
                let mut send = send;
                send(Dest::Endpoint(config.server), &scratch[..len], 0);
            }
            Item::Hello => {
                // An element on the route clears the flag; `round` 1: the element is known in both directions.
                let flags = Flags::CROSS | Flags::NOT_ADMITTED;
                // Maximum length: an element on the route cannot process fragmented packets.
                let base = base_header(FrameKind::MapHello, position, flags, config.inline.into(), config);
                let len = emit_padded(&base, scratch);
                let mut send = send;
                send(Dest::Endpoint(config.server), &scratch[..len], 0);
            }
        }
    }

    /// Requests the commit of this caller's uncommitted generations, when due.
    pub(super) fn send_commit_request(&mut self, now: Instant, out: &mut impl FrameSink) {
        let Some(generation) = self.keyed.due_commit_request(now, &self.config) else { return };
        self.send_control(FrameKind::MapFlush, generation, out);
    }

    /// Sends lease requests and repeats of frames in lock queues, when due. Returns false if the server did not answer
    /// for the give-up time.
    pub(super) fn keep_lease(&mut self, now: Instant, out: &mut impl FrameSink) -> bool {
        let Ok(ask) = self.keyed.next_lease_request(now, &self.config) else {
            self.fail_unreachable();
            return false;
        };
        loop {
            match self.keyed.waiting_frames.due(now, &self.config) {
                Ok(None) => break,
                Ok(Some((position, item))) => {
                    self.stats.retransmits += 1;
                    self.emit(now, position, item, out);
                }
                Err(()) => {
                    self.fail_unreachable();
                    return false;
                }
            }
        }
        if let Some(LeaseRequest { request, session, resigns }) = ask {
            let position = FlowPosition { flow: 0, seq: 0 };
            let base = base_header(FrameKind::MapLease, position, Flags::CROSS, request, &self.config);
            let flags = MapFlags::BARE | if resigns { MapFlags::CLEAR } else { 0 };
            let len = emit_bare(&base, flags, session, &mut self.scratch);
            self.send_scratch(len, out);
        }
        if self.keyed.take_needs_new_epoch() {
            self.send_control(FrameKind::MapSilent, 0, out);
        }
        true
    }

    /// Sends the oldest open chunk of this worker to the server until it is answered (not with clear policy *copy*). Not an
    /// item of a flow: chunks that wait for other workers may fill the window, and the other workers wait for this
    /// report.
    pub(super) fn send_progress(&mut self, now: Instant, out: &mut impl FrameSink) {
        let Some((_, pause)) = self.progress_report.filter(|(at, _)| *at <= now) else { return };
        let Some((index, threshold)) = self.sums.oldest_open_position() else { return };
        self.progress_report = Some((now + pause, (pause * 2).min(self.config.timing.rto_max)));
        let base = base_header(FrameKind::MapHello, FlowPosition { flow: 0, seq: 0 }, Flags::CROSS, 0, &self.config);
        let tag = self.config.era.number();
        let map = MapRepr { flags: MapFlags::BARE, index, threshold, tag, ..MapRepr::default() };
        let len = frame_len(map.flags, 0, 0);
        emit(&base, &map, &mut self.scratch[..len]);
        self.send_scratch(len, out);
    }

    fn fail_unreachable(&mut self) {
        let millis = self.config.timing.give_up.as_millis() as u64;
        self.fail(CallError::Unreachable { who: "the server", millis });
    }

    /// Sends a control frame to the server. It is not an item of a flow; the caller repeats it until it takes effect.
    pub(super) fn send_control(&mut self, kind: FrameKind, round: u32, out: &mut impl FrameSink) {
        let base = base_header(kind, FlowPosition { flow: 0, seq: 0 }, Flags::CROSS, round, &self.config);
        let len = emit_bare(&base, MapFlags::BARE, 0, &mut self.scratch);
        self.send_scratch(len, out);
    }

    /// Sends the first `len` bytes of the scratch buffer to the server.
    pub(super) fn send_scratch(&mut self, len: usize, out: &mut impl FrameSink) {
        self.stats.frames_sent += 1;
        self.stats.bytes_sent += len as u64;
        out.send(Dest::Endpoint(self.config.server), &self.scratch[..len]);
    }
}

/// Base header of a frame to the server. `slot` is the flow's slot in the element, or the number of the flow in a frame
/// past the element, which is the same in all epochs. A frame for an inline element has the flag `NOT_ADMITTED`, so
/// that a server knows whether an element has processed it.
pub(super) fn base_header(
    kind: FrameKind,
    position: FlowPosition,
    flags: u16,
    round: u32,
    config: &ClientConfig,
) -> BaseRepr {
    let unmarked = flags & Flags::CROSS != 0 || !config.inline || mutant::on(Mutant::InlineUnmarked);
    BaseRepr {
        flags: flags | flip(position.seq) | if unmarked { 0 } else { Flags::NOT_ADMITTED },
        gaid: config.gaid,
        epoch: config.epoch,
        src: config.endpoint,
        src_incarnation: config.incarnation,
        dst: config.server,
        dst_incarnation: config.server_incarnation,
        slot: if flags & Flags::CROSS != 0 { position.flow } else { config.slot_base + position.flow },
        seq: position.seq,
        round,
        ..BaseRepr::new(kind)
    }
}

/// Destination of a frame for the element.
pub(super) fn element_dest(config: &ClientConfig) -> Dest {
    if config.inline { Dest::Inline(config.server) } else { Dest::Element }
}

/// Writes a frame without lanes, padded with zeros to the length of `out`, the maximum frame length.
fn emit_padded(base: &BaseRepr, out: &mut [u8]) -> usize {
    let flags = MapFlags::BARE;
    let fill = out.len() - frame_len(flags, 0, 0);
    let map = MapRepr { flags, payload_len: fill as u16, ..MapRepr::default() };
    emit(base, &map, out).payload_mut().fill(0);
    out.len()
}

/// Writes a frame without lanes, and returns its length.
fn emit_bare(base: &BaseRepr, flags: u16, tag: u32, out: &mut [u8]) -> usize {
    let map = MapRepr { flags, tag, ..MapRepr::default() };
    let len = frame_len(flags, 0, 0);
    emit(base, &map, &mut out[..len]);
    len
}
