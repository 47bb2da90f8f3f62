//! Tests of complete functions with handlers in C: split against unsplit, packet by packet in the order of flows.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use pathcall_netfn::handler::{CHandler, Config as Settings};
use pathcall_netfn::run::{Config, Oracle, System};
use pathcall_netfn::{place, scale};
use pathcall_p4::exec::Output;
use pathcall_p4::interp::Interpreter;
use pathcall_p4::ir::Program;
use pathcall_p4::split::balance::Sizes;
use pathcall_p4::split::{ElementEvent, SplitTarget, split};
use pathcall_p4::{DiagnosticReport, Sources, compile};

/// Program of this name, and `count` instances of its handler.
fn load(name: &str, count: usize) -> (Program, Vec<CHandler>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../functions").join(name);
    let mut sources = Sources::new(Vec::new());
    let program =
        compile(&mut sources, path.as_path()).unwrap_or_else(|wrong| panic!("{}", DiagnosticReport(&wrong, &sources)));
    let place = |at| {
        let (line, column) = sources.position(at);
        Some((sources.name(at.file).to_owned(), line, column))
    };
    let (settings, cache) = (Settings::default(), Path::new(env!("CARGO_TARGET_TMPDIR")).join("handlers"));
    let first = CHandler::start(&program, &place, &settings, &cache, 0).expect("starts");
    let mut handlers: Vec<_> =
        (1..count).map(|_| first.new_instance(&program, &settings, 0).expect("starts")).collect();
    handlers.push(first);
    (program, handlers)
}

fn sizes() -> Sizes {
    Sizes {
        entries: 64,
        cells_log2: 10,
        period_log2: 14,
        window_log2: 13,
        flows_log2: 10,
        filter_log2: 12,
        ..Sizes::default()
    }
}

fn system(program: &Program, servers: Vec<CHandler>, group: usize) -> System<CHandler, Interpreter> {
    let split = split(program, &SplitTarget { function: 1, sizes: sizes(), phv_bits: None }).expect("can be split");
    let place = place::Config {
        k: 0.5,
        idle: Duration::from_millis(200),
        stay: Duration::from_millis(5),
        force_after: None,
        reuse_after: Duration::from_millis(50),
        ..place::Config::default()
    };
    let scale = scale::Config { report_within: Duration::from_secs(3600), ..scale::Config::default() };
    let config = Config { place, scale, report_every: Duration::from_millis(5), ..Config::default() };
    let element = Interpreter::new(&split.element).expect("runs");
    let mut drawn = 1u64;
    let delay = move |_| {
        drawn = drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        20 + (drawn >> 33) % 500
    };
    let mut system = System::new(split, element, servers, group, &config, delay);
    system.advance(100_000, &mut |output| panic!("nothing came in: {output:?}"));
    system
}

/// Ethernet, IPv4, UDP without a checksum, and a number.
fn udp(from: u32, from_port: u16, to: u32, to_port: u16, number: u32) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00];
    let mut ip = vec![0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0];
    ip.extend(from.to_be_bytes());
    ip.extend(to.to_be_bytes());
    let sum = ip.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum::<u32>();
    let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes.extend(ip);
    bytes.extend(from_port.to_be_bytes());
    bytes.extend(to_port.to_be_bytes());
    bytes.extend([0, 12, 0, 0]);
    bytes.extend(number.to_be_bytes());
    bytes
}

fn number(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().fold(0, |all, byte| all << 8 | u32::from(*byte))
}

const FROM: usize = 26;
const TO: usize = 30;
const FROM_PORT: usize = 34;
const NUMBER: usize = 42;

/// Ports and bytes.
type Packets = Vec<(u16, Vec<u8>)>;

/// Outputs by flow (the high half of the number) and direction, with allocated ports replaced; and the allocated ports.
#[derive(Default)]
struct Left {
    flows: BTreeMap<(u16, bool), Packets>,
    mapped: BTreeMap<u16, (u32, u16)>,
}

impl Left {
    fn take(&mut self, output: Output<'_>) {
        let Output::Packet { port, bytes } = output else { return };
        let mut bytes = bytes.to_vec();
        let flow = (number(&bytes, NUMBER) >> 16) as u16;
        let outward = number(&bytes, TO) == 0x0808_0808;
        if outward {
            let from_port = u16::from_be_bytes([bytes[FROM_PORT], bytes[FROM_PORT + 1]]);
            let mapped = (number(&bytes, FROM), from_port);
            assert_eq!(*self.mapped.entry(flow).or_insert(mapped), mapped, "flow {flow} keeps what it was given");
            bytes[FROM_PORT..FROM_PORT + 2].fill(0);
        }
        self.flows.entry((flow, outward)).or_default().push((port, bytes));
    }
}

#[test]
fn split_snat_matches_unsplit_one() {
    let (program, mut handlers) = load("snat.p4c", 4);
    let mut whole = Oracle::new(&program, handlers.pop().expect("four")).expect("runs");
    let mut parts = system(&program, handlers, 2);
    let (mut left, mut expected) = (Left::default(), Left::default());
    let (mut now_us, mut drawn, mut packets) = (100_000u64, 7u64, 0u64);
    for at in 0..6000u32 {
        drawn = drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let draw = (drawn >> 40) as u32;
        // One flow has half of the packets; every eighth packet begins a new flow.
        let flow = if draw.is_multiple_of(2) {
            0
        } else if draw % 8 == 1 {
            (at / 4) as u16
        } else {
            (draw >> 4) as u16 % 40
        };
        now_us += u64::from(draw >> 8 & 0x3ff);
        if at == 2000 {
            parts.set_wanted(vec![0, 1, 2]);
        }
        parts.advance(now_us, &mut |output| left.take(output));
        let numbered = u32::from(flow) << 16 | at & 0xffff;
        let host = 0x0a00_0000 | u32::from(flow);
        let (one, other) = match (draw >> 20 & 3, left.mapped.get(&flow), expected.mapped.get(&flow)) {
            (0, Some(one), Some(other)) => {
                (udp(0x0808_0808, 53, one.0, one.1, numbered), udp(0x0808_0808, 53, other.0, other.1, numbered))
            }
            _ => {
                let packet = udp(host, 1000 + flow, 0x0808_0808, 53, numbered);
                (packet.clone(), packet)
            }
        };
        packets += 1;
        parts.process(now_us, 0, &one, &mut |output| left.take(output));
        whole.process(now_us, 0, &other, &mut |output| expected.take(output));
    }
    parts.finish(&mut |output| left.take(output));
    assert!(expected.flows.values().map(Vec::len).sum::<usize>() > 5000, "nearly all are translated");
    for (flow, packets) in &expected.flows {
        assert_eq!(left.flows.get(flow), Some(packets), "flow {flow:?}");
    }
    assert_eq!(left.flows.len(), expected.flows.len());
    let requests = parts.events(ElementEvent::Request);
    assert!(requests + 1000 < packets, "{requests} of {packets} packets went to servers");
    assert_eq!(parts.servers().map(|server| server.stats().trapped).sum::<u64>(), 0);
    assert!(parts.servers().all(|server| server.stats().requests > 0), "all three servers were used");
}

#[test]
fn split_smooth_matches_unsplit_one() {
    let (program, mut handlers) = load("smooth.p4c", 2);
    let mut whole = Oracle::new(&program, handlers.pop().expect("two")).expect("runs");
    let mut parts = system(&program, handlers, 1);
    let (mut left, mut expected) = (Vec::new(), Vec::new());
    fn packet(output: Output<'_>) -> Option<(u16, Vec<u8>)> {
        if let Output::Packet { port, bytes } = output { Some((port, bytes.to_vec())) } else { None }
    }
    for at in 0..600u32 {
        let now_us = 100_000 + u64::from(at) * 100;
        // Every tenth packet is not a reading.
        let port = if at % 10 == 0 { 53 } else { 5683 };
        let mut reading = udp(0x0a00_0001, 4000, 0x0a00_0009, port, at % 3);
        reading.extend((at as f32 * 1.5 - 100.0).to_be_bytes());
        reading.extend([0; 4]);
        parts.process(now_us, 0, &reading, &mut |output| left.extend(packet(output)));
        whole.process(now_us, 0, &reading, &mut |output| expected.extend(packet(output)));
    }
    parts.finish(&mut |output| left.extend(packet(output)));
    // Sorted by sensor, as other packets overtake readings that are at a server.
    let sensor = |packet: &(u16, Vec<u8>)| (packet.1[37], number(&packet.1, NUMBER));
    left.sort_by_key(sensor);
    expected.sort_by_key(sensor);
    assert_eq!(left, expected);
    assert_eq!((expected.len(), parts.events(ElementEvent::Request)), (600, 540));
    let smoothed = |packet: &&(u16, Vec<u8>)| packet.1[36..38] == 5683u16.to_be_bytes() && number(&packet.1, 50) != 0;
    assert!(expected.iter().filter(smoothed).count() > 500, "deviations were computed");
}
