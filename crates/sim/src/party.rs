//! What takes part in a run, and what it may do to the world.
//!
//! A node is handed frames and the time; what it wants it leaves in [`Effects`], which the world
//! carries out afterwards. Nodes know nothing of links, faults or of what is right.

use std::fmt;

use pathcall_endpoint::map::client::CallId;
use pathcall_endpoint::map::server::QueryId;
use pathcall_endpoint::map::{CallError, Dest, Key, Outbox, Output};
use pathcall_program::Action;
use pathcall_wire::Instant;

/// Names a node of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    /// The element with this index.
    Element(usize),
    /// The owner of the application with this index.
    Owner(usize),
    /// A caller: index of its application and index in it.
    Caller(usize, usize),
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Element(number) => f.pad(&format!("element {number}")),
            Self::Owner(application) => f.pad(&format!("a{application} owner")),
            Self::Caller(application, caller) => f.pad(&format!("a{application} caller {caller}")),
        }
    }
}

/// A node: a state machine in its driver's place.
pub(crate) trait Party {
    /// Takes a frame; `marked`: it met a congested queue on its last link.
    fn handle(&mut self, now: Instant, frame: &mut [u8], marked: bool, effects: &mut Effects);

    /// Its deadline has come.
    fn wake(&mut self, now: Instant, effects: &mut Effects);

    /// When it wants to be woken, if nothing comes before.
    fn deadline(&self) -> Option<Instant>;
}

/// What a node did with a frame, for the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// A host took it.
    Taken,
    /// It meant nothing to the host.
    Ignored,
    /// What the element's program said.
    Element(Action),
}

/// What a host reports to the judge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Report {
    /// A call was handed to the client.
    Started(CallId),
    /// A call's caller no longer waits.
    Cancelled(CallId),
    /// A call's outcome.
    Finished(CallId, Result<Output, CallError>),
    /// It has closed, and leaves.
    Leaves,
    /// A query was handed to the server.
    Asked(QueryId),
    /// A query's outcome.
    Answered(QueryId, Result<Vec<(Key, i64)>, CallError>),
}

/// What a node wants of the world.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// Frames to be sent, in order.
    pub(crate) frames: Vec<(Dest, Vec<u8>)>,
    /// What happened, in order.
    pub(crate) reports: Vec<Report>,
    /// The element is silent, says an owner that has memory there.
    pub(crate) silent: bool,
    /// What became of the frame that was handled.
    pub(crate) decision: Option<Decision>,
    /// Buffers that can be used again.
    spare: Vec<Vec<u8>>,
}

impl Effects {
    /// Gives a frame's buffer back.
    pub(crate) fn recycle(&mut self, mut frame: Vec<u8>) {
        frame.clear();
        self.spare.push(frame);
    }

    /// A copy of a frame, in a buffer that can be given back.
    pub(crate) fn copy(&mut self, frame: &[u8]) -> Vec<u8> {
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.extend_from_slice(frame);
        copy
    }
}

impl Outbox for Effects {
    fn send(&mut self, to: Dest, frame: &[u8]) {
        let frame = self.copy(frame);
        self.frames.push((to, frame));
    }
}
