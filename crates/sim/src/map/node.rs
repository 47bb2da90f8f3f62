//! Interface of a node to the world: inputs, effects and reports.
//!
//! A node receives frames and the time, and returns [`Effects`], which the world carries out afterwards. Nodes know
//! neither links nor faults nor checks.

use std::fmt;

use pathcall_endpoint::map::client::CallId;
use pathcall_endpoint::map::server::QueryId;
use pathcall_endpoint::map::{CallError, Dest, FrameSink, Key, Output};
use pathcall_program::FrameAction;
use pathcall_wire::Instant;

/// Node of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MapNodeId {
    /// Element with this index.
    Element(usize),
    /// Owner of the application with this index.
    Owner(usize),
    /// Caller: index of the application, and index within it.
    Caller(usize, usize),
}

impl fmt::Display for MapNodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Element(number) => f.pad(&format!("element {number}")),
            Self::Owner(application) => f.pad(&format!("a{application} owner")),
            Self::Caller(application, caller) => f.pad(&format!("a{application} caller {caller}")),
        }
    }
}

/// Node: a state machine without its driver.
pub(crate) trait SimulatedNode {
    /// Handles a frame. `marked`: the frame met a congested queue on its last link.
    fn handle(&mut self, now: Instant, frame: &mut [u8], marked: bool, effects: &mut Effects);

    /// Handles the expiry of its deadline.
    fn wake(&mut self, now: Instant, effects: &mut Effects);

    /// Time at which the node must be woken if nothing arrives before.
    fn deadline(&self) -> Option<Instant>;
}

/// Decision of a node on a frame, for the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameDecision {
    /// A host accepted the frame.
    Taken,
    /// A host ignored the frame.
    Ignored,
    /// Verdict of the element's program.
    Element(FrameAction),
}

/// Report of a host to the checker.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum NodeReport {
    /// A call was started.
    Started(CallId),
    /// A call was cancelled.
    Cancelled(CallId),
    /// What the sum of a gradient, which ends next, took from its caller, value by value. Its output has the bits of
    /// the results.
    Sent(CallId, Vec<f64>),
    /// A call ended with this outcome.
    Finished(CallId, Result<Output, CallError>),
    /// The caller has closed, and leaves.
    Leaves,
    /// The handler got a sum that it had got before.
    HandledAgain(u64),
    /// A query was started.
    Asked(QueryId),
    /// A query ended with this outcome.
    Answered(QueryId, Result<Vec<(Key, i64)>, CallError>),
}

/// Outputs of a node.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// Frames to send, in order.
    pub(crate) frames: Vec<(Dest, Vec<u8>)>,
    /// Reports, in order.
    pub(crate) reports: Vec<NodeReport>,
    /// Whether an owner with memory reports a silent element.
    pub(crate) silent: bool,
    /// Decision on the frame that was handled.
    pub(crate) decision: Option<FrameDecision>,
    /// Free buffers.
    spare: Vec<Vec<u8>>,
}

impl Effects {
    /// Takes the buffer of a frame back.
    pub(crate) fn recycle(&mut self, mut frame: Vec<u8>) {
        frame.clear();
        self.spare.push(frame);
    }

    /// Copies a frame into a free buffer.
    pub(crate) fn copy(&mut self, frame: &[u8]) -> Vec<u8> {
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.extend_from_slice(frame);
        copy
    }
}

impl FrameSink for Effects {
    fn send(&mut self, to: Dest, frame: &[u8]) {
        let frame = self.copy(frame);
        self.frames.push((to, frame));
    }
}
