//! Links of a replica: to the other replicas by plain gRPC, one call for a message, and to the counters in the network
//! by a channel of Pathcall.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use anyhow::{Context, Result};
use pathcall::types::IntintMap;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};

use super::log_thread::Work;
use super::{COUNTERS, MESSAGE_MAX};
use crate::consensus::{BallotNumber, Cast, Clear, Input, Message, ReplicaId};
use crate::convert::envelope;
use crate::pb;
use crate::pb::replica_client::ReplicaClient;
use crate::pb::votes_client::VotesClient;

/// Time after which a message counts as lost.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Messages under way to one replica; more are dropped, as on any link, and repeated by ticks.
const UNDER_WAY_MAX: usize = 4096;
/// Counters cleared in one call.
const CLEARED_MAX: u64 = 32;
/// Time for which a replica looks for the server of votes when it starts.
const CONNECTING: Duration = Duration::from_secs(30);
const CONNECT_PAUSE: Duration = Duration::from_millis(100);

/// Links to all replicas, by number.
pub(crate) struct PeerLinks {
    id: ReplicaId,
    runtime: Handle,
    links: Vec<(ReplicaClient<Channel>, Arc<Semaphore>)>,
}

impl PeerLinks {
    /// Creates the links; each connects with its first message.
    pub(crate) fn start(id: ReplicaId, urls: &[String]) -> Result<Self> {
        let link = |url: &String| {
            let endpoint = Endpoint::from_shared(url.clone()).with_context(|| format!("{url} is no URL"))?;
            let channel = endpoint.timeout(TIMEOUT).connect_timeout(TIMEOUT).tcp_nodelay(true).connect_lazy();
            let client = ReplicaClient::new(channel).max_encoding_message_size(MESSAGE_MAX);
            Ok((client, Arc::new(Semaphore::new(UNDER_WAY_MAX))))
        };
        Ok(Self { id, runtime: Handle::current(), links: urls.iter().map(link).collect::<Result<_>>()? })
    }

    /// Sends a message, which may be lost.
    pub(crate) fn send(&self, to: ReplicaId, message: &Message) {
        let Some((client, under_way)) = self.links.get(usize::from(to)) else { return };
        let Ok(permit) = under_way.clone().try_acquire_owned() else { return };
        let (mut client, envelope) = (client.clone(), envelope(self.id, message));
        self.runtime.spawn(async move {
            // The protocol repeats what is lost.
            let _ = client.deliver(envelope).await;
            drop(permit);
        });
    }
}

/// Votes in the network.
pub(crate) struct VoteLink {
    runtime: Handle,
    work: Sender<Work>,
    client: VotesClient<pathcall::Channel>,
    ballot: BallotNumber,
    /// Votes of the ballot that are under way.
    casting: JoinSet<()>,
}

impl VoteLink {
    /// Connects to the server of votes.
    pub(crate) async fn connect(url: &str, work: Sender<Work>) -> Result<Self> {
        let connect = async {
            loop {
                match pathcall::Channel::connect(url.to_owned(), &pb::PATHCALL).await {
                    Ok(channel) => return channel,
                    Err(_) => tokio::time::sleep(CONNECT_PAUSE).await,
                }
            }
        };
        let channel = tokio::time::timeout(CONNECTING, connect).await;
        let channel = channel.with_context(|| format!("no server of votes answers at {url}"))?;
        let (client, ballot) = (VotesClient::new(channel), BallotNumber::default());
        Ok(Self { runtime: Handle::current(), work, client, ballot, casting: JoinSet::new() })
    }

    /// Casts a vote. Votes of older ballots do not matter any more.
    pub(crate) fn cast(&mut self, cast: Cast) {
        if cast.ballot > self.ballot {
            self.ballot = cast.ballot;
            self.casting.abort_all();
        }
        while self.casting.try_join_next().is_some() {}
        let (mut client, work) = (self.client.clone(), self.work.clone());
        let vote = pb::Vote { counters: Some(counters([cast.slot], cast.ballot)) };
        let voting = async move {
            let input = match client.cast(vote).await {
                Ok(_) => Input::Counted(cast),
                Err(_) => Input::CastFailed(cast),
            };
            // The thread may have ended.
            let _ = work.send(Work::Input(input));
        };
        self.casting.spawn_on(voting, &self.runtime);
    }

    /// Clears counters. If that fails, they stay in use, until a new ballot.
    pub(crate) fn clear(&self, clear: Clear) {
        let (mut client, work) = (self.client.clone(), self.work.clone());
        self.runtime.spawn(async move {
            let mut first = clear.first;
            while first < clear.end {
                let end = clear.end.min(first + CLEARED_MAX);
                let request = pb::Counters { counters: Some(counters(first..end, clear.ballot)) };
                if client.clear(request).await.is_err() {
                    return;
                }
                first = end;
            }
            // The thread may have ended.
            let _ = work.send(Work::Input(Input::Cleared(clear)));
        });
    }
}

/// Keys of counters: ballot number, and slot modulo the number of counters.
fn counters(slots: impl IntoIterator<Item = u64>, ballot: BallotNumber) -> IntintMap {
    let key = |slot: u64| i64::from(ballot.round) << 24 | i64::from(ballot.leader) << 16 | (slot % COUNTERS) as i64;
    IntintMap { map: slots.into_iter().map(|slot| (key(slot), 1)).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_ballots_have_different_keys() {
        let ballots = [(1, 0), (1, 1), (2, 0)].map(|(round, leader)| BallotNumber { round, leader });
        let keys = ballots.into_iter().flat_map(|ballot| counters(0..2 * COUNTERS, ballot).map.into_keys());
        let keys: std::collections::BTreeSet<_> = keys.collect();
        assert_eq!(keys.len() as u64, 3 * COUNTERS);
    }
}
