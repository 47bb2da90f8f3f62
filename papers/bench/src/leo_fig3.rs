//! `leo-fig3`: combined throughput of a server's cores and its card (LEO Fig. 3), in virtual time: 16 cores with 23.0
//! million requests per second in total, 24 cores of a card with 71.8 million, the real selector, and no network.

use anyhow::Result;
use pathcall_models::place::testbeds;

use crate::harness::{Bench, Better, Figure, Kind, Metric};
use crate::leo::{ALL_ACC, ALL_CPU, IN_TURN, LEO, throughput};

pub(crate) const FIGURE: Figure = Figure {
    name: "leo-fig3",
    about: "simulated: requests a second of a server with CPU, with card, with both",
    kind: Kind::Modelled,
    run,
};

/// Requests per second of the paper's server and card (§II-B, after Xenic).
const CPU: f64 = 23.0e6;
const CARD: f64 = 71.8e6;
/// Requests in progress: enough for all slots and queues.
const WINDOW: usize = 160;
/// Expected share of the combined capacity.
const SHARE: f64 = 0.97;

fn run(bench: &mut Bench) -> Result<()> {
    let setting = testbeds::server();
    let [cpu, card, both, turns] =
        [ALL_CPU, ALL_ACC, LEO, IN_TURN].map(|policy| throughput(bench, &setting, policy, WINDOW));
    let alone = |case: &str, paper| {
        let metric = Metric::new(format!("the model's {case}"), "the paper's", "requests/s", Better::Higher);
        (metric.expect(0.99), paper)
    };
    for ((metric, paper), ours) in [(alone("CPU", CPU), &cpu), (alone("card", CARD), &card)] {
        bench.row(metric, ours, &vec![paper; ours.len()]);
    }
    let hybrid = |peer: &'static str| {
        Metric::new("each request's path chosen", peer, "requests/s", Better::Higher).limit(CPU + CARD)
    };
    bench.row(hybrid("the card alone").expect(SHARE * (CPU + CARD) / CARD), &both, &card);
    bench.row(hybrid("the CPU alone").expect(SHARE * (CPU + CARD) / CPU), &both, &cpu);
    bench.row(hybrid("both in turn"), &both, &turns);
    Ok(())
}
