//! The run: arrivals, the real selector, both hosts, in virtual time.

use pathcall_place::exact::{Arrival, Solver};
use pathcall_place::{Decision, Go, KindId, Outcome, PathId, Request, Selector, Strategy, Ticket, select::Released};
use pathcall_sim::place::{Bed, Next};
use pathcall_sim::queue::EventQueue;
use pathcall_sim::random::Random;
use pathcall_wire::Instant;

use super::{Arrivals, Measured, Policy, Run, Setting};

/// A selector that is told the future is told of so many requests.
const FORESEEN: usize = 12;
/// Requests that are solved together where all are known.
const KNOWN: usize = 24;
/// Partial plans that are kept there.
const LABELS: usize = 48;

#[derive(Debug)]
enum Event {
    /// The next message is made.
    Arrive,
    /// A request comes to the next step of its way.
    Step(usize),
    /// It is back.
    Back(usize),
}

/// A request.
#[derive(Debug, Clone)]
struct Asked {
    request: Request,
    /// Of which message.
    message: usize,
    /// When the selector was asked, and when it went.
    asked: u64,
    went: u64,
    ticket: Option<Ticket>,
    path: PathId,
    step: usize,
    /// On the network so far.
    network: u64,
}

/// A message of one request or several.
#[derive(Debug, Clone, Copy)]
struct Message {
    made: u64,
    open: usize,
}

pub(super) struct Model<'a> {
    setting: &'a Setting,
    run: &'a Run,
    now: u64,
    queue: EventQueue<Event>,
    bed: Bed,
    random: Random,
    chooser: Chooser,
    asked: Vec<Asked>,
    by_ticket: Vec<usize>,
    messages: Vec<Message>,
    /// When messages are made, with their requests: all of them, where the load is open.
    plan: Vec<(u64, Vec<Request>)>,
    next: usize,
    /// Of each type of request, the path of the one before.
    before: Vec<Option<PathId>>,
    measured: Measured,
}

/// Who chooses paths.
enum Chooser {
    Selector(Box<Selector>),
    /// As a search over the whole sequence has found.
    Known(std::vec::IntoIter<PathId>),
}

impl<'a> Model<'a> {
    pub(super) fn new(setting: &'a Setting, run: &'a Run) -> Self {
        let mut random = Random::new(run.seed ^ 0x706c_6163_652e_2e2e);
        let mut bed = Bed::new(&setting.paths, setting.between, random.fork());
        for (station, spell) in &run.spells {
            bed.befall(*station, *spell);
        }
        let plan = plan(setting, run, &mut random.fork());
        let chooser = chooser(setting, run, &plan);
        let measured = Measured { taken: vec![0; setting.paths.paths.len()], ..Measured::default() };
        Self {
            setting,
            run,
            now: 0,
            queue: EventQueue::default(),
            bed,
            random,
            chooser,
            asked: Vec::new(),
            by_ticket: vec![0; run.messages * setting.traffic.parts],
            messages: Vec::with_capacity(plan.len()),
            before: vec![None; setting.paths.kinds.len()],
            plan,
            next: 0,
            measured,
        }
    }

    pub(super) fn run(mut self) -> Measured {
        let first = if let Arrivals::Window(messages) = self.run.arrivals { messages } else { 1 };
        for _ in 0..first.min(self.plan.len()) {
            self.queue.push(Instant(self.plan[0].0), Event::Arrive);
        }
        while let Some((at, event)) = self.queue.pop() {
            self.now = at.0;
            match event {
                Event::Arrive => self.arrive(),
                Event::Step(asked) => self.step(asked),
                Event::Back(asked) => self.back(asked),
            }
        }
        self.measured.finish();
        self.measured
    }

    /// The next message of the plan is made.
    fn arrive(&mut self) {
        let Some((_, requests)) = self.plan.get_mut(self.next) else { return };
        let requests = std::mem::take(requests);
        self.next += 1;
        let message = self.messages.len();
        self.messages.push(Message { made: self.now, open: requests.len() });
        self.measured.made(self.now, message, self.run.messages);
        if let (Arrivals::Poisson(_), Some((at, _))) = (self.run.arrivals, self.plan.get(self.next)) {
            self.queue.push(Instant(*at), Event::Arrive);
        }
        for request in requests {
            self.ask(message, request);
        }
    }

    /// A request wants a path.
    fn ask(&mut self, message: usize, request: Request) {
        let number = self.asked.len();
        let asked = self.now;
        let mut one = Asked { request, message, asked, went: 0, ticket: None, path: PathId(0), step: 0, network: 0 };
        let path = match &mut self.chooser {
            Chooser::Known(paths) => paths.next(),
            Chooser::Selector(selector) => {
                if let Policy::Foreseen { .. } = self.run.policy {
                    selector.foresee(&upcoming(&self.plan, self.next, self.now));
                }
                let (ticket, path) = match selector.select(Instant(self.now), &request) {
                    Decision::Go(Go { path, ticket, .. }) => (ticket, Some(path)),
                    Decision::Wait { ticket } => (ticket, None),
                    // There is room for all requests of a run.
                    Decision::Full => unreachable!("a selector for {} requests is full", self.run.messages),
                };
                one.ticket = Some(ticket);
                self.by_ticket[ticket.index()] = number;
                path
            }
        };
        self.asked.push(one);
        if let Some(path) = path {
            self.go(number, path);
        }
    }

    /// A request goes.
    fn go(&mut self, number: usize, path: PathId) {
        let one = &mut self.asked[number];
        (one.path, one.went, one.step, one.network) = (path, self.now, 0, 0);
        let before = self.before[usize::from(one.request.kind.0)].replace(path);
        self.measured.goes(self.now, path, before.is_some_and(|before| before != path));
        self.step(number);
    }

    fn step(&mut self, number: usize) {
        let one = &mut self.asked[number];
        match self.bed.step(self.now, one.path, one.step) {
            Next::Goes { at, network, .. } => {
                one.step += 1;
                one.network += network;
                self.queue.push(Instant(at), Event::Step(number));
            }
            Next::Back { at, network, .. } => {
                one.network += network;
                self.queue.push(Instant(at), Event::Back(number));
            }
            // Its path is dead, and says so at once.
            Next::Lost => self.tell(number, Outcome::Failed),
        }
    }

    /// A request is answered.
    fn back(&mut self, number: usize) {
        let one = &self.asked[number];
        let total = self.now - one.went;
        let noise = self.random.range(0..=self.setting.noise_ns);
        let intra = total - one.network + noise;
        let (message, asked) = (one.message, one.asked);
        self.measured.answered(self.now, self.now - asked - one.network);
        let open = &mut self.messages[message].open;
        *open -= 1;
        if *open == 0 {
            let made = self.messages[message].made;
            self.measured.done(self.now, message, self.now - made);
            if let Arrivals::Window(_) = self.run.arrivals {
                self.arrive();
            }
        }
        self.tell(number, Outcome::Done { intra_ns: Some(intra), total_ns: total });
    }

    fn tell(&mut self, number: usize, outcome: Outcome) {
        let Chooser::Selector(selector) = &mut self.chooser else { return };
        let Some(ticket) = self.asked[number].ticket else { return };
        selector.done(Instant(self.now), ticket, outcome);
        while let Chooser::Selector(selector) = &mut self.chooser {
            match selector.poll(Instant(self.now)) {
                Some(Released::Go(Go { path, ticket, .. })) => {
                    let number = self.by_ticket[ticket.index()];
                    self.go(number, path);
                }
                Some(Released::GivenUp { ticket }) => {
                    self.measured.given_up += 1;
                    selector.done(Instant(self.now), ticket, Outcome::Abandoned);
                }
                None => break,
            }
        }
    }
}

/// All messages of a run, with the times at which they are made; of a closed load, all at the beginning.
fn plan(setting: &Setting, run: &Run, random: &mut Random) -> Vec<(u64, Vec<Request>)> {
    let mut at = 0.0;
    let mut message = |number: usize| {
        if let Arrivals::Poisson(per_second) = run.arrivals {
            at += random.exponential(1e9 / per_second);
        }
        let kind = setting.traffic.kind(random);
        let address = setting.traffic.address(random);
        let request = |part: u64| Request { kind, address: address.wrapping_add(part), message: number as u64 };
        (at as u64, (0..setting.traffic.parts as u64).map(request).collect())
    };
    (0..run.messages).map(&mut message).collect()
}

fn chooser(setting: &Setting, run: &Run, plan: &[(u64, Vec<Request>)]) -> Chooser {
    let strategy = match run.policy {
        Policy::Strategy(strategy) => strategy,
        Policy::Foreseen { depth } => Strategy::Horizon { depth },
        Policy::Known => return Chooser::Known(known(setting, plan).into_iter()),
    };
    let in_flight_max = (run.messages * setting.traffic.parts).min(u32::MAX as usize) as u32;
    let config = run.config.in_flight_max(in_flight_max);
    Chooser::Selector(Box::new(Selector::new(&setting.paths, strategy, config)))
}

/// The best paths for a sequence that is known in advance (LEO §V-C: the optimal solution "knows the whole request
/// sequence"): solved exactly for so many requests at a time, of which the first half goes as planned. The backlogs that
/// it leaves are what the next ones find (eq. 1 and 2).
fn known(setting: &Setting, plan: &[(u64, Vec<Request>)]) -> Vec<PathId> {
    let paths = &setting.paths;
    let mut last = 0;
    let mut arrivals = Vec::with_capacity(plan.len() * setting.traffic.parts);
    for (at, requests) in plan {
        for request in requests {
            arrivals.push(Arrival { kind: request.kind, after_ns: at - last });
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

/// What comes after this request: its distance in time from the one before it.
fn upcoming(plan: &[(u64, Vec<Request>)], next: usize, now: u64) -> Vec<(u64, KindId)> {
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
