//! What leaves a function, split or in one piece.

use std::time::Duration;

use pathcall_function::exec::Output;
use pathcall_function::interp::Interpreter;
use pathcall_function::ir::Program;
use pathcall_function::place;
use pathcall_function::place::Strategy as Placement;
use pathcall_function::run::{Config, Oracle, System};
use pathcall_function::serve::Outcome;
use pathcall_function::split::Split;
use pathcall_function_testing::fixtures::Tables;
use pathcall_function_testing::random::{Effect, Step};

/// A handler that makes its response of its request, and ends a few packets.
fn mix(_: &mut Tables, request: &[u128], response: &mut [u128]) -> Outcome {
    let sum = request.iter().fold(7u128, |sum, value| sum.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(*value));
    let part = |at: usize| sum.rotate_left(at as u32 * 40) ^ request[at % request.len()];
    response.iter_mut().enumerate().for_each(|(at, value)| *value = part(at));
    if sum % 13 == 0 { Outcome::Drop(1) } else { Outcome::Respond }
}

/// Packets of two kinds that go to a server or do not, of all kinds of TTL, by four ports.
pub fn packets() -> Vec<Step> {
    let packet = |at: u8| {
        let protocol = if at.is_multiple_of(3) { 6 } else { 17 };
        let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, at, 0x08, 0x00];
        bytes.extend([0x45, at, 0, 60, 0, at, 0, 0, at % 5, protocol, 0, 0, 10, 0, at, 1, 10, at, 0, 2]);
        bytes.extend([at; 26]);
        Step::Packet { now_us: 0, port: u16::from(at % 4), bytes }
    };
    (0..40).map(packet).collect()
}

/// All that a split function does with these steps.
pub fn play(program: &Program, split: &Split, steps: &[Step]) -> Vec<Effect> {
    let place = place::Config { strategy: Placement::None, ..place::Config::default() };
    let config = Config { place, report_every: Duration::from_secs(1000), ..Config::default() };
    let element = Interpreter::new(&split.element).expect("runs");
    let mut system = System::new(split.clone(), element, vec![Tables::new(program, mix)], 1, &config, |_| 70);
    system.advance(50_000, &mut |output| panic!("nothing came in: {output:?}"));
    let mut effects = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        let mut take = |output: Output<'_>| {
            effects.push(match output {
                Output::Packet { port, bytes } => Effect::Packet(port, bytes.to_vec()),
                Output::Digest { name, values } => Effect::Digest(name.to_owned(), values.to_vec()),
                Output::Dropped(reason) => Effect::Dropped(reason),
            });
        };
        match step {
            Step::Packet { port, bytes, .. } => system.process(50_000 + 100 * at as u64, *port, bytes, &mut take),
            other => effects.extend(other.apply(system.execution_mut())),
        }
    }
    system.finish(&mut |output| {
        if let Output::Packet { port, bytes } = output {
            effects.push(Effect::Packet(port, bytes.to_vec()));
        }
    });
    effects
}

/// The packets that leave the function in one piece.
pub fn in_one_piece(program: &Program, steps: &[Step]) -> Vec<(u16, Vec<u8>)> {
    let mut whole = Oracle::new(program, Tables::new(program, mix)).expect("runs");
    let mut left = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        match step {
            Step::Packet { port, bytes, .. } => whole.process(50_000 + 100 * at as u64, *port, bytes, &mut |output| {
                if let Output::Packet { port, bytes } = output {
                    left.push(Effect::Packet(port, bytes.to_vec()));
                }
            }),
            other => drop(other.apply(whole.execution_mut())),
        }
    }
    packets_of(left)
}

/// What left, whichever was first: a packet that was away is overtaken.
pub fn packets_of(effects: Vec<Effect>) -> Vec<(u16, Vec<u8>)> {
    let packets = effects.into_iter().filter_map(|effect| match effect {
        Effect::Packet(port, bytes) => Some((port, bytes)),
        _ => None,
    });
    let mut packets: Vec<_> = packets.collect();
    packets.sort_unstable();
    packets
}
