//! Model tests of split functions in one process, compared with the unsplit function.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use pathcall_function_testing::fixtures::{HandlerTables, count_function, count_handler, nat_function, nat_handler};
use pathcall_netfn::place::PlacementStrategy as Placement;
use pathcall_netfn::place::ServerId;
use pathcall_netfn::run::{Config, Oracle, System};
use pathcall_netfn::{place, scale};
use pathcall_p4::exec::{DropReason, Output};
use pathcall_p4::interp::Interpreter;
use pathcall_p4::ir::Program;
use pathcall_p4::split::balance::Sizes;
use pathcall_p4::split::{ElementEvent, SplitTarget, split};

/// Step of a run.
#[derive(Debug, Clone)]
enum Step {
    /// Packet of a flow after this time; `inward`: towards the inside.
    Packet { flow: u8, after_us: u16, inward: bool, tagged: bool },
    /// Wanted servers of the group, as a bitmap.
    Want(u8),
}

fn sizes() -> Sizes {
    Sizes {
        entries: 8,
        cells_log2: 8,
        period_log2: 14,
        window_log2: 12,
        flows_log2: 10,
        filter_log2: 12,
        ..Sizes::default()
    }
}

fn config(placement: Placement, control_us: u64) -> Config {
    let place = place::Config {
        strategy: placement,
        k: 0.5,
        idle: Duration::from_millis(60),
        stay: Duration::from_millis(5),
        force_after: None,
        reuse_after: Duration::from_millis(40),
        ..place::Config::default()
    };
    let scale = scale::Config {
        report_within: Duration::from_secs(3600),
        quiet: Duration::from_millis(40),
        drain_after: Duration::from_secs(3600),
        ..scale::Config::default()
    };
    Config { place, scale, control_us, report_every: Duration::from_millis(5), ..Config::default() }
}

/// Delays between 50 µs and 3 ms, drawn from a seed.
fn delays(mut seed: u64) -> impl FnMut(ServerId) -> u64 {
    move |_| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        50 + (seed >> 33) % 2950
    }
}

fn system(
    program: &Program,
    handler: fn(&Program) -> HandlerTables,
    (placement, control_us): (Placement, u64),
    seed: u64,
) -> System<HandlerTables, Interpreter> {
    let split = split(program, &SplitTarget { function: 7, sizes: sizes(), phv_bits: None }).expect("can be split");
    let element = Interpreter::new(&split.element).expect("runs");
    let servers = (0..4).map(|_| handler(program)).collect();
    let mut system = System::new(split, element, servers, 2, &config(placement, control_us), delays(seed));
    // Groups and ranges are set before the first packet.
    system.advance(50_000, &mut |output| panic!("output without input: {output:?}"));
    system
}

fn nat_packet(outward: bool, tagged: bool, key: u32, flow: u16, seq: u16) -> Vec<u8> {
    let mut bytes = vec![0xd0, 1, 2, 3, 4, flow as u8, 0x50, 1, 2, 3, 4, seq as u8];
    if tagged {
        bytes.extend([0x81, 0x00, 0, flow as u8]);
    }
    bytes.extend([0x09, 0x00, u8::from(outward), 64, 0, 0]);
    let (from, to) = if outward { (key, 0x0808_0808) } else { (0x0808_0808, key) };
    bytes.extend(from.to_be_bytes());
    bytes.extend(to.to_be_bytes());
    bytes.extend(flow.to_be_bytes());
    bytes.extend(seq.to_be_bytes());
    bytes.extend(b"payload");
    bytes
}

/// Positions of the checksum and of `from` in an untagged packet.
const SUM: std::ops::Range<usize> = 16..18;
const FROM: std::ops::Range<usize> = 18..22;

fn word(bytes: &[u8], at: std::ops::Range<usize>) -> u32 {
    bytes[at].iter().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

/// Output ports and packets.
type Packets = Vec<(u16, Vec<u8>)>;

/// Packets that left, in order, by flow and direction; the flow is found by the packet's addresses.
#[derive(Debug, Default)]
struct Left {
    flows: BTreeMap<(u8, bool), Packets>,
    /// Value allocated to each flow.
    values: BTreeMap<u8, u32>,
}

impl Left {
    fn take(&mut self, output: Output<'_>) {
        let Output::Packet { port, bytes } = output else { return };
        let mut bytes = bytes.to_vec();
        let flow = bytes[5];
        let outward = bytes[14] == 1;
        if outward {
            let value = word(&bytes, FROM);
            assert_eq!(*self.values.entry(flow).or_insert(value), value, "value of a flow changed");
            // The value, and the checksum over it, differ between the two systems.
            bytes[FROM].fill(0);
        }
        bytes[SUM].fill(0);
        self.flows.entry((flow, outward)).or_default().push((port, bytes));
    }
}

fn key(flow: u8) -> u32 {
    0x0a00_0000 | u32::from(flow)
}

/// Plays the steps on both systems; returns both outputs, and the number of packets processed by the element alone.
fn play_nat(steps: &[Step], placement: Placement, seed: u64) -> (Left, Left, u64) {
    let program = nat_function();
    let mut parts = system(&program, nat_handler, (placement, 300), seed);
    let mut whole = Oracle::new(&program, nat_handler(&program)).expect("runs");
    let (mut left, mut expected) = (Left::default(), Left::default());
    let (mut now_us, mut packets) = (50_000, 0);
    for (seq, step) in steps.iter().enumerate() {
        let (flow, after_us, inward, tagged) = match step {
            Step::Want(bits) => {
                parts.set_wanted((0..4).filter(|id| bits >> id & 1 == 1).collect());
                continue;
            }
            Step::Packet { flow, after_us, inward, tagged } => (*flow, *after_us, *inward, *tagged),
        };
        now_us += u64::from(after_us);
        parts.advance(now_us, &mut |output| left.take(output));
        // An answer is addressed to the value of its flow; a flow without a value gets none.
        let values = (left.values.get(&flow).copied(), expected.values.get(&flow).copied());
        let (to_parts, to_whole) = match (inward, values) {
            (false, _) => (key(flow), key(flow)),
            (true, (Some(one), Some(other))) => (one, other),
            (true, _) => continue,
        };
        packets += 1;
        let packet = |key| nat_packet(!inward, tagged, key, u16::from(flow), seq as u16);
        parts.process(now_us, 4, &packet(to_parts), &mut |output| left.take(output));
        whole.process(now_us, 4, &packet(to_whole), &mut |output| expected.take(output));
    }
    parts.finish(&mut |output| left.take(output));
    assert_eq!(parts.events(ElementEvent::Stray), 0);
    assert_eq!(parts.events(ElementEvent::NoServer), 0);
    assert_eq!(
        parts.events(ElementEvent::Request),
        parts.events(ElementEvent::Response) + parts.events(ElementEvent::Ended)
    );
    (left, expected, packets - parts.events(ElementEvent::Request))
}

fn placements() -> impl Strategy<Value = Placement> {
    proptest::sample::select(&Placement::ALL[..])
}

fn step() -> impl Strategy<Value = Step> {
    let packet = (0u8..12, 0u16..1500, any::<bool>(), any::<bool>()).prop_map(|(flow, after_us, inward, tagged)| {
        // A few flows have most packets.
        Step::Packet { flow: flow.saturating_sub(6), after_us, inward, tagged }
    });
    prop_oneof![40 => packet, 1 => (1u8..16).prop_map(Step::Want)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn split_functions_match_unsplit_ones(
        steps in proptest::collection::vec(step(), 1..400),
        placement in placements(),
        seed: u64,
    ) {
        let (left, expected, _) = play_nat(&steps, placement, seed);
        for (flow, packets) in &expected.flows {
            prop_assert_eq!(left.flows.get(flow), Some(packets), "flow {:?}", flow);
        }
        prop_assert_eq!(left.flows.len(), expected.flows.len());
    }

    #[test]
    fn register_values_move_with_their_entry(
        steps in proptest::collection::vec(step(), 1..400),
        placement in placements(),
        seed: u64,
    ) {
        play_count(&steps, placement, seed);
    }
}

/// Plays packets that each read the state of the packet before; returns the number processed by the element alone.
fn play_count(steps: &[Step], placement: Placement, seed: u64) -> u64 {
    let program = count_function();
    let mut parts = system(&program, count_handler, (placement, 300), seed);
    let mut whole = Oracle::new(&program, count_handler(&program)).expect("runs");
    let (mut left, mut expected) = (BTreeMap::<u8, Vec<Vec<u8>>>::new(), BTreeMap::<u8, Vec<Vec<u8>>>::new());
    fn take(flows: &mut BTreeMap<u8, Vec<Vec<u8>>>, output: Output<'_>) {
        if let Output::Packet { bytes, .. } = output {
            flows.entry(bytes[3]).or_default().push(bytes.to_vec());
        }
    }
    let (mut now_us, mut packets) = (50_000, 0);
    for (seq, step) in steps.iter().enumerate() {
        let Step::Packet { flow, after_us, .. } = step else { continue };
        now_us += u64::from(*after_us);
        packets += 1;
        let mut packet = u32::from(*flow).to_be_bytes().to_vec();
        packet.extend((seq as u32 + 1).to_be_bytes());
        packet.extend([0; 10]);
        parts.process(now_us, 0, &packet, &mut |output| take(&mut left, output));
        whole.process(now_us, 0, &packet, &mut |output| take(&mut expected, output));
    }
    parts.finish(&mut |output| take(&mut left, output));
    for (flow, packets) in &expected {
        let received = left.get(flow).map_or(&[][..], Vec::as_slice);
        let first = received.iter().zip(packets).position(|(received, packet)| received != packet);
        let at = first.unwrap_or(received.len().min(packets.len()));
        assert_eq!((received.len(), received.get(at)), (packets.len(), packets.get(at)), "packet {at} of flow {flow}");
    }
    packets - parts.events(ElementEvent::Request)
}

/// Steps of one flow that sends continuously, with pauses.
fn steady(packets: u16) -> Vec<Step> {
    let packet = |at: u16| Step::Packet {
        flow: 1,
        after_us: if at.is_multiple_of(50) { 9000 } else { 400 },
        inward: false,
        tagged: true,
    };
    (0..packets).map(packet).collect()
}

#[test]
fn heavy_flows_are_placed_in_element() {
    let (_, _, at_element) = play_nat(&steady(2000), Placement::Threshold, 1);
    assert!(at_element > 500, "{at_element} of 2000 packets needed no server");
    let at_element = play_count(&steady(2000), Placement::Threshold, 1);
    assert!(at_element > 500, "{at_element} of 2000 packets needed no server");
    assert_eq!(play_nat(&steady(500), Placement::None, 1).2, 0);
}

#[test]
fn equal_calls_give_equal_outputs() {
    let play = || format!("{:?}", play_nat(&steady(300), Placement::Threshold, 5).0.flows);
    assert_eq!(play(), play());
}

#[test]
fn frame_from_unknown_server_is_dropped() {
    let program = nat_function();
    let mut parts = system(&program, nat_handler, (Placement::None, 300), 1);
    let mut forged = [0; 80];
    for ether_type in [0x88b5u16, 0x88b6] {
        forged[12..14].copy_from_slice(&ether_type.to_be_bytes());
        for length in [14, 20, 40, 80] {
            parts.process(60_000, 4, &forged[..length], &mut |output| {
                assert_eq!(output, Output::Dropped(DropReason::Program), "{length} bytes of {ether_type:#x}");
            });
        }
    }
    assert_eq!(parts.events(ElementEvent::Stray), 8);
}
