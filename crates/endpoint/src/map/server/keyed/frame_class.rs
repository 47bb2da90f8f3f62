//! Id and class of a keyed frame past the element.

use pathcall_wire::{Flags, MapFrame};

use super::super::OwnerContext;
use super::FrameId;
use crate::flow::SeqClass;

/// Id and class of a frame; `None` if the frame is stale.
pub(super) fn classify(frame: &MapFrame<&[u8]>, shared: &mut OwnerContext) -> Option<(FrameId, SeqClass)> {
    classify_any(frame, shared).filter(|(_, seen)| *seen != SeqClass::Stale)
}

/// Id and class of a frame, including stale frames.
pub(super) fn classify_any(frame: &MapFrame<&[u8]>, shared: &mut OwnerContext) -> Option<(FrameId, SeqClass)> {
    let base = frame.base();
    // Only frames past the element are executed here; their slot is the number of the flow.
    let frame_id = FrameId { endpoint: base.src(), flow: base.slot(), seq: base.seq() };
    if !base.has(Flags::CROSS) {
        return None;
    }
    let seen = shared.members.get_mut(&frame_id.endpoint)?.seen.classify(frame_id.flow, frame_id.seq);
    if seen == SeqClass::New {
        shared.changes.note_frame(frame_id.endpoint, frame_id.flow, frame_id.seq);
    }
    Some((frame_id, seen))
}
