//! TRD's own word on each segment: the whole split function, element and servers.

use std::time::Duration;

use pathcall_function::exec::{Execution, Output};
use pathcall_function::handler::{self, Handler};
use pathcall_function::interp::Interpreter;
use pathcall_function::ir::CounterId;
use pathcall_function::place::{self, Strategy};
use pathcall_function::run::{Config, System};
use pathcall_function::split::balance::Sizes;
use pathcall_function::split::{Event, Target, split};
use pathcall_function::{Report, Sources, compile};

use super::segments::Segment;

/// The `#define`s of `trd.p4c`, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    New,
    InOrder,
    Retransmitted,
    OutOfOrder,
    KeepAlive,
}

const KINDS: [Kind; 5] = [Kind::New, Kind::InOrder, Kind::Retransmitted, Kind::OutOfOrder, Kind::KeepAlive];
/// Servers.
const SERVERS: usize = 2;

/// What the element works on itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placed {
    Nothing,
    /// Every connection, soon.
    WhatComes,
}

/// Whether handlers can be compiled here; says so if not.
pub fn compilers() -> bool {
    let best = handler::Kind::best();
    if let Err(lacking) = &best {
        assert!(std::env::var_os("PATHCALL_ROOT_TESTS").is_none(), "{lacking}");
        println!("skipped: {lacking}");
    }
    best.is_ok()
}

/// A kind for each segment, one after the other: each leaves before the next one comes.
pub fn kinds(segments: &[Segment], placed: Placed) -> Vec<Kind> {
    kinds_with(Sources::default(), segments, placed)
}

/// The same of the function with these names defined.
pub fn kinds_with(mut sources: Sources, segments: &[Segment], placed: Placed) -> Vec<Kind> {
    let program = compile(&mut sources, super::path("trd.p4c").as_path());
    let program = program.unwrap_or_else(|wrong| panic!("{}", Report(&wrong, &sources)));
    // Windows of 4 ms: connections are placed while they last.
    let sizes = Sizes { window_log2: 12, period_log2: 12, ..Sizes::default() };
    let split = split(&program, &Target { function: 1, sizes, phv_bits: None }).expect("it can be split");
    let kinds = split.element.counters.iter().position(|counter| counter.name.ends_with("kinds"));
    let kinds = CounterId(kinds.expect("a counter of kinds") as u32);
    let element = Interpreter::new(&split.element).expect("it runs");
    let settings = handler::Config::default();
    let first = Handler::start(&program, &|_| None, &settings, &handler::cache_dir(), 0).expect("a handler");
    let mut servers: Vec<_> = (1..SERVERS).map(|_| first.another(&program, &settings, 0).expect("one more")).collect();
    servers.push(first);
    let place = match placed {
        Placed::Nothing => place::Config { strategy: Strategy::None, ..place::Config::default() },
        Placed::WhatComes => {
            place::Config { strategy: Strategy::Heap, stay: Duration::from_millis(1), ..place::Config::default() }
        }
    };
    let config = Config { place, control_us: 1, report_every: Duration::from_millis(50), ..Config::default() };
    let mut system = System::new(split, element, servers, SERVERS, &config, |_| 0);
    const START_US: u64 = 1_000_000;
    system.advance(START_US, &mut |_| {});
    let mut out = Vec::new();
    let mut before = [0; KINDS.len()];
    for segment in segments {
        let mut left = 0;
        let mut count = |output: Output<'_>| left += u32::from(matches!(output, Output::Packet { .. }));
        system.process(START_US + segment.at_us, 0, &segment.bytes, &mut count);
        system.finish(&mut count);
        assert_eq!(left, 1, "frame {} leaves once", segment.frame);
        let now: [u64; KINDS.len()] = std::array::from_fn(|at| system.execution().counter(kinds, at as u32).packets);
        let counted = now.iter().zip(before).position(|(now, before)| *now > before).expect("one was counted");
        out.push(KINDS[counted]);
        before = now;
    }
    let requests = system.events(Event::Request);
    match placed {
        Placed::Nothing => assert_eq!(requests, segments.len() as u64),
        Placed::WhatComes => {
            assert!(segments.len() < 100 || requests < segments.len() as u64, "some were worked on in the element");
        }
    }
    out
}
