//! State of one call in the coordinator.

use pathcall_wire::{CloneFlags, CloneFrame, Instant};

/// Identity of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct CallKey {
    pub(super) caller: u32,
    pub(super) incarnation: u32,
    pub(super) seq: u32,
}

/// Call in progress, or call with outstanding answers. Attempts of the caller belong to the same flight: a server that
/// already works on the call answers once.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) since: Instant,
    /// Number of the newest attempt. Answers to older attempts are dropped.
    pub(super) attempt: u8,
    /// True while the newest attempt waits for an idle server.
    pub(super) queued: bool,
    /// Frames that wait for a server.
    pub(super) waiting: Vec<Vec<u8>>,
    /// Servers that work on the call or have answered.
    pub(super) assigned: [Option<AssignedServer>; ASSIGNED_MAX],
    /// True after the caller cancelled the call.
    pub(super) cancelled: bool,
    /// Server that answered the newest attempt first.
    pub(super) winner: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AssignedServer {
    pub(super) server: u32,
    /// Newest attempt that was sent to this server.
    pub(super) attempt: u8,
    pub(super) answered: bool,
}

/// Maximum number of servers of one call. Further attempts go to these servers.
const ASSIGNED_MAX: usize = 4;

/// Endpoint id of no server.
const NO_ENDPOINT: u32 = 0;

impl Flight {
    pub(super) const fn new(since: Instant, attempt: u8) -> Self {
        Self {
            since,
            attempt,
            queued: false,
            waiting: Vec::new(),
            assigned: [None; ASSIGNED_MAX],
            cancelled: false,
            winner: None,
        }
    }

    /// Starts a newer attempt; returns the frames of the attempt before that still wait.
    pub(super) fn start_attempt(&mut self, attempt: u8) -> Vec<Vec<u8>> {
        (self.attempt, self.winner) = (attempt, None);
        for place in &mut self.assigned {
            *place = place.filter(|assigned| !assigned.answered);
        }
        std::mem::take(&mut self.waiting)
    }

    /// True if another server can receive the call.
    pub(super) fn has_room(&self) -> bool {
        self.assigned.contains(&None)
    }

    /// Assigns the newest attempt to `server`.
    pub(super) fn assign(&mut self, server: u32) {
        let assigned = AssignedServer { server, attempt: self.attempt, answered: false };
        if let Some(place) = self.assigned.iter_mut().find(|place| place.is_none()) {
            *place = Some(assigned);
        }
    }

    /// Assigns the newest attempt to servers that already work on the call: to two of them if the call may be cloned.
    pub(super) fn reassign(&mut self, may_clone: bool) {
        let Self { attempt, assigned, .. } = self;
        let places = assigned.iter_mut().flatten().take(1 + usize::from(may_clone));
        places.for_each(|assigned| assigned.attempt = *attempt);
    }

    /// Servers of the newest attempt.
    pub(super) fn newest_assigned(&self) -> [Option<AssignedServer>; ASSIGNED_MAX] {
        self.assigned.map(|place| place.filter(|assigned| assigned.attempt == self.attempt))
    }

    /// Records an answer of `server`; true if it is the server's first.
    pub(super) fn record_answer(&mut self, server: u32) -> bool {
        let open = self.assigned.iter_mut().flatten().find(|assigned| assigned.server == server && !assigned.answered);
        open.map(|assigned| assigned.answered = true).is_some()
    }

    /// Cancels the call: outstanding servers do not count as busy, and their answers are dropped.
    pub(super) fn cancel(&mut self) {
        (self.queued, self.cancelled) = (false, true);
        self.winner.get_or_insert(NO_ENDPOINT);
    }

    /// Servers that have not answered.
    pub(super) fn outstanding(&self) -> impl Iterator<Item = u32> {
        self.assigned.into_iter().flatten().filter(|assigned| !assigned.answered).map(|assigned| assigned.server)
    }

    /// True if the caller allows clones, according to the first waiting frame.
    pub(super) fn may_clone(&self) -> bool {
        let frame = self.waiting.first().and_then(|frame| CloneFrame::new_checked(frame.as_slice()).ok());
        frame.is_some_and(|frame| frame.head().flags() & CloneFlags::CLONE != 0)
    }
}
