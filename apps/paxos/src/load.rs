//! Client of the replicas: finds the leader, and sends a command again until it is executed, once.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::driver::LEADER;
use crate::pb;
use crate::pb::replica_client::ReplicaClient;

/// Time for one attempt at one replica.
const ATTEMPT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// Session of a client: one command at a time.
#[derive(Debug, Clone)]
pub struct Session {
    replicas: Vec<ReplicaClient<Channel>>,
    client: u64,
    number: u64,
    leader: usize,
}

impl Session {
    /// Session of a client with a number that no other client has.
    ///
    /// # Errors
    /// Returns an error if a URL is none.
    pub fn new(urls: &[String], client: u64) -> Result<Self> {
        let stub = |url: &String| {
            let endpoint = Endpoint::from_shared(url.clone()).with_context(|| format!("{url} is no URL"))?;
            Ok(ReplicaClient::new(endpoint.tcp_nodelay(true).connect_lazy()))
        };
        Ok(Self { replicas: urls.iter().map(stub).collect::<Result<_>>()?, client, number: 0, leader: 0 })
    }

    /// Session of another client over the same connections.
    #[must_use]
    pub fn with_client(&self, client: u64) -> Self {
        Self { client, number: 0, ..self.clone() }
    }

    /// Writes a value, or reads without one. Returns the value before.
    ///
    /// # Errors
    /// Returns an error if no leader executes the command within `timeout`. It may be executed later.
    pub async fn execute(&mut self, key: Vec<u8>, value: Option<Vec<u8>>, timeout: Duration) -> Result<pb::Outcome> {
        self.number += 1;
        let command = pb::Command { client: self.client, number: self.number, key, value };
        let (until, mut last) = (Instant::now() + timeout, Status::unavailable("no replica"));
        while Instant::now() < until {
            let attempt = self.replicas[self.leader].execute(command.clone());
            match tokio::time::timeout(ATTEMPT, attempt).await {
                Ok(Ok(outcome)) => return Ok(outcome.into_inner()),
                Ok(Err(status)) if !is_worth_repeating(&status) => bail!(status),
                Ok(Err(status)) => {
                    let named = status.metadata().get(LEADER).and_then(|leader| leader.to_str().ok()?.parse().ok());
                    let next = (self.leader + 1) % self.replicas.len();
                    self.leader = named.filter(|leader| *leader < self.replicas.len()).unwrap_or(next);
                    last = status;
                    tokio::time::sleep(PAUSE).await;
                }
                Err(_) => self.leader = (self.leader + 1) % self.replicas.len(),
            }
        }
        bail!("command {} of client {} was not executed in time: {last}", self.number, self.client)
    }

    /// State of each replica; `None` of one that does not answer.
    pub async fn inspect(&self) -> Vec<Option<pb::Condition>> {
        let mut conditions = Vec::new();
        for mut replica in self.replicas.clone() {
            let condition = tokio::time::timeout(ATTEMPT, replica.inspect(pb::Question {})).await;
            conditions.push(condition.ok().and_then(Result::ok).map(tonic::Response::into_inner));
        }
        conditions
    }

    /// Waits until all replicas have the same state, which they then return.
    ///
    /// # Errors
    /// Returns an error if they have not within `timeout`.
    pub async fn agree(&self, timeout: Duration) -> Result<Vec<pb::Condition>> {
        let until = Instant::now() + timeout;
        loop {
            let conditions = self.inspect().await;
            let all: Option<Vec<_>> = conditions.iter().cloned().collect();
            let state = |condition: &pb::Condition| (condition.applied, condition.digest);
            if let Some(all) = all.filter(|all| all.windows(2).all(|two| state(&two[0]) == state(&two[1]))) {
                return Ok(all);
            }
            if Instant::now() > until {
                bail!("the replicas do not have the same state: {conditions:?}");
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Whether another attempt, perhaps at another replica, may succeed.
fn is_worth_repeating(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::ResourceExhausted | Code::Cancelled | Code::Unknown)
}

/// Writes of one session after the other, by several sessions at a time. Returns the latency of each.
///
/// # Errors
/// Returns the first error of a command.
pub async fn write_all(
    session: &Session,
    clients: std::ops::Range<u64>,
    writes: usize,
    bytes: usize,
    timeout: Duration,
) -> Result<Vec<Duration>> {
    let mut running = JoinSet::new();
    for client in clients {
        let mut session = session.with_client(client);
        running.spawn(async move {
            let mut took = Vec::with_capacity(writes);
            for number in 0..writes {
                let (key, began) = (format!("{client}").into_bytes(), Instant::now());
                let before = session.execute(key, Some(value(number, bytes)), timeout).await?.value;
                let expected = number.checked_sub(1).map(|number| value(number, bytes));
                if before != expected {
                    bail!("write {number} of client {client}: another value was there before");
                }
                took.push(began.elapsed());
            }
            Ok(took)
        });
    }
    let mut all = Vec::new();
    while let Some(took) = running.join_next().await {
        all.extend(took??);
    }
    Ok(all)
}

/// Value of a write: its number, filled up.
fn value(number: usize, bytes: usize) -> Vec<u8> {
    let mut value = (number as u64).to_le_bytes().to_vec();
    value.resize(bytes.max(value.len()), 0);
    value
}
