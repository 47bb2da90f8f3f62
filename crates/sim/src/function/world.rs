//! Event loop of a function run: element, servers and controller in virtual time.
//!
//! ```text
//! queue ─► event ─► element (the interpreter, on the split program) ─► requests ─► servers ─► responses ─┐
//!             │        └ digests ─► controller: Placer, Scaler ─► commands, leases, ranges               │
//!             └──────────────────────────────────────────────────────────────────────────────────────◄──┘
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use pathcall_netfn::installer::{InstallOutcome as Installed, Installer};
use pathcall_netfn::place::{self, Placer};
use pathcall_netfn::scale::{self, Scaler, TopologyDevice};
use pathcall_p4::exec::{Execution, Output};
use pathcall_p4::interp::Interpreter;
use pathcall_p4::ir::Program;
use pathcall_wire::Instant;

use super::FunctionCounts;
use super::checker::{FunctionChecker, FunctionViolation};
use super::part::ForwardedPacket;
use super::plan::FunctionPlan;
use super::program::{PACKET, Packet, PacketKind, SERVER_PORT, ServerHeader, VALUES, program};
use super::server::SimulatedServer;
use crate::environment::Environment;
use crate::random::{Chance, Random};
use crate::timeline::Timeline;

/// Limit on the events of a run.
pub(super) const EVENTS_MAX: u64 = 1_000_000;
/// Limit on the time of a packet in a server's queue when the function also carries packets of other parts. It is
/// shorter than a period of the order guard; longer waits are dropped.
const LONGEST: Duration = Duration::from_millis(4);
/// Interval at which servers expire entries and report their load.
const TICK: Duration = Duration::from_millis(4);
pub(crate) enum FunctionEvent {
    /// A planned packet comes in.
    PacketIn(usize),
    /// A request arrives at a server; a response of a server arrives at the element.
    Request {
        server: u16,
        bytes: Vec<u8>,
    },
    Response {
        server: u16,
        bytes: Vec<u8>,
    },
    /// Commands arrive at the element; an answer or a report arrives at the controller.
    Place {
        element: u32,
        batch: u64,
        commands: Vec<place::Command>,
    },
    Scale {
        element: u32,
        batch: u64,
        commands: Vec<scale::Command>,
    },
    ToPlacer {
        element: Option<u32>,
        input: place::Input,
    },
    ToScaler {
        element: Option<u32>,
        input: scale::Input,
    },
    /// A message of the controller arrives at a server.
    ToServer {
        server: u16,
        incarnation: u32,
        message: ControllerMessage,
    },
    /// A window of the flow reports ends.
    Window,
    /// A server expires entries and reports its load.
    Tick(u16),
    /// A timer of the controller expires.
    PlacerWake,
    ScalerWake,
    /// A planned incident happens.
    FunctionIncident(usize),
    /// A dead server restarts.
    Back(u16),
}

#[derive(Debug, Clone)]
pub(crate) enum ControllerMessage {
    Place(place::Output),
    Scale(scale::Output),
}

pub(crate) struct FunctionWorld<'a> {
    pub(super) plan: &'a FunctionPlan,
    pub(super) time: Timeline<FunctionEvent>,
    pub(super) random: Random,
    pub(super) program: Program,
    pub(super) element: Interpreter,
    /// Number of starts of the element.
    pub(super) boot: u32,
    /// Last start of the element that the controller knows.
    pub(super) known_boot: u32,
    pub(super) installer: Installer,
    pub(super) servers: Vec<Option<SimulatedServer>>,
    pub(super) incarnations: Vec<u32>,
    /// Incarnations that the controller knows; its messages are addressed to these.
    pub(super) known: Vec<u32>,
    pub(super) routes: BTreeMap<(u16, u32), u32>,
    pub(super) placer: Placer,
    pub(super) scaler: Scaler,
    pub(super) wakes: [Option<Instant>; 2],
    /// Arrival time of the last packet of a flow on a link: links keep the order of a flow.
    ways: BTreeMap<(bool, PacketKind, u32), Instant>,
    pub(super) sequence: u32,
    /// Packets of other parts that have left the function.
    pub(crate) passed: Vec<ForwardedPacket>,
    pub(super) environment: Environment,
    /// Requests that were dropped because a server's queue was full.
    pub(crate) overflowed: u64,
    pub(super) checker: FunctionChecker,
    pub(super) counts: FunctionCounts,
}

impl<'a> FunctionWorld<'a> {
    pub(crate) fn new(plan: &'a FunctionPlan, environment: Environment) -> Self {
        let (program, balance) = program(&plan.sizes);
        let device = |server: usize| TopologyDevice {
            name: format!("s{server}"),
            port: SERVER_PORT + server as u16,
            mac: [2, 0, 0, 0, 0, server as u8],
            capacity: 1,
        };
        let installer = Installer::new(&program, balance, (0..plan.servers).map(device).collect());
        let routes: BTreeMap<(u16, u32), u32> =
            plan.routes.iter().map(|(value, bits, hop)| ((*bits, *value), *hop)).collect();
        let server = |id: usize| Some(SimulatedServer::new(id as u16, 1, &routes));
        let servers: Vec<_> = (0..plan.servers).map(server).collect();
        let partitions = [(u128::from(VALUES.0), u128::from(VALUES.1))];
        let mut time = Timeline::default();
        time.queue
            .extend(plan.packets.iter().enumerate().map(|(index, (at, _))| (*at, FunctionEvent::PacketIn(index))));
        time.queue.extend(
            plan.incidents.iter().enumerate().map(|(index, (at, _))| (*at, FunctionEvent::FunctionIncident(index))),
        );
        time.queue
            .extend((0..plan.servers as u16).map(|server| (Instant(u64::from(server)), FunctionEvent::Tick(server))));
        time.after(Duration::from_micros(installer.window_us()), FunctionEvent::Window);
        let mut world = Self {
            element: Interpreter::new(&program).expect("the program runs"),
            placer: Placer::new(plan.place.clone(), installer.facts()),
            scaler: Scaler::new(plan.scale.clone(), &partitions),
            checker: FunctionChecker::new(plan, &servers),
            random: Random::new(plan.seed ^ 0x706c_6163_652e_2e2e),
            plan,
            time,
            program,
            boot: 1,
            known_boot: 1,
            installer,
            incarnations: vec![1; servers.len()],
            known: vec![1; servers.len()],
            servers,
            routes,
            wakes: [None; 2],
            ways: BTreeMap::new(),
            sequence: 0,
            passed: Vec::new(),
            environment,
            overflowed: 0,
            counts: FunctionCounts::default(),
        };
        world.scaler.handle(Instant(0), scale::Input::SetWanted(plan.wanted.clone()));
        world
    }

    pub(super) fn handle_event(&mut self, event: FunctionEvent) -> Result<(), FunctionViolation> {
        match event {
            FunctionEvent::PacketIn(index) => return self.sent(index),
            FunctionEvent::Request { server, bytes } => return self.request(server, &bytes),
            FunctionEvent::Response { server, bytes } => return self.process(SERVER_PORT + server, &bytes),
            FunctionEvent::Place { element, batch, commands } if element == self.boot => {
                let Installed { refused, given } = self.installer.place(&mut self.element, &commands);
                self.time.line(|| format!("element: {commands:?}"));
                if let Some(number) = refused.first() {
                    return Err(FunctionViolation::Refused(*number));
                }
                let input = place::Input::Applied { batch, refused, given };
                self.control(FunctionEvent::ToPlacer { element: Some(element), input });
            }
            FunctionEvent::Scale { element, batch, commands } if element == self.boot => {
                self.installer.scale(&mut self.element, &commands);
                self.time.line(|| format!("element: {commands:?}"));
                self.control(FunctionEvent::ToScaler {
                    element: Some(element),
                    input: scale::Input::Applied { batch },
                });
            }
            // Commands for an earlier start of the element are dropped.
            FunctionEvent::Place { .. } | FunctionEvent::Scale { .. } => {}
            FunctionEvent::ToPlacer { element, input } => {
                if element.is_none_or(|boot| boot == self.boot) {
                    if input == place::Input::ElementRestarted {
                        self.known_boot = self.boot;
                    }
                    self.placer.handle(self.time.now, input);
                }
            }
            FunctionEvent::ToScaler { element, input } => {
                if element.is_none_or(|boot| boot == self.boot) {
                    if let scale::Input::Load(load) = &input {
                        self.known[usize::from(load.server)] = load.incarnation;
                    }
                    self.scaler.handle(self.time.now, input);
                }
            }
            FunctionEvent::ToServer { server, incarnation, message } => {
                self.deliver_to_server(server, incarnation, message);
            }
            FunctionEvent::Window => self.window(),
            FunctionEvent::Tick(server) => self.tick(server),
            FunctionEvent::PlacerWake => {
                self.wakes[0] = None;
                self.placer.handle_timeout(self.time.now);
            }
            FunctionEvent::ScalerWake => {
                self.wakes[1] = None;
                self.scaler.handle_timeout(self.time.now);
            }
            FunctionEvent::FunctionIncident(index) => self.incident(index),
            FunctionEvent::Back(server) => {
                let id = usize::from(server);
                self.incarnations[id] += 1;
                let fresh = SimulatedServer::new(server, self.incarnations[id], &self.routes);
                self.checker.routes(self.time.now, server, Some(&fresh.tables.routes));
                self.servers[id] = Some(fresh);
            }
        }
        Ok(())
    }

    /// Sends a planned packet into the function.
    fn sent(&mut self, index: usize) -> Result<(), FunctionViolation> {
        let (_, sent) = self.plan.packets[index];
        let key = match sent.kind {
            // An answer is sent only to a flow whose value the network has seen.
            PacketKind::Back => match self.checker.value_of(sent.key) {
                Some(value) => value,
                None => return Ok(()),
            },
            _ => sent.key,
        };
        self.sequence += 1;
        let packet = Packet { kind: sent.kind, last: sent.last, key, sequence: self.sequence, a: 0, b: 0 };
        self.counts.packets += 1;
        self.checker.sent(self.time.now, &packet);
        self.process(1, &packet.emit())
    }

    pub(super) fn process(&mut self, port: u16, bytes: &[u8]) -> Result<(), FunctionViolation> {
        let now_us = self.time.now.0 / 1000;
        let (mut packets, mut reports) = (Vec::new(), Vec::new());
        let mut dropped = 0;
        self.element.process(now_us, port, bytes, &mut |output| match output {
            Output::Packet { port, bytes } => packets.push((port, bytes.to_vec())),
            Output::Digest { name, values } => reports.push((name.to_owned(), values.to_vec())),
            Output::Dropped(_) => dropped += 1,
        });
        // The element drops a packet of a server only if the packet is a repeat.
        if port < SERVER_PORT {
            self.counts.no_server += dropped
        } else {
            self.counts.refused += dropped
        }
        for (name, values) in reports {
            if let Some(report) = self.installer.decode_report(&name, &values) {
                self.counts.reports += 1;
                let input = place::Input::Report(report);
                self.control(FunctionEvent::ToPlacer { element: Some(self.boot), input });
            }
        }
        for (to, bytes) in packets {
            if to >= SERVER_PORT {
                self.counts.requests += 1;
                let Some((_, packet)) = ServerHeader::parse(&bytes) else { return Err(FunctionViolation::Garbled) };
                let at = self.travel(self.time.now, true, &packet);
                let request = |server, bytes| FunctionEvent::Request { server, bytes };
                self.queue_packet(at, request, to - SERVER_PORT, bytes);
            } else {
                let Some(packet) = Packet::parse(&bytes) else { return Err(FunctionViolation::Garbled) };
                self.counts.out += 1;
                self.counts.in_element += u64::from(port < SERVER_PORT);
                let word = u64::from(packet.sequence) << 32 ^ u64::from(packet.a ^ packet.b) ^ self.time.now.0;
                let hash = &mut self.time.trace.hash;
                *hash = (hash.rotate_left(7) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                self.time.line(|| format!("out {packet:?}{}", if port < SERVER_PORT { "" } else { ", by a server" }));
                self.checker.out(self.time.now, &packet, port < SERVER_PORT)?;
                self.forward_packet(&packet, &bytes[PACKET..]);
            }
        }
        Ok(())
    }

    /// Arrival time of a packet that leaves at `leaves`: behind all of its flow, if the link keeps the order.
    fn travel(&mut self, leaves: Instant, to_server: bool, packet: &Packet) -> Instant {
        let at = leaves + self.random.between(self.plan.delay);
        if self.plan.reorder != Chance(0) && self.random.happens(self.plan.reorder) {
            self.counts.reordered += 1;
            return at;
        }
        let last = self.ways.entry((to_server, packet.kind, packet.key)).or_insert(Instant(0));
        *last = at.max(Instant(last.0 + 1));
        *last
    }

    /// Sends a packet over a link, which may lose or repeat it.
    fn queue_packet(&mut self, at: Instant, event: fn(u16, Vec<u8>) -> FunctionEvent, server: u16, bytes: Vec<u8>) {
        let cut = self.environment.is_cut(self.time.now, Some(usize::from(server)), None);
        if self.random.happens(self.plan.loss) || cut {
            self.counts.lost += 1;
            self.time.line(|| "lost".to_owned());
            return;
        }
        if self.plan.repeat != Chance(0) && self.random.happens(self.plan.repeat) {
            self.counts.repeated += 1;
            let later = at + self.random.up_to(self.plan.delay.1 * 3);
            self.time.push(later, event(server, bytes.clone()));
        }
        self.time.push(at, event(server, bytes));
    }

    fn request(&mut self, id: u16, bytes: &[u8]) -> Result<(), FunctionViolation> {
        let Some((front, packet)) = ServerHeader::parse(bytes) else { return Err(FunctionViolation::Garbled) };
        let Some(server) = &mut self.servers[usize::from(id)] else {
            self.counts.lost += 1;
            return Ok(());
        };
        // Requests are served one after the other; the state is read when the packet arrives.
        let done = server.busy_until.max(self.time.now) + self.plan.service;
        if self.environment.front.1 > Instant(0) && done.since(self.time.now) > LONGEST {
            server.misses(&front);
            self.overflowed += 1;
            self.counts.lost += 1;
            return Ok(());
        }
        server.busy_until = done;
        let Some((answer, after)) = server.work(self.time.now, front, packet) else {
            self.counts.refused += 1;
            return Ok(());
        };
        self.exchange_leases(id);
        self.time.line(|| format!("server {id}: {front:?} {packet:?} ─► {answer:?} a {} b {}", after.a, after.b));
        let bytes = [&answer.emit(&after)[..], ServerHeader::payload(bytes)].concat();
        let at = self.travel(done, false, &packet);
        self.queue_packet(at, |server, bytes| FunctionEvent::Response { server, bytes }, id, bytes);
        Ok(())
    }

    fn tick(&mut self, id: u16) {
        self.time.after(TICK, FunctionEvent::Tick(id));
        let Some(server) = &mut self.servers[usize::from(id)] else { return };
        server.expire(self.time.now);
        let load = server.load();
        let returned = server.returned();
        self.exchange_leases(id);
        self.control(FunctionEvent::ToScaler { element: None, input: scale::Input::Load(load) });
        for block in returned {
            let input = scale::Input::Returned { server: id, block: (0, block) };
            self.control(FunctionEvent::ToScaler { element: None, input });
        }
    }

    fn window(&mut self) {
        let length = Duration::from_micros(self.installer.window_us());
        self.time.after(length, FunctionEvent::Window);
        if let Some(window) = self.installer.window(&mut self.element, self.time.now.0 / 1000) {
            let input = place::Input::Window(window);
            self.control(FunctionEvent::ToPlacer { element: Some(self.boot), input });
        }
    }
}
