//! etcd as its users take it: locks by a transaction that puts a key under the caller's lease if there is none, ballots
//! by a transaction that puts a vote and counts, with a watch for the decision.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use tonic::codegen::tokio_stream::{self, StreamExt};
use tonic::transport::Channel;

use super::work::{Ballot, Ballots, Locks, MAJORITY, OpenVotes};
use crate::net::connect_plain;
use crate::stubs::etcd::compare::{CompareTarget, TargetUnion};
use crate::stubs::etcd::kv_client::KvClient;
use crate::stubs::etcd::lease_client::LeaseClient;
use crate::stubs::etcd::request_op::Request;
use crate::stubs::etcd::response_op::Response;
use crate::stubs::etcd::watch_client::WatchClient;
use crate::stubs::etcd::watch_request::RequestUnion;
use crate::stubs::etcd::{
    Compare, DeleteRangeRequest, LeaseGrantRequest, PutRequest, RangeRequest, RequestOp, TxnRequest, TxnResponse,
    WatchCreateRequest, WatchRequest, WatchResponse, event,
};

/// Time after which the locks of a dead caller are free, in seconds; more than the figure takes.
const LEASE_S: i64 = 3_600;
const VOTES: &str = "votes/";

/// Caller with one connection, a lease, and a watch of all votes.
#[derive(Clone)]
pub(super) struct EtcdCaller {
    kv: KvClient<Channel>,
    lease: i64,
    open: OpenVotes,
    /// Keeps the watch running.
    _watch: Arc<WatchTask>,
}

struct WatchTask(tokio::task::JoinHandle<()>);

impl Drop for WatchTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl EtcdCaller {
    /// Connects to a server.
    pub(super) async fn connect(server: SocketAddr) -> Result<Self> {
        let channel = connect_plain(&format!("http://{server}")).await?;
        let lease = LeaseGrantRequest { ttl: LEASE_S };
        let lease = LeaseClient::new(channel.clone()).lease_grant(lease).await?.into_inner().id;
        let open = OpenVotes::default();
        let create = WatchCreateRequest { key: VOTES.into(), range_end: after_prefix(VOTES) };
        let create = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
        // The stream of requests stays open, as long as the watch does.
        let requests = tokio_stream::once(create).chain(tokio_stream::pending());
        let mut events = WatchClient::new(channel.clone()).watch(requests).await?.into_inner();
        let created = events.message().await?.context("the watch has ended")?;
        ensure!(created.created && !created.canceled, "no watch: {}", created.cancel_reason);
        let decisions = open.clone();
        let watch = tokio::spawn(async move {
            let mut votes = VoteCounts::default();
            while let Ok(Some(response)) = events.message().await {
                votes.count(response, &decisions);
            }
        });
        Ok(Self { kv: KvClient::new(channel), lease, open, _watch: Arc::new(WatchTask(watch)) })
    }

    async fn transaction(&self, compare: Compare, success: Vec<Request>) -> Result<TxnResponse> {
        let success = success.into_iter().map(|request| RequestOp { request: Some(request) }).collect();
        let transaction = TxnRequest { compare: vec![compare], success, failure: Vec::new() };
        Ok(self.kv.clone().txn(transaction).await?.into_inner())
    }
}

/// Comparison that holds if there is no such key.
fn is_missing(key: Vec<u8>) -> Compare {
    let (target, never) = (CompareTarget::Create.into(), Some(TargetUnion::CreateRevision(0)));
    Compare { result: 0, target, key, target_union: never }
}

impl Locks for EtcdCaller {
    /// Revision that created the lock's key: etcd's fencing token.
    type Grant = i64;

    async fn take(&self, lock: &str) -> Result<i64> {
        let put = PutRequest { key: lock.into(), value: Vec::new(), lease: self.lease };
        let taken = self.transaction(is_missing(lock.into()), vec![Request::Put(put)]).await?;
        ensure!(taken.succeeded, "lock {lock} is held");
        Ok(taken.header.context("an answer of etcd has no header")?.revision)
    }

    async fn release(&self, lock: &str, grant: i64) -> Result<()> {
        let (target, held) = (CompareTarget::Create.into(), Some(TargetUnion::CreateRevision(grant)));
        let compare = Compare { result: 0, target, key: lock.into(), target_union: held };
        let delete = DeleteRangeRequest { key: lock.into(), range_end: Vec::new() };
        let released = self.transaction(compare, vec![Request::DeleteRange(delete)]).await?;
        ensure!(released.succeeded, "lock {lock} was lost");
        Ok(())
    }
}

impl Ballots for EtcdCaller {
    async fn cast(&self, ballot: Ballot) -> Result<()> {
        let ballot = ballot.unique_name();
        let open = self.open.open(&ballot);
        let votes = format!("{VOTES}{ballot}/");
        // A lease is one caller's, and so is its vote.
        let vote = format!("{votes}{}", self.lease).into_bytes();
        let put = PutRequest { key: vote.clone(), value: Vec::new(), lease: 0 };
        let count = RangeRequest { range_end: after_prefix(&votes), key: votes.into(), count_only: true };
        let requests = vec![Request::Put(put), Request::Range(count)];
        let cast = self.transaction(is_missing(vote), requests).await?;
        ensure!(cast.succeeded, "a second vote in {ballot}");
        let Some(Response::Range(votes)) = cast.responses.into_iter().nth(1).and_then(|one| one.response) else {
            bail!("etcd has not counted the votes of {ballot}")
        };
        open.decided(votes.count as usize).await
    }

    async fn forget(&self, ballots: Vec<Ballot>) -> Result<()> {
        let all = DeleteRangeRequest { key: VOTES.into(), range_end: after_prefix(VOTES) };
        let deleted = self.kv.clone().delete_range(all).await?.into_inner().deleted;
        ensure!(deleted as usize >= ballots.len() * MAJORITY, "{deleted} votes in {} ballots", ballots.len());
        Ok(())
    }
}

/// Votes seen by the watch, by ballot.
#[derive(Default)]
struct VoteCounts(HashMap<String, usize>);

impl VoteCounts {
    fn count(&mut self, response: WatchResponse, open: &OpenVotes) {
        for event in response.events {
            let is_vote = event.r#type() == event::EventType::Put;
            let key = String::from_utf8(event.kv.unwrap_or_default().key).unwrap_or_default();
            let Some((ballot, _)) = key.strip_prefix(VOTES).and_then(|vote| vote.split_once('/')) else { continue };
            if !is_vote {
                self.0.remove(ballot);
                continue;
            }
            let votes = self.0.entry(ballot.to_owned()).or_default();
            *votes += 1;
            if *votes == MAJORITY {
                open.decide(ballot);
            }
        }
    }
}

/// End of the range of all keys with this prefix, which ends in ASCII.
fn after_prefix(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}
