//! Real-time rack: servers, the middle and a caller, each a thread with a socket on its own host ([`RackHosts`]), with
//! the real endpoints and the real switch program. Servers sleep instead of working, so that many fit on few
//! processors.
//!
//! ```text
//! caller ⇄ middle (the switch program, or LÆDGE's coordinator) ⇄ servers, each a queue and its workers
//!    └──────────────── random, C-Clone, hedging ────────────────────┘
//! ```

mod caller;
mod hosts;
mod middle;
mod server;
mod socket;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant as Clock};

use anyhow::{Context, Result, anyhow};
use apps_load::LoadPlan;
use pathcall_endpoint::clone::{
    CloneCallerConfig, CloneCallerStats, CloneDestination, CloneWorkerConfig, HedgeBudgetConfig, Pool,
};
use pathcall_models::clone::Scheme;

use crate::net::Stopwatch;
pub(crate) use caller::CallAnswers;
pub(crate) use hosts::RackHosts;
use hosts::Role;
pub(crate) use server::WaitDistribution;
use socket::Socket;

/// Application id and endpoint ids; the servers' ids are consecutive.
const GAID: u32 = 1;
const CALLER: u32 = 1;
const SERVERS_FROM: u32 = 2;
const INCARNATION: u32 = 7;

/// Servers and their service times.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RealRack {
    pub(crate) servers: usize,
    /// Workers per server.
    pub(crate) workers: usize,
    pub(crate) waits: WaitDistribution,
}

/// Results of one scheme at one load.
#[derive(Debug)]
pub(crate) struct RackResults {
    pub(crate) answers: CallAnswers,
    /// Share of the processor time used by all parties.
    pub(crate) busy: f64,
    /// Processor time of the middle.
    middle: Duration,
}

/// Load on a rack.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RackLoad {
    pub(crate) scheme: Scheme,
    pub(crate) budget: HedgeBudgetConfig,
    pub(crate) plan: LoadPlan,
    /// Deadline of a call.
    pub(crate) deadline: Duration,
    /// True if calls in progress at the end are awaited.
    pub(crate) waits: bool,
    /// Start and end of an outage, in which the middle drops all frames and loses its state.
    pub(crate) outage: Option<(Duration, Duration)>,
}

impl RackLoad {
    /// Load with a deadline of one second, whose last calls are awaited.
    pub(crate) const fn new(scheme: Scheme, budget: HedgeBudgetConfig, plan: LoadPlan) -> Self {
        Self { scheme, budget, plan, deadline: Duration::from_secs(1), waits: true, outage: None }
    }
}

/// Addresses of all parties.
#[derive(Debug, Clone)]
struct PartyAddresses {
    middle: SocketAddr,
    caller: SocketAddr,
    servers: Vec<SocketAddr>,
}

/// Thread of a party.
struct RackParty {
    socket: Socket,
    should_stop: Arc<AtomicBool>,
}

impl RealRack {
    /// Calls per second that the servers sustain.
    pub(crate) fn capacity(&self) -> f64 {
        let WaitDistribution { service, jitter } = self.waits;
        (self.servers * self.workers) as f64 / (service.mean().as_secs_f64() * jitter.factor())
    }

    /// Runs one load.
    pub(crate) fn run(&self, hosts: &RackHosts, load: RackLoad) -> Result<RackResults> {
        let RackLoad { scheme, budget, plan, outage, .. } = load;
        let (began, should_stop) = (Clock::now(), Arc::new(AtomicBool::new(false)));
        let party = |role| {
            let socket = Socket::new(hosts.socket(role)?, began)?;
            anyhow::Ok(RackParty { socket, should_stop: should_stop.clone() })
        };
        let (caller, middle) = (party(Role::Caller)?, party(Role::Middle)?);
        let servers = (0..self.servers).map(|nth| party(Role::Server(nth))).collect::<Result<Vec<_>>>()?;
        let server_addresses = servers.iter().map(|server| server.socket.address()).collect::<Result<_>>()?;
        let addresses = PartyAddresses {
            middle: middle.socket.address()?,
            caller: caller.socket.address()?,
            servers: server_addresses,
        };
        let endpoints = (0..self.servers as u32).map(|sid| SERVERS_FROM + sid).collect();
        let pool = Pool { gaid: GAID, version: 1, servers: endpoints };

        let mut threads = Vec::new();
        for (sid, server) in servers.into_iter().enumerate() {
            let (addresses, waits, seed) = (addresses.clone(), self.waits, plan.seed.wrapping_add(1 + sid as u64));
            let config = CloneWorkerConfig::new(GAID, pool.servers[sid], INCARNATION, sid as u16, self.workers);
            let serve = move || server::serve(&server, &addresses, config, waits, seed);
            threads.push(std::thread::Builder::new().name(format!("server {sid}")).spawn(serve)?);
        }
        let (to, steered, workers) = (addresses.clone(), pool.clone(), self.workers);
        let run_middle = move || middle::run_middle(&middle, &to, (steered, scheme, workers), outage);
        let steering = std::thread::Builder::new().name("middle".to_owned()).spawn(run_middle)?;

        let watch = Stopwatch::start();
        let config = CloneCallerConfig {
            budgets: vec![budget],
            extra_while_slow: load.scheme.sends_extra_while_slow(),
            ..CloneCallerConfig::new(CALLER, INCARNATION, pool, plan.seed)
        };
        let answers = caller::call(&caller, &addresses, config, &load);
        let (took, cpu) = watch.read();
        let processors = std::thread::available_parallelism()?.get() as f64;
        let busy = cpu.as_secs_f64() / took.as_secs_f64() / processors;

        should_stop.store(true, Ordering::Release);
        // Socket that wakes parties which only wait for frames.
        let waker = hosts.socket(Role::Middle)?;
        for party in addresses.servers.iter().chain([&addresses.middle]) {
            waker.send_to(&[], party)?;
        }
        let middle = join_thread(steering)?;
        threads.into_iter().try_for_each(join_thread)?;
        Ok(RackResults { answers: answers?, busy, middle })
    }
}

impl RackResults {
    /// Requests sent beyond one per call, per call.
    pub(crate) fn extra(&self) -> f64 {
        self.answers.stats.extra() as f64 / self.answers.stats.calls.max(1) as f64
    }

    /// Microseconds of the middle's processor time per call.
    pub(crate) fn middle_us(&self) -> f64 {
        self.middle.as_secs_f64() * 1e6 / self.answers.stats.calls.max(1) as f64
    }

    /// Second answers received by the caller, per call.
    pub(crate) fn redundant(&self) -> f64 {
        let CloneCallerStats { calls, redundant, .. } = self.answers.stats;
        redundant as f64 / calls.max(1) as f64
    }
}

impl PartyAddresses {
    fn send(&self, socket: &Socket, to: CloneDestination, frame: &[u8]) {
        let address = match to {
            CloneDestination::Element => Some(&self.middle),
            CloneDestination::Endpoint(CALLER) => Some(&self.caller),
            CloneDestination::Endpoint(server) => self.servers.get(server.wrapping_sub(SERVERS_FROM) as usize),
        };
        if let Some(address) = address {
            socket.send(*address, frame);
        }
    }
}

impl RackParty {
    fn should_stop(&self) -> bool {
        self.should_stop.load(Ordering::Acquire)
    }
}

fn join_thread<T>(thread: JoinHandle<Result<T>>) -> Result<T> {
    thread.join().map_err(|_| anyhow!("a party panicked"))?.context("a party failed")
}
