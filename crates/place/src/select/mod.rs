//! Path selector: selects the path of each request (LEO §III-B2) and keeps dependent requests in order.
//!
//! ```text
//! request ── select ──┬─ Dispatch: send it on this path now
//!                     ├─ Wait: it comes out of `poll` when those before it are done, or a device has room
//!                     └─ Full: too many are in flight; ask again after `done`
//! outcome ── done ────── then drain `poll`: released requests, requests to send again, failed requests
//! ```
//!
//! The caller passes the time, sends the released requests, and reports each outcome once. `path_state` has the state
//! of a path, `order` the dependencies, `strategies` the strategies, `predictor` the prediction of later requests.
//! There are no allocations after [`Selector::new`], except with [`SelectionStrategy::Horizon`].
//!
//! *Order.* Requests of one address (or message) are sent one at a time; reads are concurrent, but reads and writes
//! do not pass each other. A request may follow the previous ones at once only on the same
//! [`fifo`](crate::Path::fifo) path, or on one over the same resources. Such a path must also fail in order: if a
//! request fails, the later ones of the same address fail, too.

mod backlog;
mod common_queue;
mod late;
mod order;
mod path_state;
mod predictor;
mod pull;
mod sharing;
mod strategies;
mod types;

pub use late::LearnedTimes;
pub use path_state::PathState;
pub use types::{
    Config, Decision, Dispatch, Released, RequestOutcome, SelectionReason, SelectionRequest, SelectionStrategy, Ticket,
};

use pathcall_wire::{Instant, Mutant, mutant};

use crate::model::{AccessMode, Dependency};
use crate::path::{KindId, PathId, Paths};
use common_queue::CommonQueue;
use order::{DependencyOrder, NONE};
use path_state::QueueAhead;
use strategies::PathChooser;

/// Path selector for an application's requests.
#[derive(Debug)]
pub struct Selector {
    config: Config,
    /// By request type.
    dependencies: Vec<(Dependency, AccessMode)>,
    chooser: PathChooser,
    order: DependencyOrder,
    /// Messages that wait for a device, with late binding.
    queue: Option<CommonQueue>,
    held: Vec<SelectedRequest>,
    /// First free entry of `held`.
    free: u32,
    count: u32,
    /// Queue of the requests that `poll` returns: first and last.
    ready: (u32, u32),
}

/// Request, from `select` to its end.
#[derive(Debug, Clone, Copy)]
struct SelectedRequest {
    generation: u32,
    state: SelectionState,
    kind: KindId,
    path: PathId,
    attempts: u8,
    ahead: QueueAhead,
    /// Next ready request, or next free entry.
    next: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SelectionState {
    Free,
    /// Waits for earlier requests.
    Waiting,
    /// Waits for a device in the common queue.
    Queued,
    /// Queued for `poll`.
    Ready,
    /// Given up and returned by `poll`; ends when the caller reports an outcome.
    GivenUp,
    /// Queued for `poll`, but abandoned.
    Dropped,
    Flying,
}

impl Selector {
    /// Creates a selector for paths; allocates all memory that it needs.
    #[must_use]
    pub fn new(paths: &Paths, strategy: SelectionStrategy, config: Config) -> Self {
        let max = config.in_flight_max.clamp(1, Config::IN_FLIGHT_MAX);
        let blank = SelectedRequest {
            generation: 0,
            state: SelectionState::Free,
            kind: KindId(0),
            path: PathId(0),
            attempts: 0,
            ahead: QueueAhead::default(),
            next: NONE,
        };
        let held =
            (1..=max).map(|next| SelectedRequest { next: if next == max { NONE } else { next }, ..blank }).collect();
        Self {
            config,
            dependencies: paths.kinds.iter().map(|kind| (kind.dependency, kind.access)).collect(),
            chooser: PathChooser::new(paths, strategy, config),
            order: DependencyOrder::new(max),
            queue: (strategy == SelectionStrategy::Late).then(|| CommonQueue::new(max, paths.kinds.len())),
            held,
            free: 0,
            count: 0,
            ready: (NONE, NONE),
        }
    }

    /// Selects the path of a request, or makes it wait.
    ///
    /// # Panics
    /// If its type does not exist.
    pub fn select(&mut self, now: Instant, request: &SelectionRequest) -> Decision {
        let at = self.free;
        if at == NONE {
            return Decision::Full;
        }
        let entry = &mut self.held[at as usize];
        self.free = entry.next;
        (entry.kind, entry.attempts, entry.next) = (request.kind, 0, NONE);
        self.count += 1;
        let (dependency, access) = self.dependencies[usize::from(request.kind.0)];
        let read = access == AccessMode::Read;
        match dependency {
            Dependency::None => {}
            Dependency::Addr => self.order.join(at, 0, request.address, read),
            Dependency::Msg => self.order.join(at, 1, request.message, read),
        }
        let free = self.order.is_free(at) || mutant::on(Mutant::PlaceOvertakes);
        if free && self.queue.is_some() {
            return self.select_late(now, at);
        }
        let choice = match free {
            true => Some(self.chooser.choose(now, request.kind, 0)),
            false => self.path_after_earlier(at, request.kind),
        };
        match choice {
            Some((path, reason)) => Decision::Send(self.record_dispatch(now, at, path, reason)),
            None => {
                self.held[at as usize].state = SelectionState::Waiting;
                Decision::Wait { ticket: self.ticket(at) }
            }
        }
    }

    /// Records the outcome of a request; false if the ticket's request cannot have this outcome. Call [`Self::poll`]
    /// until empty afterwards.
    ///
    /// [`RequestOutcome::Abandoned`] is also valid for a waiting request. Any outcome ends a request that was given
    /// up; until then, dependent requests wait.
    pub fn done(&mut self, now: Instant, ticket: Ticket, outcome: RequestOutcome) -> bool {
        let known =
            |held: &&SelectedRequest| held.generation == ticket.generation || mutant::on(Mutant::PlaceOldTicket);
        let Some(entry) = self.held.get(ticket.index as usize).filter(known) else { return false };
        let at = ticket.index;
        let SelectedRequest { state, generation, path, attempts, ref ahead, .. } = *entry;
        match (state, outcome) {
            (SelectionState::Flying, RequestOutcome::Done { intra_ns, total_ns }) => {
                let waiting = self.waiting() > 0;
                self.chooser.done(now, path, (ahead, waiting), intra_ns, total_ns);
                self.order.record_end(at);
                self.finish(at);
            }
            (SelectionState::Flying, RequestOutcome::Failed) => {
                self.chooser.failed(now, path, ahead);
                self.order.record_end(at);
                self.again(at, attempts);
            }
            (SelectionState::Flying, RequestOutcome::Abandoned) => {
                self.chooser.abandoned(now, path, ahead);
                self.order.record_end(at);
                self.finish(at);
            }
            (SelectionState::Waiting, RequestOutcome::Abandoned) => self.finish(at),
            (SelectionState::Queued, RequestOutcome::Abandoned) => {
                if !mutant::on(Mutant::PlaceQueuedKept) {
                    self.leave_queue(at);
                }
                self.finish(at);
            }
            (SelectionState::GivenUp, _) if mutant::on(Mutant::PlaceGivenUpKept) => {}
            (SelectionState::GivenUp, _) => self.finish(at),
            (SelectionState::Ready, RequestOutcome::Abandoned) => {
                self.held[at as usize].state = SelectionState::Dropped;
                self.held[at as usize].generation = generation.wrapping_add(1);
                self.leave_order(at);
            }
            _ => return false,
        }
        true
    }

    /// Next request that was released, or has used all attempts.
    pub fn poll(&mut self, now: Instant) -> Option<Released> {
        loop {
            let at = self.ready.0;
            if at == NONE {
                match self.pull(now)? {
                    Some(dispatch) => return Some(Released::Send(dispatch)),
                    None => continue,
                }
            }
            let entry = self.held[at as usize];
            self.ready.0 = entry.next;
            if entry.next == NONE {
                self.ready.1 = NONE;
            }
            self.held[at as usize].next = NONE;
            match entry.state {
                SelectionState::Dropped => self.free(at),
                _ if self.has_used_all_attempts(entry.attempts) => {
                    self.held[at as usize].state = SelectionState::GivenUp;
                    return Some(Released::GivenUp { ticket: self.ticket(at) });
                }
                _ if self.queue.is_some() && self.order.is_free(at) => self.enter_queue(at),
                _ => {
                    if let Some(dispatch) = self.release(now, at, entry.kind) {
                        return Some(Released::Send(dispatch));
                    }
                }
            }
        }
    }

    /// State of a path.
    #[must_use]
    pub fn state(&self, path: PathId) -> PathState {
        self.chooser.state(path)
    }

    /// Queue of this selector's messages on a path, in nanoseconds from now.
    #[must_use]
    pub fn queue_ns(&self, now: Instant, path: PathId) -> u64 {
        self.chooser.queue_ns(now, path)
    }

    /// Number of requests in flight or waiting.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.count
    }

    /// For [`SelectionStrategy::Horizon`]: sets the requests after the next one, each with the time since the previous
    /// one in nanoseconds. Replaces the prediction until the next call.
    pub fn foresee(&mut self, upcoming: &[(u64, KindId)]) {
        self.chooser.foresee(upcoming);
    }

    /// Releases a ready request, if it may still be sent.
    fn release(&mut self, now: Instant, at: u32, kind: KindId) -> Option<Dispatch> {
        let choice = match self.order.is_free(at) {
            true => Some(self.chooser.choose(now, kind, self.held[at as usize].attempts)),
            false => self.path_after_earlier(at, kind),
        };
        let Some((path, reason)) = choice else {
            self.held[at as usize].state = SelectionState::Waiting;
            self.wake(at);
            return None;
        };
        Some(self.send_released(now, at, path, reason))
    }

    /// Sends a request, and releases the next one of its order that may follow it.
    fn send_released(&mut self, now: Instant, at: u32, path: PathId, reason: SelectionReason) -> Dispatch {
        let dispatch = self.record_dispatch(now, at, path, reason);
        if let Some(next) = self.order.behind(at)
            && self.held[next as usize].state == SelectionState::Waiting
            && (self.order.is_free(next) || self.path_after_earlier(next, self.held[next as usize].kind).is_some())
        {
            self.make_ready(next);
        }
        dispatch
    }

    /// Path on which a request can follow the earlier ones at once.
    fn path_after_earlier(&self, at: u32, kind: KindId) -> Option<(PathId, SelectionReason)> {
        let (class, ahead) = self.order.class_ahead(at)?;
        Some((self.chooser.in_class(kind, class, self.held[ahead as usize].ahead.sent)?, SelectionReason::Follows))
    }

    fn record_dispatch(&mut self, now: Instant, at: u32, path: PathId, reason: SelectionReason) -> Dispatch {
        let ahead = self.chooser.sent(now, path);
        self.order.record_in_flight(at, self.chooser.class(path));
        let entry = &mut self.held[at as usize];
        (entry.state, entry.path, entry.ahead) = (SelectionState::Flying, path, ahead);
        entry.attempts = entry.attempts.saturating_add(1);
        Dispatch { path, ticket: Ticket { index: at, generation: entry.generation }, reason }
    }

    /// Retries a failed request, or gives it up, in its turn.
    fn again(&mut self, at: u32, attempts: u8) {
        if mutant::on(Mutant::PlaceFailedForgotten) {
            self.finish(at);
        } else if self.has_used_all_attempts(attempts) && mutant::on(Mutant::PlaceGivenUpPassed) {
            self.make_ready(at);
            self.leave_order(at);
        } else if self.order.failed(at) {
            self.held[at as usize].state = SelectionState::Waiting;
            self.wake(at);
        } else {
            self.make_ready(at);
        }
    }

    /// Whether a request has used all attempts.
    fn has_used_all_attempts(&self, attempts: u8) -> bool {
        attempts >= self.config.attempts_max.max(1) && !mutant::on(Mutant::PlaceTriesForEver)
    }

    fn finish(&mut self, at: u32) {
        self.leave_order(at);
        self.free(at);
    }

    /// Removes a request from its order, which may release the next one.
    fn leave_order(&mut self, at: u32) {
        if let Some(head) = self.order.leave(at) {
            self.ready_if_waiting(head);
        }
    }

    /// Releases the first request of the same order, if it may be sent.
    fn wake(&mut self, at: u32) {
        if let Some(head) = self.order.head_if_idle(at) {
            self.ready_if_waiting(head);
        }
    }

    fn ready_if_waiting(&mut self, at: u32) {
        if self.held[at as usize].state == SelectionState::Waiting && !mutant::on(Mutant::PlaceNeverReleased) {
            self.make_ready(at);
        }
    }

    fn make_ready(&mut self, at: u32) {
        self.held[at as usize].state = SelectionState::Ready;
        self.held[at as usize].next = NONE;
        match self.ready.1 {
            NONE => self.ready.0 = at,
            last => self.held[last as usize].next = at,
        }
        self.ready.1 = at;
    }

    fn free(&mut self, at: u32) {
        let entry = &mut self.held[at as usize];
        entry.state = SelectionState::Free;
        entry.generation = entry.generation.wrapping_add(1);
        entry.next = self.free;
        self.free = at;
        self.count -= 1;
    }

    fn ticket(&self, at: u32) -> Ticket {
        Ticket { index: at, generation: self.held[at as usize].generation }
    }
}
