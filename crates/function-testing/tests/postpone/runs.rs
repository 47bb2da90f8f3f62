//! Runs of a function, split or unsplit.

use std::time::Duration;

use pathcall_function_testing::fixtures::HandlerTables;
use pathcall_function_testing::random::{FunctionEffect, FunctionStep};
use pathcall_netfn::place;
use pathcall_netfn::place::PlacementStrategy as Placement;
use pathcall_netfn::run::{Config, Oracle, System};
use pathcall_netfn::serve::HandlerOutcome;
use pathcall_p4::exec::Output;
use pathcall_p4::interp::Interpreter;
use pathcall_p4::ir::Program;
use pathcall_p4::split::SplitFunction;

/// Handler that mixes the request into the response, and drops a few packets.
fn mix(_: &mut HandlerTables, request: &[u128], response: &mut [u128]) -> HandlerOutcome {
    let sum = request.iter().fold(7u128, |sum, value| sum.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(*value));
    let part = |at: usize| sum.rotate_left(at as u32 * 40) ^ request[at % request.len()];
    response.iter_mut().enumerate().for_each(|(at, value)| *value = part(at));
    if sum % 13 == 0 { HandlerOutcome::Drop(1) } else { HandlerOutcome::Respond }
}

/// Packets of two kinds, with or without a server, with various TTLs, at four ports.
pub fn packets() -> Vec<FunctionStep> {
    let packet = |at: u8| {
        let protocol = if at.is_multiple_of(3) { 6 } else { 17 };
        let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, at, 0x08, 0x00];
        bytes.extend([0x45, at, 0, 60, 0, at, 0, 0, at % 5, protocol, 0, 0, 10, 0, at, 1, 10, at, 0, 2]);
        bytes.extend([at; 26]);
        FunctionStep::Packet { now_us: 0, port: u16::from(at % 4), bytes }
    };
    (0..40).map(packet).collect()
}

/// Effects of a split function.
pub fn play(program: &Program, split: &SplitFunction, steps: &[FunctionStep]) -> Vec<FunctionEffect> {
    let place = place::Config { strategy: Placement::None, ..place::Config::default() };
    let config = Config { place, report_every: Duration::from_secs(1000), ..Config::default() };
    let element = Interpreter::new(&split.element).expect("runs");
    let mut system = System::new(split.clone(), element, vec![HandlerTables::new(program, mix)], 1, &config, |_| 70);
    system.advance(50_000, &mut |output| panic!("nothing came in: {output:?}"));
    let mut effects = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        let mut take = |output: Output<'_>| {
            effects.push(match output {
                Output::Packet { port, bytes } => FunctionEffect::Packet(port, bytes.to_vec()),
                Output::Digest { name, values } => FunctionEffect::Digest(name.to_owned(), values.to_vec()),
                Output::Dropped(reason) => FunctionEffect::Dropped(reason),
            });
        };
        match step {
            FunctionStep::Packet { port, bytes, .. } => {
                system.process(50_000 + 100 * at as u64, *port, bytes, &mut take)
            }
            other => effects.extend(other.apply(system.execution_mut())),
        }
    }
    system.finish(&mut |output| {
        if let Output::Packet { port, bytes } = output {
            effects.push(FunctionEffect::Packet(port, bytes.to_vec()));
        }
    });
    effects
}

/// Output packets of the unsplit function.
pub fn unsplit_packets(program: &Program, steps: &[FunctionStep]) -> Vec<(u16, Vec<u8>)> {
    let mut whole = Oracle::new(program, HandlerTables::new(program, mix)).expect("runs");
    let mut left = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        match step {
            FunctionStep::Packet { port, bytes, .. } => {
                whole.process(50_000 + 100 * at as u64, *port, bytes, &mut |output| {
                    if let Output::Packet { port, bytes } = output {
                        left.push(FunctionEffect::Packet(port, bytes.to_vec()));
                    }
                })
            }
            other => drop(other.apply(whole.execution_mut())),
        }
    }
    packets_of(left)
}

/// Output packets, sorted, because packets that went to a server are overtaken.
pub fn packets_of(effects: Vec<FunctionEffect>) -> Vec<(u16, Vec<u8>)> {
    let packets = effects.into_iter().filter_map(|effect| match effect {
        FunctionEffect::Packet(port, bytes) => Some((port, bytes)),
        _ => None,
    });
    let mut packets: Vec<_> = packets.collect();
    packets.sort_unstable();
    packets
}
