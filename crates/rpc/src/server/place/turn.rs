//! A placed call's turn: which way it takes, when it may, and what came of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant as Clock;

use pathcall_place::explain::Log;
use pathcall_place::select::Config;
use pathcall_place::{Decision, Go, KindId, Outcome, Paths, Released, Request, Role, Selector, Strategy, Ticket};
use pathcall_wire::Instant;
use tokio::sync::oneshot;

use super::PlaceStats;

/// Calls of an application that are remembered.
const EXPLAINED_MAX: usize = 1024;

/// An application on this host.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) paths: Paths,
    began: Clock,
    selecting: Mutex<Selecting>,
}

#[derive(Debug)]
struct Selecting {
    selector: Selector,
    log: Log,
    /// By [`Ticket::index`]: who waits to be sent. `None` is said to a call that is given up.
    waiting: Vec<Option<oneshot::Sender<Option<Go>>>>,
}

impl Place {
    /// An application, ready for calls.
    pub(super) fn new(mut paths: Paths, strategy: Strategy, config: Config) -> Arc<Self> {
        // Calls on one path are tasks of their own, and may overtake each other.
        paths.paths.iter_mut().for_each(|path| path.fifo = false);
        // As many as the selector takes in: it has room for one at least.
        let max = config.in_flight_max.clamp(1, Config::IN_FLIGHT_MAX);
        let selecting = Selecting {
            selector: Selector::new(&paths, strategy, config),
            log: Log::new(EXPLAINED_MAX),
            waiting: std::iter::repeat_with(|| None).take(max as usize).collect(),
        };
        Arc::new(Self { paths, began: Clock::now(), selecting: Mutex::new(selecting) })
    }

    fn now(&self) -> Instant {
        Instant(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Held only for a moment, by code that does not panic.
    fn lock(&self) -> MutexGuard<'_, Selecting> {
        self.selecting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call's turn; `None`: too many are there.
    pub(super) fn select(self: &Arc<Self>, kind: KindId, address: u64) -> Option<Turn> {
        let (now, mut selecting) = (self.now(), self.lock());
        let Selecting { selector, log, .. } = &mut *selecting;
        log.before(now, &self.paths, selector, kind);
        let (ticket, go) = match selector.select(now, &Request { kind, address, message: address }) {
            Decision::Go(go) => (go.ticket, Some(go)),
            Decision::Wait { ticket } => (ticket, None),
            Decision::Full => return None,
        };
        let record = log.asked(now, address, kind, go.is_none());
        let next = match go {
            Some(go) => {
                log.chose(record, go.path, go.why);
                Next::Go(go)
            }
            None => Next::Wait(selecting.wait(ticket)),
        };
        Some(Turn { place: Arc::clone(self), ticket, record, next })
    }

    /// Its last calls, the newest last: a line each.
    pub(super) fn told(&self, count: usize) -> Vec<String> {
        let selecting = self.lock();
        selecting.log.last(count, &self.paths).map(|line| format!("{} {line}\n", self.paths.application)).collect()
    }

    /// What the ways have come to, a line each.
    pub(super) fn status(&self) -> String {
        self.stats().iter().map(|way| format!("{way}\n")).collect()
    }

    pub(super) fn stats(&self) -> Vec<PlaceStats> {
        let selecting = self.lock();
        let kinds = self
            .paths
            .kinds
            .iter()
            .flat_map(|kind| (kind.first.0..kind.first.0 + kind.count).map(move |id| (kind, id)));
        let stats = kinds.map(|(kind, id)| {
            let id = pathcall_place::PathId(id);
            let path = self.paths.path(id);
            PlaceStats {
                application: self.paths.application.clone(),
                request: kind.name.clone(),
                path: path.name.clone(),
                role: path.role,
                traverse_ns: path.traverse_ns,
                toll_ns: path.toll_ns,
                state: selecting.selector.state(id),
            }
        });
        stats.collect()
    }
}

impl Selecting {
    fn wait(&mut self, ticket: Ticket) -> oneshot::Receiver<Option<Go>> {
        let (tell, told) = oneshot::channel();
        self.waiting[ticket.index()] = Some(tell);
        told
    }

    /// Notes how a call ended, and sends those that may go now.
    fn end(&mut self, now: Instant, ticket: Ticket, outcome: Outcome) {
        self.selector.done(now, ticket, outcome);
        self.drain(now);
    }

    /// Sends those that may go now.
    fn drain(&mut self, now: Instant) {
        while let Some(released) = self.selector.poll(now) {
            let (ticket, go) = match released {
                Released::Go(go) => (go.ticket, Some(go)),
                Released::GivenUp { ticket } => (ticket, None),
            };
            // One that is dropped meanwhile says so itself.
            if let Some(tell) = self.waiting[ticket.index()].take() {
                let _ = tell.send(go);
            }
        }
    }
}

/// A call's turn on its host; dropped before it is over, the call is abandoned.
pub(super) struct Turn {
    place: Arc<Place>,
    ticket: Ticket,
    /// Its number in the log.
    record: u64,
    next: Next,
}

enum Next {
    Go(Go),
    Wait(oneshot::Receiver<Option<Go>>),
    Over,
}

impl Turn {
    /// Who is to answer, and since when it is so; `None`: it is given up.
    pub(super) async fn come(&mut self) -> Option<(Role, Clock)> {
        let go = match &mut self.next {
            Next::Go(go) => Some(*go),
            // Whoever would tell lives as long as this.
            Next::Wait(told) => {
                let go = told.await.ok().flatten();
                go.inspect(|go| self.place.lock().log.chose(self.record, go.path, go.why))
            }
            Next::Over => None,
        };
        match go {
            Some(go) => {
                self.next = Next::Go(go);
                Some((self.place.paths.path(go.path).role, Clock::now()))
            }
            None => {
                // Nobody else does it: what has to come after it need not wait.
                if !matches!(self.next, Next::Over) {
                    self.end(Outcome::Abandoned);
                }
                self.next = Next::Over;
                None
            }
        }
    }

    /// It is answered.
    pub(super) fn done(&mut self, begun: Clock) {
        let took = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let now = self.place.now();
        let mut selecting = self.place.lock();
        selecting.log.ended(self.record, None, took);
        selecting.end(now, self.ticket, Outcome::Done { intra_ns: Some(took), total_ns: took });
        drop(selecting);
        self.next = Next::Over;
    }

    /// The device can't; somebody else is asked, or the same one again.
    pub(super) fn failed(&mut self) {
        let path = if let Next::Go(go) = &self.next { Some(go.path) } else { None };
        let now = self.place.now();
        let mut selecting = self.place.lock();
        selecting.log.failed(self.record, path, "the accelerator says UNAVAILABLE");
        self.next = Next::Wait(selecting.wait(self.ticket));
        selecting.end(now, self.ticket, Outcome::Failed);
    }

    fn end(&self, outcome: Outcome) {
        let now = self.place.now();
        self.place.lock().end(now, self.ticket, outcome);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !matches!(self.next, Next::Over) {
            self.end(Outcome::Abandoned);
        }
    }
}

#[cfg(test)]
mod tests {
    use pathcall_place::model::Preset;
    use pathcall_place::{Application, Hardware};

    use super::*;

    const APPLICATION: &str = "application: one
tasks: { work: { cpu: 1 us, acc: 1 us } }
requests:
  GET:
    dependency: NONE
    dataflows:
      - trips: [{ path: cpu-cpu, bytes: 8 B, reply: 8 B, responder: work }]
      - trips: [{ path: cpu-acc, bytes: 8 B, reply: 8 B, responder: work }]
";

    #[test]
    fn where_none_may_be_in_flight_one_is() {
        let application = Application::parse("one.yaml", APPLICATION).unwrap();
        let paths = Paths::of_host(&Hardware::preset(Preset::Direct), &application).unwrap();
        let place = Place::new(paths, Strategy::Leo, Config::default().in_flight_max(0));
        let mut turn = place.select(KindId(0), 0).expect("room for one");
        assert!(place.select(KindId(0), 0).is_none());
        // It waits for its next turn, which needs room here, too.
        turn.failed();
        drop(turn);
        assert!(place.select(KindId(0), 0).is_some());
    }
}
