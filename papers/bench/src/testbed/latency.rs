//! Latency of a lock or a decided vote between hosts on bare links: by the element in the kernel or in user space, by
//! a server without an element, or by plain tonic.
//!
//! A vote is one of two or three in a ballot. All voters are callers on one thread; the time ends when all know the
//! decision. An element counts the votes, and decides.
//!
//! *By the endpoint*: the caller uses the endpoint's own interface. *Through stubs*: the caller uses gRPC stubs. A
//! party blocks until it is woken, or *spins*; a spinning caller and its answering party have one processor each. On
//! veth the element in the kernel runs within the caller's system call, and its answer is available when the call
//! returns.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use pathcall_testbed::Testbed;

use super::agreement::{Agreement, AgreementKind};
use super::{ANSWER_CPU, CALLER_CPU, ElementTestbed, Hop, Party, WaitMode, bare_sockets, has_xdp, testbed_available};
use crate::harness::{Bench, Better, Metric};
use crate::net::{Stopwatch, connect_plain, percentiles, serve_at, serve_plain_at};
use crate::small::{LockVoteCaller, LockVoteHandler};
use crate::stubs::pb::PATHCALL;
use crate::stubs::pb::small_client::SmallClient;
use crate::stubs::pb::small_server::SmallServer;

const CALLS: usize = 2000;
const CALLS_QUICK: usize = 20;
/// Time for which a spinning caller polls for the answer of a call.
const POLL_TIME: Duration = Duration::from_millis(1);
const ROWS: u32 = 64;
/// The paper's voting delay, of that in software: 20 us of 92 (NetRPC Table 5).
const VOTING_RATIO: f64 = 0.22;
/// Goal for a ballot of three votes, of tonic's time.
const OF_THREE_RATIO: f64 = 0.4;

pub(crate) fn run(bench: &mut Bench, kind: AgreementKind) -> Result<()> {
    if !testbed_available(bench) {
        return Ok(());
    }
    let mut hops = vec![Hop::User, Hop::Polling];
    if has_xdp(bench) {
        hops.insert(0, Hop::Xdp);
    }
    for waiting in [WaitMode::Blocking, WaitMode::Spinning] {
        by_endpoint(bench, kind, waiting, &hops)?;
    }
    match kind {
        AgreementKind::Lock => through_stubs(bench, StubWork::Lock, &hops),
        AgreementKind::Vote => {
            through_stubs(bench, StubWork::Vote, &hops)?;
            through_stubs(bench, StubWork::VoteOfThree, &hops)
        }
    }
}

/// Work of callers with stubs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StubWork {
    Lock,
    Vote,
    /// Three voters, all of whom must vote.
    VoteOfThree,
}

impl StubWork {
    fn callers(self) -> usize {
        match self {
            Self::Lock => 1,
            Self::Vote => 2,
            Self::VoteOfThree => 3,
        }
    }
}

/// Rows of each element, compared with a server without one.
fn by_endpoint(bench: &mut Bench, kind: AgreementKind, waiting: WaitMode, hops: &[Hop]) -> Result<()> {
    let calls = bench.size(CALLS, CALLS_QUICK);
    let (how, peer, lock_ratio) = match waiting {
        WaitMode::Blocking => ("", "blocking server", 0.15),
        WaitMode::Spinning => (", spinning", "spinning server", 0.4),
    };
    let expected = if kind == AgreementKind::Lock { lock_ratio } else { VOTING_RATIO };
    // Each turn has its own testbed: a spinning party would occupy the processor of the other side.
    let turn = |hop| LatencySetup::new(hop)?.agreement(kind, waiting)?.turn(calls);
    for hop in hops {
        let case = format!("{}{how}", hop.name());
        let p50 = Metric::new(format!("{case}, p50"), peer, "us", Better::Lower);
        let p50 = if *hop == Hop::Xdp { p50.expect(expected) } else { p50 };
        let p99 = Metric::new(format!("{case}, p99"), peer, "us", Better::Lower);
        let cpu = Metric::new(format!("{case}, CPU of all"), peer, "us/call", Better::Lower);
        bench.compare([p50, p99, cpu], || turn(*hop), || turn(Hop::NoElement))?;
    }
    let times = |hop| turn(hop).map(|[p50, p99, _]| [p50, p99]);
    let limits = |case: String, peer: &str| {
        let metric = |which| Metric::new(format!("{case}, {which}"), peer, "us", Better::Lower).peer_is_limit();
        [metric("p50"), metric("p99")]
    };
    let limit = || bare_sockets::element(&LatencySetup::new(Hop::Xdp)?.stage, waiting, calls);
    // One frame takes a lock. A ballot needs a frame of each voter, and copies of the decision.
    if kind == AgreementKind::Lock && hops.contains(&Hop::Xdp) {
        let metrics = limits(format!("{}{how}", Hop::Xdp.name()), "bare socket, a vote");
        bench.compare(metrics, || times(Hop::Xdp), limit)?;
    }
    let limit = || bare_sockets::echo(&LatencySetup::new(Hop::NoElement)?.stage, waiting, calls);
    bench.compare(limits(peer.to_owned(), "bare sockets"), || times(Hop::NoElement), limit)
}

/// Rows of each element, compared with plain tonic.
fn through_stubs(bench: &mut Bench, work: StubWork, hops: &[Hop]) -> Result<()> {
    let calls = bench.size(CALLS, CALLS_QUICK);
    let (stubs, expected) = match work {
        StubWork::Lock => ("stubs", 0.1),
        StubWork::Vote => ("stubs", VOTING_RATIO),
        StubWork::VoteOfThree => ("stubs of three", OF_THREE_RATIO),
    };
    let ours = |hop| LatencySetup::new(hop)?.stubs(work)?.turn(calls);
    let tonic = || LatencySetup::new(Hop::NoElement)?.tonic(work)?.turn(calls);
    for hop in hops {
        let case = format!("{stubs}, {}", hop.name());
        let p50 = Metric::new(format!("{case}, p50"), "tonic", "us", Better::Lower);
        let p50 = if *hop == Hop::Xdp { p50.expect(expected) } else { p50 };
        let p99 = Metric::new(format!("{case}, p99"), "tonic", "us", Better::Lower);
        let cpu = Metric::new(format!("{case}, CPU of all"), "tonic", "us/call", Better::Lower);
        bench.compare([p50, p99, cpu], || ours(*hop), tonic)?;
    }
    Ok(())
}

/// Testbed with a server's host and a caller's host.
struct LatencySetup {
    stage: ElementTestbed,
}

impl LatencySetup {
    fn new(hop: Hop) -> Result<Self> {
        Ok(Self { stage: ElementTestbed::start(Testbed::builder().hosts(2), hop)? })
    }

    fn agreement(&self, kind: AgreementKind, waiting: WaitMode) -> Result<Agreement> {
        let (server, caller, look) = match waiting {
            WaitMode::Blocking => (None, None, Duration::ZERO),
            WaitMode::Spinning => (Some(ANSWER_CPU), Some(CALLER_CPU), POLL_TIME),
        };
        // With an element the server is idle, and must not occupy the processor of a polling element.
        let serving = if self.stage.element().is_some() { WaitMode::Blocking } else { waiting };
        let server = self.stage.host(1, serving, server)?;
        let caller = self.stage.host(2, WaitMode::Blocking, caller)?;
        Agreement::start(&self.stage, kind, server, caller, look)
    }

    fn stubs(&self, work: StubWork) -> Result<StubCallers<pathcall::Channel>> {
        let (server, caller) =
            (self.stage.host(1, WaitMode::Blocking, None)?, self.stage.host(2, WaitMode::Blocking, None)?);
        let (at, controller) = (self.stage.free_at(1)?, self.stage.controller());
        let served = server
            .run(move || serve_at(at, &PATHCALL, controller, ROWS, SmallServer::new(LockVoteHandler::default())))?;
        let url = served.url.clone();
        let stubs = caller.run(move || async move {
            let mut stubs = Vec::new();
            for _ in 0..work.callers() {
                stubs.push(SmallClient::new(pathcall::Channel::connect(url.clone(), &PATHCALL).await?));
            }
            Ok(stubs)
        })?;
        Ok(StubCallers { work, stubs, caller, _owner: Some(served.owner), _server: server })
    }

    fn tonic(&self, work: StubWork) -> Result<StubCallers<tonic::transport::Channel>> {
        let (server, caller) =
            (self.stage.host(1, WaitMode::Blocking, None)?, self.stage.host(2, WaitMode::Blocking, None)?);
        let at = self.stage.free_at(1)?;
        let url = server.run(move || serve_plain_at(at, SmallServer::new(LockVoteHandler::default())))?;
        let stubs = caller.run(move || async move {
            let mut stubs = Vec::new();
            for _ in 0..work.callers() {
                stubs.push(SmallClient::new(connect_plain(&url).await?));
            }
            Ok(stubs)
        })?;
        Ok(StubCallers { work, stubs, caller, _owner: None, _server: server })
    }
}

/// Callers with stubs, on one thread.
struct StubCallers<C> {
    work: StubWork,
    stubs: Vec<SmallClient<C>>,
    caller: Party,
    /// Keeps the owner running.
    _owner: Option<pathcall::Layer>,
    /// Party of the owner; declared last, so that it is dropped last.
    _server: Party,
}

impl<C: Send + 'static> StubCallers<C>
where
    SmallClient<C>: LockVoteCaller,
{
    /// Median and 99th percentile of an agreement, without the first tenth, and processor time of all parties for one.
    /// In microseconds.
    fn turn(self, calls: usize) -> Result<[f64; 3]> {
        let Self { work, mut stubs, caller, _owner, _server } = self;
        let watch = Stopwatch::start();
        let mut took = caller.run(move || async move {
            let mut took = Vec::with_capacity(calls);
            for _ in 0..calls {
                let began = Instant::now();
                match &mut stubs[..] {
                    [one] => one.take("key").await?,
                    [one, other] => drop(tokio::try_join!(one.cast("key"), other.cast("key"))?),
                    [one, two, three] => {
                        let casts = (one.cast_of_three("key"), two.cast_of_three("key"), three.cast_of_three("key"));
                        tokio::try_join!(casts.0, casts.1, casts.2)?;
                    }
                    _ => anyhow::bail!("{} callers", work.callers()),
                }
                took.push(began.elapsed());
                let one = stubs.first_mut().context("no caller")?;
                match work {
                    StubWork::Lock => one.give("key").await?,
                    StubWork::Vote => one.clear("key").await?,
                    StubWork::VoteOfThree => one.clear_of_three("key").await?,
                }
            }
            Ok(took)
        })?;
        let cpu = watch.cpu_us(calls);
        let [p50, p99] = percentiles(took.split_off(calls / 10))?;
        Ok([p50, p99, cpu])
    }
}
