//! The run: the element and its program, servers, a controller, and virtual time.
//!
//! ```text
//! queue ─► event ─► element (the interpreter, on the split program) ─► requests ─► servers ─► responses ─┐
//!             │        └ digests ─► controller: Placer, Scaler ─► commands, leases, ranges               │
//!             └──────────────────────────────────────────────────────────────────────────────────────◄──┘
//! ```

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use pathcall_function::exec::{Execution, Output};
use pathcall_function::installer::{Installer, Outcome as Installed};
use pathcall_function::interp::Interpreter;
use pathcall_function::ir::Program;
use pathcall_function::place::{self, Placer};
use pathcall_function::scale::{self, Device, Scaler};
use pathcall_wire::Instant;

use super::Tally;
use super::judge::{Judge, Wrong};
use super::part::Passed;
use super::plan::Plan;
use super::program::{Front, Kind, PACKET, Packet, SERVER_PORT, VALUES, program};
use super::server::Server;
use crate::around::Around;
use crate::queue::EventQueue;
use crate::random::{Chance, Random};
use crate::trace::Millis;

/// Events of a run at most.
pub(super) const EVENTS_MAX: u64 = 1_000_000;
/// With what others send a server may have more to do than it can: no packet is with it as long as a period of the order
/// guard, as what would be is lost.
const LONGEST: Duration = Duration::from_millis(4);
/// Servers look after themselves, and report, that often.
const TICK: Duration = Duration::from_millis(4);
pub(super) enum Happening {
    /// A planned packet comes in.
    Sent(usize),
    /// A request comes to a server, a response to the element; of which incarnation of the other.
    Request {
        server: u16,
        bytes: Vec<u8>,
    },
    Response {
        server: u16,
        bytes: Vec<u8>,
    },
    /// The controller's batches come to the element, what it says of them to the controller.
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
    /// The controller's word comes to a server.
    ToServer {
        server: u16,
        incarnation: u32,
        word: Word,
    },
    /// A window has ended.
    Window,
    /// A server looks after itself.
    Tick(u16),
    /// A timer of the controller.
    PlacerWake,
    ScalerWake,
    /// As planned.
    Incident(usize),
    /// A dead server is back.
    Back(u16),
}

#[derive(Debug, Clone)]
pub(super) enum Word {
    Place(place::Output),
    Scale(scale::Output),
}

pub(crate) struct World<'a> {
    pub(super) plan: &'a Plan,
    pub(super) now: Instant,
    pub(super) queue: EventQueue<Happening>,
    pub(super) events: u64,
    pub(super) random: Random,
    pub(super) program: Program,
    pub(super) element: Interpreter,
    /// Counts its restarts.
    pub(super) boot: u32,
    /// The restart that the controller has heard of.
    pub(super) known_boot: u32,
    pub(super) installer: Installer,
    pub(super) servers: Vec<Option<Server>>,
    pub(super) incarnations: Vec<u32>,
    /// Those that the controller has heard of: what it says is for them.
    pub(super) known: Vec<u32>,
    pub(super) routes: BTreeMap<(u16, u32), u32>,
    pub(super) placer: Placer,
    pub(super) scaler: Scaler,
    pub(super) wakes: [Option<Instant>; 2],
    /// When the last packet of a flow comes to the end of a way: none overtakes another of its flow.
    ways: BTreeMap<(bool, Kind, u32), Instant>,
    pub(super) sequence: u32,
    /// Packets of others that have passed.
    pub(crate) passed: Vec<Passed>,
    pub(super) around: Around,
    /// Requests of others that found a server's queue full.
    pub(crate) overflowed: u64,
    pub(super) judge: Judge,
    pub(crate) tally: Tally,
    pub(crate) hash: u64,
    pub(crate) text: Option<String>,
}

impl<'a> World<'a> {
    pub(crate) fn new(plan: &'a Plan, around: Around) -> Self {
        let (program, balance) = program(&plan.sizes);
        let device = |server: usize| Device {
            name: format!("s{server}"),
            port: SERVER_PORT + server as u16,
            mac: [2, 0, 0, 0, 0, server as u8],
            capacity: 1,
        };
        let installer = Installer::new(&program, balance, (0..plan.servers).map(device).collect());
        let routes: BTreeMap<(u16, u32), u32> =
            plan.routes.iter().map(|(value, bits, hop)| ((*bits, *value), *hop)).collect();
        let server = |id: usize| Some(Server::new(id as u16, 1, &routes));
        let servers: Vec<_> = (0..plan.servers).map(server).collect();
        let partitions = [(u128::from(VALUES.0), u128::from(VALUES.1))];
        let mut queue = EventQueue::default();
        queue.extend(plan.packets.iter().enumerate().map(|(index, (at, _))| (*at, Happening::Sent(index))));
        queue.extend(plan.incidents.iter().enumerate().map(|(index, (at, _))| (*at, Happening::Incident(index))));
        queue.extend((0..plan.servers as u16).map(|server| (Instant(u64::from(server)), Happening::Tick(server))));
        queue.push(Instant(0) + Duration::from_micros(installer.window_us()), Happening::Window);
        let mut world = Self {
            element: Interpreter::new(&program).expect("the program runs"),
            placer: Placer::new(plan.place.clone(), installer.facts()),
            scaler: Scaler::new(plan.scale.clone(), &partitions),
            judge: Judge::new(plan, &servers),
            random: Random::new(plan.seed ^ 0x706c_6163_652e_2e2e),
            plan,
            now: Instant(0),
            queue,
            events: 0,
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
            around,
            overflowed: 0,
            tally: Tally::default(),
            hash: 0,
            text: None,
        };
        world.scaler.handle(Instant(0), scale::Input::Want(plan.wanted.clone()));
        world
    }

    pub(super) fn happen(&mut self, happening: Happening) -> Result<(), Wrong> {
        match happening {
            Happening::Sent(index) => self.sent(index),
            Happening::Request { server, bytes } => self.request(server, &bytes),
            Happening::Response { server, bytes } => self.process(SERVER_PORT + server, &bytes),
            Happening::Place { element, batch, commands } if element == self.boot => {
                let Installed { refused, given } = self.installer.place(&mut self.element, &commands);
                self.say(|| format!("element: {commands:?}"));
                if let Some(number) = refused.first() {
                    return Err(Wrong::Refused(*number));
                }
                let input = place::Input::Applied { batch, refused, given };
                self.control(Happening::ToPlacer { element: Some(element), input });
                Ok(())
            }
            Happening::Scale { element, batch, commands } if element == self.boot => {
                self.installer.scale(&mut self.element, &commands);
                self.say(|| format!("element: {commands:?}"));
                self.control(Happening::ToScaler { element: Some(element), input: scale::Input::Applied { batch } });
                Ok(())
            }
            // Of a boot before: the element does not take it.
            Happening::Place { .. } | Happening::Scale { .. } => Ok(()),
            Happening::ToPlacer { element, input } => {
                if element.is_none_or(|boot| boot == self.boot) {
                    if input == place::Input::ElementRestarted {
                        self.known_boot = self.boot;
                    }
                    self.placer.handle(self.now, input);
                }
                Ok(())
            }
            Happening::ToScaler { element, input } => {
                if element.is_none_or(|boot| boot == self.boot) {
                    if let scale::Input::Load(load) = &input {
                        self.known[usize::from(load.server)] = load.incarnation;
                    }
                    self.scaler.handle(self.now, input);
                }
                Ok(())
            }
            Happening::ToServer { server, incarnation, word } => {
                self.told(server, incarnation, word);
                Ok(())
            }
            Happening::Window => {
                self.window();
                Ok(())
            }
            Happening::Tick(server) => {
                self.tick(server);
                Ok(())
            }
            Happening::PlacerWake => {
                self.wakes[0] = None;
                self.placer.handle_timeout(self.now);
                Ok(())
            }
            Happening::ScalerWake => {
                self.wakes[1] = None;
                self.scaler.handle_timeout(self.now);
                Ok(())
            }
            Happening::Incident(index) => {
                self.incident(index);
                Ok(())
            }
            Happening::Back(server) => {
                let id = usize::from(server);
                self.incarnations[id] += 1;
                let fresh = Server::new(server, self.incarnations[id], &self.routes);
                self.judge.routes(self.now, server, Some(&fresh.tables.routes));
                self.servers[id] = Some(fresh);
                Ok(())
            }
        }
    }

    /// A planned packet comes in from the network.
    fn sent(&mut self, index: usize) -> Result<(), Wrong> {
        let (_, sent) = self.plan.packets[index];
        let key = match sent.kind {
            // Nobody answers a flow that he has not heard of.
            Kind::Back => match self.judge.value_of(sent.key) {
                Some(value) => value,
                None => return Ok(()),
            },
            _ => sent.key,
        };
        self.sequence += 1;
        let packet = Packet { kind: sent.kind, last: sent.last, key, sequence: self.sequence, a: 0, b: 0 };
        self.tally.packets += 1;
        self.judge.sent(self.now, &packet);
        self.process(1, &packet.emit())
    }

    pub(super) fn process(&mut self, port: u16, bytes: &[u8]) -> Result<(), Wrong> {
        let now_us = self.now.0 / 1000;
        let (mut packets, mut reports) = (Vec::new(), Vec::new());
        let mut dropped = 0;
        self.element.process(now_us, port, bytes, &mut |output| match output {
            Output::Packet { port, bytes } => packets.push((port, bytes.to_vec())),
            Output::Digest { name, values } => reports.push((name.to_owned(), values.to_vec())),
            Output::Dropped(_) => dropped += 1,
        });
        // A server's packet ends only if it came before.
        if port < SERVER_PORT {
            self.tally.no_server += dropped
        } else {
            self.tally.refused += dropped
        }
        for (name, values) in reports {
            if let Some(heavy) = self.installer.heavy(&name, &values) {
                self.tally.reports += 1;
                let input = place::Input::Heavy(heavy);
                self.control(Happening::ToPlacer { element: Some(self.boot), input });
            }
        }
        for (to, bytes) in packets {
            if to >= SERVER_PORT {
                self.tally.requests += 1;
                let Some((_, packet)) = Front::parse(&bytes) else { return Err(Wrong::Garbled) };
                let at = self.travel(self.now, true, &packet);
                let request = |server, bytes| Happening::Request { server, bytes };
                self.queue_packet(at, request, to - SERVER_PORT, bytes);
            } else {
                let Some(packet) = Packet::parse(&bytes) else { return Err(Wrong::Garbled) };
                self.tally.out += 1;
                self.tally.in_element += u64::from(port < SERVER_PORT);
                self.hash = (self.hash.rotate_left(7)
                    ^ u64::from(packet.sequence) << 32
                    ^ u64::from(packet.a ^ packet.b)
                    ^ self.now.0)
                    .wrapping_mul(0x9e37_79b9_7f4a_7c15);
                self.say(|| format!("out {packet:?}{}", if port < SERVER_PORT { "" } else { ", by a server" }));
                self.judge.out(self.now, &packet, port < SERVER_PORT)?;
                self.leaves(&packet, &bytes[PACKET..]);
            }
        }
        Ok(())
    }

    /// When what leaves then comes to the other end: behind all of its flow, if the link keeps order.
    fn travel(&mut self, leaves: Instant, to_server: bool, packet: &Packet) -> Instant {
        let (least, most) = self.plan.delay;
        let at = leaves + least + self.random.up_to(most.saturating_sub(least));
        if self.plan.reorder != Chance(0) && self.random.happens(self.plan.reorder) {
            self.tally.reordered += 1;
            return at;
        }
        let last = self.ways.entry((to_server, packet.kind, packet.key)).or_insert(Instant(0));
        *last = at.max(Instant(last.0 + 1));
        *last
    }

    /// Puts a packet on its way, unless it gets lost; perhaps twice.
    fn queue_packet(&mut self, at: Instant, happening: fn(u16, Vec<u8>) -> Happening, server: u16, bytes: Vec<u8>) {
        let cut = self.around.is_cut(self.now, Some(usize::from(server)), None);
        if self.random.happens(self.plan.loss) || cut {
            self.tally.lost += 1;
            self.say(|| "lost".to_owned());
            return;
        }
        if self.plan.repeat != Chance(0) && self.random.happens(self.plan.repeat) {
            self.tally.repeated += 1;
            let later = at + self.random.up_to(self.plan.delay.1 * 3);
            self.queue.push(later, happening(server, bytes.clone()));
        }
        self.queue.push(at, happening(server, bytes));
    }

    fn request(&mut self, id: u16, bytes: &[u8]) -> Result<(), Wrong> {
        let Some((front, packet)) = Front::parse(bytes) else { return Err(Wrong::Garbled) };
        let Some(server) = &mut self.servers[usize::from(id)] else {
            self.tally.lost += 1;
            return Ok(());
        };
        // One after the other; what it knows of a packet it knows when it comes.
        let done = server.busy_until.max(self.now) + self.plan.service;
        if self.around.front.1 > Instant(0) && done.since(self.now) > LONGEST {
            server.misses(&front);
            self.overflowed += 1;
            self.tally.lost += 1;
            return Ok(());
        }
        server.busy_until = done;
        let Some((answer, after)) = server.work(self.now, front, packet) else {
            self.tally.refused += 1;
            return Ok(());
        };
        self.holder(id);
        self.say(|| format!("server {id}: {front:?} {packet:?} ─► {answer:?} a {} b {}", after.a, after.b));
        let bytes = [&answer.emit(&after)[..], Front::payload(bytes)].concat();
        let at = self.travel(done, false, &packet);
        self.queue_packet(at, |server, bytes| Happening::Response { server, bytes }, id, bytes);
        Ok(())
    }

    fn tick(&mut self, id: u16) {
        self.queue.push(self.now + TICK, Happening::Tick(id));
        let Some(server) = &mut self.servers[usize::from(id)] else { return };
        server.expire(self.now);
        let load = server.load();
        let returned = server.returned();
        self.holder(id);
        self.control(Happening::ToScaler { element: None, input: scale::Input::Load(load) });
        for block in returned {
            let input = scale::Input::Returned { server: id, block: (0, block) };
            self.control(Happening::ToScaler { element: None, input });
        }
    }

    fn window(&mut self) {
        let length = Duration::from_micros(self.installer.window_us());
        self.queue.push(self.now + length, Happening::Window);
        if let Some(window) = self.installer.window(&mut self.element, self.now.0 / 1000) {
            let input = place::Input::Window(window);
            self.control(Happening::ToPlacer { element: Some(self.boot), input });
        }
    }

    pub(super) fn say(&mut self, what: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(text) = &mut self.text {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{:>12} {}", Millis(now), what());
        }
    }
}
