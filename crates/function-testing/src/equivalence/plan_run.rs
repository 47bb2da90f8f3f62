//! Execution of a plan on the split system and on the unsplit function.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;
use std::rc::Rc;
use std::time::Duration;

use super::allocated_values::{AllocatedValues, is_inside};
use super::comparison::ExpectedOutput;
use super::corruption::Corruption;
use super::plan::{FunctionKind, PlanStep, RunPlan, SERVERS, START_US};
use super::random_choices::RandomChoices;
use super::routes::{self, RouteChange};
use super::unsplit::{FlowOutput, OutputCollector, UnsplitFunction};
use super::{Function, flow_keys, frame};
use pathcall_netfn::handler::CHandler;
use pathcall_netfn::place::{self, ServerId};
use pathcall_netfn::run::{Config, System};
use pathcall_netfn::scale;
use pathcall_p4::exec::Execution;
use pathcall_p4::ir::Program;
use pathcall_p4::split::ElementEvent;

/// Time until a change of routes has reached all servers.
const SETTLED_US: u64 = 150_000;
/// Longer than any idle timeout.
const SILENCE_US: u64 = 8_000_000_000;
/// Silence after which a server is considered dead.
const DEAD_AFTER: Duration = Duration::from_millis(200);

/// Statistics of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunStats {
    /// Input packets.
    pub packets: u64,
    /// Input packets that no server handled.
    pub alone: u64,
    /// Outputs.
    pub left: u64,
    /// Entries placed in the element.
    pub placed: u64,
    /// Entries replaced by others.
    pub replaced: u64,
    /// Changes of the server group.
    pub changes: u64,
    /// Packets that may be lost because their server died.
    pub lost: u64,
    /// Packets without a server, directly after a restart of the element.
    pub unserved: u64,
    /// Flows that started over because their state was lost.
    pub anew: u64,
}

impl AddAssign for RunStats {
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

/// Runs a plan with an element from `make`.
///
/// # Errors
/// Text of the first difference.
pub fn play<E: Execution>(
    function: &Function,
    plan: &RunPlan,
    make: &mut dyn FnMut(&Program) -> E,
) -> Result<RunStats, String> {
    let mut play = PlanRun::new(function, plan, make)?;
    for (at, (at_us, step)) in plan.steps.iter().enumerate() {
        let at_us = at_us + play.shift_us;
        play.run_step(at_us, step, make).map_err(|wrong| format!("step {at} of seed {}: {wrong}", plan.seed))?;
    }
    play.finish().map_err(|wrong| format!("seed {}: {wrong}", plan.seed))
}

pub struct PlanRun<'a, E> {
    pub function: &'a Function,
    pub plan: &'a RunPlan,
    element: Program,
    pub system: System<CHandler, E>,
    /// Server of the last frame to or from a server.
    went: Rc<Cell<Option<ServerId>>>,
    /// Unsplit functions: for the initial state of flows, then for flows that lost their state.
    pub wholes: Vec<UnsplitFunction>,
    of_flow: BTreeMap<Vec<u8>, usize>,
    /// Unsplit function with the previous routes until the last change has reached all servers; then the time and the
    /// change.
    lagging: Option<UnsplitFunction>,
    settles: Option<(u64, RouteChange)>,
    /// Allocated values of the split system, and of the unsplit function.
    names: [AllocatedValues; 2],
    packets: BTreeMap<(u16, u16), Vec<u8>>,
    pub left: Vec<FlowOutput>,
    wrong: Option<String>,
    pub expected: BTreeMap<Vec<u8>, Vec<ExpectedOutput>>,
    /// Servers that hold the state of a flow.
    at: BTreeMap<Vec<u8>, BTreeSet<ServerId>>,
    pub dead: Option<ServerId>,
    /// Flows whose last packet was handled in the element.
    in_element: BTreeSet<Vec<u8>>,
    /// Flows whose digests are not compared.
    pub unsure: BTreeSet<Vec<u8>>,
    pub restarted: bool,
    changed: bool,
    shift_us: u64,
    pub played: RunStats,
}

impl<'a, E: Execution> PlanRun<'a, E> {
    fn new(function: &'a Function, plan: &'a RunPlan, make: &mut dyn FnMut(&Program) -> E) -> Result<Self, String> {
        let split = function.split_for(plan.entries, window_log2(plan))?;
        let element = split.element.clone();
        let went = Rc::new(Cell::new(None));
        let (mut dice, note, most_us) = (RandomChoices::new(plan.seed), went.clone(), plan.delay_us);
        let delay = move |id| {
            note.set(Some(id));
            10 + dice.below(most_us)
        };
        let servers = (0..SERVERS).map(|_| function.handler()).collect::<Result<_, _>>()?;
        let mut system = System::new(split, make(&element), servers, plan.group, &config(plan), delay);
        let mut lagging = None;
        if function.kind == FunctionKind::Fib {
            routes::install_next_hops(&function.program, system.execution_mut());
            let table = routes::routes_table(&function.program);
            routes::initial_routes(&function.program).iter().for_each(|entry| system.add(table, entry));
            lagging = Some(UnsplitFunction::new(function)?);
        }
        system.advance(START_US - 1, &mut |_| {});
        Ok(Self {
            wholes: vec![UnsplitFunction::new(function)?],
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
            played: RunStats::default(),
        })
    }

    fn run_step(&mut self, at_us: u64, step: &PlanStep, make: &mut dyn FnMut(&Program) -> E) -> Result<(), String> {
        self.advance(at_us);
        if let Some((_, change)) = self.settles.take_if(|(at, _)| *at <= at_us) {
            self.lagging.iter_mut().for_each(|whole| whole.route(self.function, &change));
        }
        match step {
            PlanStep::Packet(port, bytes, corruption) => {
                let corrupted = |mut bytes: Vec<u8>| {
                    corruption.iter().for_each(|corruption| corruption.apply(&mut bytes));
                    bytes
                };
                // A non-IPv4 packet passes untranslated, with its own addresses.
                let translated = !matches!(corruption, Some(Corruption::EtherType(_)));
                let (ours, theirs) = match self.function.kind {
                    FunctionKind::Snat if translated => (self.names[0].render(bytes), self.names[1].render(bytes)),
                    _ => (Some(bytes.clone()), Some(bytes.clone())),
                };
                let plain = corrupted(bytes.clone());
                // Without a mapping, no outside host knows the address yet.
                if let (Some(ours), Some(theirs)) = (ours, theirs) {
                    self.run_packet(at_us, *port, plain, [ours, theirs].map(corrupted))?;
                }
            }
            PlanStep::Want(servers) => {
                let servers: Vec<_> = servers.iter().copied().filter(|id| Some(*id) != self.dead).collect();
                self.changed = true;
                self.system.set_wanted(servers);
            }
            PlanStep::Kill => self.kill_server()?,
            PlanStep::Restart => self.restart_element(make)?,
            PlanStep::Route(number) => {
                let change = routes::route_change(&self.function.program, *number);
                let table = routes::routes_table(&self.function.program);
                match &change {
                    RouteChange::Put(entry) => self.system.add(table, entry),
                    RouteChange::Withdraw(keys) => self.system.remove(table, keys),
                }
                self.wholes[0].route(self.function, &change);
                self.settles = Some((at_us + SETTLED_US, change));
            }
            PlanStep::Silence => self.wait_silence(at_us),
        }
        self.wrong.take().map_or(Ok(()), Err)
    }

    fn advance(&mut self, to_us: u64) {
        let Self { system, function, names: [ours, _], packets, left, wrong, .. } = self;
        let mut sink = OutputCollector { kind: function.kind, names: ours, packets, left, wrong };
        system.advance(to_us, &mut |output| sink.take(output));
    }

    /// Runs a packet of the plan; `shown` is its form for the split system and for the unsplit function.
    fn run_packet(&mut self, at_us: u64, port: u16, plain: Vec<u8>, shown: [Vec<u8>; 2]) -> Result<(), String> {
        self.played.packets += 1;
        if let Some(mark) = frame::packet_key(&plain) {
            self.packets.insert(mark, plain.clone());
        }
        self.went.set(None);
        let kind = self.function.kind;
        let unserved = self.system.events(ElementEvent::NoServer);
        let Self { system, names: [ours, _], packets, left, wrong, .. } = self;
        let mut sink = OutputCollector { kind, names: ours, packets, left, wrong };
        system.process(at_us, port, &shown[0], &mut |output| sink.take(output));
        let went = self.went.take();
        if self.restarted && self.system.events(ElementEvent::NoServer) > unserved {
            // The controller has not installed the servers yet; such packets are counted.
            self.played.unserved += 1;
            return Ok(());
        }
        self.played.alone += u64::from(went.is_none());
        if let Some(flow) = flow_keys::state(kind, &plain) {
            let inward = kind == FunctionKind::Snat
                && frame::FrameOffsets::of(&plain).is_some_and(|l| !is_inside(frame::read_u32(&plain, l.ip + 12)));
            if !self.record_server(&flow, went, inward)? {
                return Ok(());
            }
        }
        if went.is_some() && went == self.dead {
            self.played.lost += 1;
            return Ok(());
        }
        self.expect_outputs(at_us, port, &plain, &shown[1], went)
    }

    /// Records where a flow's packet was handled. False if its output is not checked.
    fn record_server(&mut self, flow: &[u8], went: Option<ServerId>, inward: bool) -> Result<bool, String> {
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
            // The peer does not know the flow's new value yet, so the packet has no destination.
            self.played.lost += 1;
            return Ok(false);
        }
        self.played.anew += 1;
        *at = [server].into();
        self.of_flow.insert(flow.to_vec(), self.wholes.len() - 1);
        self.unsure.remove(flow);
        let this = |endpoint: &super::allocated_values::TransportEndpoint| {
            let (address, port, protocol) = endpoint;
            flow == [&address.to_be_bytes()[..], &port.to_be_bytes(), &[*protocol]].concat()
        };
        self.names.iter_mut().for_each(|names| names.forget(this));
        Ok(true)
    }

    /// Runs the unsplit function; its outputs are expected of the split system.
    fn expect_outputs(
        &mut self,
        at_us: u64,
        port: u16,
        plain: &[u8],
        bytes: &[u8],
        server: Option<ServerId>,
    ) -> Result<(), String> {
        let kind = self.function.kind;
        let state = flow_keys::state(kind, plain);
        let whole = state.and_then(|flow| self.of_flow.get(&flow).copied()).unwrap_or(0);
        let Self { wholes, lagging, names: [_, theirs], packets, wrong, .. } = self;
        let (mut left, mut before) = (Vec::new(), Vec::new());
        let mut sink = OutputCollector { kind, names: theirs, packets, left: &mut left, wrong };
        wholes[whole].process(at_us, port, bytes, &mut sink)?;
        let Some(lagging) = lagging else {
            for (flow, item) in left {
                let either = vec![item];
                self.expected.entry(flow).or_default().push(ExpectedOutput { either, optional: false, server });
            }
            return Ok(());
        };
        let mut sink = OutputCollector { left: &mut before, ..sink };
        lagging.process(at_us, port, bytes, &mut sink)?;
        let optional = left.len() != before.len();
        if let Some((flow, _)) = left.first().or(before.first()).cloned() {
            let either = left.into_iter().chain(before).map(|(_, item)| item).collect();
            self.expected.entry(flow).or_default().push(ExpectedOutput { either, optional, server });
        }
        Ok(())
    }

    /// Kills the server with most flows.
    fn kill_server(&mut self) -> Result<(), String> {
        let count = |id: &ServerId| self.at.values().filter(|at| at.contains(id)).count();
        let Some(dead) = (0..SERVERS as ServerId).max_by_key(count) else { return Ok(()) };
        self.system.kill(dead);
        self.dead = Some(dead);
        // Packets on their way to the server are lost, those on their way back are not.
        let mut came: BTreeMap<&[u8], usize> = BTreeMap::new();
        self.left.iter().for_each(|(flow, _)| *came.entry(flow).or_default() += 1);
        for (flow, expected) in &mut self.expected {
            let came = came.get(flow.as_slice()).copied().unwrap_or(0).min(expected.len());
            for expected in expected[came..].iter_mut().filter(|expected| expected.server == Some(dead)) {
                expected.optional = true;
            }
        }
        self.wholes.push(UnsplitFunction::new(self.function)?);
        self.names[1].several = true;
        Ok(())
    }

    fn restart_element(&mut self, make: &mut dyn FnMut(&Program) -> E) -> Result<(), String> {
        let mut element = make(&self.element);
        if self.function.kind == FunctionKind::Fib {
            routes::install_next_hops(&self.function.program, &mut element);
        }
        self.system.restart(element);
        self.restarted = true;
        self.unsure.extend(std::mem::take(&mut self.in_element));
        self.wholes.push(UnsplitFunction::new(self.function)?);
        self.names[1].several = true;
        Ok(())
    }

    fn wait_silence(&mut self, at_us: u64) {
        self.shift_us += SILENCE_US;
        self.advance(at_us + SILENCE_US);
        self.names.iter_mut().for_each(|names| names.forget(|_| true));
        // Variables of handlers survive.
        if matches!(self.function.kind, FunctionKind::Snat | FunctionKind::Trd) {
            self.at.clear();
        }
    }

    fn finish(mut self) -> Result<RunStats, String> {
        let Self { system, function, names: [ours, _], packets, left, wrong, .. } = &mut self;
        let mut sink = OutputCollector { kind: function.kind, names: ours, packets, left, wrong };
        system.finish(&mut |output| sink.take(output));
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong);
        }
        self.compare_outputs()?;
        self.compare_counters()?;
        let (placed, scaled) = (self.system.placed(), self.system.scaled());
        let changes = scaled.changes;
        Ok(RunStats { placed: placed.placed, replaced: placed.replaced, changes, ..self.played })
    }
}

/// Window in µs, logarithm; short windows make a long pause expensive.
fn window_log2(plan: &RunPlan) -> u16 {
    if plan.faults.silence { 18 } else { 15 }
}

fn config(plan: &RunPlan) -> Config {
    let place = place::Config {
        strategy: plan.strategy,
        k: 0.5,
        idle: Duration::from_millis(400),
        stay: Duration::from_millis(plan.stay_ms),
        advantage: 1.0,
        // Forced transfers would allow packets to overtake.
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
