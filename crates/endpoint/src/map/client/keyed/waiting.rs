//! Frames of a caller that wait in lock queues at the server.
//!
//! Such a frame is acknowledged, so it does not block the window; its answer follows with the grant. The answer may be
//! lost, so the caller repeats the frame with growing pauses.

use std::collections::BTreeMap;
use std::time::Duration;

use pathcall_wire::Instant;

use super::super::{CallId, ClientConfig, FlowPosition, Item};

/// Waiting frames, by flow and sequence number.
#[derive(Default)]
pub(in super::super) struct WaitingFrames {
    frames: BTreeMap<(u32, u32), WaitingFrame>,
}

/// Frame that waits in a lock queue.
struct WaitingFrame {
    id: CallId,
    index: u32,
    /// Time of the next repeat, and the pause after it.
    at: Instant,
    pause: Duration,
    heard: Instant,
}

impl WaitingFrames {
    /// Adds a frame that the server has queued.
    pub(in super::super) fn insert(
        &mut self,
        now: Instant,
        position: FlowPosition,
        (id, index): (CallId, u32),
        config: &ClientConfig,
    ) {
        let (first, longest) = config.timing.probe;
        let again = self.frames.get(&(position.flow, position.seq)).map(|frame| (frame.at.max(now), frame.pause));
        let (at, pause) = again.unwrap_or((now + first, (first * 2).min(longest)));
        self.frames.insert((position.flow, position.seq), WaitingFrame { id, index, at, pause, heard: now });
    }

    /// Item of a waiting frame.
    pub(in super::super) fn item(&self, flow: u32, seq: u32) -> Option<Item> {
        self.frames.get(&(flow, seq)).map(|frame| Item::Keyed(frame.id, frame.index))
    }

    /// Removes a frame after its answer.
    pub(in super::super) fn remove(&mut self, flow: u32, seq: u32) {
        self.frames.remove(&(flow, seq));
    }

    /// Repeats the frames of these calls at once: they leave the queue, or have lost their position.
    pub(super) fn ask_now(&mut self, now: Instant, of: impl Fn(CallId) -> bool) {
        self.frames.values_mut().filter(|frame| of(frame.id)).for_each(|frame| frame.at = now);
    }

    /// Next frame to repeat. `Err` if the server did not answer a frame for the give-up time.
    pub(in super::super) fn due(
        &mut self,
        now: Instant,
        config: &ClientConfig,
    ) -> Result<Option<(FlowPosition, Item)>, ()> {
        let longest = config.timing.probe.1;
        let Some(((flow, seq), frame)) = self.frames.iter_mut().find(|(_, frame)| frame.at <= now) else {
            return Ok(None);
        };
        // Time in which this process was stopped does not count as silence.
        frame.heard = now.min(frame.heard + now.since(frame.at));
        if now.since(frame.heard) >= config.timing.give_up {
            return Err(());
        }
        (frame.at, frame.pause) = (now + frame.pause, (frame.pause * 2).min(longest));
        Ok(Some((FlowPosition { flow: *flow, seq: *seq }, Item::Keyed(frame.id, frame.index))))
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.frames.values().map(|frame| frame.at).min()
    }
}
