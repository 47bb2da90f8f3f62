//! Virtual-time run of a place model: arrivals, the real selector, both hosts.

use pathcall_place::exact::{Solver, TimedRequest};
use pathcall_place::{
    Decision, Dispatch, KindId, PathId, RequestOutcome, SelectionRequest, SelectionStrategy, Selector, Ticket,
    select::Released,
};
use pathcall_sim::place::{HostPair, StepResult};
use pathcall_sim::queue::EventQueue;
use pathcall_sim::random::Random;
use pathcall_wire::Instant;

use super::{Arrivals, PathPolicy, PlaceResults, PlaceRun, PlaceSetup};

/// Requests known in advance to a selector with foresight.
const FORESEEN: usize = 12;
/// Requests that are solved together if all are known.
const KNOWN: usize = 24;
/// Partial plans that the solver keeps.
const LABELS: usize = 48;

#[derive(Debug)]
enum Event {
    /// The next message arrives.
    Arrive,
    /// A request reaches the next step of its path.
    Step(usize),
    /// A request has returned.
    Back(usize),
}

/// State of a request.
#[derive(Debug, Clone)]
struct RequestState {
    request: SelectionRequest,
    /// Index of its message.
    message: usize,
    /// Time of the selection, and time of the departure.
    selected_at: u64,
    departed_at: u64,
    ticket: Option<Ticket>,
    path: PathId,
    step: usize,
    /// Network time so far.
    network: u64,
}

/// Message of one or several requests.
#[derive(Debug, Clone, Copy)]
struct MessageState {
    made: u64,
    open: usize,
}

pub(super) struct PlaceModel<'a> {
    setting: &'a PlaceSetup,
    run: &'a PlaceRun,
    now: u64,
    queue: EventQueue<Event>,
    hosts: HostPair,
    random: Random,
    path_source: PathSource,
    requests: Vec<RequestState>,
    by_ticket: Vec<usize>,
    messages: Vec<MessageState>,
    /// Messages with start times and requests; all of them if the load is open.
    plan: Vec<(u64, Vec<SelectionRequest>)>,
    next: usize,
    /// Last path of each request type.
    before: Vec<Option<PathId>>,
    results: PlaceResults,
}

/// Source of path decisions.
enum PathSource {
    Selector(Box<Selector>),
    /// Precomputed paths for the whole sequence.
    Optimum(std::vec::IntoIter<PathId>),
}

impl<'a> PlaceModel<'a> {
    pub(super) fn new(setting: &'a PlaceSetup, run: &'a PlaceRun) -> Self {
        let mut random = Random::new(run.seed ^ 0x706c_6163_652e_2e2e);
        let mut hosts = HostPair::new(&setting.paths, setting.network, random.fork());
        for (station, fault) in &run.faults {
            hosts.add_fault(*station, *fault);
        }
        let plan = plan(setting, run, &mut random.fork());
        let path_source = path_source(setting, run, &plan);
        let results = PlaceResults { requests_by_path: vec![0; setting.paths.paths.len()], ..PlaceResults::default() };
        Self {
            setting,
            run,
            now: 0,
            queue: EventQueue::default(),
            hosts,
            random,
            path_source,
            requests: Vec::new(),
            by_ticket: vec![0; run.messages * setting.traffic.parts],
            messages: Vec::with_capacity(plan.len()),
            before: vec![None; setting.paths.kinds.len()],
            plan,
            next: 0,
            results,
        }
    }

    pub(super) fn run(mut self) -> PlaceResults {
        let first = if let Arrivals::Window(messages) = self.run.arrivals { messages } else { 1 };
        for _ in 0..first.min(self.plan.len()) {
            self.queue.push(Instant(self.plan[0].0), Event::Arrive);
        }
        while let Some((at, event)) = self.queue.pop() {
            self.now = at.0;
            match event {
                Event::Arrive => self.arrive(),
                Event::Step(number) => self.step(number),
                Event::Back(number) => self.handle_answer(number),
            }
        }
        self.results.finish();
        self.results
    }

    /// Makes the next message of the plan.
    fn arrive(&mut self) {
        let Some((_, requests)) = self.plan.get_mut(self.next) else { return };
        let requests = std::mem::take(requests);
        self.next += 1;
        let message = self.messages.len();
        self.messages.push(MessageState { made: self.now, open: requests.len() });
        self.results.record_made(self.now, message, self.run.messages);
        if let (Arrivals::Poisson(_), Some((at, _))) = (self.run.arrivals, self.plan.get(self.next)) {
            self.queue.push(Instant(*at), Event::Arrive);
        }
        for request in requests {
            self.select_path(message, request);
        }
    }

    /// Selects a path for a request.
    fn select_path(&mut self, message: usize, request: SelectionRequest) {
        let number = self.requests.len();
        let selected_at = self.now;
        let mut one = RequestState {
            request,
            message,
            selected_at,
            departed_at: 0,
            ticket: None,
            path: PathId(0),
            step: 0,
            network: 0,
        };
        let path = match &mut self.path_source {
            PathSource::Optimum(paths) => paths.next(),
            PathSource::Selector(selector) => {
                if let PathPolicy::Lookahead { .. } = self.run.policy {
                    selector.foresee(&upcoming(&self.plan, self.next, self.now));
                }
                let (ticket, path) = match selector.select(Instant(self.now), &request) {
                    Decision::Send(Dispatch { path, ticket, .. }) => (ticket, Some(path)),
                    Decision::Wait { ticket } => (ticket, None),
                    // The selector has room for all requests of a run.
                    Decision::Full => unreachable!("a selector for {} requests is full", self.run.messages),
                };
                one.ticket = Some(ticket);
                self.by_ticket[ticket.index()] = number;
                path
            }
        };
        self.requests.push(one);
        match path {
            Some(path) => self.dispatch(number, path),
            None => self.release(),
        }
    }

    /// Sends a request on a path.
    fn dispatch(&mut self, number: usize, path: PathId) {
        let one = &mut self.requests[number];
        (one.path, one.departed_at, one.step, one.network) = (path, self.now, 0, 0);
        let before = self.before[usize::from(one.request.kind.0)].replace(path);
        self.results.record_sent(self.now, path, before.is_some_and(|before| before != path));
        self.step(number);
    }

    fn step(&mut self, number: usize) {
        let one = &mut self.requests[number];
        match self.hosts.step(self.now, one.path, one.step) {
            StepResult::Arrives { at, network, .. } => {
                one.step += 1;
                one.network += network;
                self.queue.push(Instant(at), Event::Step(number));
            }
            StepResult::Returns { at, network, .. } => {
                one.network += network;
                self.queue.push(Instant(at), Event::Back(number));
            }
            // The path is dead: the request fails at once.
            StepResult::Lost => self.report_outcome(number, RequestOutcome::Failed),
        }
    }

    /// Processes the answer of a request.
    fn handle_answer(&mut self, number: usize) {
        let one = &self.requests[number];
        let total = self.now - one.departed_at;
        let noise = self.random.range(0..=self.setting.noise_ns);
        let intra = total - one.network + noise;
        let (message, selected_at) = (one.message, one.selected_at);
        self.results.record_answer(self.now, self.now - selected_at - one.network);
        let open = &mut self.messages[message].open;
        *open -= 1;
        if *open == 0 {
            let made = self.messages[message].made;
            self.results.record_done(self.now, message, self.now - made);
            if let Arrivals::Window(_) = self.run.arrivals {
                self.arrive();
            }
        }
        self.report_outcome(number, RequestOutcome::Done { intra_ns: Some(intra), total_ns: total });
    }

    fn report_outcome(&mut self, number: usize, outcome: RequestOutcome) {
        let PathSource::Selector(selector) = &mut self.path_source else { return };
        let Some(ticket) = self.requests[number].ticket else { return };
        selector.done(Instant(self.now), ticket, outcome);
        self.release();
    }

    /// Sends what the selector releases.
    fn release(&mut self) {
        while let PathSource::Selector(selector) = &mut self.path_source {
            match selector.poll(Instant(self.now)) {
                Some(Released::Send(Dispatch { path, ticket, .. })) => {
                    let number = self.by_ticket[ticket.index()];
                    self.dispatch(number, path);
                }
                Some(Released::GivenUp { ticket }) => {
                    self.results.abandoned += 1;
                    selector.done(Instant(self.now), ticket, RequestOutcome::Abandoned);
                }
                None => break,
            }
        }
    }
}

/// Plans all messages of a run with their start times; in a closed loop, all start at time 0.
fn plan(setting: &PlaceSetup, run: &PlaceRun, random: &mut Random) -> Vec<(u64, Vec<SelectionRequest>)> {
    let mut at = 0.0;
    let mut message = |number: usize| {
        if let Arrivals::Poisson(per_second) = run.arrivals {
            at += random.exponential(1e9 / per_second);
        }
        let kind = setting.traffic.kind(random);
        let address = setting.traffic.address(random);
        let request =
            |part: u64| SelectionRequest { kind, address: address.wrapping_add(part), message: number as u64 };
        (at as u64, (0..setting.traffic.parts as u64).map(request).collect())
    };
    (0..run.messages).map(&mut message).collect()
}

fn path_source(setting: &PlaceSetup, run: &PlaceRun, plan: &[(u64, Vec<SelectionRequest>)]) -> PathSource {
    let strategy = match run.policy {
        PathPolicy::Strategy(strategy) => strategy,
        PathPolicy::Lookahead { depth } => SelectionStrategy::Horizon { depth },
        PathPolicy::Optimum => return PathSource::Optimum(optimal_paths(setting, plan).into_iter()),
    };
    let in_flight_max = (run.messages * setting.traffic.parts).min(u32::MAX as usize) as u32;
    let config = run.config.in_flight_max(in_flight_max);
    PathSource::Selector(Box::new(Selector::new(&setting.paths, strategy, config)))
}

/// Computes the optimal paths of a known sequence (LEO §V-C: the optimal solution "knows the whole request sequence").
/// It solves [`KNOWN`] requests exactly at a time and keeps the first half of each solution. The remaining backlogs are
/// the input of the next step (eq. 1 and 2).
fn optimal_paths(setting: &PlaceSetup, plan: &[(u64, Vec<SelectionRequest>)]) -> Vec<PathId> {
    let paths = &setting.paths;
    let mut last = 0;
    let mut arrivals = Vec::with_capacity(plan.len() * setting.traffic.parts);
    for (at, requests) in plan {
        for request in requests {
            arrivals.push(TimedRequest { kind: request.kind, after_ns: at - last });
            last = *at;
        }
    }
    let (mut solver, mut backlog) = (Solver::new(paths), vec![0_u64; paths.resources.len()]);
    let mut chosen = Vec::with_capacity(arrivals.len());
    while chosen.len() < arrivals.len() {
        let ahead = &arrivals[chosen.len()..arrivals.len().min(chosen.len() + KNOWN)];
        let best = solver.solve(&backlog, ahead, LABELS).paths;
        let certain = if ahead.len() < KNOWN { ahead.len() } else { KNOWN / 2 };
        for (arrival, path) in ahead.iter().zip(best).take(certain) {
            backlog.iter_mut().for_each(|backlog| *backlog = backlog.saturating_sub(arrival.after_ns));
            for hop in &paths.paths[usize::from(path.0)].hops {
                backlog[usize::from(hop.resource.0)] += hop.busy_ns;
            }
            chosen.push(path);
        }
    }
    chosen
}

/// Requests after this one: distance in time from the request before, and type.
fn upcoming(plan: &[(u64, Vec<SelectionRequest>)], next: usize, now: u64) -> Vec<(u64, KindId)> {
    let mut last = now;
    let mut all = Vec::with_capacity(FORESEEN);
    for (at, requests) in plan.iter().skip(next) {
        for request in requests {
            all.push((at.saturating_sub(last), request.kind));
            last = (*at).max(last);
        }
        if all.len() >= FORESEEN {
            break;
        }
    }
    all
}
