//! `place-select`: what it costs to choose a path for a request and to learn from its outcome (LEO §III-B2: 1.5 us), with
//! the paper's applications, beside what may be spent, and beside taking turns, which chooses nothing and keeps the same order.

use std::hint::black_box;

use anyhow::{Context, Result};
use pathcall_place::model::Preset;
use pathcall_place::{
    Application, Config, Decision, Hardware, KindId, Outcome, Paths, Released, Request, Selector, Strategy, Ticket,
};
use pathcall_wire::Instant;
use rustix::time::{ClockId, clock_gettime};

use crate::harness::{Bench, Better, Figure, Metric};

pub(crate) const FIGURE: Figure =
    Figure { name: "place-select", about: "place's selector alone, in memory: time per request", run };

/// What a request may cost.
const AT_MOST_NS: f64 = 100.0;
/// Requests of a turn.
const REQUESTS: u64 = 1_000_000;
const REQUESTS_QUICK: u64 = 5_000;
/// Requests in flight.
const WINDOW: usize = 64;
/// Time between two requests.
const GAP_NS: u64 = 400;
/// Addresses, some of which meet.
const ADDRESSES: u64 = 1_000;

const APPLICATIONS: [(&str, &str); 3] = [
    ("kvs.yaml", include_str!("../../../crates/place/models/applications/kvs.yaml")),
    ("dfs.yaml", include_str!("../../../crates/place/models/applications/dfs.yaml")),
    ("ebs.yaml", include_str!("../../../crates/place/models/applications/ebs.yaml")),
];

fn run(bench: &mut Bench) -> Result<()> {
    let requests = bench.size(REQUESTS, REQUESTS_QUICK);
    for (file, text) in APPLICATIONS {
        let hardware = Hardware::preset(Preset::OnPath);
        let application = Application::parse(file, text)?;
        let paths = Paths::of(&hardware, &hardware, &application)?;
        let kind = paths.kinds.first().context("a type of request")?;
        let case = format!("{} of {}, {} paths", kind.name, application.name, kind.count);
        let metric = |peer: &str| Metric::new(&case, peer, "ns/request", Better::Lower);
        let leo = || Ok([turn(&paths, Strategy::Leo, requests)]);
        bench.compare([metric("at most").expect(1.0)], leo, || Ok([AT_MOST_NS]))?;
        bench.compare([metric("taking turns")], leo, || Ok([turn(&paths, Strategy::RoundRobin, requests)]))?;
    }
    Ok(())
}

/// Nanoseconds of the processor for one request, from its choice to its outcome.
fn turn(paths: &Paths, strategy: Strategy, requests: u64) -> f64 {
    let mut selector = Selector::new(paths, strategy, Config::default());
    let mut flying: Vec<Ticket> = Vec::with_capacity(WINDOW + 1);
    let traverse_ns = paths.paths[0].traverse_ns;
    let began = processor_ns();
    for n in 0..requests {
        let now = Instant(n * GAP_NS);
        if flying.len() >= WINDOW {
            let ticket = flying.swap_remove(n as usize % WINDOW);
            let intra_ns = Some(traverse_ns + n % (traverse_ns / 2).max(1));
            selector.done(now, ticket, Outcome::Done { intra_ns, total_ns: 2 * traverse_ns });
            while let Some(released) = selector.poll(now) {
                if let Released::Go(go) = released {
                    flying.push(go.ticket);
                }
            }
        }
        let address = n.wrapping_mul(0x9e37_79b9) % ADDRESSES;
        let request = Request { kind: KindId(0), address, message: address };
        if let Decision::Go(go) = black_box(selector.select(now, black_box(&request))) {
            flying.push(go.ticket);
        }
    }
    (processor_ns() - began) as f64 / requests as f64
}

/// Time of the processor that this thread has had.
fn processor_ns() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
