//! Invariant checks of place: one right answer per request, in order, and the selector's own duties.

use std::collections::BTreeMap;

use pathcall_place::model::AccessMode;
use pathcall_place::{Dependency, PathId, Paths, SelectionStrategy, Selector};
use pathcall_wire::Instant;

use super::binding::StallModel;
use super::plan::PlacePlan;

/// Violation of an invariant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlaceViolation {
    /// A request has neither an answer nor an error, and no event is left.
    #[error("request {0} was lost: it has neither an answer nor an error, and no event is left")]
    Lost(usize),
    /// A request ended more than once.
    #[error("request {0} ended twice")]
    Twice(usize),
    /// A request was given up too early, or not at all.
    #[error("request {request} was given up too early, or sent again, after {failed} of {attempts} failures")]
    GivenUp {
        /// Index of the request.
        request: usize,
        /// Number of its failures.
        failed: u32,
        /// Limit on its failures.
        attempts: u32,
    },
    /// A request was sent over a path of another request type.
    #[error("request {request} was sent over path {path}, which is not a path of its type")]
    Path {
        /// Index of the request.
        request: usize,
        /// Index of the path.
        path: u16,
    },
    /// A request was executed before one that it depends on.
    #[error("request {request} was executed before {before}, which has the same {what}")]
    Order {
        /// Index of the request.
        request: usize,
        /// Index of the request that it depends on.
        before: usize,
        /// `address` or `message`.
        what: &'static str,
    },
    /// A read did not return the value of the last write before it.
    #[error("read {request} of address {address} returned the value of write {got:?}, expected that of {expected:?}")]
    Stale {
        /// Index of the read.
        request: usize,
        /// Address of the read.
        address: u64,
        /// Write whose value was read; `None`: the initial value.
        got: Option<usize>,
        /// Last write that is known to have taken effect.
        expected: Option<usize>,
    },
    /// The estimated queue length of a path exceeds the messages in flight.
    #[error("path {path}: k is {k} with {in_flight} in flight")]
    Clamp {
        /// Index of the path.
        path: u16,
        /// Estimated queue length.
        k: u32,
        /// Number of messages in flight.
        in_flight: u32,
    },
    /// The selector's count of messages in flight is wrong.
    #[error("path {path}: the selector counts {counted} messages in flight, but there are {really}")]
    InFlight {
        /// Index of the path.
        path: u16,
        /// Count of the selector.
        counted: u32,
        /// Real number.
        really: u32,
    },
    /// The selector still has requests when all have ended.
    #[error("the selector holds {0} requests after all have ended")]
    Held(u32),
    /// The selector is full below its limit.
    #[error("the selector rejected request {request} with {held} of {most} held")]
    Full {
        /// Index of the request.
        request: usize,
        /// Number of requests in the selector.
        held: u32,
        /// Limit of the selector.
        most: u32,
    },
    /// The selector accepted an outcome of a request that has ended, or rejected one of a request that has not.
    #[error("an outcome of request {request}, which {is}, was {answer}")]
    Ticket {
        /// Index of the request.
        request: usize,
        /// State of the request.
        is: &'static str,
        /// Response of the selector.
        answer: &'static str,
    },
    /// The selector did not leave a failed device in time.
    #[error("{taken} of the first {of} requests used a device after it had failed")]
    Reaction {
        /// Number of requests that used the device.
        taken: usize,
        /// Number of requests considered.
        of: usize,
    },
    /// The selector does not use a device that has recovered.
    #[error("only {taken} of the last {of} requests used the best device after its recovery")]
    Unused {
        /// Number of requests that used the device.
        taken: usize,
        /// Number of requests considered.
        of: usize,
    },
    /// A device took a request from the common queue without room.
    #[error("request {request} was sent over path {path}, whose device has no room")]
    NoRoom {
        /// Index of the request.
        request: usize,
        /// Index of the path.
        path: u16,
    },
    /// A device took a request from the common queue that another one would have ended sooner.
    #[error(
        "request {request} was sent over path {path}, which ends it in {expected} ns; path {other} does in {sooner}"
    )]
    Sooner {
        /// Index of the request.
        request: usize,
        /// Index of the path.
        path: u16,
        /// Time on the path, by the selector's estimates, in nanoseconds.
        expected: u64,
        /// Index of the other path.
        other: u16,
        /// Longest time on the other path, with all waiting requests before it, in nanoseconds.
        sooner: u64,
    },
    /// Requests wait for a path that has stopped answering.
    #[error(
        "requests wait for path {path}, where no message has ended for {quiet} ns, although {most} ns make a stall"
    )]
    Stalled {
        /// Index of the path.
        path: u16,
        /// Time since the last end, in nanoseconds.
        quiet: u64,
        /// Time after which the path is stalled, in nanoseconds.
        most: u64,
    },
    /// The run does not end.
    #[error("the run did not end within {0} events")]
    Endless(u64),
    /// The code under test panicked.
    #[error("panic: {0}")]
    Panic(String),
}

/// Requests considered after a device has failed, and how many of them may use it.
const REACTION: (usize, usize) = (300, 100);
/// How many may use it beside further accelerators: late binding tries to do without each of these, and a device that is
/// only late is probed as often as it is late, while the others take fewer requests in this time.
const REACTION_BESIDE_OTHERS: usize = 150;
/// Requests considered at the end, after the device has recovered, and how many of them must use it.
const RECOVERY: (usize, usize) = (500, 250);

/// Record of a request.
#[derive(Debug, Clone, Default)]
struct RequestRecord {
    asked: bool,
    /// Whether the responder has executed it.
    worked: bool,
    /// Write whose value it read last.
    read: Option<usize>,
    /// Number of failures that were reported.
    failed: u32,
    ended: bool,
    /// Whether it is unknown if it took effect, or will.
    uncertain: bool,
}

/// Checker of a run.
pub(super) struct PlaceChecker<'a> {
    pub(super) plan: &'a PlacePlan,
    pub(super) paths: &'a Paths,
    known: Vec<RequestRecord>,
    /// Requests that must stay in order, by their common address or message.
    by_address: BTreeMap<u64, Vec<usize>>,
    by_message: BTreeMap<u64, Vec<usize>>,
    /// Last write of each address.
    store: BTreeMap<u64, usize>,
    /// Path of each request, for each attempt.
    taken: Vec<(Instant, PathId)>,
    /// By path.
    pub(super) stalls: Vec<StallModel>,
}

impl<'a> PlaceChecker<'a> {
    pub(super) fn new(plan: &'a PlacePlan, paths: &'a Paths) -> Self {
        Self {
            plan,
            paths,
            known: vec![RequestRecord::default(); plan.requests.len()],
            by_address: BTreeMap::new(),
            by_message: BTreeMap::new(),
            store: BTreeMap::new(),
            taken: Vec::new(),
            stalls: paths.paths.iter().map(|path| StallModel::new(path, &plan.config)).collect(),
        }
    }

    fn dependency(&self, request: usize) -> Dependency {
        self.paths.kinds[usize::from(self.plan.requests[request].kind.0)].dependency
    }

    /// Whether the request writes its address.
    fn writes(&self, request: usize) -> bool {
        self.paths.kinds[usize::from(self.plan.requests[request].kind.0)].access == AccessMode::Write
    }

    /// Records that the selector was asked about a request.
    pub(super) fn record_request(&mut self, request: usize) {
        if std::mem::replace(&mut self.known[request].asked, true) {
            return;
        }
        let ask = &self.plan.requests[request];
        match self.dependency(request) {
            Dependency::None => {}
            Dependency::Addr => self.by_address.entry(ask.address).or_default().push(request),
            Dependency::Msg => self.by_message.entry(ask.message).or_default().push(request),
        }
    }

    /// Checks that the selector was full when it rejected a request.
    pub(super) fn full(&self, request: usize, held: u32) -> Result<(), PlaceViolation> {
        let most = self.plan.config.in_flight_max;
        if held < most { Err(PlaceViolation::Full { request, held, most }) } else { Ok(()) }
    }

    /// Records that a request is sent over a path.
    pub(super) fn record_send(&mut self, now: Instant, request: usize, path: PathId) -> Result<(), PlaceViolation> {
        if self.known[request].ended {
            return Err(PlaceViolation::Twice(request));
        }
        if self.paths.paths.get(usize::from(path.0)).is_none_or(|path| path.kind != self.plan.requests[request].kind) {
            return Err(PlaceViolation::Path { request, path: path.0 });
        }
        let (failed, attempts) = (self.known[request].failed, u32::from(self.plan.config.attempts_max));
        if failed >= attempts {
            return Err(PlaceViolation::GivenUp { request, failed, attempts });
        }
        self.taken.push((now, path));
        Ok(())
    }

    /// Records that the responder executes a request; a write takes effect once.
    pub(super) fn record_execution(&mut self, request: usize) -> Result<(), PlaceViolation> {
        if self.known[request].worked && self.writes(request) {
            return Ok(());
        }
        let ask = &self.plan.requests[request];
        let (same, what) = match self.dependency(request) {
            Dependency::None => (None, ""),
            Dependency::Addr => (self.by_address.get(&ask.address), "address"),
            Dependency::Msg => (self.by_message.get(&ask.message), "message"),
        };
        // Abandoned requests have no order.
        let before = same.into_iter().flatten().take_while(|other| **other != request).copied();
        let mut open = before.filter(|other| !self.known[*other].worked && !self.known[*other].ended);
        let must = |other: &usize| what == "message" || self.writes(request) || self.writes(*other);
        if let Some(before) = open.find(must).filter(|_| !self.known[request].ended) {
            return Err(PlaceViolation::Order { request, before, what });
        }
        self.known[request].worked = true;
        if self.writes(request) {
            self.store.insert(ask.address, request);
        } else {
            self.known[request].read = self.store.get(&ask.address).copied();
        }
        Ok(())
    }

    /// Records a reported failure.
    pub(super) fn failed(&mut self, request: usize) {
        self.known[request].failed += 1;
    }

    /// Records the answer of a request.
    pub(super) fn answered(&mut self, request: usize) -> Result<(), PlaceViolation> {
        self.ends(request)?;
        if self.dependency(request) == Dependency::Addr && !self.writes(request) {
            self.fresh(request)?;
        }
        Ok(())
    }

    /// Checks that a read returned the value of the last write before it.
    fn fresh(&self, request: usize) -> Result<(), PlaceViolation> {
        let (address, got) = (self.plan.requests[request].address, self.known[request].read);
        let before = self.by_address[&address].iter().take_while(|other| **other != request);
        let writes: Vec<usize> = before.copied().filter(|other| self.writes(*other)).collect();
        let expected = writes.iter().rev().find(|write| !self.known[**write].uncertain).copied();
        let uncertain = got.is_some_and(|got| writes.contains(&got) && self.known[got].uncertain);
        if got == expected || uncertain {
            Ok(())
        } else {
            Err(PlaceViolation::Stale { request, address, got, expected })
        }
    }

    /// Records that the selector gives a request up; the request has not ended yet.
    pub(super) fn record_given_up(&mut self, request: usize) -> Result<(), PlaceViolation> {
        let (failed, attempts) = (self.known[request].failed, u32::from(self.plan.config.attempts_max));
        if failed != attempts || self.known[request].ended {
            return Err(PlaceViolation::GivenUp { request, failed, attempts });
        }
        Ok(())
    }

    /// Records that a request was abandoned.
    pub(super) fn record_abandoned(&mut self, request: usize) -> Result<(), PlaceViolation> {
        self.known[request].uncertain = true;
        self.ends(request)
    }

    /// Whether a request has ended.
    pub(super) fn has_ended(&self, request: usize) -> bool {
        self.known[request].ended
    }

    fn ends(&mut self, request: usize) -> Result<(), PlaceViolation> {
        if std::mem::replace(&mut self.known[request].ended, true) {
            Err(PlaceViolation::Twice(request))
        } else {
            Ok(())
        }
    }

    /// Checks that hold after every event. `really`: messages in flight on each path.
    pub(super) fn always(&self, selector: &Selector, really: &[u32]) -> Result<(), PlaceViolation> {
        for (path, really) in (0u16..).zip(really) {
            let state = selector.state(PathId(path));
            if state.in_flight != *really {
                return Err(PlaceViolation::InFlight { path, counted: state.in_flight, really: *really });
            }
            if self.plan.strategy == SelectionStrategy::Leo && state.k > state.in_flight {
                return Err(PlaceViolation::Clamp { path, k: state.k, in_flight: state.in_flight });
            }
        }
        Ok(())
    }

    /// Checks at the end of the run.
    pub(super) fn check_end(&self, selector: &Selector) -> Result<(), PlaceViolation> {
        if let Some(lost) = self.known.iter().position(|known| known.asked && !known.ended) {
            return Err(PlaceViolation::Lost(lost));
        }
        if selector.held() > 0 {
            return Err(PlaceViolation::Held(selector.held()));
        }
        self.check_device_use()
    }

    /// Checks that the selector left a failed device in time, and uses it again.
    fn check_device_use(&self) -> Result<(), PlaceViolation> {
        let Some(reaction_check) = self.plan.reaction_check.filter(|_| !self.plan.station_faults.is_empty()) else {
            return Ok(());
        };
        let uses = |path: &PathId| {
            let hops = &self.paths.paths[usize::from(path.0)].hops;
            hops.iter().any(|hop| usize::from(hop.resource.0) == reaction_check.station)
        };
        let (of, most) = REACTION;
        let most = if self.plan.further.is_empty() { most } else { REACTION_BESIDE_OTHERS };
        let after = self.taken.iter().filter(|(at, _)| *at >= reaction_check.from).take(of);
        let taken = after.filter(|(at, path)| *at < reaction_check.until && uses(path)).count();
        if taken > most {
            return Err(PlaceViolation::Reaction { taken, of });
        }
        let (of, least) = RECOVERY;
        let last: Vec<_> = self.taken.iter().rev().take(of).collect();
        let taken = last.iter().filter(|(at, path)| *at >= reaction_check.until && uses(path)).count();
        // A shrunk plan may have too few requests for this check.
        if taken < least && last.iter().all(|(at, _)| *at >= reaction_check.until) && last.len() == of {
            return Err(PlaceViolation::Unused { taken, of });
        }
        Ok(())
    }
}
