//! Caller of look-ups: one delegated call, or as the baseline a call to each server.

use anyhow::Result;
use apps_report::hops::{Caller, all};
use pathcall::Channel;
use pathcall::delegate::{CallTrace, NodeTarget, PendingTrace};
use tokio::task::JoinSet;
use tonic::{Request, Status};

use crate::pb::lookup_client::LookupClient;
use crate::pb::{Found, Query};
use crate::servers::{INDEX, next, wanted};

/// Query for these words, longest first: long words are usually rarer, and the documents with the first word travel
/// with the query.
pub(crate) fn query(words: &[String], limit: u32) -> Query {
    let mut left = words.to_vec();
    left.sort_by_key(|word| std::cmp::Reverse(word.chars().count()));
    left.dedup();
    Query { words: words.to_vec(), left, among: None, limit }
}

/// Documents with all of the words, by path.
pub(crate) async fn look_up(caller: &Caller, rpc: bool, query: Query) -> Result<Vec<Found>, Status> {
    let mut found = if rpc { ask_each(caller, query).await } else { ask_once(caller, query).await }?;
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

async fn ask_once(caller: &Caller, query: Query) -> Result<Vec<Found>, Status> {
    all(stub(caller, &query)?.find(query).await).await
}

/// Trace of a delegated query.
pub(crate) async fn trace(caller: &Caller, query: Query) -> Result<Option<CallTrace>, Status> {
    let (mut stub, mut request) = (stub(caller, &query)?, Request::new(query));
    let trace = PendingTrace::of(&mut request);
    all(stub.find(request).await).await?;
    Ok(trace.finished().await)
}

/// Stub of the first server of a query.
fn stub(caller: &Caller, query: &Query) -> Result<LookupClient<Channel>, Status> {
    let first = next(query).ok_or_else(|| Status::invalid_argument("the query has no words"))?;
    Ok(LookupClient::new(caller.channel(NodeTarget::key(INDEX, first))?))
}

async fn ask_each(caller: &Caller, mut query: Query) -> Result<Vec<Found>, Status> {
    while let Some(word) = next(&query) {
        let channel = caller.channel(NodeTarget::key(INDEX, word))?;
        let narrowed = all(LookupClient::new(channel).narrow(query).await).await?;
        let [narrowed] = <[Query; 1]>::try_from(narrowed)
            .map_err(|got| Status::internal(format!("expected one query, got {}", got.len())))?;
        query = narrowed;
    }
    let mut stores = JoinSet::new();
    for (store, wanted) in wanted(query, caller.directory())? {
        let channel = caller.channel(store)?;
        stores.spawn(async move { all(LookupClient::new(channel).fetch(wanted).await).await });
    }
    let mut found = Vec::new();
    while let Some(store) = stores.join_next().await {
        found.extend(store.map_err(|error| Status::internal(error.to_string()))??);
    }
    Ok(found)
}
