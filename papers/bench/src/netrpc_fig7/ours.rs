//! Replicas of the application paxos, each on its host.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use paxos::driver::{self, ReplicaOptions, RunningReplica};
use paxos::load::{Session, write_all};
use paxos::votes::{self, VotesOptions, VotesServing};

use super::{BYTES, Disk, LogDirectory, REPLICAS, ReplicatedLog, TIMEOUT};
use crate::testbed::{ElementTestbed, Party, WaitMode};

/// Time without a leader after which a replica tries to lead: long, as all parties share the processors.
const ELECTION: Duration = Duration::from_secs(3);
/// Most writes until the network has counted a vote.
const WRITES_UNCOUNTED_MAX: u64 = 10_000;

/// Running replicas, with the party of the clients. Servers are dropped before their parties.
pub(super) struct Replicas {
    session: Session,
    /// Number of the next client: no two have the same.
    next: AtomicU64,
    /// Whether the network counts votes.
    counted: bool,
    _replicas: Vec<RunningReplica>,
    _votes: Option<VotesServing>,
    client: Party,
    _parties: Vec<Party>,
    _directory: LogDirectory,
    _stage: ElementTestbed,
}

impl Replicas {
    /// Starts replicas, and waits for a leader. With `counted`, the network counts their votes.
    pub(super) fn start(stage: ElementTestbed, disk: Disk, counted: bool) -> Result<Self> {
        let name = if counted { "paxos" } else { "paxos-plain" };
        let directory = disk.directory(name)?;
        let client = stage.host(1, WaitMode::Blocking, None)?;
        let votes = if counted {
            let (listen, controller) = (stage.free_at(1)?, stage.controller());
            Some(client.run(move || votes::serve(VotesOptions { listen, controller, path: None }))?)
        } else {
            None
        };
        let hosts = 2..2 + REPLICAS;
        let parties = hosts.clone().map(|k| stage.host(k, WaitMode::Blocking, None)).collect::<Result<Vec<_>>>()?;
        let mut listeners = Vec::new();
        for (k, party) in hosts.zip(&parties) {
            let at = stage.free_at(k)?;
            listeners.push(party.run(move || driver::bind(at))?);
        }
        let url = |listener: &tokio::net::TcpListener| Ok(format!("http://{}", listener.local_addr()?));
        let urls = listeners.iter().map(url).collect::<Result<Vec<_>>>()?;
        let mut replicas = Vec::new();
        for (id, (party, listener)) in parties.iter().zip(listeners).enumerate() {
            let options = ReplicaOptions {
                id: id as u8,
                replicas: urls.clone(),
                data: directory.0.join(id.to_string()),
                votes: votes.as_ref().map(|votes| votes.url.clone()),
                election: ELECTION,
            };
            replicas.push(party.run(move || driver::start(options, listener))?);
        }
        let session = client.run(move || async move { Session::new(&urls, 0) })?;
        let (next, _stage) = (AtomicU64::new(1), stage);
        let replicas = Self {
            session,
            next,
            counted,
            _replicas: replicas,
            _votes: votes,
            client,
            _parties: parties,
            _directory: directory,
            _stage,
        };
        replicas.write(1, 1)?;
        let mut writes = 1;
        while replicas.counted && replicas.votes_counted()? == 0 {
            ensure!(writes < WRITES_UNCOUNTED_MAX, "the network has counted no vote for {writes} slots");
            replicas.write(1, 1)?;
            writes += 1;
        }
        Ok(replicas)
    }

    /// Votes that the network has counted, of all replicas, which have the same state.
    fn votes_counted(&self) -> Result<u64> {
        let session = self.session.clone();
        let states = self.client.run(move || async move { session.agree(TIMEOUT).await })?;
        Ok(states.iter().map(|state| state.counted).sum())
    }
}

impl ReplicatedLog for Replicas {
    fn write(&self, clients: u64, writes: usize) -> Result<Vec<Duration>> {
        let (session, first) = (self.session.clone(), self.next.fetch_add(clients, Ordering::Relaxed));
        self.client
            .run(move || async move { write_all(&session, first..first + clients, writes, BYTES, TIMEOUT).await })
    }

    fn cpu(&self) -> Result<Duration> {
        Ok(Duration::ZERO)
    }

    /// The replicas have the same state, and the network has counted votes, or none. How many is not decided here: a replica
    /// may learn a slot from the leader first.
    fn check(&self) -> Result<()> {
        let counted = self.votes_counted()?;
        ensure!((counted > 0) == self.counted, "the network has counted {counted} votes");
        Ok(())
    }
}
