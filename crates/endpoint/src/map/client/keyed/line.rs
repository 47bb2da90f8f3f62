//! Frames of this caller that stand in line for a lock at the server.
//!
//! Such a frame is acknowledged, so it holds up no others; its answer comes when it is its turn. That
//! answer may be lost, so the server is asked again now and then, ever more slowly.

use std::collections::BTreeMap;
use std::time::Duration;

use pathcall_wire::Instant;

use super::super::{CallId, ClientConfig, Item, Place};

/// Frames in line, by flow and number.
#[derive(Default)]
pub(in super::super) struct Lines {
    frames: BTreeMap<(u32, u32), InLine>,
}

struct InLine {
    id: CallId,
    index: u32,
    /// When the server is asked again, and the pause after that.
    at: Instant,
    pause: Duration,
    heard: Instant,
}

impl Lines {
    /// The server says that a frame stands in line.
    pub(in super::super) fn stands(
        &mut self,
        now: Instant,
        place: Place,
        (id, index): (CallId, u32),
        config: &ClientConfig,
    ) {
        let (first, longest) = config.timing.probe;
        let again = self.frames.get(&(place.flow, place.seq)).map(|frame| (frame.at.max(now), frame.pause));
        let (at, pause) = again.unwrap_or((now + first, (first * 2).min(longest)));
        self.frames.insert((place.flow, place.seq), InLine { id, index, at, pause, heard: now });
    }

    /// The frame at this place, if it stands in line.
    pub(in super::super) fn item(&self, flow: u32, seq: u32) -> Option<Item> {
        self.frames.get(&(flow, seq)).map(|frame| Item::Keyed(frame.id, frame.index))
    }

    /// A frame has its answer.
    pub(in super::super) fn leave(&mut self, flow: u32, seq: u32) {
        self.frames.remove(&(flow, seq));
    }

    /// Frames of these calls are to ask at once: they leave the line, or have lost their place in it.
    pub(super) fn hurry(&mut self, now: Instant, of: impl Fn(CallId) -> bool) {
        self.frames.values_mut().filter(|frame| of(frame.id)).for_each(|frame| frame.at = now);
    }

    /// The next frame that is to ask again by now; `Err` when the server has not answered one for the
    /// give-up time.
    pub(in super::super) fn due(&mut self, now: Instant, config: &ClientConfig) -> Result<Option<(Place, Item)>, ()> {
        let longest = config.timing.probe.1;
        let Some(((flow, seq), frame)) = self.frames.iter_mut().find(|(_, frame)| frame.at <= now) else {
            return Ok(None);
        };
        // Whoever stood still itself has neither asked nor heard.
        frame.heard = now.min(frame.heard + now.since(frame.at));
        if now.since(frame.heard) >= config.timing.give_up {
            return Err(());
        }
        (frame.at, frame.pause) = (now + frame.pause, (frame.pause * 2).min(longest));
        Ok(Some((Place { flow: *flow, seq: *seq }, Item::Keyed(frame.id, frame.index))))
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.frames.values().map(|frame| frame.at).min()
    }
}
