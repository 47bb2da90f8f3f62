//! Which path each request takes (LEO §III-B2), and in which order requests that depend on each other may go.
//!
//! ```text
//! request ── select ──┬─ Go: send it on this path now
//!                     ├─ Wait: it comes out of `poll` when those before it are done
//!                     └─ Full: too many are in flight; ask again after `done`
//! outcome ── done ────── then drain `poll`: what was released, what is sent again, what is given up
//! ```
//!
//! The caller passes time in, sends what it is told to send, and reports each outcome once. `lane` has what is known
//! of a path, `order` who waits for whom, `choose` the strategies, `foretell` what will come next. Nothing
//! allocates after [`Selector::new`], but for [`Strategy::Horizon`].
//!
//! *Order.* Requests of one address (or message) go one at a time, but for reads, which pass no write and are passed by
//! none. One follows those before it at once only onto the
//! same [`fifo`](crate::Path::fifo) path, or one over the same resources. Such a path must fail in order, too: when it
//! fails a request it also fails those of the same address that it was given later.

mod backlog;
mod choose;
mod foretell;
mod lane;
mod order;
mod types;

pub use lane::PathState;
pub use types::{Config, Decision, Go, Outcome, Released, Request, Strategy, Ticket, Why};

use pathcall_wire::{Instant, Mutant, mutant};

use crate::model::{Access, Dependency};
use crate::path::{KindId, PathId, Paths};
use choose::Chooser;
use lane::Ahead;
use order::{NONE, Order};

/// Chooses paths for an application's requests.
#[derive(Debug)]
pub struct Selector {
    config: Config,
    /// Of each type of request.
    dependencies: Vec<(Dependency, Access)>,
    chooser: Chooser,
    order: Order,
    held: Vec<Held>,
    /// First of the entries of `held` that nobody has.
    free: u32,
    count: u32,
    /// Requests that `poll` hands out, first to last.
    ready: (u32, u32),
}

/// A request from `select` until it is done.
#[derive(Debug, Clone, Copy)]
struct Held {
    generation: u32,
    state: State,
    kind: KindId,
    path: PathId,
    attempts: u8,
    ahead: Ahead,
    /// The next that is ready, or the next entry that is free.
    next: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    /// For requests before it.
    Waiting,
    /// To be handed out.
    Ready,
    /// Given up, and handed out as that: whoever has it now says when that is over.
    GivenUp,
    /// In the line of those to be handed out, but not wanted any more.
    Dropped,
    Flying,
}

impl Selector {
    /// A selector for paths; allocates all that it will ever need.
    #[must_use]
    pub fn new(paths: &Paths, strategy: Strategy, config: Config) -> Self {
        let max = config.in_flight_max.clamp(1, Config::IN_FLIGHT_MAX);
        let blank = Held {
            generation: 0,
            state: State::Free,
            kind: KindId(0),
            path: PathId(0),
            attempts: 0,
            ahead: Ahead::default(),
            next: NONE,
        };
        let held = (1..=max).map(|next| Held { next: if next == max { NONE } else { next }, ..blank }).collect();
        Self {
            config,
            dependencies: paths.kinds.iter().map(|kind| (kind.dependency, kind.access)).collect(),
            chooser: Chooser::new(paths, strategy, config),
            order: Order::new(max),
            held,
            free: 0,
            count: 0,
            ready: (NONE, NONE),
        }
    }

    /// Decides for one request.
    ///
    /// # Panics
    /// When its type is not one of the paths'.
    pub fn select(&mut self, now: Instant, request: &Request) -> Decision {
        let at = self.free;
        if at == NONE {
            return Decision::Full;
        }
        let entry = &mut self.held[at as usize];
        self.free = entry.next;
        (entry.kind, entry.attempts, entry.next) = (request.kind, 0, NONE);
        self.count += 1;
        let (dependency, access) = self.dependencies[usize::from(request.kind.0)];
        let read = access == Access::Read;
        match dependency {
            Dependency::None => {}
            Dependency::Addr => self.order.join(at, 0, request.address, read),
            Dependency::Msg => self.order.join(at, 1, request.message, read),
        }
        let choice = match self.order.is_free(at) || mutant::on(Mutant::PlaceOvertakes) {
            true => Some(self.chooser.choose(now, request.kind)),
            false => self.follows(at, request.kind),
        };
        match choice {
            Some((path, why)) => Decision::Go(self.fly(now, at, path, why)),
            None => {
                self.held[at as usize].state = State::Waiting;
                Decision::Wait { ticket: self.ticket(at) }
            }
        }
    }

    /// Takes in how sending a request ended; false for a ticket that this can't be said of. Drain [`Self::poll`] after it.
    ///
    /// [`Outcome::Abandoned`] may be said of requests that wait as well. Of one that was given up any outcome is the end:
    /// until then those that have to come after it wait.
    pub fn done(&mut self, now: Instant, ticket: Ticket, outcome: Outcome) -> bool {
        let known = |held: &&Held| held.generation == ticket.generation || mutant::on(Mutant::PlaceOldTicket);
        let Some(entry) = self.held.get(ticket.index as usize).filter(known) else { return false };
        let at = ticket.index;
        let Held { state, generation, path, attempts, ref ahead, .. } = *entry;
        match (state, outcome) {
            (State::Flying, Outcome::Done { intra_ns, total_ns }) => {
                self.chooser.done(now, path, ahead, intra_ns, total_ns);
                self.order.landed(at);
                self.finish(at);
            }
            (State::Flying, Outcome::Failed) => {
                self.chooser.failed(now, path);
                self.order.landed(at);
                self.again(at, attempts);
            }
            (State::Flying, Outcome::Abandoned) => {
                self.chooser.abandoned(path);
                self.order.landed(at);
                self.finish(at);
            }
            (State::Waiting, Outcome::Abandoned) => self.finish(at),
            (State::GivenUp, _) if mutant::on(Mutant::PlaceGivenUpKept) => {}
            (State::GivenUp, _) => self.finish(at),
            (State::Ready, Outcome::Abandoned) => {
                self.held[at as usize].state = State::Dropped;
                self.held[at as usize].generation = generation.wrapping_add(1);
                self.leave_order(at);
            }
            _ => return false,
        }
        true
    }

    /// The next request that was released, or given up.
    pub fn poll(&mut self, now: Instant) -> Option<Released> {
        loop {
            let at = self.ready.0;
            if at == NONE {
                return None;
            }
            let entry = self.held[at as usize];
            self.ready.0 = entry.next;
            if entry.next == NONE {
                self.ready.1 = NONE;
            }
            self.held[at as usize].next = NONE;
            match entry.state {
                State::Dropped => self.free(at),
                _ if self.is_spent(entry.attempts) => {
                    self.held[at as usize].state = State::GivenUp;
                    return Some(Released::GivenUp { ticket: self.ticket(at) });
                }
                _ => {
                    if let Some(go) = self.release(now, at, entry.kind) {
                        return Some(Released::Go(go));
                    }
                }
            }
        }
    }

    /// What is known of a path.
    #[must_use]
    pub fn state(&self, path: PathId) -> PathState {
        self.chooser.state(path)
    }

    /// What this selector has queued on a path, in nanoseconds from now.
    #[must_use]
    pub fn queue_ns(&self, now: Instant, path: PathId) -> u64 {
        self.chooser.queue_ns(now, path)
    }

    /// Requests in flight or waiting.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.count
    }

    /// For [`Strategy::Horizon`]: the requests that will come after the next one, with the time between each and the one
    /// before it, in nanoseconds. Takes the place of what the last requests foretell, until the next call.
    pub fn foresee(&mut self, upcoming: &[(u64, KindId)]) {
        self.chooser.foresee(upcoming);
    }

    /// Sends one that was ready, if it still may go.
    fn release(&mut self, now: Instant, at: u32, kind: KindId) -> Option<Go> {
        let choice = match self.order.is_free(at) {
            true => Some(self.chooser.choose(now, kind)),
            false => self.follows(at, kind),
        };
        let Some((path, why)) = choice else {
            self.held[at as usize].state = State::Waiting;
            self.wake(at);
            return None;
        };
        let go = self.fly(now, at, path, why);
        if let Some(next) = self.order.behind(at)
            && self.held[next as usize].state == State::Waiting
            && (self.order.is_free(next) || self.follows(next, self.held[next as usize].kind).is_some())
        {
            self.make_ready(next);
        }
        Some(go)
    }

    /// The path on which a request can follow those before it at once.
    fn follows(&self, at: u32, kind: KindId) -> Option<(PathId, Why)> {
        let (class, ahead) = self.order.class_ahead(at)?;
        Some((self.chooser.in_class(kind, class, self.held[ahead as usize].ahead.sent)?, Why::Follows))
    }

    fn fly(&mut self, now: Instant, at: u32, path: PathId, why: Why) -> Go {
        let ahead = self.chooser.sent(now, path);
        self.order.flies(at, self.chooser.class(path));
        let entry = &mut self.held[at as usize];
        (entry.state, entry.path, entry.ahead) = (State::Flying, path, ahead);
        entry.attempts = entry.attempts.saturating_add(1);
        Go { path, ticket: Ticket { index: at, generation: entry.generation }, why }
    }

    /// Has one that failed sent again, or given up, in its turn.
    fn again(&mut self, at: u32, attempts: u8) {
        if mutant::on(Mutant::PlaceFailedForgotten) {
            self.finish(at);
        } else if self.is_spent(attempts) && mutant::on(Mutant::PlaceGivenUpPassed) {
            self.make_ready(at);
            self.leave_order(at);
        } else if self.order.failed(at) {
            self.held[at as usize].state = State::Waiting;
            self.wake(at);
        } else {
            self.make_ready(at);
        }
    }

    /// Whether a request was sent as often as it may be.
    fn is_spent(&self, attempts: u8) -> bool {
        attempts >= self.config.attempts_max.max(1) && !mutant::on(Mutant::PlaceTriesForEver)
    }

    fn finish(&mut self, at: u32) {
        self.leave_order(at);
        self.free(at);
    }

    /// Takes one out of the order, which may let the next go.
    fn leave_order(&mut self, at: u32) {
        if let Some(head) = self.order.leave(at) {
            self.ready_if_waiting(head);
        }
    }

    /// Looks whether the first of those in order with this one may go.
    fn wake(&mut self, at: u32) {
        if let Some(head) = self.order.head_if_idle(at) {
            self.ready_if_waiting(head);
        }
    }

    fn ready_if_waiting(&mut self, at: u32) {
        if self.held[at as usize].state == State::Waiting && !mutant::on(Mutant::PlaceNeverReleased) {
            self.make_ready(at);
        }
    }

    fn make_ready(&mut self, at: u32) {
        self.held[at as usize].state = State::Ready;
        self.held[at as usize].next = NONE;
        match self.ready.1 {
            NONE => self.ready.0 = at,
            last => self.held[last as usize].next = at,
        }
        self.ready.1 = at;
    }

    fn free(&mut self, at: u32) {
        let entry = &mut self.held[at as usize];
        entry.state = State::Free;
        entry.generation = entry.generation.wrapping_add(1);
        entry.next = self.free;
        self.free = at;
        self.count -= 1;
    }

    fn ticket(&self, at: u32) -> Ticket {
        Ticket { index: at, generation: self.held[at as usize].generation }
    }
}
