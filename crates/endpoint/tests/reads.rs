//! Reads of keys: base of the server and register of the element, frame by frame.

use std::collections::VecDeque;

use pathcall_endpoint::map::client::{CallId, ClientConfig, MapClient};
use pathcall_endpoint::map::server::{ElementTerms, Event, MapServer, Member, ServerConfig};
use pathcall_endpoint::map::{
    Ack, CallError, Dest, FrameSink, Key, Modify, Operation, Output, ReadMode, RegisterGrant,
};
use pathcall_wire::{FrameKind, Instant, KEYED_LANES, MapFlags, MapFrame};
use proptest::prelude::*;

use crate::config::server_config;

const EPOCH: u32 = 3;

#[derive(Default)]
struct Sent(VecDeque<(Dest, Vec<u8>)>);

impl FrameSink for Sent {
    fn send(&mut self, to: Dest, frame: &[u8]) {
        self.0.push_back((to, frame.to_vec()));
    }
}

fn ms(ms: u64) -> Instant {
    Instant(ms * 1_000_000)
}

/// Owner, callers, and a model of the element with one key's register for each generation.
struct Net {
    server: MapServer,
    callers: Vec<MapClient>,
    now: Instant,
    /// Open generation, version, and registers of lane 0, row 0.
    open: u32,
    version: u32,
    registers: [i32; 2],
    /// Frames that reached the server.
    at_server: usize,
    /// Whether the element drops closes of generations.
    deaf: bool,
    done: VecDeque<(usize, CallId, Result<Output, CallError>)>,
}

impl Net {
    fn new(by_element: &[bool]) -> Self {
        let config = ServerConfig {
            epoch: EPOCH,
            grant: Some(RegisterGrant { rows: 1, width: 64 }),
            mapping: true,
            ..server_config()
        };
        let mut server = MapServer::new(config);
        let callers = by_element.iter().zip(0u32..).map(|(element, n)| {
            let (endpoint, incarnation) = (10 + n, 5);
            let member = Member { endpoint, incarnation, element: *element, slot_base: n, flows: 1, terms: 0 };
            let joined = server.join(Instant(0), member).expect("join succeeds");
            MapClient::new(ClientConfig {
                gaid: config.gaid,
                epoch: EPOCH,
                endpoint,
                incarnation,
                server: config.endpoint,
                server_incarnation: config.incarnation,
                slot_base: n,
                element: *element,
                rows: joined.rows,
                ..ClientConfig::default()
            })
        });
        let callers = callers.collect();
        let (registers, done) = Default::default();
        Self { server, callers, now: ms(1), open: 1, version: 0, registers, at_server: 0, deaf: false, done }
    }

    /// Starts a call and passes all frames on, until no party sends.
    fn call(&mut self, caller: usize, id: u64, operation: Operation) {
        self.callers[caller].start(self.now, CallId(id), operation);
        self.run();
    }

    fn run(&mut self) {
        loop {
            let mut sent = Sent::default();
            for (n, caller) in self.callers.iter_mut().enumerate() {
                caller.poll(self.now, &mut sent);
                while let Some((id, outcome)) = caller.next_event() {
                    self.done.push_back((n, id, outcome));
                }
            }
            self.server.poll(self.now, &mut sent);
            while let Some(event) = self.server.next_event() {
                assert_eq!(event, Event::ReadsEnded);
            }
            if sent.0.is_empty() {
                return;
            }
            while let Some((to, frame)) = sent.0.pop_front() {
                match to {
                    Dest::Element => {
                        let answer = self.element(frame);
                        if let Some(answer) = answer {
                            self.deliver(&answer, &mut sent);
                        }
                    }
                    _ => self.deliver(&frame, &mut sent),
                }
            }
        }
    }

    fn deliver(&mut self, frame: &[u8], sent: &mut Sent) {
        let dst = MapFrame::new_checked(frame).expect("valid frame").base().dst();
        match self.callers.get_mut((dst as usize).wrapping_sub(10)) {
            Some(caller) => caller.handle(self.now, frame),
            None => {
                self.at_server += 1;
                self.server.handle(self.now, frame, sent);
            }
        }
    }

    /// Answer of the element to a frame.
    fn element(&mut self, mut bytes: Vec<u8>) -> Option<Vec<u8>> {
        let mut frame = MapFrame::new_checked(&mut bytes[..]).expect("valid frame");
        let (kind, round, flags) = (frame.kind(), frame.base().round(), frame.map().flags());
        let answer = match kind {
            FrameKind::MapClose if self.deaf => return None,
            FrameKind::MapClose => {
                if round == self.open {
                    (self.open, self.version) = (round + 1, frame.map().index());
                }
                frame.base_mut().set_round(self.open);
                FrameKind::MapClosed
            }
            FrameKind::MapRead => {
                let value = self.registers[(round % 2) as usize];
                frame.bitmap_and_lanes_mut().1[..4].copy_from_slice(&value.to_be_bytes());
                FrameKind::MapValues
            }
            FrameKind::MapPlaces => FrameKind::MapRecord,
            FrameKind::MapWipe => {
                self.registers[(round % 2) as usize] = 0;
                FrameKind::MapWiped
            }
            FrameKind::MapData => {
                assert_eq!((round, frame.keyed(0).map(|(row, _)| row)), (self.version, Some(0)));
                let register = &mut self.registers[(self.open % 2) as usize];
                let added = frame.keyed(0).expect("a pair").1;
                *register += if flags & MapFlags::ADD != 0 { added } else { 0 };
                frame.set_keyed(0, 0, *register);
                frame.set_bitmap(0, 0);
                frame.base_mut().set_round(self.open);
                FrameKind::MapAck
            }
            // Announcements to all callers.
            _ => return None,
        };
        let base = frame.base();
        let (src, dst) = ((base.src(), base.src_incarnation()), (base.dst(), base.dst_incarnation()));
        let mut base = frame.base_mut();
        base.set_kind(answer as u8);
        base.set_dst(src.0);
        base.set_dst_incarnation(src.1);
        base.set_src(dst.0);
        base.set_src_incarnation(dst.1);
        if answer == FrameKind::MapAck && flags & MapFlags::GET == 0 {
            let len = frame.strip();
            bytes.truncate(len);
        }
        Some(bytes)
    }

    /// Outcome of the only finished call.
    fn outcome(&mut self) -> Output {
        let (_, _, outcome) = self.done.pop_front().expect("a finished call");
        assert!(self.done.is_empty());
        outcome.expect("the call succeeds")
    }

    fn add(&mut self, caller: usize, id: u64, value: i64) {
        let pairs = vec![(Key::from("k"), value)];
        self.call(caller, id, Operation::Add { pairs, modify: Modify::default(), get: false, ack: Ack::Element });
    }

    fn read(&mut self, caller: usize, id: u64, read: ReadMode) -> Output {
        self.call(caller, id, Operation::Read { keys: vec![Key::from("k")], read });
        self.outcome()
    }
}

fn value(value: i64) -> Output {
    Output::Values(vec![value])
}

const LINEAR: ReadMode = ReadMode::Linearizable;

/// Two callers by the element; the key has the base 1, and its register 10.
fn with_register() -> Net {
    let mut net = Net::new(&[true, true]);
    for (id, added) in [(1, 1), (2, 10)] {
        net.add(0, id, added);
        assert_eq!(net.outcome(), Output::Done);
    }
    assert_eq!((net.registers[1], KEYED_LANES), (10, 32));
    net
}

#[test]
fn second_read_reaches_element_only() {
    let mut net = with_register();
    assert_eq!(net.read(0, 3, LINEAR), value(11));
    let before = net.at_server;
    net.registers[1] += 5;
    assert_eq!(net.read(0, 5, LINEAR), value(16));
    assert_eq!(net.at_server, before);
    // The lease of the base has ended.
    net.now = ms(500);
    assert_eq!(net.read(0, 6, LINEAR), value(16));
    assert!(net.at_server > before);
}

#[test]
fn base_of_closed_generation_is_asked_for_again() {
    let mut net = with_register();
    assert_eq!(net.read(0, 3, LINEAR), value(11));
    net.server.query(net.now, pathcall_endpoint::map::server::QueryId(1), None);
    let mut sent = Sent::default();
    net.server.poll(net.now, &mut sent);
    while let Some((_, frame)) = sent.0.pop_front() {
        let Some(answer) = net.element(frame) else { continue };
        net.server.handle(net.now, &answer, &mut sent);
        net.server.poll(net.now, &mut sent);
    }
    while net.server.next_event().is_some() {}
    assert_eq!((net.open, net.registers), (2, [0, 0]));
    net.registers[0] = 7;
    assert_eq!(net.read(0, 4, LINEAR), value(18));
}

#[test]
fn addition_in_software_waits_until_element_closes_generation() {
    let mut net = Net::new(&[true, true]);
    for (id, added) in [(1, 1), (2, 10)] {
        net.add(0, id, added);
        net.outcome();
    }
    assert_eq!(net.read(0, 3, LINEAR), value(11));
    net.deaf = true;
    // Too large for a register, so the server adds it.
    net.add(1, 4, 1 << 40);
    assert!(net.done.is_empty(), "the caller may still use the base");
    assert_eq!(net.read(0, 5, LINEAR), value(11));
    assert!(net.server.must_wait(net.now, &[(Key::from("k"), 1)]));
    net.deaf = false;
    net.now = ms(400);
    net.run();
    assert_eq!(net.outcome(), Output::Done);
    assert!(!net.server.must_wait(net.now, &[(Key::from("k"), 1)]));
    assert_eq!(net.read(0, 6, LINEAR), value((1 << 40) + 11));
}

#[test]
fn addition_after_end_of_epoch_waits_for_lease_of_caller_in_old_epoch() {
    let mut net = with_register();
    assert_eq!(net.read(0, 3, LINEAR), value(11));
    net.server.renew(net.now, ElementTerms { number: 1, epoch: EPOCH + 1, grant: None, reason: "" });
    let member = Member { endpoint: 11, incarnation: 5, element: false, slot_base: 1, flows: 1, terms: 1 };
    let change = net.server.take_epoch_change(member).expect("a member");
    net.callers[1].renew(net.now, &change);
    net.add(1, 4, 5);
    assert!(net.done.is_empty());
    net.now = ms(300);
    assert_eq!(net.read(0, 5, LINEAR), value(11), "by the element, which does not know of the end");
    assert!(net.done.is_empty());
    net.now = ms(502);
    net.run();
    assert_eq!(net.outcome(), Output::Done);
}

#[test]
fn base_of_ended_epoch_is_not_added_to_registers_of_next_one() {
    let mut net = Net::new(&[true, true]);
    net.add(0, 1, 1);
    net.outcome();
    assert_eq!(net.read(0, 3, LINEAR), value(1));
    let grant = Some(RegisterGrant { rows: 1, width: 64 });
    net.server.renew(net.now, ElementTerms { number: 1, epoch: EPOCH + 1, grant, reason: "" });
    (net.open, net.registers) = (1, [0, 0]);
    for n in 0..2 {
        let (endpoint, slot_base) = (10 + n as u32, n as u32);
        let member = Member { endpoint, incarnation: 5, element: true, slot_base, flows: 1, terms: 1 };
        let change = net.server.take_epoch_change(member).expect("a member");
        net.callers[n].renew(net.now, &change);
    }
    net.run();
    // The caller learns the register of the key again, in a generation with the same number as before.
    net.add(0, 4, 1);
    assert_eq!(net.outcome(), Output::Done);
    assert_eq!(net.read(0, 5, LINEAR), value(2));
}

#[test]
fn addition_does_not_wait_for_recent_read() {
    let mut net = with_register();
    assert_eq!(net.read(0, 3, ReadMode::Recent), value(11));
    net.deaf = true;
    net.add(1, 4, 1 << 40);
    assert_eq!(net.outcome(), Output::Done);
    assert_eq!(net.read(0, 5, ReadMode::Recent), value(11), "right when the base was lent");
    assert_eq!(net.read(0, 6, LINEAR), value((1 << 40) + 11));
}

#[test]
fn caller_without_element_waits_for_harvest() {
    let mut net = Net::new(&[true, false]);
    for (id, added) in [(1, 1), (2, 10)] {
        net.add(0, id, added);
        net.outcome();
    }
    assert_eq!(net.read(1, 3, LINEAR), value(11));
    assert_eq!((net.open, net.registers), (2, [0, 0]));
}

#[test]
fn unknown_key_is_zero_and_gets_no_register() {
    let mut net = Net::new(&[true]);
    assert_eq!(net.read(0, 1, LINEAR), value(0));
    assert_eq!(net.server.stats().keys, 0);
}

proptest! {
    /// Whatever callers add and read in turns, in the element or at the server: each read has the sum.
    #[test]
    fn reads_between_calls_have_the_exact_sum(steps in prop::collection::vec((0usize..3, 0u8..8, 1i64..1000), 1..60)) {
        let mut net = Net::new(&[true, true, false]);
        let mut sum = 0;
        for (id, (caller, kind, added)) in (1..).zip(steps) {
            net.now = Instant(net.now.0 + added as u64 * 1_000_000);
            let wide = if kind == 0 { 1 << 33 } else { 0 };
            if kind < 4 {
                net.add(caller, id, added + wide);
                prop_assert_eq!(net.outcome(), Output::Done);
                sum += added + wide;
            } else {
                let mode = if kind < 6 { LINEAR } else { ReadMode::Recent };
                let Output::Values(values) = net.read(caller, id, mode) else { panic!("values") };
                if mode == LINEAR {
                    prop_assert_eq!(values, vec![sum]);
                } else {
                    prop_assert!(values[0] <= sum);
                }
            }
        }
    }
}
