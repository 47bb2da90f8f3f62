//! Tests of the live control protocol: flows keep their values while servers start, stop and fail.

use std::collections::BTreeMap;
use std::time::Duration;

use pathcall_function_testing::fixtures::{HandlerTables, nat_function, nat_handler};
use pathcall_netfn::live::{Config, Controller, GroupServer, Output};
use pathcall_netfn::place::{self, ServerId};
use pathcall_netfn::scale::{self, Event as Change, TopologyDevice};
use pathcall_netfn::serve::{FrameAnswer, HandlerServer};
use pathcall_p4::exec::{Execution, Output as Left};
use pathcall_p4::interp::Interpreter;
use pathcall_p4::split::balance::Sizes;
use pathcall_p4::split::{SplitFunction, SplitTarget, split};

/// Port of the element that leads to server 0.
const PORT: u16 = 256;
const SERVERS: u16 = 3;
const REPORT_WITHIN: Duration = Duration::from_millis(500);

/// Element, controller and servers; messages are delivered at once.
struct Parts {
    split: SplitFunction,
    element: Interpreter,
    controller: Controller,
    members: Vec<Option<GroupServer<HandlerTables>>>,
    now_us: u64,
    events: Vec<Change>,
}

impl Parts {
    fn new() -> Self {
        let sizes = Sizes { entries: 8, period_log2: 14, window_log2: 12, ..Sizes::default() };
        let split = split(&nat_function(), &SplitTarget { function: 7, sizes, phv_bits: None }).expect("can be split");
        let device =
            |id| TopologyDevice { name: format!("s{id}"), port: PORT + id, mac: [2, 0, 0, 0, 0, 1], capacity: 1000 };
        let config = Config {
            place: place::Config { idle: Duration::from_millis(60), force_after: None, ..place::Config::default() },
            scale: scale::Config {
                report_within: REPORT_WITHIN,
                quiet: Duration::from_millis(40),
                ..scale::Config::default()
            },
        };
        let mut element = Interpreter::new(&split.element).expect("runs");
        let controller = Controller::new(&split, (0..SERVERS).map(device).collect(), &config);
        controller.begin(&split.generated, &mut element, [2, 0, 0, 0, 0, 0xff]).expect("three ports");
        let members = (0..SERVERS).map(|_| None).collect();
        Self { split, element, controller, members, now_us: 10, events: Vec::new() }
    }

    fn begin(&mut self, id: ServerId) {
        let server = HandlerServer::new(id, &self.split, nat_handler(&nat_function()));
        self.members[usize::from(id)] = Some(GroupServer::new(self.now_us, server));
        self.controller.server_started(self.now_us, id);
        self.exchange_messages();
    }

    /// Exchanges messages until all queues are empty.
    fn exchange_messages(&mut self) {
        loop {
            self.controller.run(self.now_us, &mut self.element);
            let mut idle = true;
            while let Some(output) = self.controller.poll() {
                idle = false;
                match output {
                    Output::Send(id, command) => {
                        let member = self.members[usize::from(id)].as_mut();
                        member.into_iter().for_each(|member| member.handle_command(self.now_us, command.clone()));
                    }
                    Output::Event(change) => self.events.push(change),
                }
            }
            for (id, member) in self.members.iter_mut().enumerate() {
                let Some(member) = member else { continue };
                if self.now_us >= member.next_at() {
                    member.run(self.now_us);
                }
                while let Some(message) = member.poll() {
                    idle = false;
                    self.controller.handle_message(self.now_us, id as ServerId, message);
                }
            }
            if idle {
                return;
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        let to_us = self.now_us + time.as_micros() as u64;
        while self.now_us < to_us {
            let next = self.members.iter().flatten().map(GroupServer::next_at).chain([self.controller.next_at()]).min();
            self.now_us = next.unwrap_or(to_us).clamp(self.now_us + 1, to_us);
            self.exchange_messages();
        }
    }

    /// Processes a packet; returns the packet that left, if any.
    fn packet(&mut self, outward: bool, key: u32, seq: u16) -> Option<Vec<u8>> {
        let mut bytes = vec![0; 12];
        bytes.extend([0x09, 0x00, u8::from(outward), 64, 0, 0]);
        let (from, to) = if outward { (key, 0x0808_0808) } else { (0x0808_0808, key) };
        bytes.extend(from.to_be_bytes().into_iter().chain(to.to_be_bytes()).chain([0, 0]).chain(seq.to_be_bytes()));
        let mut frames = vec![(4, bytes)];
        let mut left = None;
        while let Some((port, frame)) = frames.pop() {
            let mut digests = Vec::new();
            self.element.process(self.now_us, port, &frame, &mut |output| match output {
                Left::Packet { port, bytes } if port >= PORT => frames.push((port, bytes.to_vec())),
                Left::Packet { bytes, .. } => left = Some(bytes.to_vec()),
                Left::Digest { name, values } => digests.push((name.to_owned(), values.to_vec())),
                Left::Dropped(_) => {}
            });
            digests.iter().for_each(|(name, values)| self.controller.digest(self.now_us, name, values));
            if let Some((port, frame)) = frames.last_mut() {
                let member = self.members[usize::from(*port - PORT)].as_mut();
                if member.is_none_or(|member| member.handle(self.now_us, frame) != FrameAnswer::Send) {
                    frames.clear();
                }
            }
            self.exchange_messages();
        }
        left
    }

    /// Sends a packet of a flow and its answer; returns the flow's value.
    fn round_trip(&mut self, flow: u32, seq: u16) -> u32 {
        let word = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().expect("four bytes"));
        let out = self.packet(true, flow, seq).expect("a packet with a value");
        let value = word(&out[18..22]);
        let back = self.packet(false, value, seq).expect("the answer's flow is known");
        assert_eq!(word(&back[22..26]), flow, "flow of the answer to {value}");
        value
    }

    fn downs(&self) -> Vec<ServerId> {
        let down = |change: &Change| match change {
            Change::Down { server, .. } => Some(*server),
            _ => None,
        };
        self.events.iter().filter_map(down).collect()
    }
}

fn flows() -> impl Iterator<Item = u32> {
    0x0a00_0000..0x0a00_0028
}

#[test]
fn flows_keep_values_while_servers_change() {
    let mut parts = Parts::new();
    parts.begin(0);
    parts.begin(1);
    parts.controller.set_wanted(parts.now_us, vec![0, 1]);
    parts.pass(Duration::from_millis(500));
    let values: BTreeMap<u32, u32> = flows().map(|flow| (flow, parts.round_trip(flow, 1))).collect();
    let busy = |parts: &Parts, id: usize| parts.members[id].as_ref().map_or(0, |member| member.stats().requests);
    assert!(busy(&parts, 0) > 0 && busy(&parts, 1) > 0, "both have flows");

    // Server 2 has started, and gets no flow before it is in the group.
    parts.begin(2);
    parts.pass(Duration::from_millis(300));
    assert_eq!(busy(&parts, 2), 0);
    parts.controller.set_wanted(parts.now_us, vec![1, 2]);
    parts.pass(Duration::from_millis(300));
    assert_eq!(parts.controller.scaler().group().into_iter().collect::<Vec<_>>(), [1, 2]);
    for (flow, value) in &values {
        assert_eq!(parts.round_trip(*flow, 64), *value, "flow {flow:#x}");
    }
    let before = busy(&parts, 0);
    let new: Vec<u32> = (0x0a01_0000..0x0a01_0028).map(|flow| parts.round_trip(flow, 64)).collect();
    assert_eq!(busy(&parts, 0), before, "new flows go to the others");
    assert!(new.iter().all(|value| !values.values().any(|other| other == value)), "values are given once");
    assert!(busy(&parts, 2) > 0 && parts.downs().is_empty());
}

#[test]
fn silent_server_is_dead_and_its_flows_move() {
    let mut parts = Parts::new();
    parts.begin(0);
    parts.begin(1);
    parts.controller.set_wanted(parts.now_us, vec![0, 1]);
    parts.pass(Duration::from_millis(500));
    for flow in flows() {
        parts.round_trip(flow, 1);
    }
    parts.members[0] = None;
    parts.pass(REPORT_WITHIN + Duration::from_millis(150));
    assert_eq!(parts.downs(), [0]);
    for flow in flows() {
        parts.round_trip(flow, 2);
    }

    // Server 0 restarts. Its former values are in quarantine, so it has none yet, and gets no new flows.
    parts.begin(0);
    parts.pass(Duration::from_millis(300));
    assert!(parts.controller.scaler().wanted().eq([0, 1]) && parts.controller.scaler().alive().eq([0, 1]));
    for flow in flows() {
        parts.round_trip(flow, 3);
    }
    // A restart is noticed at once, without a report timeout.
    parts.begin(1);
    assert_eq!(parts.downs(), [0, 1]);
}
