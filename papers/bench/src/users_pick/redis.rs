//! Redis as its users take it: locks by `SET NX PX` and a script that compares and deletes, counts by pipelines of
//! `INCRBY`, ballots by a script that counts the voters and publishes the decision.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, PushInfo, PushKind, Value, cmd, pipe};

use super::work::{Ballot, Ballots, Locks, MAJORITY, OpenVotes};
use crate::netrpc_async::CountClient;

/// Time after which a lock of a dead holder is free, in milliseconds.
const LOCK_MS: u64 = 30_000;
/// Deletes a lock if it still has the value of this grant.
const RELEASE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";
/// Counts each voter once; the vote that reaches the threshold publishes the decision. Returns the votes so far.
const VOTE: &str = "redis.call('SADD', KEYS[1], ARGV[1]) local votes = redis.call('SCARD', KEYS[1]) \
     if votes == tonumber(ARGV[2]) then redis.call('PUBLISH', 'decided', KEYS[1]) end return votes";
const DECIDED: &str = "decided";

/// Caller with one multiplexed connection, on which decisions arrive, too.
#[derive(Clone)]
pub(super) struct RedisCaller {
    connection: MultiplexedConnection,
    scripts: Arc<Scripts>,
    open: OpenVotes,
    /// Number of the next grant: each has a value of its own.
    grants: Arc<AtomicU64>,
}

/// Name of the caller, and digests of the loaded scripts.
struct Scripts {
    caller: u64,
    release: String,
    vote: String,
}

impl RedisCaller {
    /// Connects to a server.
    pub(super) async fn connect(server: SocketAddr) -> Result<Self> {
        let info = format!("redis://{server}/?protocol=resp3").into_connection_info()?;
        let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let open = OpenVotes::default();
        let decisions = open.clone();
        let pushed = move |push: PushInfo| {
            if let (PushKind::Message, [_, Value::BulkString(ballot)]) = (&push.kind, &push.data[..]) {
                decisions.decide(&String::from_utf8_lossy(ballot));
            }
            Ok::<_, redis::aio::SendError>(())
        };
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let config = config.set_push_sender(pushed);
        let mut connection = Client::open(info)?.get_multiplexed_async_connection_with_config(&config).await?;
        connection.subscribe(DECIDED).await?;
        let load = |script: &str| cmd("SCRIPT").arg("LOAD").arg(script).clone();
        let scripts = Scripts {
            caller: cmd("CLIENT").arg("ID").query_async(&mut connection).await?,
            release: load(RELEASE).query_async(&mut connection).await?,
            vote: load(VOTE).query_async(&mut connection).await?,
        };
        Ok(Self { connection, scripts: Arc::new(scripts), open, grants: Arc::default() })
    }
}

impl Locks for RedisCaller {
    type Grant = String;

    async fn take(&self, lock: &str) -> Result<String> {
        let grant = format!("{}-{}", self.scripts.caller, self.grants.fetch_add(1, Ordering::Relaxed));
        let mut set = cmd("SET");
        set.arg(lock).arg(&grant).arg("NX").arg("PX").arg(LOCK_MS);
        let taken: Option<String> = set.query_async(&mut self.connection.clone()).await?;
        ensure!(taken.is_some(), "lock {lock} is held");
        Ok(grant)
    }

    async fn release(&self, lock: &str, grant: String) -> Result<()> {
        let mut release = cmd("EVALSHA");
        release.arg(&self.scripts.release).arg(1).arg(lock).arg(grant);
        let released: u64 = release.query_async(&mut self.connection.clone()).await?;
        ensure!(released == 1, "lock {lock} was lost");
        Ok(())
    }
}

impl Ballots for RedisCaller {
    async fn cast(&self, ballot: Ballot) -> Result<()> {
        let ballot = ballot.unique_name();
        let open = self.open.open(&ballot);
        let mut vote = cmd("EVALSHA");
        vote.arg(&self.scripts.vote).arg(1).arg(ballot).arg(self.scripts.caller).arg(MAJORITY);
        let votes: usize = vote.query_async(&mut self.connection.clone()).await?;
        open.decided(votes).await
    }

    async fn forget(&self, ballots: Vec<Ballot>) -> Result<()> {
        let ballots: Vec<String> = ballots.into_iter().map(Ballot::unique_name).collect();
        let deleted: usize = cmd("DEL").arg(&ballots).query_async(&mut self.connection.clone()).await?;
        ensure!(deleted == ballots.len(), "{deleted} of {} ballots were there", ballots.len());
        Ok(())
    }
}

impl CountClient for RedisCaller {
    async fn count(&mut self, map: HashMap<String, i64>) -> Result<()> {
        let mut counts = pipe();
        for (word, count) in map {
            counts.cmd("INCRBY").arg(word).arg(count).ignore();
        }
        Ok(counts.query_async(&mut self.connection).await?)
    }

    async fn all(&mut self) -> Result<HashMap<String, i64>> {
        let words: Vec<String> = cmd("KEYS").arg("word-*").query_async(&mut self.connection).await?;
        let counts: Vec<i64> = cmd("MGET").arg(&words).query_async(&mut self.connection).await.context("counts")?;
        Ok(words.into_iter().zip(counts).collect())
    }
}
