//! Complete function in one process: an element, servers and a controller, without clock and I/O.
//!
//! ```text
//! packet ─► element ─┬─► out
//!              ▲     └─► server's link ─► server ─► link back ─► element ─► out
//!              └── batches ◄── controller: placer, scaler ◄── reports, loads
//! ```
//!
//! The caller gives the time and the delay of the links: the same calls give the same outputs.

mod control;
mod links;
pub mod oracle;

use std::time::Duration;

use crate::place::{self, ServerId};
use crate::scale::{self, TopologyDevice};
use crate::serve::{FrameAnswer, FunctionHandler, HandlerServer};
use control::DelayedController;
use links::{ArrivedFrame, InMemoryLinks};
pub use oracle::Oracle;
use pathcall_p4::exec::{DropReason, Execution, Output};
use pathcall_p4::ir::{Match, TableEntry, TableId};
use pathcall_p4::split::{ElementEvent, SplitFunction};

/// First port of the element that leads to a server.
pub const SERVER_PORT: u16 = 256;

/// Settings of a function in one process.
#[derive(Debug, Clone)]
pub struct Config {
    /// Placement of entries.
    pub place: place::Config,
    /// Scaling of server groups.
    pub scale: scale::Config,
    /// Delay of control messages to the element or to a server, µs.
    pub control_us: u64,
    /// Period of the servers' load reports.
    pub report_every: Duration,
    /// Packets per second that a server can process.
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

/// Element, servers and controller of a function.
pub struct System<H, E> {
    element: E,
    split: SplitFunction,
    servers: Vec<Option<HandlerServer<H>>>,
    links: InMemoryLinks,
    control: DelayedController,
    /// Delay of a frame to or from a server, µs.
    delay: Box<dyn FnMut(ServerId) -> u64>,
    now_us: u64,
    /// Frames that the current packet sent to servers and that are not yet on a link.
    sent: Vec<(ServerId, Vec<u8>)>,
    digests: Vec<(String, Vec<u128>)>,
}

impl<H: FunctionHandler, E: Execution> System<H, E> {
    /// System with the given servers, of which the first `group` serve from the start. `delay`: delay of a frame to or
    /// from a server, µs; a link does not reorder frames.
    pub fn new(
        split: SplitFunction,
        element: E,
        servers: Vec<H>,
        group: usize,
        config: &Config,
        delay: impl FnMut(ServerId) -> u64 + 'static,
    ) -> Self {
        let count = servers.len();
        let devices = (0..count as u16).map(|id| TopologyDevice {
            name: format!("s{}", id + 1),
            port: SERVER_PORT + id,
            mac: [2, 0, 0, 0, (id >> 8) as u8, id as u8],
            capacity: config.capacity,
        });
        let control = DelayedController::new(&split, devices.collect(), config);
        let made = servers
            .into_iter()
            .enumerate()
            .map(|(id, handler)| Some(HandlerServer::new(id as ServerId, &split, handler)));
        let mut system = Self {
            servers: made.collect(),
            links: InMemoryLinks::new(count),
            control,
            delay: Box::new(delay),
            now_us: 0,
            sent: Vec::new(),
            digests: Vec::new(),
            element,
            split,
        };
        system.begin();
        system.set_wanted((0..group.min(count) as ServerId).collect());
        system
    }

    /// Writes the entries that the element needs before its first packet.
    fn begin(&mut self) {
        let generated = &self.split.generated;
        self.element.set_register(generated.address, 0, 0x0200_0000_ffff);
        for id in 0..self.servers.len() as u16 {
            let keys = vec![Match { value: (SERVER_PORT + id).into(), prefix_bits: 9 }];
            let entry = TableEntry { keys, action: generated.from_server, args: Vec::new() };
            let done = self.element.insert(generated.servers, &entry);
            debug_assert!(done.is_ok(), "{done:?}");
        }
    }

    /// Processes a packet that arrives at a port of a network, after time has advanced to `now_us`.
    pub fn process(&mut self, now_us: u64, port: u16, packet: &[u8], out: &mut dyn FnMut(Output<'_>)) {
        self.advance(now_us, out);
        self.element(port, packet, out);
    }

    /// Advances the time: delivers frames that have arrived, and runs the controller.
    pub fn advance(&mut self, to_us: u64, out: &mut dyn FnMut(Output<'_>)) {
        while let Some(at) = self.next_at().filter(|at| *at <= to_us) {
            self.now_us = self.now_us.max(at);
            match self.links.take(self.now_us) {
                Some(frame) => self.arrived(frame, out),
                None => self.control_now(),
            }
        }
        self.now_us = self.now_us.max(to_us);
    }

    /// Time of the next [`Self::advance`] that has work.
    #[must_use]
    pub fn next_at(&self) -> Option<u64> {
        self.links.next_at().into_iter().chain(self.control.next_at()).min()
    }

    /// Whether packets are in flight.
    #[must_use]
    pub fn busy(&self) -> bool {
        self.links.busy()
    }

    /// Advances the time until no packet is in flight.
    pub fn finish(&mut self, out: &mut dyn FnMut(Output<'_>)) {
        while self.links.busy() {
            let Some(at) = self.next_at() else { return };
            self.advance(at, out);
        }
    }

    fn arrived(&mut self, frame: ArrivedFrame, out: &mut dyn FnMut(Output<'_>)) {
        match frame {
            ArrivedFrame::ToServer(id, mut frame) => {
                let Some(server) = &mut self.servers[usize::from(id)] else {
                    return out(Output::Dropped(DropReason::Handler));
                };
                server.expire(self.now_us);
                if server.handle(self.now_us, &mut frame) == FrameAnswer::Send {
                    let at = self.now_us + (self.delay)(id);
                    self.links.send_to_element(at, id, frame);
                }
                self.control.poll_server(self.now_us, id, server);
            }
            ArrivedFrame::ToElement(id, frame) => self.element(SERVER_PORT + id, &frame, out),
        }
        self.control_now();
    }

    fn element(&mut self, port: u16, packet: &[u8], out: &mut dyn FnMut(Output<'_>)) {
        let (servers, sent, digests) = (self.servers.len() as u16, &mut self.sent, &mut self.digests);
        self.element.process(self.now_us, port, packet, &mut |output| match output {
            Output::Packet { port, bytes } if (SERVER_PORT..SERVER_PORT + servers).contains(&port) => {
                sent.push((port - SERVER_PORT, bytes.to_vec()));
            }
            Output::Digest { name, values } if name.starts_with("pc.") => {
                digests.push((name.to_owned(), values.to_vec()))
            }
            other => out(other),
        });
        for (id, frame) in self.sent.drain(..) {
            let at = self.now_us + (self.delay)(id);
            self.links.send_to_server(at, id, frame);
        }
        for (name, values) in self.digests.drain(..) {
            self.control.digest(self.now_us, &name, &values);
        }
        self.control_now();
    }

    fn control_now(&mut self) {
        self.control.run(self.now_us, &mut self.element, &mut self.servers);
    }

    /// Sets the wanted servers of the group.
    pub fn set_wanted(&mut self, servers: Vec<ServerId>) {
        self.control.set_wanted(self.now_us, servers);
        self.control_now();
    }

    /// Adds an operator's entry of a mirrored table to every server.
    pub fn add(&mut self, table: TableId, entry: &TableEntry) {
        self.servers.iter_mut().flatten().for_each(|server| server.add(table, entry.clone()));
        self.control_now();
    }

    /// Replaces the element after a restart; `element` has only the entries that its program declares.
    pub fn restart(&mut self, element: E) {
        self.element = element;
        self.begin();
        self.control.element_restarted(self.now_us);
        self.control_now();
    }

    /// Removes an operator's entry of a mirrored table from every server, and so from the element.
    pub fn remove(&mut self, table: TableId, keys: &[Match]) {
        self.servers.iter_mut().flatten().for_each(|server| {
            server.remove(table, keys);
        });
        self.control_now();
    }

    /// Stops a server and removes all its state.
    pub fn kill(&mut self, id: ServerId) -> Option<HandlerServer<H>> {
        self.servers.get_mut(usize::from(id)).and_then(Option::take)
    }

    /// Running servers.
    pub fn servers(&self) -> impl Iterator<Item = &HandlerServer<H>> {
        self.servers.iter().flatten()
    }

    /// Execution of the element.
    #[must_use]
    pub fn execution(&self) -> &E {
        &self.element
    }

    /// Execution of the element, for an operator's entries of tables that are not mirrored.
    pub fn execution_mut(&mut self) -> &mut E {
        &mut self.element
    }

    /// Number of times that the element counted `event`.
    #[must_use]
    pub fn events(&self, event: ElementEvent) -> u64 {
        self.element.counter(self.split.generated.events, event as u32).packets
    }

    /// Counters of the placement.
    #[must_use]
    pub fn placed(&self) -> place::Stats {
        self.control.placed()
    }

    /// Counters of the scaling.
    #[must_use]
    pub fn scaled(&self) -> scale::Stats {
        self.control.scaled()
    }
}
