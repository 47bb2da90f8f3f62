//! Whether every request had its one right answer, in order, and the selector did what it is for.

use std::collections::BTreeMap;

use pathcall_place::model::Access;
use pathcall_place::{Dependency, PathId, Paths, Selector, Strategy};
use pathcall_wire::Instant;

use super::plan::Plan;

/// What was wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// A request has no answer, and nothing is left to happen.
    #[error("request {0} was lost: it has neither an answer nor an error, and nothing is left to happen")]
    Lost(usize),
    /// A request ended more than once.
    #[error("request {0} ended twice")]
    Twice(usize),
    /// A request was given up too soon, or not at all.
    #[error("request {request} failed {failed} times of {attempts}, and was given up too soon or goes again")]
    GivenUp {
        /// Which.
        request: usize,
        /// How often it had failed.
        failed: u32,
        /// How often it may fail.
        attempts: u32,
    },
    /// A request took a path of another type of request.
    #[error("request {request} took path {path}, which its type has not")]
    Path {
        /// Which.
        request: usize,
        /// The path.
        path: u16,
    },
    /// A request was worked on before one that it has to come after.
    #[error("request {request} was worked on before {before}, which has the same {what}")]
    Order {
        /// Which.
        request: usize,
        /// The one that had to be before it.
        before: usize,
        /// `address` or `message`.
        what: &'static str,
    },
    /// A read has another value than that of the last write before it.
    #[error("read {request} of address {address} has the value of {got:?}, expected that of {expected:?}")]
    Stale {
        /// Which.
        request: usize,
        /// Its address.
        address: u64,
        /// Which write's value it has; that from the beginning, without one.
        got: Option<usize>,
        /// The last write that is certain.
        expected: Option<usize>,
    },
    /// More seems to be queued on a path than is in flight.
    #[error("path {path}: k is {k} with {in_flight} in flight")]
    Clamp {
        /// The path.
        path: u16,
        /// Its k.
        k: u32,
        /// In flight.
        in_flight: u32,
    },
    /// The selector's count of messages in flight is not the number of those that are.
    #[error("path {path}: the selector counts {counted} in flight, there are {really}")]
    InFlight {
        /// The path.
        path: u16,
        /// As the selector has it.
        counted: u32,
        /// As it is.
        really: u32,
    },
    /// The selector holds requests when all are done.
    #[error("{0} requests are held when all are done")]
    Held(u32),
    /// The selector is full although it is not.
    #[error("request {request} was not taken in, with {held} of {most} held")]
    Full {
        /// Which.
        request: usize,
        /// Held.
        held: u32,
        /// The bound.
        most: u32,
    },
    /// The selector takes an outcome of a request that has ended, or does not take one that has not.
    #[error("an outcome of request {request}, which {is}, was {said}")]
    Ticket {
        /// Which.
        request: usize,
        /// How it is.
        is: &'static str,
        /// What the selector said.
        said: &'static str,
    },
    /// A device that failed was not left in time.
    #[error("{taken} of the first {of} requests took a device after it had failed")]
    Reaction {
        /// How many.
        taken: usize,
        /// Of so many.
        of: usize,
    },
    /// A device that is well again is not used.
    #[error("only {taken} of the last {of} requests took a device that is well again, and the best")]
    Unused {
        /// How many.
        taken: usize,
        /// Of so many.
        of: usize,
    },
    /// Something panicked.
    #[error("panic: {0}")]
    Panic(String),
}

/// Of the first so many requests after a device has failed, so many may take it.
const REACTION: (usize, usize) = (300, 100);
/// Of the last so many, when it is well again, so many take it.
const AGAIN: (usize, usize) = (500, 250);

/// What is known of a request.
#[derive(Debug, Clone, Default)]
struct Known {
    asked: bool,
    /// The responder has worked on it.
    worked: bool,
    /// The value that it had last, of a read.
    read: Option<usize>,
    /// Failures that were told.
    failed: u32,
    ended: bool,
    /// Nobody knows whether it took effect, or will.
    uncertain: bool,
}

/// Watches a run.
pub(super) struct Judge<'a> {
    plan: &'a Plan,
    paths: &'a Paths,
    known: Vec<Known>,
    /// Requests that have to stay in order, by what they have in common.
    by_address: BTreeMap<u64, Vec<usize>>,
    by_message: BTreeMap<u64, Vec<usize>>,
    /// The write that each address has the value of.
    store: BTreeMap<u64, usize>,
    /// Which path each request took, each time.
    taken: Vec<(Instant, PathId)>,
}

impl<'a> Judge<'a> {
    pub(super) fn new(plan: &'a Plan, paths: &'a Paths) -> Self {
        Self {
            plan,
            paths,
            known: vec![Known::default(); plan.asks.len()],
            by_address: BTreeMap::new(),
            by_message: BTreeMap::new(),
            store: BTreeMap::new(),
            taken: Vec::new(),
        }
    }

    fn dependency(&self, request: usize) -> Dependency {
        self.paths.kinds[usize::from(self.plan.asks[request].kind.0)].dependency
    }

    /// Whether it changes its address.
    fn writes(&self, request: usize) -> bool {
        self.paths.kinds[usize::from(self.plan.asks[request].kind.0)].access == Access::Write
    }

    /// The selector is asked about a request.
    pub(super) fn asked(&mut self, request: usize) {
        if std::mem::replace(&mut self.known[request].asked, true) {
            return;
        }
        let ask = &self.plan.asks[request];
        match self.dependency(request) {
            Dependency::None => {}
            Dependency::Addr => self.by_address.entry(ask.address).or_default().push(request),
            Dependency::Msg => self.by_message.entry(ask.message).or_default().push(request),
        }
    }

    /// A request was not taken in.
    pub(super) fn full(&self, request: usize, held: u32) -> Result<(), Wrong> {
        let most = self.plan.config.in_flight_max;
        if held < most { Err(Wrong::Full { request, held, most }) } else { Ok(()) }
    }

    /// A request goes.
    pub(super) fn goes(&mut self, now: Instant, request: usize, path: PathId) -> Result<(), Wrong> {
        if self.known[request].ended {
            return Err(Wrong::Twice(request));
        }
        if self.paths.paths.get(usize::from(path.0)).is_none_or(|path| path.kind != self.plan.asks[request].kind) {
            return Err(Wrong::Path { request, path: path.0 });
        }
        let (failed, attempts) = (self.known[request].failed, u32::from(self.plan.config.attempts_max));
        if failed >= attempts {
            return Err(Wrong::GivenUp { request, failed, attempts });
        }
        self.taken.push((now, path));
        Ok(())
    }

    /// The responder works on a request: writes take effect once.
    pub(super) fn works(&mut self, request: usize) -> Result<(), Wrong> {
        if self.known[request].worked && self.writes(request) {
            return Ok(());
        }
        let ask = &self.plan.asks[request];
        let (same, what) = match self.dependency(request) {
            Dependency::None => (None, ""),
            Dependency::Addr => (self.by_address.get(&ask.address), "address"),
            Dependency::Msg => (self.by_message.get(&ask.message), "message"),
        };
        // What nobody waits for any more is in no order.
        let before = same.into_iter().flatten().take_while(|other| **other != request).copied();
        let mut open = before.filter(|other| !self.known[*other].worked && !self.known[*other].ended);
        let must = |other: &usize| what == "message" || self.writes(request) || self.writes(*other);
        if let Some(before) = open.find(must).filter(|_| !self.known[request].ended) {
            return Err(Wrong::Order { request, before, what });
        }
        self.known[request].worked = true;
        if self.writes(request) {
            self.store.insert(ask.address, request);
        } else {
            self.known[request].read = self.store.get(&ask.address).copied();
        }
        Ok(())
    }

    /// A failure was told.
    pub(super) fn failed(&mut self, request: usize) {
        self.known[request].failed += 1;
    }

    /// A request is answered.
    pub(super) fn answered(&mut self, request: usize) -> Result<(), Wrong> {
        self.ends(request)?;
        if self.dependency(request) == Dependency::Addr && !self.writes(request) {
            self.fresh(request)?;
        }
        Ok(())
    }

    /// Whether a read has the value of the last write before it.
    fn fresh(&self, request: usize) -> Result<(), Wrong> {
        let (address, got) = (self.plan.asks[request].address, self.known[request].read);
        let before = self.by_address[&address].iter().take_while(|other| **other != request);
        let writes: Vec<usize> = before.copied().filter(|other| self.writes(*other)).collect();
        let expected = writes.iter().rev().find(|write| !self.known[**write].uncertain).copied();
        let uncertain = got.is_some_and(|got| writes.contains(&got) && self.known[got].uncertain);
        if got == expected || uncertain { Ok(()) } else { Err(Wrong::Stale { request, address, got, expected }) }
    }

    /// The selector gives a request up: it takes no path any more, and is not over.
    pub(super) fn given_up(&mut self, request: usize) -> Result<(), Wrong> {
        let (failed, attempts) = (self.known[request].failed, u32::from(self.plan.config.attempts_max));
        if failed != attempts || self.known[request].ended {
            return Err(Wrong::GivenUp { request, failed, attempts });
        }
        Ok(())
    }

    /// Nobody wants a request any more.
    pub(super) fn abandoned(&mut self, request: usize) -> Result<(), Wrong> {
        self.known[request].uncertain = true;
        self.ends(request)
    }

    /// Whether it is over with a request.
    pub(super) fn has_ended(&self, request: usize) -> bool {
        self.known[request].ended
    }

    fn ends(&mut self, request: usize) -> Result<(), Wrong> {
        if std::mem::replace(&mut self.known[request].ended, true) { Err(Wrong::Twice(request)) } else { Ok(()) }
    }

    /// What must be so at all times; `really`: messages in flight on each path.
    pub(super) fn always(&self, selector: &Selector, really: &[u32]) -> Result<(), Wrong> {
        for (path, really) in (0u16..).zip(really) {
            let state = selector.state(PathId(path));
            if state.in_flight != *really {
                return Err(Wrong::InFlight { path, counted: state.in_flight, really: *really });
            }
            if self.plan.strategy == Strategy::Leo && state.k > state.in_flight {
                return Err(Wrong::Clamp { path, k: state.k, in_flight: state.in_flight });
            }
        }
        Ok(())
    }

    /// What must be so when all is over.
    pub(super) fn over(&self, selector: &Selector) -> Result<(), Wrong> {
        if let Some(lost) = self.known.iter().position(|known| known.asked && !known.ended) {
            return Err(Wrong::Lost(lost));
        }
        if selector.held() > 0 {
            return Err(Wrong::Held(selector.held()));
        }
        self.watched()
    }

    /// Whether a device that failed was left in time, and is used again.
    fn watched(&self) -> Result<(), Wrong> {
        let Some(watch) = self.plan.watch.filter(|_| !self.plan.spells.is_empty()) else { return Ok(()) };
        let uses = |path: &PathId| {
            let hops = &self.paths.paths[usize::from(path.0)].hops;
            hops.iter().any(|hop| usize::from(hop.resource.0) == watch.station)
        };
        let (of, most) = REACTION;
        let after = self.taken.iter().filter(|(at, _)| *at >= watch.from).take(of);
        let taken = after.filter(|(at, path)| *at < watch.until && uses(path)).count();
        if taken > most {
            return Err(Wrong::Reaction { taken, of });
        }
        let (of, least) = AGAIN;
        let last: Vec<_> = self.taken.iter().rev().take(of).collect();
        let taken = last.iter().filter(|(at, path)| *at >= watch.until && uses(path)).count();
        // Of a plan that was made smaller not as many are left.
        if taken < least && last.iter().all(|(at, _)| *at >= watch.until) && last.len() == of {
            return Err(Wrong::Unused { taken, of });
        }
        Ok(())
    }
}
