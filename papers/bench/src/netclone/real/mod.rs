//! Servers, what stands between, and a caller, each a thread with a socket on a host of its own ([`Ground`]): the real
//! ends and the real program in real time. Servers wait instead of working, so that many share few processors.
//!
//! ```text
//! caller ⇄ middle (the switch program, or LÆDGE's coordinator) ⇄ servers, each a queue and its workers
//!    └──────────────── random, C-Clone, hedging ────────────────────┘
//! ```

mod caller;
mod ground;
mod middle;
mod server;
mod socket;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant as Clock};

use anyhow::{Context, Result, anyhow};
use apps_load::Plan;
use pathcall_endpoint::clone::{Budget, CallerConfig, CallerStats, Pool, To, WorkerConfig};
use pathcall_models::clone::Scheme;

use crate::net::Watch;
pub(crate) use caller::Answers;
pub(crate) use ground::Ground;
use ground::Who;
pub(crate) use server::Waits;
use socket::Socket;

/// The application, and who is who in it: servers' endpoints follow.
const GAID: u32 = 1;
const CALLER: u32 = 1;
const SERVERS_FROM: u32 = 2;
const INCARNATION: u32 = 7;

/// Servers and their work.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bed {
    pub(crate) servers: usize,
    /// Of each server.
    pub(crate) workers: usize,
    pub(crate) waits: Waits,
}

/// What one scheme came to under one load.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) answers: Answers,
    /// Share of the processors' time that all parties took.
    pub(crate) busy: f64,
    /// Time of a processor that what is in the middle took.
    middle: Duration,
}

/// What a bed is asked to do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) scheme: Scheme,
    pub(crate) budget: Budget,
    pub(crate) plan: Plan,
    /// Calls fail after this time.
    pub(crate) deadline: Duration,
    /// Whether calls that are under way when the last one is made are waited for.
    pub(crate) waits: bool,
    /// What is in the middle loses all, and all that it knows, from then until then.
    pub(crate) outage: Option<(Duration, Duration)>,
}

impl Load {
    /// Calls of a second at most, all of which are waited for.
    pub(crate) const fn new(scheme: Scheme, budget: Budget, plan: Plan) -> Self {
        Self { scheme, budget, plan, deadline: Duration::from_secs(1), waits: true, outage: None }
    }
}

/// Where everybody is.
#[derive(Debug, Clone)]
struct Roads {
    middle: SocketAddr,
    caller: SocketAddr,
    servers: Vec<SocketAddr>,
}

/// Somebody's thread.
struct Party {
    socket: Socket,
    ends: Arc<AtomicBool>,
}

impl Bed {
    /// Calls a second that its servers can do.
    pub(crate) fn capacity(&self) -> f64 {
        let Waits { service, jitter } = self.waits;
        (self.servers * self.workers) as f64 / (service.mean().as_secs_f64() * jitter.factor())
    }

    /// Runs one load.
    pub(crate) fn run(&self, ground: &Ground, load: Load) -> Result<Seen> {
        let Load { scheme, budget, plan, outage, .. } = load;
        let (began, ends) = (Clock::now(), Arc::new(AtomicBool::new(false)));
        let party = |who| {
            let socket = Socket::new(ground.socket(who)?, began)?;
            anyhow::Ok(Party { socket, ends: ends.clone() })
        };
        let (caller, middle) = (party(Who::Caller)?, party(Who::Middle)?);
        let servers = (0..self.servers).map(|nth| party(Who::Server(nth))).collect::<Result<Vec<_>>>()?;
        let addresses = servers.iter().map(|server| server.socket.address()).collect::<Result<_>>()?;
        let roads = Roads { middle: middle.socket.address()?, caller: caller.socket.address()?, servers: addresses };
        let endpoints = (0..self.servers as u32).map(|sid| SERVERS_FROM + sid).collect();
        let pool = Pool { gaid: GAID, version: 1, servers: endpoints };

        let mut threads = Vec::new();
        for (sid, server) in servers.into_iter().enumerate() {
            let (roads, waits, seed) = (roads.clone(), self.waits, plan.seed.wrapping_add(1 + sid as u64));
            let config = WorkerConfig::new(GAID, pool.servers[sid], INCARNATION, sid as u16, self.workers);
            let serve = move || server::serve(&server, &roads, config, waits, seed);
            threads.push(std::thread::Builder::new().name(format!("server {sid}")).spawn(serve)?);
        }
        let (to, steered, workers) = (roads.clone(), pool.clone(), self.workers);
        let steer = move || middle::steer(&middle, &to, (steered, scheme, workers), outage);
        let steering = std::thread::Builder::new().name("middle".to_owned()).spawn(steer)?;

        let watch = Watch::start();
        let config = CallerConfig { budgets: vec![budget], ..CallerConfig::new(CALLER, INCARNATION, pool, plan.seed) };
        let answers = caller::call(&caller, &roads, config, &load);
        let (took, cpu) = watch.read();
        let processors = std::thread::available_parallelism()?.get() as f64;
        let busy = cpu.as_secs_f64() / took.as_secs_f64() / processors;

        ends.store(true, Ordering::Release);
        // Nothing but this wakes who waits for nothing else.
        let bell = ground.socket(Who::Middle)?;
        for party in roads.servers.iter().chain([&roads.middle]) {
            bell.send_to(&[], party)?;
        }
        let middle = joined(steering)?;
        threads.into_iter().try_for_each(joined)?;
        Ok(Seen { answers: answers?, busy, middle })
    }
}

impl Seen {
    /// Requests sent beyond one for each call, for each call.
    pub(crate) fn extra(&self) -> f64 {
        let CallerStats { calls, cloned, twice, repeated, hedged, .. } = self.answers.stats;
        (cloned + twice + repeated + hedged) as f64 / calls.max(1) as f64
    }

    /// Microseconds of a processor that what is in the middle took for a call.
    pub(crate) fn middle_us(&self) -> f64 {
        self.middle.as_secs_f64() * 1e6 / self.answers.stats.calls.max(1) as f64
    }

    /// Answers that came to the caller when it had one, for each call.
    pub(crate) fn redundant(&self) -> f64 {
        let CallerStats { calls, redundant, .. } = self.answers.stats;
        redundant as f64 / calls.max(1) as f64
    }
}

impl Roads {
    fn send(&self, socket: &Socket, to: To, frame: &[u8]) {
        let address = match to {
            To::Element => Some(&self.middle),
            To::Endpoint(CALLER) => Some(&self.caller),
            To::Endpoint(server) => self.servers.get(server.wrapping_sub(SERVERS_FROM) as usize),
        };
        if let Some(address) = address {
            socket.send(*address, frame);
        }
    }
}

impl Party {
    fn ends(&self) -> bool {
        self.ends.load(Ordering::Acquire)
    }
}

fn joined<T>(thread: JoinHandle<Result<T>>) -> Result<T> {
    thread.join().map_err(|_| anyhow!("a party panicked"))?.context("a party failed")
}
