//! `leo-fig3`: what a server's cores and its card do together (LEO Fig. 3), in virtual time: 16 cores of 23.0 million
//! requests a second in all, a card's 24 of 71.8 million, the real selector, and nothing between it and them.

use anyhow::Result;
use pathcall_models::place::beds;

use crate::harness::{Bench, Better, Figure, Metric};
use crate::leo::{ALL_ACC, ALL_CPU, IN_TURN, LEO, throughput};

pub(crate) const FIGURE: Figure =
    Figure { name: "leo-fig3", about: "simulated: requests a second of a server with CPU, with card, with both", run };

/// What the paper's server and card do (§II-B, after Xenic).
const CPU: f64 = 23.0e6;
const CARD: f64 = 71.8e6;
/// Requests under way: enough for all slots, and queues.
const WINDOW: usize = 160;
/// Of what both can do together.
const SHARE: f64 = 0.97;

fn run(bench: &mut Bench) -> Result<()> {
    let setting = beds::server();
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
