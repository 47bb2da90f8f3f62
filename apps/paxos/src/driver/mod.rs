//! Driver of a replica: its thread with the log, links to the others, votes in the network, time-outs, and the service.
//!
//! ```text
//! service, links, time-outs ─► work ─► thread: Replica::handle, disk, application ─► links, votes, answers
//! ```

mod links;
mod log_thread;
mod service;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use apps_load::Random;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tonic::transport::server::TcpIncoming;

use self::links::{PeerLinks, VoteLink};
pub(crate) use self::log_thread::LEADER;
use self::log_thread::{LogThread, Work};
use self::service::ReplicaService;
use crate::consensus::{Input, REPLICAS_MAX, Replica, ReplicaConfig, ReplicaId};
use crate::disk::DiskLog;
use crate::pb::replica_server::ReplicaServer;

/// Counters of a ballot in the network.
pub const COUNTERS: u64 = 256;
/// Number of replicas with which `votes.nf` counts: two votes are a majority.
pub const COUNTED_REPLICAS: u8 = 3;
/// Interval of heartbeats and of repeats.
const TICK: Duration = Duration::from_millis(50);
/// Maximum length of a message: a promise may have all values since the last snapshot.
pub(crate) const MESSAGE_MAX: usize = 256 << 20;

/// Settings of a replica's process.
#[derive(Debug, Clone)]
pub struct ReplicaOptions {
    /// Own number, from 0.
    pub id: ReplicaId,
    /// URL of each replica, in the order of their numbers.
    pub replicas: Vec<String>,
    /// Directory of the log.
    pub data: PathBuf,
    /// URL of the server of votes; without one, votes are counted by messages.
    pub votes: Option<String>,
    /// Time without a leader after which a replica tries to lead; at random up to twice as long.
    pub election: Duration,
}

/// Running replica. Dropping it stops it as a crash does.
#[derive(Debug)]
pub struct RunningReplica {
    tasks: Vec<JoinHandle<()>>,
    /// The thread ends when all senders are gone.
    _work: Sender<Work>,
}

impl Drop for RunningReplica {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Binds the socket of a replica.
///
/// # Errors
/// Returns an error if the address is in use.
pub async fn bind(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("cannot start a replica at {address}"))
}

/// Starts a replica on its socket, with the log in its directory.
///
/// # Errors
/// Returns an error if the settings contradict each other, the log cannot be read, or the server of votes does not
/// answer.
pub async fn start(options: ReplicaOptions, listener: TcpListener) -> Result<RunningReplica> {
    let config = config(&options)?;
    let (disk, records) = DiskLog::open(&options.data)?;
    let (replica, restored) = Replica::start(config, records);
    let (work, queue) = std::sync::mpsc::channel();
    let votes = match &options.votes {
        Some(url) => Some(VoteLink::connect(url, work.clone()).await?),
        None => None,
    };
    let links = PeerLinks::start(options.id, &options.replicas)?;
    LogThread { replica, disk, links, votes, config }.start(queue, restored)?;

    let service = ReplicaService::new(work.clone(), config);
    let server = ReplicaServer::new(service).max_decoding_message_size(MESSAGE_MAX);
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let serving = tonic::transport::Server::builder().add_service(server).serve_with_incoming(incoming);
    let tasks = vec![
        // Without a listener the others do not hear this replica, as if it had crashed.
        tokio::spawn(async move { drop(serving.await) }),
        tokio::spawn(tick(work.clone())),
        tokio::spawn(look_for_leader(work.clone(), options.id, options.election)),
    ];
    Ok(RunningReplica { tasks, _work: work })
}

fn config(options: &ReplicaOptions) -> Result<ReplicaConfig> {
    let replicas = options.replicas.len();
    ensure!((1..=REPLICAS_MAX).contains(&replicas), "{replicas} replicas, expected 1 to {REPLICAS_MAX}");
    let replicas = replicas as u8;
    ensure!(options.id < replicas, "replica {} of {replicas}: replicas count from 0", options.id);
    if options.votes.is_some() && replicas != COUNTED_REPLICAS {
        bail!(
            "the network counts votes of {COUNTED_REPLICAS} replicas, not of {replicas}: leave out the server of votes"
        );
    }
    let counters = if options.votes.is_some() { COUNTERS } else { 0 };
    Ok(ReplicaConfig { id: options.id, replicas, counters, mutant: None })
}

/// Sends ticks while the replica runs.
async fn tick(work: Sender<Work>) {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        if work.send(Work::Input(Input::Tick)).is_err() {
            return;
        }
    }
}

/// Asks at random intervals whether a leader was heard. The first replica asks first.
async fn look_for_leader(work: Sender<Work>, id: ReplicaId, election: Duration) {
    let seed =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |now| now.as_nanos() as u64);
    let mut random = Random::new(seed ^ u64::from(id));
    tokio::time::sleep(election.mul_f64(f64::from(id) / 2.0) + TICK).await;
    while work.send(Work::LookForLeader).is_ok() {
        tokio::time::sleep(election.mul_f64(1.0 + random.unit())).await;
    }
}
