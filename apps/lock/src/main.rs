//! Application lock: mutual exclusion with GetLock and Release of NetRPC App. D (Agreement).
//!
//! Clients contend for locks, one or two at a time. A holder reads a shared counter and writes the incremented value.
//! The result is correct only without concurrent holders; the expected counters follow from the seed. Each counter also
//! rejects a fencing token that is not greater than all before, which excludes a holder that has lost its lock
//! unknowingly.
//!
//! With `--die`, another client first holds all locks and dies.

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use apps_report::call_path::{Bytes, CallPath, Lanes, Transport, tonic_channel};
use apps_report::{Report, digest};
use clap::{Parser, ValueEnum};
use pathcall::types::StrintMap;
use tokio::task::JoinSet;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::{Code, Request, Response, Status};

mod counter;
mod holder;
mod table;

mod pb {
    pathcall::include_proto!("lock");
}
use counter::Counter;
use holder::Holder;
use pb::lock_client::LockClient;
use pb::lock_server::{Lock, LockServer};
use table::Table;

/// Time after which a client without its locks asks again, after a growing pause.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(64));
/// Time after which a client without its locks fails.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(30);

/// Metadata of a granted lock, where the server grants leases.
const LEASE_MS: &str = "pathcall-lease-ms";
const FENCING_TOKEN: &str = "pathcall-fencing-token";

/// Contend for locks that are kept in the network
#[derive(Debug, Clone, Parser)]
struct Args {
    #[command(flatten)]
    way: CallPath,
    /// Number of contending clients
    #[arg(long, default_value_t = 4)]
    clients: u64,
    /// Number of locks
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    locks: u64,
    /// Critical sections of each client
    #[arg(long, default_value_t = 1000)]
    sections: u64,
    /// Seed of the choice of locks
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Let a holder of all locks die first
    #[arg(long, value_name = "HOW")]
    die: Option<Death>,
    /// Takes all locks at this server and keeps them; started by `--die killed`
    #[arg(long, value_name = "URL", hide = true)]
    hold: Option<String>,
}

/// Death of a holder.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Death {
    /// Drop its channel
    Dropped,
    /// Kill its process
    Killed,
}

/// Handler of the service. With Pathcall, no call reaches it.
#[derive(Debug, Clone, Default)]
struct Handler {
    table: Arc<Table>,
    bytes: Arc<Bytes>,
}

#[tonic::async_trait]
impl Lock for Handler {
    async fn get_lock(&self, request: Request<pb::LockRequest>) -> Result<Response<pb::LockReply>, Status> {
        self.bytes.count(request.get_ref());
        self.table.take(request.into_inner().kvs.unwrap_or_default().map).await;
        Ok(Response::new(pb::LockReply::default()))
    }

    async fn release(&self, request: Request<pb::ReleaseRequest>) -> Result<Response<pb::ReleaseReply>, Status> {
        self.bytes.count(request.get_ref());
        self.table.release(&request.into_inner().kvs.unwrap_or_default().map);
        Ok(Response::new(pb::ReleaseReply::default()))
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let done = match &args.hold {
        Some(url) => holder::hold(url, &args).await,
        None => run(&args).await,
    };
    apps_report::exit(env!("CARGO_PKG_NAME"), done)
}

async fn run(args: &Args) -> Result<()> {
    let handler = Handler::default();
    let host = args.way.serve(LockServer::new(handler.clone()), &pb::PATHCALL).await?;
    let holder = match args.die {
        Some(death) => Some(Holder::start(&host.url, args, death).await?),
        None => None,
    };

    let counters: Arc<Vec<Counter>> = Arc::new((0..args.locks).map(|_| Counter::default()).collect());
    let mut clients = JoinSet::new();
    for id in 1..=args.clients {
        let part = client(host.url.clone(), args.clone(), id, Arc::clone(&counters));
        clients.spawn(args.way.places.clone().client(id as usize - 1, part));
    }
    if let Some(holder) = holder {
        holder.die().await?;
    }
    let (mut latencies, mut lanes, mut began) = (Vec::new(), Lanes::default(), None::<Instant>);
    while let Some(client) = clients.join_next().await {
        let (started, took, worked) = client??;
        began = Some(began.map_or(started, |began| began.min(started)));
        latencies.extend(took);
        lanes.add(worked);
    }
    let took = began.map_or(Duration::ZERO, |began| began.elapsed());

    let got: Vec<u64> = counters.iter().map(Counter::value).collect();
    let mut expected = vec![0; got.len()];
    for (id, section) in sections(args) {
        choose(args, id, section).into_iter().for_each(|lock| expected[lock as usize] += 1);
    }
    ensure!(got == expected, "wrong counters: expected {expected:?}, got {got:?}");

    let mut report = Report::new("lock", args.way.plain, latencies, took);
    report.server_bytes = host.bytes(&handler.bytes);
    report.element_share = lanes.share();
    let bytes: Vec<[u8; 8]> = got.iter().map(|n| n.to_be_bytes()).collect();
    report.digest = digest(bytes.iter().map(|n| &n[..]));
    report.print(args.way.json);
    if !args.way.json {
        println!("  critical sections by lock: {got:?}, never two at once");
    }
    Ok(())
}

/// Critical sections of all clients.
fn sections(args: &Args) -> impl Iterator<Item = (u64, u64)> {
    (1..=args.clients).flat_map(|id| (0..args.sections).map(move |section| (id, section)))
}

/// Locks of a critical section: one, or two different ones.
fn choose(args: &Args, client: u64, section: u64) -> Vec<u64> {
    // SplitMix64 of all parameters.
    let mut mixed = args.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(client << 32 | section);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    let first = mixed % args.locks;
    let second = (first + 1 + (mixed >> 20) % args.locks) % args.locks;
    if mixed >> 62 == 0 && second != first { vec![first, second] } else { vec![first] }
}

/// Runs a client's critical sections. Returns the time at which they began, the latencies of their calls, and the counts
/// of element and software.
async fn client(
    url: String,
    args: Args,
    id: u64,
    counters: Arc<Vec<Counter>>,
) -> Result<(Instant, Vec<Duration>, Lanes)> {
    let mut lanes = Lanes::default();
    if args.way.plain {
        let mut client = LockClient::new(tonic_channel(url).await?);
        let started = warm_up(&mut client, id).await?;
        return Ok((started, contend(client, &args, id, &counters).await?, lanes));
    }
    let channel = pathcall::Channel::connect(url, &pb::PATHCALL).await?;
    let mut client = LockClient::new(channel.clone());
    let started = warm_up(&mut client, id).await?;
    let latencies = contend(client, &args, id, &counters).await?;
    lanes.count(&channel);
    Ok((started, latencies, lanes))
}

/// Takes and releases a lock of this client alone. The first call joins the application, and without a controller a
/// server of locks admits nobody before the clock shows its next second.
async fn warm_up<T: Transport>(client: &mut LockClient<T>, id: u64) -> Result<Instant> {
    let own = || StrintMap { map: HashMap::from([(format!("client-{id}"), id as i64)]) };
    let grant = acquire(client, own()).await?;
    client.release(grant.release(own())).await?;
    Ok(Instant::now())
}

async fn contend<T: Transport>(
    mut client: LockClient<T>,
    args: &Args,
    id: u64,
    counters: &[Counter],
) -> Result<Vec<Duration>> {
    let mut latencies = Vec::new();
    for section in 0..args.sections {
        let mut locks = choose(args, id, section);
        // Tokens are in the order of the names.
        locks.sort_by_key(|lock| name(*lock));
        let began = Instant::now();
        let grant = acquire(&mut client, names(&locks, id)).await?;
        let granted = Instant::now();
        ensure!(args.way.plain || grant.tokens.is_some(), "locks were granted without fencing tokens");
        latencies.push(granted - began);

        let inside = locks.iter().zip(grant.tokens(locks.len()));
        let inside =
            inside.map(|(lock, token)| counters[*lock as usize].enter(id, token)).collect::<Result<Vec<_>>>()?;
        // Other clients run while this one is inside.
        tokio::task::yield_now().await;
        ensure!(grant.lease.is_none_or(|lease| granted.elapsed() < lease), "client {id} was too slow for its lease");
        inside.into_iter().try_for_each(|section| section.increment())?;

        let began = Instant::now();
        client.release(grant.release(names(&locks, id))).await?;
        latencies.push(began.elapsed());
    }
    Ok(latencies)
}

fn name(lock: u64) -> String {
    format!("counter-{lock}")
}

/// Locks by name, with the client's id.
fn names(locks: &[u64], client: u64) -> StrintMap {
    StrintMap { map: locks.iter().map(|lock| (name(*lock), client as i64)).collect::<HashMap<_, _>>() }
}

/// Metadata of granted locks, where the server sends any.
#[derive(Debug, Clone)]
struct Grant {
    /// Lease of the locks, extended while the channel reaches the server.
    lease: Option<Duration>,
    /// One token for each lock, comma-separated: greater than the tokens of all earlier grants of the lock.
    tokens: Option<MetadataValue<Ascii>>,
}

impl Grant {
    fn of(metadata: &MetadataMap) -> Self {
        let lease = metadata.get(LEASE_MS).and_then(|value| value.to_str().ok()?.parse().ok());
        Self { lease: lease.map(Duration::from_millis), tokens: metadata.get(FENCING_TOKEN).cloned() }
    }

    /// Tokens of the locks, in the order of their names.
    fn tokens(&self, locks: usize) -> Vec<Option<u64>> {
        let text = self.tokens.as_ref().and_then(|tokens| tokens.to_str().ok());
        text.map_or_else(|| vec![None; locks], |text| text.split(',').map(|token| token.parse().ok()).collect())
    }

    /// Request that releases these grants, and no later ones.
    fn release(&self, kvs: StrintMap) -> Request<pb::ReleaseRequest> {
        let mut request = Request::new(pb::ReleaseRequest { kvs: Some(kvs) });
        if let Some(tokens) = &self.tokens {
            request.metadata_mut().insert(FENCING_TOKEN, tokens.clone());
        }
        request
    }
}

/// Takes locks, with repeats until they are granted.
async fn acquire<T: Transport>(client: &mut LockClient<T>, kvs: StrintMap) -> Result<Grant> {
    let began = Instant::now();
    let (mut pause, longest) = PAUSE;
    loop {
        match try_acquire(client, kvs.clone(), RETRY_INTERVAL).await? {
            Some(grant) => return Ok(grant),
            None => {
                ensure!(began.elapsed() < ACQUIRE_TIMEOUT, "no lock granted within {} s", ACQUIRE_TIMEOUT.as_secs())
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(longest);
    }
}

/// Takes locks within a time; `None` if others hold them.
async fn try_acquire<T: Transport>(
    client: &mut LockClient<T>,
    kvs: StrintMap,
    patience: Duration,
) -> Result<Option<Grant>> {
    let mut request = Request::new(pb::LockRequest { kvs: Some(kvs) });
    request.set_timeout(patience);
    match client.get_lock(request).await {
        Ok(reply) => Ok(Some(Grant::of(reply.metadata()))),
        // Tonic's own channel returns CANCELLED when its timer fires.
        Err(status) if [Code::DeadlineExceeded, Code::Cancelled, Code::Aborted].contains(&status.code()) => Ok(None),
        Err(status) => Err(status.into()),
    }
}
