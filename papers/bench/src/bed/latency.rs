//! How long a lock or a vote takes between hosts on bare links: the element in the kernel or in user
//! space answers, a server without an element, or plain tonic.
//!
//! *By the endpoint*: a caller uses the endpoint's own interface. *Through stubs*: it uses gRPC stubs. A party
//! sleeps until it is woken, or *spins*: then caller and who answers have a processor each. On veth the
//! element in the kernel runs in the caller's own system call, and its answer is there when that returns.

use std::time::{Duration, Instant};

use anyhow::Result;
use pathcall_testbed::Testbed;

use super::agreement::{Agreement, Kind};
use super::{ANSWER_CPU, CALLER_CPU, Hop, Party, Stage, Waiting, bare, has_xdp, stands};
use crate::harness::{Bench, Better, Metric};
use crate::net::{Watch, connect_plain, percentiles, serve_at, serve_plain_at};
use crate::small::{Caller, Keeper};
use crate::stubs::pb::PATHCALL;
use crate::stubs::pb::small_client::SmallClient;
use crate::stubs::pb::small_server::SmallServer;

const CALLS: usize = 2000;
const CALLS_QUICK: usize = 20;
/// A call's look for its answer, where its caller spins.
const LOOK: Duration = Duration::from_millis(1);
const ROWS: u32 = 64;

pub(crate) fn run(bench: &mut Bench, kind: Kind) -> Result<()> {
    if !stands(bench) {
        return Ok(());
    }
    let mut hops = vec![Hop::User, Hop::Polling];
    if has_xdp(bench) {
        hops.insert(0, Hop::Xdp);
    }
    for waiting in [Waiting::Blocking, Waiting::Spinning] {
        by_endpoint(bench, kind, waiting, &hops)?;
    }
    through_stubs(bench, kind, &hops)
}

/// Each element beside a server without one.
fn by_endpoint(bench: &mut Bench, kind: Kind, waiting: Waiting, hops: &[Hop]) -> Result<()> {
    let calls = bench.size(CALLS, CALLS_QUICK);
    let (how, peer, expected) = match waiting {
        Waiting::Blocking => ("", "blocking server", 0.15),
        Waiting::Spinning => (", spinning", "spinning server", 0.4),
    };
    // Each turn has a bed of its own: one that spins would take the other side's processor.
    let turn = |hop| Setting::new(hop)?.agreement(kind, waiting)?.turn(calls);
    for hop in hops {
        let case = format!("{}{how}", hop.name());
        let p50 = Metric::new(format!("{case}, p50"), peer, "us", Better::Lower);
        let p50 = if *hop == Hop::Xdp { p50.expect(expected) } else { p50 };
        let p99 = Metric::new(format!("{case}, p99"), peer, "us", Better::Lower);
        let cpu = Metric::new(format!("{case}, CPU of all"), peer, "us/call", Better::Lower);
        bench.compare([p50, p99, cpu], || turn(*hop), || turn(Hop::Nothing))?;
    }
    let times = |hop| turn(hop).map(|[p50, p99, _]| [p50, p99]);
    let limits = |case: String, peer: &str| {
        let metric = |which| Metric::new(format!("{case}, {which}"), peer, "us", Better::Lower).peer_is_limit();
        [metric("p50"), metric("p99")]
    };
    let limit = || bare::element(&Setting::new(Hop::Xdp)?.stage, waiting, calls);
    if hops.contains(&Hop::Xdp) {
        let metrics = limits(format!("{}{how}", Hop::Xdp.name()), "bare socket, a vote");
        bench.compare(metrics, || times(Hop::Xdp), limit)?;
    }
    let limit = || bare::echo(&Setting::new(Hop::Nothing)?.stage, waiting, calls);
    bench.compare(limits(peer.to_owned(), "bare sockets"), || times(Hop::Nothing), limit)
}

/// Each element beside plain tonic.
fn through_stubs(bench: &mut Bench, kind: Kind, hops: &[Hop]) -> Result<()> {
    let calls = bench.size(CALLS, CALLS_QUICK);
    let ours = |hop| Setting::new(hop)?.stubs(kind)?.turn(calls);
    let tonic = || Setting::new(Hop::Nothing)?.tonic(kind)?.turn(calls);
    for hop in hops {
        let case = format!("stubs, {}", hop.name());
        let p50 = Metric::new(format!("{case}, p50"), "tonic", "us", Better::Lower);
        let p50 = if *hop == Hop::Xdp { p50.expect(0.1) } else { p50 };
        let p99 = Metric::new(format!("{case}, p99"), "tonic", "us", Better::Lower);
        let cpu = Metric::new(format!("{case}, CPU of all"), "tonic", "us/call", Better::Lower);
        bench.compare([p50, p99, cpu], || ours(*hop), tonic)?;
    }
    Ok(())
}

/// A bed with a server's host and a caller's.
struct Setting {
    stage: Stage,
}

impl Setting {
    fn new(hop: Hop) -> Result<Self> {
        Ok(Self { stage: Stage::start(Testbed::builder().hosts(2), hop)? })
    }

    fn agreement(&self, kind: Kind, waiting: Waiting) -> Result<Agreement> {
        let (server, caller, look) = match waiting {
            Waiting::Blocking => (None, None, Duration::ZERO),
            Waiting::Spinning => (Some(ANSWER_CPU), Some(CALLER_CPU), LOOK),
        };
        // With an element the server has nothing to do, and must not take the processor of one that polls.
        let serving = if self.stage.element().is_some() { Waiting::Blocking } else { waiting };
        let server = self.stage.host(1, serving, server)?;
        let caller = self.stage.host(2, Waiting::Blocking, caller)?;
        Agreement::start(&self.stage, kind, server, caller, look)
    }

    fn stubs(&self, kind: Kind) -> Result<Stubs<pathcall::Channel>> {
        let (server, caller) =
            (self.stage.host(1, Waiting::Blocking, None)?, self.stage.host(2, Waiting::Blocking, None)?);
        let (at, controller) = (self.stage.free_at(1)?, self.stage.controller());
        let served =
            server.run(move || serve_at(at, &PATHCALL, controller, ROWS, SmallServer::new(Keeper::default())))?;
        let url = served.url.clone();
        let stub = caller
            .run(move || async move { Ok(SmallClient::new(pathcall::Channel::connect(url, &PATHCALL).await?)) })?;
        Ok(Stubs { kind, stub, caller, _owner: Some(served.owner), _server: server })
    }

    fn tonic(&self, kind: Kind) -> Result<Stubs<tonic::transport::Channel>> {
        let (server, caller) =
            (self.stage.host(1, Waiting::Blocking, None)?, self.stage.host(2, Waiting::Blocking, None)?);
        let at = self.stage.free_at(1)?;
        let url = server.run(move || serve_plain_at(at, SmallServer::new(Keeper::default())))?;
        let stub = caller.run(move || async move { Ok(SmallClient::new(connect_plain(&url).await?)) })?;
        Ok(Stubs { kind, stub, caller, _owner: None, _server: server })
    }
}

/// A caller with stubs.
struct Stubs<C> {
    kind: Kind,
    stub: SmallClient<C>,
    caller: Party,
    /// Keeps the owner running.
    _owner: Option<pathcall::Server>,
    /// Where it runs; after what runs there.
    _server: Party,
}

impl<C: Send + 'static> Stubs<C>
where
    SmallClient<C>: Caller,
{
    /// Median and 99th percentile of a call, of which the first tenth warms up; and the time of all processors
    /// for a call. In microseconds.
    fn turn(self, calls: usize) -> Result<[f64; 3]> {
        let Self { kind, mut stub, caller, _owner, _server } = self;
        let watch = Watch::start();
        let mut took = caller.run(move || async move {
            let mut took = Vec::with_capacity(calls);
            for _ in 0..calls {
                let began = Instant::now();
                match kind {
                    Kind::Lock => stub.take("key").await?,
                    Kind::Vote => stub.count("key").await?,
                }
                took.push(began.elapsed());
                if kind == Kind::Lock {
                    stub.give("key").await?;
                }
            }
            Ok(took)
        })?;
        let cpu = watch.cpu_us(calls);
        let [p50, p99] = percentiles(took.split_off(calls / 10))?;
        Ok([p50, p99, cpu])
    }
}
