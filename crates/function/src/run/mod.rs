//! A whole function in one process: an element, servers, a controller; no clock and no I/O of its own.
//!
//! ```text
//! packet ─► element ─┬─► out
//!              ▲     └─► server's link ─► server ─► link back ─► element ─► out
//!              └── batches ◄── controller: placer, scaler ◄── reports, loads
//! ```
//!
//! Whoever calls says what time it is, and links take as long as he says: the same calls give the same outputs.

mod control;
mod links;
pub mod oracle;

use std::time::Duration;

use crate::exec::{Execution, Output, Reason};
use crate::ir::{Entry, Match, TableId};
use crate::place::{self, ServerId};
use crate::scale::{self, Device};
use crate::serve::{Answer, Handler, Server};
use crate::split::{Event, Split};
use control::Control;
use links::{Links, Moved};
pub use oracle::Oracle;

/// The first of the element's ports that servers are at.
pub const SERVER_PORT: u16 = 256;

/// How a function is run.
#[derive(Debug, Clone)]
pub struct Config {
    /// How entries are placed.
    pub place: place::Config,
    /// How groups of servers change.
    pub scale: scale::Config,
    /// Microseconds that the controller's words take to an element or a server.
    pub control_us: u64,
    /// How often servers report what they bear.
    pub report_every: Duration,
    /// Packets a second that a server can work on.
    pub capacity: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            place: place::Config::default(),
            scale: scale::Config::default(),
            control_us: 100,
            report_every: Duration::from_millis(100),
            capacity: 1_000_000,
        }
    }
}

/// The element, the servers, the controller.
pub struct System<H, E> {
    element: E,
    split: Split,
    servers: Vec<Option<Server<H>>>,
    links: Links,
    control: Control,
    /// How long each frame's way to a server or back takes, microseconds.
    delay: Box<dyn FnMut(ServerId) -> u64>,
    now_us: u64,
    /// Frames for servers that an element's packet has left, until they are on their link.
    sent: Vec<(ServerId, Vec<u8>)>,
    told: Vec<(String, Vec<u128>)>,
}

impl<H: Handler, E: Execution> System<H, E> {
    /// A system of `servers` that may serve; the first `group` of them do from the start. `delay`: how long a frame's way
    /// to a server or back takes, microseconds; what leaves later on one link arrives no sooner.
    pub fn new(
        split: Split,
        element: E,
        servers: Vec<H>,
        group: usize,
        config: &Config,
        delay: impl FnMut(ServerId) -> u64 + 'static,
    ) -> Self {
        let count = servers.len();
        let devices = (0..count as u16).map(|id| Device {
            name: format!("s{}", id + 1),
            port: SERVER_PORT + id,
            mac: [2, 0, 0, 0, (id >> 8) as u8, id as u8],
            capacity: config.capacity,
        });
        let control = Control::new(&split, devices.collect(), config);
        let made =
            servers.into_iter().enumerate().map(|(id, handler)| Some(Server::new(id as ServerId, &split, handler)));
        let mut system = Self {
            servers: made.collect(),
            links: Links::new(count),
            control,
            delay: Box::new(delay),
            now_us: 0,
            sent: Vec::new(),
            told: Vec::new(),
            element,
            split,
        };
        system.begin();
        system.want((0..group.min(count) as ServerId).collect());
        system
    }

    /// What the element has to know before its first packet.
    fn begin(&mut self) {
        let generated = &self.split.generated;
        self.element.set_register(generated.address, 0, 0x0200_0000_ffff);
        for id in 0..self.servers.len() as u16 {
            let keys = vec![Match { value: (SERVER_PORT + id).into(), prefix_bits: 9 }];
            let entry = Entry { keys, action: generated.from_server, args: Vec::new() };
            let done = self.element.insert(generated.servers, &entry);
            debug_assert!(done.is_ok(), "{done:?}");
        }
    }

    /// A packet comes in at a port that is no server's. First time passes to `now_us`.
    pub fn process(&mut self, now_us: u64, port: u16, packet: &[u8], out: &mut dyn FnMut(Output<'_>)) {
        self.advance(now_us, out);
        self.element(port, packet, out);
    }

    /// Time passes: what was under way arrives, the controller does what it has to.
    pub fn advance(&mut self, to_us: u64, out: &mut dyn FnMut(Output<'_>)) {
        while let Some(at) = self.next_at().filter(|at| *at <= to_us) {
            self.now_us = self.now_us.max(at);
            match self.links.take(self.now_us) {
                Some(moved) => self.arrived(moved, out),
                None => self.control_now(),
            }
        }
        self.now_us = self.now_us.max(to_us);
    }

    /// When [`Self::advance`] has something to do next.
    #[must_use]
    pub fn next_at(&self) -> Option<u64> {
        self.links.next_at().into_iter().chain(self.control.next_at()).min()
    }

    /// Whether packets are under way.
    #[must_use]
    pub fn busy(&self) -> bool {
        self.links.busy()
    }

    /// Lets time pass until no packet is under way.
    pub fn finish(&mut self, out: &mut dyn FnMut(Output<'_>)) {
        while self.links.busy() {
            let Some(at) = self.next_at() else { return };
            self.advance(at, out);
        }
    }

    fn arrived(&mut self, moved: Moved, out: &mut dyn FnMut(Output<'_>)) {
        match moved {
            Moved::ToServer(id, mut frame) => {
                let Some(server) = &mut self.servers[usize::from(id)] else {
                    return out(Output::Dropped(Reason::Handler));
                };
                server.expire(self.now_us);
                if server.handle(self.now_us, &mut frame) == Answer::Send {
                    let at = self.now_us + (self.delay)(id);
                    self.links.send_to_element(at, id, frame);
                }
                self.control.heard(self.now_us, id, server);
            }
            Moved::ToElement(id, frame) => self.element(SERVER_PORT + id, &frame, out),
        }
        self.control_now();
    }

    fn element(&mut self, port: u16, packet: &[u8], out: &mut dyn FnMut(Output<'_>)) {
        let (servers, sent, told) = (self.servers.len() as u16, &mut self.sent, &mut self.told);
        self.element.process(self.now_us, port, packet, &mut |output| match output {
            Output::Packet { port, bytes } if (SERVER_PORT..SERVER_PORT + servers).contains(&port) => {
                sent.push((port - SERVER_PORT, bytes.to_vec()));
            }
            Output::Digest { name, values } if name.starts_with("pc.") => told.push((name.to_owned(), values.to_vec())),
            other => out(other),
        });
        for (id, frame) in self.sent.drain(..) {
            let at = self.now_us + (self.delay)(id);
            self.links.send_to_server(at, id, frame);
        }
        for (name, values) in self.told.drain(..) {
            self.control.digest(self.now_us, &name, &values);
        }
        self.control_now();
    }

    fn control_now(&mut self) {
        self.control.run(self.now_us, &mut self.element, &mut self.servers);
    }

    /// The group shall be these servers.
    pub fn want(&mut self, servers: Vec<ServerId>) {
        self.control.want(self.now_us, servers);
        self.control_now();
    }

    /// An operator adds an entry of a mirrored table, to every server.
    pub fn add(&mut self, table: TableId, entry: &Entry) {
        self.servers.iter_mut().flatten().for_each(|server| server.add(table, entry.clone()));
        self.control_now();
    }

    /// The element has begun anew, and is this one: it has nothing but what its program declares.
    pub fn restart(&mut self, element: E) {
        self.element = element;
        self.begin();
        self.control.element_restarted(self.now_us);
        self.control_now();
    }

    /// An operator takes an entry of a mirrored table out, at every server; the element follows.
    pub fn remove(&mut self, table: TableId, keys: &[Match]) {
        self.servers.iter_mut().flatten().for_each(|server| {
            server.remove(table, keys);
        });
        self.control_now();
    }

    /// A server is gone, with all that it had.
    pub fn kill(&mut self, id: ServerId) -> Option<Server<H>> {
        self.servers.get_mut(usize::from(id)).and_then(Option::take)
    }

    /// The servers.
    pub fn servers(&self) -> impl Iterator<Item = &Server<H>> {
        self.servers.iter().flatten()
    }

    /// The element.
    #[must_use]
    pub fn execution(&self) -> &E {
        &self.element
    }

    /// The element, for an operator's entries of tables that are not mirrored.
    pub fn execution_mut(&mut self) -> &mut E {
        &mut self.element
    }

    /// How often the element counted this.
    #[must_use]
    pub fn events(&self, event: Event) -> u64 {
        self.element.counter(self.split.generated.events, event as u32).packets
    }

    /// What placement counted.
    #[must_use]
    pub fn placed(&self) -> place::Stats {
        self.control.placed()
    }

    /// What scaling counted.
    #[must_use]
    pub fn scaled(&self) -> scale::Stats {
        self.control.scaled()
    }
}
