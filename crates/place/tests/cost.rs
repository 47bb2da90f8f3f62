//! What a selection costs: no allocation, and so many instructions, counted by valgrind.

use std::env;
use std::hint::black_box;
use std::process::Command;

use pathcall_place::model::Preset;
use pathcall_place::{
    Application, Config, Decision, Hardware, KindId, Outcome, Paths, Released, Request, Selector, Strategy, Ticket,
};
use pathcall_wire::Instant;

/// What one selection with its outcome may take, in instructions of a build that is not optimised.
const INSTRUCTIONS_MAX: f64 = 6_200.0;
const FEW: u64 = 10_000;
const MORE: u64 = 40_000;
/// Requests in flight.
const WINDOW: usize = 64;

fn paths() -> Paths {
    let hardware = Hardware::preset(Preset::OnPath);
    let text = include_str!("../models/applications/ebs.yaml");
    let application = Application::parse("ebs.yaml", text).expect("an application");
    Paths::of(&hardware, &hardware, &application).expect("paths")
}

/// Selects so many times over four paths, with a window of requests in flight and addresses that meet now and then.
fn select(selector: &mut Selector, count: u64, flying: &mut Vec<Ticket>) {
    for n in 0..count {
        let now = Instant(n * 400);
        let request = Request { kind: KindId(0), address: n.wrapping_mul(0x9e37_79b9) % 1_000, message: 0 };
        if flying.len() == WINDOW {
            let ticket = flying.swap_remove(n as usize % WINDOW);
            selector.done(now, ticket, Outcome::Done { intra_ns: Some(1_600 + n % 700), total_ns: 9_000 });
            while let Some(released) = selector.poll(now) {
                if let Released::Go(go) = released {
                    flying.push(go.ticket);
                }
            }
        }
        if let Decision::Go(go) = black_box(selector.select(now, black_box(&request)))
            && flying.len() < WINDOW
        {
            flying.push(go.ticket);
        }
    }
}

#[test]
fn selection_does_not_allocate() {
    let paths = paths();
    for (name, strategy) in Strategy::WORDS {
        if matches!(strategy, Strategy::Horizon { .. }) {
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
        assert!(env::var_os("PATHCALL_ROOT_TESTS").is_none(), "there is no valgrind");
        return println!("skipped: there is no valgrind");
    }
    let each = (instructions(FEW + MORE) - instructions(FEW)) as f64 / MORE as f64;
    let mut selector = Selector::new(&paths(), Strategy::Leo, Config::default());
    let mut flying = Vec::with_capacity(WINDOW + 1);
    let begun = processor_ns();
    select(&mut selector, 1_000_000, &mut flying);
    let ns = (processor_ns() - begun) as f64 / 1e6;
    println!("{each:.0} instructions for one selection over four paths and its outcome; {ns:.0} ns in this build");
    assert!(each <= INSTRUCTIONS_MAX, "{each:.0} instructions");
}

/// Time of the processor that this thread has had, which does not count that of others beside it.
fn processor_ns() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Instructions of a run of so many.
fn instructions(count: u64) -> u64 {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(env::current_exe().expect("this test"));
    command.args(["--exact", "cost::selections", "--ignored", "--nocapture"]).env("COUNT", count.to_string());
    let said = command.output().expect("valgrind runs");
    let text = String::from_utf8_lossy(&said.stderr);
    let collected = text.lines().find_map(|line| line.split("Collected : ").nth(1)).and_then(|n| n.trim().parse().ok());
    collected.filter(|_| said.status.success()).unwrap_or_else(|| panic!("{text}"))
}

#[test]
#[ignore = "run by the other test, under valgrind"]
fn selections() {
    let count = env::var("COUNT").expect("told by the other test").parse().expect("a number");
    let mut selector = Selector::new(&paths(), Strategy::Leo, Config::default());
    select(&mut selector, count, &mut Vec::with_capacity(WINDOW + 1));
}
