//! Tests of complete functions on targets with decreasing header vectors: postponed values (CLIP §IV-C) change no
//! packet.

use std::path::Path;

use pathcall_netfn::handler::{CHandler, Config as Settings};
use pathcall_netfn::run::{Config, System};
use pathcall_p4::exec::Output;
use pathcall_p4::interp::Interpreter;
use pathcall_p4::ir::Program;
use pathcall_p4::split::balance::Sizes;
use pathcall_p4::split::{SplitError, SplitFunction, SplitTarget, split};
use pathcall_p4::{DiagnosticReport, Sources, compile};

/// Time of the first packets, µs.
const START_US: u64 = 100_000;

fn target(phv_bits: Option<u32>) -> SplitTarget {
    let sizes = Sizes { entries: 16, cells_log2: 8, flows_log2: 8, filter_log2: 8, ..Sizes::default() };
    SplitTarget { function: 1, sizes, phv_bits }
}

/// Splits without a limit, with one bit less than needed, and with the smallest limit.
fn splits(program: &Program) -> [SplitFunction; 3] {
    let of = |bits| split(program, &target(bits));
    let whole = of(None).expect("can be split");
    let Err(SplitError::Phv { needed, .. }) = of(Some(1)) else { panic!("one bit is too few") };
    let [less, least] = [whole.report.phv_bits.0 - 1, needed].map(|bits| of(Some(bits)).expect("the needed size"));
    assert!(matches!(of(Some(needed - 1)), Err(SplitError::Phv { .. })));
    [whole, less, least]
}

/// Packets of a few hosts, in both directions: TCP, UDP, ICMP errors, fragments, tagged or not; the last bytes are a
/// number.
fn packet(draw: u64, number: u32) -> Vec<u8> {
    let bits = |at: u32, count: u32| (draw >> at) as u32 & ((1 << count) - 1);
    let (inside, outside) = (0x0a00_0000 | bits(0, 3), 0x0808_0800 | bits(3, 2));
    let (from, to) = if bits(5, 2) == 0 { (outside, 0xc000_0200 | bits(0, 4)) } else { (inside, outside) };
    let protocol = [6u8, 17, 6, 1][bits(7, 2) as usize];
    let mut payload = match protocol {
        6 => {
            let flags = [0x10, 0x02, 0x18, 0x11, 0x14, 0x10, 0x10, 0x18][bits(9, 3) as usize];
            let ports = [(1000 + bits(12, 2) as u16).to_be_bytes(), 80u16.to_be_bytes()].concat();
            [&ports[..], &bits(14, 12).to_be_bytes(), &[0; 4], &[0x50, flags, 1, 0, 0, 0, 0, 0]].concat()
        }
        17 => {
            let to = [53u16, 5683, 7001, 9003][bits(12, 2) as usize];
            [&(2000 + bits(14, 2) as u16).to_be_bytes()[..], &to.to_be_bytes(), &[0, 20, 0, 7]].concat()
        }
        _ => vec![8, 0, 1, 2, 0, bits(12, 3) as u8, 0, 1],
    };
    payload.extend([0x41, bits(20, 8) as u8, 0, 0, 0, 0, 0, 0]);
    payload.extend(number.to_be_bytes());
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    if bits(28, 2) == 0 {
        bytes.extend([0x81, 0, 0, bits(30, 2) as u8]);
    }
    bytes.extend([0x08, 0x00, 0x45, 0, 0, 20 + payload.len() as u8, 0, 9]);
    bytes.extend([if bits(32, 4) == 0 { 0x20 } else { 0 }, 0, 64, protocol, 0, 0]);
    bytes.extend(from.to_be_bytes());
    bytes.extend(to.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Outputs and digests, in order.
fn play(split: &SplitFunction, handlers: Vec<CHandler>) -> Vec<String> {
    let element = Interpreter::new(&split.element).expect("runs");
    let mut system = System::new(split.clone(), element, handlers, 2, &Config::default(), |id| 40 + u64::from(id) * 30);
    system.advance(START_US, &mut |output| panic!("nothing came in: {output:?}"));
    let mut outputs = Vec::new();
    let mut take = |output: Output<'_>| outputs.push(format!("{output:x?}"));
    let (mut drawn, mut now_us) = (5u64, START_US);
    for number in 0..400 {
        drawn = drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        now_us += drawn >> 20 & 0xff;
        system.process(now_us, (drawn >> 61) as u16 & 1, &packet(drawn.rotate_right(24), number), &mut take);
    }
    system.finish(&mut take);
    outputs
}

#[test]
fn smaller_header_vector_changes_no_packet() {
    let functions = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../functions");
    let mut postponed = 0;
    for name in ["fib", "knock", "smooth", "snat", "trd"] {
        let mut sources = Sources::default();
        let program = compile(&mut sources, functions.join(format!("{name}.p4c")).as_path())
            .unwrap_or_else(|wrong| panic!("{}", DiagnosticReport(&wrong, &sources)));
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("handlers");
        let settings = Settings::default();
        let first = CHandler::start(&program, &|_| None, &settings, &cache, 0).expect("starts");
        let handlers = || -> Vec<CHandler> {
            (0..2).map(|_| first.new_instance(&program, &settings, 0).expect("starts")).collect()
        };
        let splits = splits(&program);
        let expected = play(&splits[0], handlers());
        for tight in &splits[1..] {
            let told: Vec<String> =
                tight.report.postponed.iter().map(|value| format!("{} {:?}", value.name, value.to)).collect();
            println!("{name}: {:?} bits, header {} B: {told:?}", tight.report.phv_bits, tight.layout.length);
            postponed += told.len();
            let found = play(tight, handlers());
            let at = expected.iter().zip(&found).position(|(one, other)| one != other);
            let at = at.unwrap_or(expected.len().min(found.len()));
            assert_eq!(expected.get(at), found.get(at), "{name}, output {at}, {told:?}");
        }
    }
    assert!(postponed > 5, "{postponed} values were postponed");
}
