//! `place-select`: cost of a path selection including the processing of its outcome (LEO §III-B2: 1.5 µs), with the
//! paper's applications, compared with a target, and with round robin, which keeps the same order of requests.

use std::hint::black_box;

use anyhow::{Context, Result};
use pathcall_place::model::Preset;
use pathcall_place::{
    Application, Config, Decision, Hardware, KindId, Paths, Released, RequestOutcome, SelectionRequest,
    SelectionStrategy, Selector, Ticket,
};
use pathcall_wire::Instant;
use rustix::time::{ClockId, clock_gettime};

use crate::harness::{Bench, Better, Figure, Kind, Metric};

pub(crate) const FIGURE: Figure = Figure {
    name: "place-select",
    about: "place's selector alone, in memory: time per request",
    kind: Kind::Measured,
    run,
};

/// Target cost of a request.
const AT_MOST_NS: f64 = 100.0;
/// Requests per turn.
const REQUESTS: u64 = 1_000_000;
const REQUESTS_QUICK: u64 = 5_000;
/// Requests in flight.
const WINDOW: usize = 64;
/// Time between two requests.
const GAP_NS: u64 = 400;
/// Number of addresses, so that some requests have equal addresses.
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
        let kind = paths.kinds.first().context("unknown request type")?;
        let case = format!("{} of {}, {} paths", kind.name, application.name, kind.count);
        let metric = |peer: &str| Metric::new(&case, peer, "ns/request", Better::Lower);
        let leo = || Ok([turn(&paths, SelectionStrategy::Leo, requests)]);
        bench.compare([metric("at most").expect(1.0)], leo, || Ok([AT_MOST_NS]))?;
        bench.compare([metric("taking turns")], leo, || Ok([turn(&paths, SelectionStrategy::RoundRobin, requests)]))?;
    }
    Ok(())
}

/// Nanoseconds of processor time per request, from its selection to its outcome.
fn turn(paths: &Paths, strategy: SelectionStrategy, requests: u64) -> f64 {
    let mut selector = Selector::new(paths, strategy, Config::default());
    let mut flying: Vec<Ticket> = Vec::with_capacity(WINDOW + 1);
    let traverse_ns = paths.paths[0].traverse_ns;
    let began = processor_ns();
    for n in 0..requests {
        let now = Instant(n * GAP_NS);
        if flying.len() >= WINDOW {
            let ticket = flying.swap_remove(n as usize % WINDOW);
            let intra_ns = Some(traverse_ns + n % (traverse_ns / 2).max(1));
            selector.done(now, ticket, RequestOutcome::Done { intra_ns, total_ns: 2 * traverse_ns });
            while let Some(released) = selector.poll(now) {
                if let Released::Send(dispatch) = released {
                    flying.push(dispatch.ticket);
                }
            }
        }
        let address = n.wrapping_mul(0x9e37_79b9) % ADDRESSES;
        let request = SelectionRequest { kind: KindId(0), address, message: address };
        if let Decision::Send(dispatch) = black_box(selector.select(now, black_box(&request))) {
            flying.push(dispatch.ticket);
        }
    }
    (processor_ns() - began) as f64 / requests as f64
}

/// Processor time of this thread.
fn processor_ns() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
