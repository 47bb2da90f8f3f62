//! `round-trip`: a small call through stubs: a free lock, and a vote that two voters cast at once, compared with plain
//! tonic calls whose handlers do the same. Callers and element block, or poll with busy polling.

use std::time::{Duration, Instant};

use anyhow::Result;
use pathcall_element::Config;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tokio::runtime::Runtime;

use crate::harness::{Bench, Better, Figure, Kind, Metric};
use crate::net::{Network, connect_plain, percentiles, runtime, serve, serve_plain};
use crate::small::{LockVoteCaller, LockVoteHandler};
use crate::stubs::pb::PATHCALL;
use crate::stubs::pb::small_client::SmallClient;
use crate::stubs::pb::small_server::SmallServer;

pub(crate) const FIGURE: Figure =
    Figure { name: "round-trip", about: "a lock and a vote through stubs, there and back", kind: Kind::Measured, run };

/// Number of voters: the threshold of the filter.
const VOTERS: usize = 2;
const CALLS: usize = 500;
const CALLS_QUICK: usize = 20;
const ROWS: u32 = pathcall::layer::DEFAULT_ROWS;
pub(crate) const CALLER_CPU: usize = 0;
pub(crate) const ELEMENT_CPU: usize = 1;
/// Polling time of a call.
pub(crate) const POLL_TIME: Duration = Duration::from_micros(50);

fn run(bench: &mut Bench) -> Result<()> {
    let calls = bench.size(CALLS, CALLS_QUICK);
    let runtime = runtime()?;
    let mut tonic = runtime.block_on(plain())?;
    let p50 = |case: &str| Metric::new(format!("{case}, p50"), "tonic", "us", Better::Lower);
    let p99 = |case: &str| Metric::new(format!("{case}, p99"), "tonic", "us", Better::Lower);
    for (busy, how, expected) in [(false, "", 0.6), (true, ", busy polling", 0.4)] {
        // A polling element has its own processor, and so has the caller: a thread beside a polling one would wait for
        // the scheduler instead of the element.
        let element = Config::default().busy_poll(busy).cpu(busy.then_some(ELEMENT_CPU));
        let network = runtime.block_on(Network::start_with(element))?;
        let _pinned = if busy { Some(Pinned::to(CALLER_CPU)?) } else { None };
        let mut ours = runtime.block_on(pathcall(&network, if busy { POLL_TIME } else { Duration::ZERO }))?;
        let case = format!("lock{how}");
        let lock = [p50(&case).expect(expected), p99(&case)];
        bench.compare(lock, || ours.lock(&runtime, calls), || tonic.lock(&runtime, calls))?;
        let case = format!("vote of two{how}");
        let vote = [p50(&case), p99(&case)];
        bench.compare(vote, || ours.vote(&runtime, calls), || tonic.vote(&runtime, calls))?;
        runtime.block_on(network.shutdown());
    }
    Ok(())
}

/// Pins the calling thread to one processor; drop restores its affinity.
pub(crate) struct Pinned(CpuSet);

impl Pinned {
    pub(crate) fn to(cpu: usize) -> Result<Self> {
        let before = sched_getaffinity(None)?;
        let mut only = CpuSet::new();
        only.set(cpu);
        sched_setaffinity(None, &only)?;
        Ok(Self(before))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // The affinity was allowed before.
        let _ = sched_setaffinity(None, &self.0);
    }
}

/// Connected callers.
pub(crate) struct Team<S> {
    stubs: [S; VOTERS],
    /// Number of ballots so far, for distinct names.
    ballots: usize,
    /// Keeps the owner running.
    _owner: Option<pathcall::Layer>,
}

pub(crate) async fn pathcall(network: &Network, poll_time: Duration) -> Result<Team<SmallClient<pathcall::Channel>>> {
    let served = serve(&PATHCALL, Some(network), ROWS, SmallServer::new(LockVoteHandler::default())).await?;
    let channel =
        || pathcall::Channel::builder(served.url.clone(), &PATHCALL).map(|channel| channel.busy_poll(poll_time));
    let stubs = [SmallClient::new(channel()?.connect().await?), SmallClient::new(channel()?.connect().await?)];
    Ok(Team { stubs, ballots: 0, _owner: Some(served.owner) })
}

async fn plain() -> Result<Team<SmallClient<tonic::transport::Channel>>> {
    let url = serve_plain(SmallServer::new(LockVoteHandler::default())).await?;
    let stubs = [SmallClient::new(connect_plain(&url).await?), SmallClient::new(connect_plain(&url).await?)];
    Ok(Team { stubs, ballots: 0, _owner: None })
}

impl<S: LockVoteCaller> Team<S> {
    /// Median and 99th percentile of taking a lock, in microseconds.
    pub(crate) fn lock(&mut self, runtime: &Runtime, calls: usize) -> Result<[f64; 2]> {
        let [stub, _] = &mut self.stubs;
        runtime.block_on(async {
            let mut took = Vec::new();
            for _ in 0..calls {
                let began = Instant::now();
                stub.take("lock").await?;
                took.push(began.elapsed());
                stub.give("lock").await?;
            }
            percentiles(took)
        })
    }

    /// Median and 99th percentile of a vote, until both voters know the decision.
    fn vote(&mut self, runtime: &Runtime, calls: usize) -> Result<[f64; 2]> {
        let Self { stubs: [one, other], ballots, .. } = self;
        runtime.block_on(async {
            let mut took = Vec::new();
            for _ in 0..calls {
                *ballots += 1;
                let ballot = format!("ballot-{ballots}");
                let began = Instant::now();
                tokio::try_join!(one.cast(&ballot), other.cast(&ballot))?;
                took.push(began.elapsed());
            }
            percentiles(took)
        })
    }
}
