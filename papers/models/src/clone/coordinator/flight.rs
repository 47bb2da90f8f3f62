//! Calls on their way, as a coordinator counts them.

use pathcall_wire::{CloneFlags, CloneFrame, Instant};

/// A call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) caller: u32,
    pub(super) incarnation: u32,
    pub(super) seq: u32,
}

/// A call that is not answered, or of which not every answer has come. It is one, however often its caller sends it
/// again: a server that works on it already answers once.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) since: Instant,
    /// The newest attempt; older ones that are late go nowhere.
    pub(super) attempt: u8,
    /// Whether that one waits for an idle server.
    pub(super) queued: bool,
    /// Frames of it that wait.
    pub(super) waiting: Vec<Vec<u8>>,
    /// Who works on the call, and who has answered.
    pub(super) asked: [Option<Asked>; ASKED_MAX],
    /// Whether its caller wants no answer any more.
    pub(super) cancelled: bool,
    /// Who answered the newest attempt first.
    pub(super) winner: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) server: u32,
    /// The newest attempt that went there.
    pub(super) attempt: u8,
    pub(super) answered: bool,
}

/// Servers that work on one call at most; when it is sent again after that, it goes to them.
const ASKED_MAX: usize = 4;

/// No endpoint.
const NOBODY: u32 = 0;

impl Flight {
    pub(super) const fn new(since: Instant, attempt: u8) -> Self {
        Self {
            since,
            attempt,
            queued: false,
            waiting: Vec::new(),
            asked: [None; ASKED_MAX],
            cancelled: false,
            winner: None,
        }
    }

    /// A newer attempt; the frames of the one before that still wait.
    pub(super) fn renew(&mut self, attempt: u8) -> Vec<Vec<u8>> {
        (self.attempt, self.winner) = (attempt, None);
        for place in &mut self.asked {
            *place = place.filter(|asked| !asked.answered);
        }
        std::mem::take(&mut self.waiting)
    }

    /// Whether another server can be asked.
    pub(super) fn has_place(&self) -> bool {
        self.asked.contains(&None)
    }

    /// A server is to work on it, by the newest attempt.
    pub(super) fn ask(&mut self, server: u32) {
        let asked = Asked { server, attempt: self.attempt, answered: false };
        if let Some(place) = self.asked.iter_mut().find(|place| place.is_none()) {
            *place = Some(asked);
        }
    }

    /// The newest attempt goes to those who work on it: to two of them, if it may be cloned.
    pub(super) fn ask_again(&mut self, may_clone: bool) {
        let Self { attempt, asked, .. } = self;
        let places = asked.iter_mut().flatten().take(1 + usize::from(may_clone));
        places.for_each(|asked| asked.attempt = *attempt);
    }

    /// Those whom the newest attempt goes to.
    pub(super) fn asked_now(&self) -> [Option<Asked>; ASKED_MAX] {
        self.asked.map(|place| place.filter(|asked| asked.attempt == self.attempt))
    }

    /// A server has answered; whether it had not yet.
    pub(super) fn answers(&mut self, server: u32) -> bool {
        let open = self.asked.iter_mut().flatten().find(|asked| asked.server == server && !asked.answered);
        open.map(|asked| asked.answered = true).is_some()
    }

    /// Nobody wants it any more: those who work on it are not counted on, and what they say wins nothing.
    pub(super) fn cancel(&mut self) {
        (self.queued, self.cancelled) = (false, true);
        self.winner.get_or_insert(NOBODY);
    }

    /// Servers that have not answered.
    pub(super) fn at_work(&self) -> impl Iterator<Item = u32> {
        self.asked.into_iter().flatten().filter(|asked| !asked.answered).map(|asked| asked.server)
    }

    /// Whether its caller lets it be cloned, as a frame that waits says.
    pub(super) fn may_clone(&self) -> bool {
        let frame = self.waiting.first().and_then(|frame| CloneFrame::new_checked(frame.as_slice()).ok());
        frame.is_some_and(|frame| frame.head().flags() & CloneFlags::CLONE != 0)
    }
}
