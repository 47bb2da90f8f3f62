//! Cost of a selection: no allocation, and a limit on instructions, counted by valgrind.

use std::env;
use std::hint::black_box;
use std::process::Command;

use pathcall_place::model::Preset;
use pathcall_place::{
    Application, Config, Decision, Hardware, KindId, Paths, Released, RequestOutcome, SelectionRequest,
    SelectionStrategy, Selector, Ticket,
};
use pathcall_wire::Instant;

/// Limit on the instructions of a selection with its outcome, in a build without optimisation.
const INSTRUCTIONS_MAX: f64 = 6_200.0;
const FEW: u64 = 10_000;
const MORE: u64 = 40_000;
/// Number of requests in flight.
const WINDOW: usize = 64;

fn paths() -> Paths {
    let hardware = Hardware::preset(Preset::OnPath);
    let text = include_str!("../models/applications/ebs.yaml");
    let application = Application::parse("ebs.yaml", text).expect("an application");
    Paths::of(&hardware, &hardware, &application).expect("paths")
}

/// Makes `count` selections over four paths, with a window of requests in flight and addresses that sometimes
/// collide.
fn select(selector: &mut Selector, count: u64, flying: &mut Vec<Ticket>) {
    for n in 0..count {
        let now = Instant(n * 400);
        let request = SelectionRequest { kind: KindId(0), address: n.wrapping_mul(0x9e37_79b9) % 1_000, message: 0 };
        if flying.len() == WINDOW {
            let ticket = flying.swap_remove(n as usize % WINDOW);
            selector.done(now, ticket, RequestOutcome::Done { intra_ns: Some(1_600 + n % 700), total_ns: 9_000 });
            while let Some(released) = selector.poll(now) {
                if let Released::Send(dispatch) = released {
                    flying.push(dispatch.ticket);
                }
            }
        }
        if let Decision::Send(dispatch) = black_box(selector.select(now, black_box(&request)))
            && flying.len() < WINDOW
        {
            flying.push(dispatch.ticket);
        }
    }
}

#[test]
fn selection_does_not_allocate() {
    let paths = paths();
    for (name, strategy) in SelectionStrategy::NAMES {
        if matches!(strategy, SelectionStrategy::Horizon { .. }) {
            continue;
        }
        let mut selector = Selector::new(&paths, strategy, Config::default());
        let mut flying = Vec::with_capacity(WINDOW + 1);
        let info = allocation_counter::measure(|| select(&mut selector, 10_000, &mut flying));
        assert_eq!(info.count_total, 0, "{name}");
        assert!(selector.held() > 0);
    }
}

#[test]
fn selection_takes_few_instructions() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        assert!(env::var_os("PATHCALL_ROOT_TESTS").is_none(), "valgrind is missing");
        return println!("skipped: there is no valgrind");
    }
    let each = (instructions(FEW + MORE) - instructions(FEW)) as f64 / MORE as f64;
    let mut selector = Selector::new(&paths(), SelectionStrategy::Leo, Config::default());
    let mut flying = Vec::with_capacity(WINDOW + 1);
    let begun = processor_ns();
    select(&mut selector, 1_000_000, &mut flying);
    let ns = (processor_ns() - begun) as f64 / 1e6;
    println!("{each:.0} instructions for one selection over four paths and its outcome; {ns:.0} ns in this build");
    assert!(each <= INSTRUCTIONS_MAX, "{each:.0} instructions");
}

/// CPU time of this thread.
fn processor_ns() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Number of instructions of a run with `count` selections.
fn instructions(count: u64) -> u64 {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(env::current_exe().expect("this test"));
    command.args(["--exact", "cost::selections", "--ignored", "--nocapture"]).env("COUNT", count.to_string());
    let output = command.output().expect("valgrind runs");
    let text = String::from_utf8_lossy(&output.stderr);
    let collected = text.lines().find_map(|line| line.split("Collected : ").nth(1)).and_then(|n| n.trim().parse().ok());
    collected.filter(|_| output.status.success()).unwrap_or_else(|| panic!("{text}"))
}

#[test]
#[ignore = "run by the other test, under valgrind"]
fn selections() {
    let count = env::var("COUNT").expect("address from the other process").parse().expect("a number");
    let mut selector = Selector::new(&paths(), SelectionStrategy::Leo, Config::default());
    select(&mut selector, count, &mut Vec::with_capacity(WINDOW + 1));
}
