//! `delegate-pipe`: chains of unmodified unary services between hosts whose links take a millisecond: a pipe, whose
//! sidecars pass each answer on, compared with a caller that calls each service.
//!
//! Both callers use tonic's stub. A pipe of n services takes n + 1 messages between hosts instead of 2n, one after the
//! other. A message passes two links.

use std::fs;
use std::sync::Arc;

use anyhow::{Context, Result};
use pathcall::delegate::{Directory, Handlers, Node, NodeConfig, RunningHandlers};
use pathcall_pipe::{Pipe, PipeFront, sidecar};
use pathcall_testbed::Testbed;
use tokio::net::TcpListener;
use tonic::transport::{Channel, Endpoint};

use super::replicas::Answer;
use super::variants::stubs::{PlainClient, PlainServer, Step};
use super::variants::{CallVariant, calls};
use crate::harness::{Bench, Better, Figure, Kind, Metric};
use crate::net::{percentiles, serve_plain_at};
use crate::testbed::{ElementTestbed, Hop, Party, WaitMode, testbed_available};

pub(super) const FIGURE: Figure = Figure {
    name: "delegate-pipe",
    about: "chains of unmodified services, between hosts of a testbed: a pipe, and a caller that calls each service",
    kind: Kind::Measured,
    run,
};

/// Delay of each link.
const DELAY: &str = "1ms";
/// Services of each chain, with the expected ratio of the latencies.
const CHAINS: [(usize, f64); 3] = [(2, 0.8), (3, 0.73), (5, 0.65)];
const SERVICES: usize = 5;
const CALLS: usize = 40;
const CALLS_QUICK: usize = 3;

fn run(bench: &mut Bench) -> Result<()> {
    if !testbed_available(bench) {
        return Ok(());
    }
    let (count, hosts) = (bench.size(CALLS, CALLS_QUICK), Hosts::start()?);
    for (chain, (services, expected)) in CHAINS.into_iter().enumerate() {
        let bound = (services + 1) as f64 / (2 * services) as f64;
        let case = format!("{services} services");
        let metric = Metric::new(case, "tonic, hub and spoke", "us", Better::Lower);
        bench.compare(
            [metric.expect(expected).limit_of_peer(bound)],
            || hosts.median(&hosts.piped, chain, count),
            || hosts.median(&hosts.hub, chain, count),
        )?;
    }
    Ok(())
}

/// A client on host 1, and a service with its sidecar on each of the hosts after it.
struct Hosts {
    piped: Piped,
    hub: Hub,
    client: Party,
    _sidecars: Vec<RunningHandlers>,
    _servers: Vec<Party>,
    /// Stage of the parties; dropped last.
    _stage: ElementTestbed,
}

impl Hosts {
    fn start() -> Result<Self> {
        let stage = ElementTestbed::start(Testbed::builder().delay(DELAY)?.hosts(1 + SERVICES), Hop::NoElement)?;
        let pipes = CHAINS.iter().map(|(services, _)| pipe(*services)).collect::<Result<Vec<_>>>()?;
        let directory = Directory::default();
        let (mut servers, mut sidecars, mut urls, mut nodes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for step in 0..SERVICES {
            let (party, at) = (stage.host(2 + step, WaitMode::Blocking, None)?, stage.free_at(2 + step)?);
            let (served, found) = (serving(&pipes, step), directory.clone());
            let (url, running) = party.run(move || async move {
                let url = serve_plain_at(at, PlainServer::new(Answer { work: None })).await?;
                let mut handlers = Handlers::new().node(NodeConfig::default().listen(at)).directory(found);
                for pipe in &served {
                    let service = Endpoint::from_shared(url.clone())?.connect_lazy();
                    let name = step_name(pipe.step_names().count(), step);
                    handlers = sidecar::add_step(handlers, pipe, &name, service)?;
                }
                Ok((url, handlers.start().await?))
            })?;
            let at = running.address();
            nodes.extend(serving(&pipes, step).iter().map(|pipe| (sidecar::node_name(pipe, step, "only"), at)));
            urls.push(url);
            sidecars.push(running);
            servers.push(party);
        }
        directory.set(nodes);
        let (client, at) = (stage.host(1, WaitMode::Blocking, None)?, stage.free_at(1)?);
        let (piped, hub) = client.run(move || async move {
            let mut fronts = Vec::new();
            for pipe in pipes {
                let (node, _) = Node::start(&NodeConfig::default().listen(at)).await?;
                let listener = TcpListener::bind(at).await.context("cannot bind the front's port")?;
                fronts.push(PlainClient::new(channel(format!("http://{}", listener.local_addr()?))?));
                let front = PipeFront::new(pipe, node, directory.clone());
                tokio::spawn(front.serve(listener, std::future::pending()));
            }
            let services = urls.into_iter().map(|url| Ok(PlainClient::new(channel(url)?))).collect::<Result<_>>()?;
            Ok((Piped { fronts }, Hub { services }))
        })?;
        Ok(Self { piped, hub, client, _sidecars: sidecars, _servers: servers, _stage: stage })
    }

    /// Median latency of sequential calls, microseconds.
    fn median(&self, variant: &impl CallVariant, chain: usize, count: usize) -> Result<[f64; 1]> {
        let variant = variant.clone();
        let turn = self.client.run(move || calls(variant, chain, count, 1))?;
        percentiles(turn.whole()?.latencies).map(|[p50, _]| [p50])
    }
}

fn channel(url: String) -> Result<Channel> {
    Ok(Endpoint::from_shared(url)?.connect_lazy())
}

/// Pipes that have this step.
fn serving(pipes: &[Arc<Pipe>], step: usize) -> Vec<Arc<Pipe>> {
    pipes.iter().filter(|pipe| step < pipe.step_names().count()).cloned().collect()
}

/// Name of a step, unique among all pipes: their paths are the same.
fn step_name(services: usize, step: usize) -> String {
    format!("step{step}of{services}")
}

/// Pipe in which each service gets the answer of the one before it.
fn pipe(services: usize) -> Result<Arc<Pipe>> {
    let folder = std::env::temp_dir().join(format!("pathcall-bench-{}-{services}", std::process::id()));
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("shapes.proto"), include_str!("../../proto/shapes.proto"))?;
    let source = |step: usize| step.checked_sub(1).map_or("call".to_owned(), |step| step_name(services, step));
    let step = |step| {
        let (name, source) = (step_name(services, step), source(step));
        format!("  - name: {name}\n    call: /shapes.Plain/Ask\n    request: {{ place: ${source}.place }}\n")
    };
    let steps: String = (0..services).map(step).collect();
    let last = source(services);
    let text =
        format!("protos: [shapes.proto]\npipe: /shapes.Plain/Ask\nsteps:\n{steps}reply: {{ place: ${last}.place }}\n");
    let file = folder.join("chain.yaml");
    fs::write(&file, text)?;
    let pipe = Pipe::read(&file);
    fs::remove_dir_all(&folder)?;
    Ok(Arc::new(pipe.map_err(|error| anyhow::anyhow!("{error}"))?))
}

/// Client of the fronts, one for each chain.
#[derive(Clone)]
struct Piped {
    fronts: Vec<PlainClient<Channel>>,
}

impl CallVariant for Piped {
    async fn call(&self, chain: usize) -> Result<()> {
        check(&self.fronts[chain].clone().ask(request()).await?.into_inner().place)
    }
}

/// Client that calls each service.
#[derive(Clone)]
struct Hub {
    services: Vec<PlainClient<Channel>>,
}

impl CallVariant for Hub {
    async fn call(&self, chain: usize) -> Result<()> {
        let mut place = request().place;
        for service in &self.services[..CHAINS[chain].0] {
            place = service.clone().ask(Step { place }).await?.into_inner().place;
        }
        check(&place)
    }
}

fn request() -> Step {
    Step { place: vec![7; 100] }
}

fn check(place: &[u8]) -> Result<()> {
    anyhow::ensure!(place == request().place, "a wrong answer of {} bytes", place.len());
    Ok(())
}
