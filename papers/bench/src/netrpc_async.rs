//! `netrpc-async`: word counts of two clients (AsyncAgtr, NetRPC §6.3): bytes received by the server per count, and
//! counts per second, with an element, without one, and with plain tonic.
//!
//! A turn ends with a query of all words, whose result is checked: the bytes include the transfer of the values from
//! the element to the server, the rate does not.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use pathcall::types::StrintMap;
use prost::Message;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tonic::{Request, Response, Status};

use crate::harness::{Bench, Better, Figure, Kind, Metric};
use crate::net::{Network, connect_plain, runtime, serve, serve_plain};
use crate::stubs::pb::words_client::WordsClient;
use crate::stubs::pb::words_server::{Words, WordsServer};
use crate::stubs::pb::{Counts, Done, PATHCALL, Wanted};

pub(crate) const FIGURE: Figure = Figure {
    name: "netrpc-async",
    about: "AsyncAgtr: words counted through stubs, by two clients",
    kind: Kind::Measured,
    run,
};

const CLIENTS: usize = 2;
/// Number of different words.
const WORDS: usize = 4_000;
/// Words per call.
const BATCH: usize = 1_000;
/// Calls of a client per turn.
const CALLS: usize = 100;
const CALLS_QUICK: usize = 4;
const ROWS: u32 = pathcall::layer::DEFAULT_ROWS;

fn run(bench: &mut Bench) -> Result<()> {
    let calls = bench.size(CALLS, CALLS_QUICK);
    let runtime = runtime()?;
    let network = runtime.block_on(Network::start())?;
    let mut element = runtime.block_on(pathcall(Some(&network)))?;
    let mut software = runtime.block_on(pathcall(None))?;
    let mut tonic = runtime.block_on(plain())?;
    let metrics = |peer: &str| {
        [
            Metric::new("bytes at the server", peer, "B/count", Better::Lower),
            Metric::new("rate", peer, "counts/s", Better::Higher),
        ]
    };
    bench.compare(metrics("tonic"), || element.turn(&runtime, calls), || tonic.turn(&runtime, calls))?;
    bench.compare(metrics("no element"), || element.turn(&runtime, calls), || software.turn(&runtime, calls))?;
    runtime.block_on(network.shutdown());
    Ok(())
}

/// Clients, with the bytes received by their server.
struct Team<S> {
    stubs: Vec<S>,
    received: Box<dyn Fn() -> u64>,
    /// Number of turns, which determines the expected counts.
    turns: usize,
}

async fn pathcall(network: Option<&Network>) -> Result<Team<WordsClient<pathcall::Channel>>> {
    let served = serve(&PATHCALL, network, ROWS, WordsServer::new(Counter::default())).await?;
    let mut stubs = Vec::new();
    for _ in 0..CLIENTS {
        stubs.push(WordsClient::new(pathcall::Channel::connect(served.url.clone(), &PATHCALL).await?));
    }
    let owner = served.owner;
    let received = Box::new(move || owner.stats().iter().map(|application| application.map.bytes_received).sum());
    Ok(Team { stubs, received, turns: 0 })
}

async fn plain() -> Result<Team<WordsClient<tonic::transport::Channel>>> {
    let counter = Counter::default();
    let url = serve_plain(WordsServer::new(counter.clone())).await?;
    let mut stubs = Vec::new();
    for _ in 0..CLIENTS {
        stubs.push(WordsClient::new(connect_plain(&url).await?));
    }
    Ok(Team { stubs, received: Box::new(move || counter.bytes.load(Ordering::Relaxed)), turns: 0 })
}

impl<S: CountClient> Team<S> {
    fn turn(&mut self, runtime: &Runtime, calls: usize) -> Result<[f64; 2]> {
        let before = (self.received)();
        let batches: Vec<HashMap<String, i64>> = (0..calls).map(batch).collect();
        let shares: Vec<_> = self.stubs.drain(..).map(|stub| (stub, batches.clone())).collect();
        let (took, found) = runtime.block_on(async {
            let began = Instant::now();
            let mut running = JoinSet::new();
            for (mut stub, share) in shares {
                running.spawn(async move {
                    for map in share {
                        stub.count(map).await?;
                    }
                    anyhow::Ok(stub)
                });
            }
            while let Some(done) = running.join_next().await {
                self.stubs.push(done??);
            }
            let took = began.elapsed();
            let stub = self.stubs.first_mut().context("no clients")?;
            anyhow::Ok((took, stub.all().await?))
        })?;
        self.turns += 1;
        let mut expected: HashMap<String, i64> = HashMap::new();
        for (word, count) in batches.into_iter().flatten() {
            *expected.entry(word).or_default() += count * (CLIENTS * self.turns) as i64;
        }
        ensure!(found == expected, "wrong counts of {} words, expected {}", found.len(), expected.len());
        let counts = (CLIENTS * calls * BATCH) as f64;
        Ok([((self.received)() - before) as f64 / counts, counts / took.as_secs_f64()])
    }
}

/// Words of a call: a window that moves over all words.
pub(crate) fn batch(call: usize) -> HashMap<String, i64> {
    let word = |i: usize| (format!("word-{}", (call * BATCH / 2 + i) % WORDS), 1 + (i % 7) as i64);
    (0..BATCH).map(word).collect()
}

/// Stub of one client.
pub(crate) trait CountClient: Send + 'static {
    /// Adds counts.
    fn count(&mut self, map: HashMap<String, i64>) -> impl Future<Output = Result<()>> + Send;
    /// Reads all counts.
    fn all(&mut self) -> impl Future<Output = Result<HashMap<String, i64>>> + Send;
}

macro_rules! clients {
    ($($channel:ty),+) => {
        $(impl CountClient for WordsClient<$channel> {
            async fn count(&mut self, map: HashMap<String, i64>) -> Result<()> {
                self.reduce(Counts { counts: Some(StrintMap { map }) }).await?;
                Ok(())
            }

            async fn all(&mut self) -> Result<HashMap<String, i64>> {
                Ok(self.query(Wanted {}).await?.into_inner().counts.unwrap_or_default().map)
            }
        })+
    };
}

clients!(pathcall::Channel, tonic::transport::Channel);

/// Counter for runs without Pathcall.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counter {
    counts: Arc<Mutex<HashMap<String, i64>>>,
    bytes: Arc<AtomicU64>,
}

#[tonic::async_trait]
impl Words for Counter {
    async fn reduce(&self, request: Request<Counts>) -> Result<Response<Done>, Status> {
        let request = request.into_inner();
        self.bytes.fetch_add(request.encoded_len() as u64, Ordering::Relaxed);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        for (word, count) in request.counts.unwrap_or_default().map {
            *counts.entry(word).or_default() += count;
        }
        Ok(Response::new(Done {}))
    }

    async fn query(&self, _: Request<Wanted>) -> Result<Response<Counts>, Status> {
        let map = self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(Response::new(Counts { counts: Some(StrintMap { map }) }))
    }
}
