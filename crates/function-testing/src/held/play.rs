//! A plan, played: on the parts and on the whole.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;
use std::rc::Rc;
use std::time::Duration;

use super::dice::Dice;
use super::hostile::Mangle;
use super::judge::Expected;
use super::names::{Names, is_inside};
use super::plan::{Kind, Plan, SERVERS, START_US, Step};
use super::routes::{self, Change};
use super::whole::{Left, Sink, Whole};
use super::{Function, frame, keys};
use pathcall_function::exec::Execution;
use pathcall_function::handler::Handler;
use pathcall_function::ir::Program;
use pathcall_function::place::{self, ServerId};
use pathcall_function::run::{Config, System};
use pathcall_function::scale;
use pathcall_function::split::Event;

/// After so long a change of routes is everywhere.
const SETTLED_US: u64 = 150_000;
/// Longer than any entry lives unused.
const SILENCE_US: u64 = 8_000_000_000;
/// A server that says nothing for so long is dead.
const DEAD_AFTER: Duration = Duration::from_millis(200);

/// What came of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Played {
    /// Packets that came in.
    pub packets: u64,
    /// Of them, those that no server worked on.
    pub alone: u64,
    /// What left.
    pub left: u64,
    /// Entries that came into the element.
    pub placed: u64,
    /// That left it for others.
    pub replaced: u64,
    /// Changes of the group.
    pub changes: u64,
    /// Packets that may be lost, as their server died.
    pub lost: u64,
    /// Packets that found no server, as the element had just begun anew.
    pub unserved: u64,
    /// Flows that began anew, as their state was lost.
    pub anew: u64,
}

impl AddAssign for Played {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.alone += other.alone;
        self.left += other.left;
        self.placed += other.placed;
        self.replaced += other.replaced;
        self.changes += other.changes;
        self.lost += other.lost;
        self.unserved += other.unserved;
        self.anew += other.anew;
    }
}

/// Plays a plan, with an element that `make` makes of a program.
///
/// # Errors
/// The first difference, in words.
pub fn play<E: Execution>(
    function: &Function,
    plan: &Plan,
    make: &mut dyn FnMut(&Program) -> E,
) -> Result<Played, String> {
    let mut play = Play::new(function, plan, make)?;
    for (at, (at_us, step)) in plan.steps.iter().enumerate() {
        let at_us = at_us + play.shift_us;
        play.step(at_us, step, make).map_err(|wrong| format!("step {at} of seed {}: {wrong}", plan.seed))?;
    }
    play.end().map_err(|wrong| format!("seed {}: {wrong}", plan.seed))
}

pub struct Play<'a, E> {
    pub function: &'a Function,
    pub plan: &'a Plan,
    element: Program,
    pub system: System<Handler, E>,
    /// Where the last frame for a server, or from one, went.
    went: Rc<Cell<Option<ServerId>>>,
    /// The whole of the first state of flows, then of those that lost it.
    pub wholes: Vec<Whole>,
    of_flow: BTreeMap<Vec<u8>, usize>,
    /// The whole as routes were until the last change is everywhere; and when, and which change.
    lagging: Option<Whole>,
    settles: Option<(u64, Change)>,
    /// Names of the parts, and of the whole.
    names: [Names; 2],
    packets: BTreeMap<(u16, u16), Vec<u8>>,
    pub left: Vec<Left>,
    wrong: Option<String>,
    pub expected: BTreeMap<Vec<u8>, Vec<Expected>>,
    /// Servers that have the state of a flow.
    at: BTreeMap<Vec<u8>, BTreeSet<ServerId>>,
    pub dead: Option<ServerId>,
    /// Flows whose last packet the element worked on alone.
    in_element: BTreeSet<Vec<u8>>,
    /// Of these what is told is not compared.
    pub unsure: BTreeSet<Vec<u8>>,
    pub restarted: bool,
    changed: bool,
    shift_us: u64,
    pub played: Played,
}

impl<'a, E: Execution> Play<'a, E> {
    fn new(function: &'a Function, plan: &'a Plan, make: &mut dyn FnMut(&Program) -> E) -> Result<Self, String> {
        let split = function.split_for(plan.entries, window_log2(plan))?;
        let element = split.element.clone();
        let went = Rc::new(Cell::new(None));
        let (mut dice, note, most_us) = (Dice::new(plan.seed), went.clone(), plan.delay_us);
        let delay = move |id| {
            note.set(Some(id));
            10 + dice.below(most_us)
        };
        let servers = (0..SERVERS).map(|_| function.handler()).collect::<Result<_, _>>()?;
        let mut system = System::new(split, make(&element), servers, plan.group, &config(plan), delay);
        let mut lagging = None;
        if function.kind == Kind::Fib {
            routes::equip(&function.program, system.execution_mut());
            let table = routes::mirrored(&function.program);
            routes::initial(&function.program).iter().for_each(|entry| system.add(table, entry));
            lagging = Some(Whole::new(function)?);
        }
        system.advance(START_US - 1, &mut |_| {});
        Ok(Self {
            wholes: vec![Whole::new(function)?],
            function,
            plan,
            element,
            system,
            went,
            lagging,
            of_flow: BTreeMap::new(),
            settles: None,
            names: Default::default(),
            packets: BTreeMap::new(),
            left: Vec::new(),
            wrong: None,
            expected: BTreeMap::new(),
            at: BTreeMap::new(),
            dead: None,
            in_element: BTreeSet::new(),
            unsure: BTreeSet::new(),
            restarted: false,
            changed: false,
            shift_us: 0,
            played: Played::default(),
        })
    }

    fn step(&mut self, at_us: u64, step: &Step, make: &mut dyn FnMut(&Program) -> E) -> Result<(), String> {
        self.advance(at_us);
        if let Some((_, change)) = self.settles.take_if(|(at, _)| *at <= at_us) {
            self.lagging.iter_mut().for_each(|whole| whole.route(self.function, &change));
        }
        match step {
            Step::Packet(port, bytes, mangle) => {
                let mangled = |mut bytes: Vec<u8>| {
                    mangle.iter().for_each(|mangle| mangle.apply(&mut bytes));
                    bytes
                };
                // What is no IPv4 passes as it is, with the addresses that it has.
                let translated = !matches!(mangle, Some(Mangle::EtherType(_)));
                let (ours, theirs) = match self.function.kind {
                    Kind::Snat if translated => (self.names[0].render(bytes), self.names[1].render(bytes)),
                    _ => (Some(bytes.clone()), Some(bytes.clone())),
                };
                let plain = mangled(bytes.clone());
                // Else nobody outside knows yet where to send it.
                if let (Some(ours), Some(theirs)) = (ours, theirs) {
                    self.packet(at_us, *port, plain, [ours, theirs].map(mangled))?;
                }
            }
            Step::Want(servers) => {
                let servers: Vec<_> = servers.iter().copied().filter(|id| Some(*id) != self.dead).collect();
                self.changed = true;
                self.system.want(servers);
            }
            Step::Kill => self.kill()?,
            Step::Restart => self.restart(make)?,
            Step::Route(number) => {
                let change = routes::change(&self.function.program, *number);
                let table = routes::mirrored(&self.function.program);
                match &change {
                    Change::Put(entry) => self.system.add(table, entry),
                    Change::Withdraw(keys) => self.system.remove(table, keys),
                }
                self.wholes[0].route(self.function, &change);
                self.settles = Some((at_us + SETTLED_US, change));
            }
            Step::Silence => self.silence(at_us),
        }
        self.wrong.take().map_or(Ok(()), Err)
    }

    fn advance(&mut self, to_us: u64) {
        let Self { system, function, names: [ours, _], packets, left, wrong, .. } = self;
        let mut sink = Sink { kind: function.kind, names: ours, packets, left, wrong };
        system.advance(to_us, &mut |output| sink.take(output));
    }

    /// A packet of the plan; as it is to the parts, and to the whole.
    fn packet(&mut self, at_us: u64, port: u16, plain: Vec<u8>, shown: [Vec<u8>; 2]) -> Result<(), String> {
        self.played.packets += 1;
        if let Some(mark) = frame::mark(&plain) {
            self.packets.insert(mark, plain.clone());
        }
        self.went.set(None);
        let kind = self.function.kind;
        let unserved = self.system.events(Event::NoServer);
        let Self { system, names: [ours, _], packets, left, wrong, .. } = self;
        let mut sink = Sink { kind, names: ours, packets, left, wrong };
        system.process(at_us, port, &shown[0], &mut |output| sink.take(output));
        let went = self.went.take();
        if self.restarted && self.system.events(Event::NoServer) > unserved {
            // The controller has not told the element yet who serves: such packets are counted.
            self.played.unserved += 1;
            return Ok(());
        }
        self.played.alone += u64::from(went.is_none());
        if let Some(flow) = keys::state(kind, &plain) {
            let inward = kind == Kind::Snat
                && frame::Layers::of(&plain).is_some_and(|l| !is_inside(frame::word(&plain, l.ip + 12)));
            if !self.came_to(&flow, went, inward)? {
                return Ok(());
            }
        }
        if went.is_some() && went == self.dead {
            self.played.lost += 1;
            return Ok(());
        }
        self.expect(at_us, port, &plain, &shown[1], went)
    }

    /// Notes where a flow's packet was worked on. False: what becomes of it is not asked.
    fn came_to(&mut self, flow: &[u8], went: Option<ServerId>, inward: bool) -> Result<bool, String> {
        let Some(server) = went else {
            self.in_element.insert(flow.to_vec());
            return Ok(true);
        };
        self.in_element.remove(flow);
        if went == self.dead {
            return Ok(true);
        }
        let at = self.at.entry(flow.to_vec()).or_default();
        if at.is_empty() || at.contains(&server) {
            at.insert(server);
            return Ok(true);
        }
        let orphan = self.dead.is_some_and(|dead| at.contains(&dead)) || (self.restarted && self.changed);
        if !orphan {
            return Err(format!("flow {flow:x?} was at {at:?}, and goes to {server}"));
        }
        if inward {
            // Who answers does not know yet that it is another flow now: nobody has what it asks for.
            self.played.lost += 1;
            return Ok(false);
        }
        self.played.anew += 1;
        *at = [server].into();
        self.of_flow.insert(flow.to_vec(), self.wholes.len() - 1);
        self.unsure.remove(flow);
        let this = |endpoint: &super::names::Endpoint| {
            let (address, port, protocol) = endpoint;
            flow == [&address.to_be_bytes()[..], &port.to_be_bytes(), &[*protocol]].concat()
        };
        self.names.iter_mut().for_each(|names| names.forget(this));
        Ok(true)
    }

    /// Has the whole work on it: that has to leave the parts, too.
    fn expect(
        &mut self,
        at_us: u64,
        port: u16,
        plain: &[u8],
        bytes: &[u8],
        server: Option<ServerId>,
    ) -> Result<(), String> {
        let kind = self.function.kind;
        let state = keys::state(kind, plain);
        let whole = state.and_then(|flow| self.of_flow.get(&flow).copied()).unwrap_or(0);
        let Self { wholes, lagging, names: [_, theirs], packets, wrong, .. } = self;
        let (mut left, mut before) = (Vec::new(), Vec::new());
        let mut sink = Sink { kind, names: theirs, packets, left: &mut left, wrong };
        wholes[whole].process(at_us, port, bytes, &mut sink)?;
        let Some(lagging) = lagging else {
            for (flow, item) in left {
                let either = vec![item];
                self.expected.entry(flow).or_default().push(Expected { either, optional: false, server });
            }
            return Ok(());
        };
        let mut sink = Sink { left: &mut before, ..sink };
        lagging.process(at_us, port, bytes, &mut sink)?;
        let optional = left.len() != before.len();
        if let Some((flow, _)) = left.first().or(before.first()).cloned() {
            let either = left.into_iter().chain(before).map(|(_, item)| item).collect();
            self.expected.entry(flow).or_default().push(Expected { either, optional, server });
        }
        Ok(())
    }

    /// The server with most flows dies.
    fn kill(&mut self) -> Result<(), String> {
        let count = |id: &ServerId| self.at.values().filter(|at| at.contains(id)).count();
        let Some(dead) = (0..SERVERS as ServerId).max_by_key(count) else { return Ok(()) };
        self.system.kill(dead);
        self.dead = Some(dead);
        // Those that are on their way there are lost, those on their way back are not.
        let mut came: BTreeMap<&[u8], usize> = BTreeMap::new();
        self.left.iter().for_each(|(flow, _)| *came.entry(flow).or_default() += 1);
        for (flow, expected) in &mut self.expected {
            let came = came.get(flow.as_slice()).copied().unwrap_or(0).min(expected.len());
            for expected in expected[came..].iter_mut().filter(|expected| expected.server == Some(dead)) {
                expected.optional = true;
            }
        }
        self.wholes.push(Whole::new(self.function)?);
        self.names[1].several = true;
        Ok(())
    }

    fn restart(&mut self, make: &mut dyn FnMut(&Program) -> E) -> Result<(), String> {
        let mut element = make(&self.element);
        if self.function.kind == Kind::Fib {
            routes::equip(&self.function.program, &mut element);
        }
        self.system.restart(element);
        self.restarted = true;
        self.unsure.extend(std::mem::take(&mut self.in_element));
        self.wholes.push(Whole::new(self.function)?);
        self.names[1].several = true;
        Ok(())
    }

    fn silence(&mut self, at_us: u64) {
        self.shift_us += SILENCE_US;
        self.advance(at_us + SILENCE_US);
        self.names.iter_mut().for_each(|names| names.forget(|_| true));
        // Variables of handlers stay.
        if matches!(self.function.kind, Kind::Snat | Kind::Trd) {
            self.at.clear();
        }
    }

    fn end(mut self) -> Result<Played, String> {
        let Self { system, function, names: [ours, _], packets, left, wrong, .. } = &mut self;
        let mut sink = Sink { kind: function.kind, names: ours, packets, left, wrong };
        system.finish(&mut |output| sink.take(output));
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong);
        }
        self.compare()?;
        self.counts()?;
        let (placed, scaled) = (self.system.placed(), self.system.scaled());
        let changes = scaled.changes;
        Ok(Played { placed: placed.placed, replaced: placed.replaced, changes, ..self.played })
    }
}

/// Microseconds of a window, logarithm: many windows of silence take their time.
fn window_log2(plan: &Plan) -> u16 {
    if plan.faults.silence { 18 } else { 15 }
}

fn config(plan: &Plan) -> Config {
    let place = place::Config {
        strategy: plan.strategy,
        k: 0.5,
        idle: Duration::from_millis(400),
        stay: Duration::from_millis(plan.stay_ms),
        advantage: 1.0,
        // Only then packets may overtake.
        force_after: None,
        reuse_after: Duration::from_millis(50),
        ..place::Config::default()
    };
    let scale = scale::Config {
        report_within: if plan.faults.death { DEAD_AFTER } else { Duration::from_secs(1 << 20) },
        quiet: Duration::from_millis(40),
        ..scale::Config::default()
    };
    let report_every = Duration::from_micros(1 << window_log2(plan));
    Config { place, scale, control_us: plan.control_us, report_every, ..Config::default() }
}
