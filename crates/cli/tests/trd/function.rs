//! Verdicts of TRD on each segment, from the whole split function with element and servers.

use std::time::Duration;

use pathcall_netfn::handler::{self, CHandler, SandboxKind};
use pathcall_netfn::place::{self, PlacementStrategy};
use pathcall_netfn::run::{Config, System};
use pathcall_p4::exec::{Execution, Output};
use pathcall_p4::interp::Interpreter;
use pathcall_p4::ir::CounterId;
use pathcall_p4::split::balance::Sizes;
use pathcall_p4::split::{ElementEvent, SplitTarget, split};
use pathcall_p4::{DiagnosticReport, Sources, compile};

use super::segments::Segment;

/// Kinds of segments, in the order of the `#define`s of `trd.p4c`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    New,
    InOrder,
    Retransmitted,
    OutOfOrder,
    KeepAlive,
}

const KINDS: [Kind; 5] = [Kind::New, Kind::InOrder, Kind::Retransmitted, Kind::OutOfOrder, Kind::KeepAlive];
/// Number of servers.
const SERVERS: usize = 2;

/// Connections that the element processes by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlacementMode {
    Nothing,
    /// Every connection, soon after its start.
    Everything,
}

/// True if handlers can be compiled here; prints a note if not.
pub fn compilers() -> bool {
    let best = SandboxKind::best();
    if let Err(lacking) = &best {
        assert!(std::env::var_os("PATHCALL_ROOT_TESTS").is_none(), "{lacking}");
        println!("skipped: {lacking}");
    }
    best.is_ok()
}

/// Kind of each segment; each segment leaves before the next one arrives.
pub fn kinds(segments: &[Segment], placed: PlacementMode) -> Vec<Kind> {
    kinds_with(Sources::default(), segments, placed)
}

/// Kinds with further names defined in the function.
pub fn kinds_with(mut sources: Sources, segments: &[Segment], placed: PlacementMode) -> Vec<Kind> {
    let program = compile(&mut sources, super::path("trd.p4c").as_path());
    let program = program.unwrap_or_else(|wrong| panic!("{}", DiagnosticReport(&wrong, &sources)));
    // Windows of 4 ms, so that connections are placed while they last.
    let sizes = Sizes { window_log2: 12, period_log2: 12, ..Sizes::default() };
    let split =
        split(&program, &SplitTarget { function: 1, sizes, phv_bits: None }).expect("a function that can be split");
    let kinds = split.element.counters.iter().position(|counter| counter.name.ends_with("kinds"));
    let kinds = CounterId(kinds.expect("a counter of kinds") as u32);
    let element = Interpreter::new(&split.element).expect("the program runs");
    // A machine that stands still counts this time as the handler's.
    let settings = handler::Config { limit: Duration::from_secs(60), ..handler::Config::default() };
    let first = CHandler::start(&program, &|_| None, &settings, &handler::cache_dir(), 0).expect("a handler");
    let mut servers: Vec<_> =
        (1..SERVERS).map(|_| first.new_instance(&program, &settings, 0).expect("one more")).collect();
    servers.push(first);
    let place = match placed {
        PlacementMode::Nothing => place::Config { strategy: PlacementStrategy::None, ..place::Config::default() },
        PlacementMode::Everything => place::Config {
            strategy: PlacementStrategy::Heap,
            stay: Duration::from_millis(1),
            ..place::Config::default()
        },
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
        let counted = now.iter().zip(before).position(|(now, before)| *now > before).expect("a counted kind");
        out.push(KINDS[counted]);
        before = now;
    }
    let requests = system.events(ElementEvent::Request);
    match placed {
        PlacementMode::Nothing => assert_eq!(requests, segments.len() as u64),
        PlacementMode::Everything => {
            assert!(segments.len() < 100 || requests < segments.len() as u64, "the element handled no segment");
        }
    }
    out
}
