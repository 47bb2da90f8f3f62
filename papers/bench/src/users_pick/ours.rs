//! Pathcall's callers: tonic's stubs over a Pathcall channel.

use std::collections::HashMap;

use anyhow::{Context, Result, ensure};
use pathcall::types::StrintMap;
use tonic::Request;
use tonic::metadata::{Ascii, MetadataValue};

use super::work::{Ballot, Ballots, CALLERS, Locks};
use crate::netrpc_async::{CountClient, Counter};
use crate::small::LockVoteHandler;
use crate::stubs::pb::small_client::SmallClient;
use crate::stubs::pb::small_server::SmallServer;
use crate::stubs::pb::words_client::WordsClient;
use crate::stubs::pb::words_server::WordsServer;
use crate::stubs::pb::{Names, PATHCALL};
use crate::testbed::ElementTestbed;
use crate::testbed::callers::Callers;

/// Metadata of a grant, which its release shows.
const FENCING_TOKEN: &str = "pathcall-fencing-token";
const ROWS: u32 = pathcall::layer::DEFAULT_ROWS;

/// Caller of locks and ballots.
#[derive(Clone)]
pub(super) struct Small {
    stub: SmallClient<pathcall::Channel>,
    channel: pathcall::Channel,
}

/// Starts a server on host 1, and callers of its locks and ballots.
pub(super) fn small(stage: &ElementTestbed) -> Result<Callers<Small>> {
    let stub = |channel: pathcall::Channel| Small { stub: SmallClient::new(channel.clone()), channel };
    Callers::pathcall(stage, (&PATHCALL, ROWS), CALLERS, SmallServer::new(LockVoteHandler::default()), stub)
}

/// Starts a server on host 1, and callers of its counts.
pub(super) fn words(stage: &ElementTestbed) -> Result<Callers<Words>> {
    let stub = |channel: pathcall::Channel| Words { stub: WordsClient::new(channel.clone()), channel };
    Callers::pathcall(stage, (&PATHCALL, ROWS), CALLERS, WordsServer::new(Counter::default()), stub)
}

impl Locks for Small {
    type Grant = MetadataValue<Ascii>;

    async fn take(&self, lock: &str) -> Result<Self::Grant> {
        let reply = self.stub.clone().lock(names([lock.to_owned()])).await?;
        reply.metadata().get(FENCING_TOKEN).cloned().context("a grant without a fencing token")
    }

    async fn release(&self, lock: &str, grant: Self::Grant) -> Result<()> {
        let mut request = Request::new(names([lock.to_owned()]));
        request.metadata_mut().insert(FENCING_TOKEN, grant);
        self.stub.clone().release(request).await?;
        Ok(())
    }
}

impl Ballots for Small {
    /// Rounds have the same names: a ballot that was cleared keeps its row in the element.
    async fn cast(&self, ballot: Ballot) -> Result<()> {
        self.stub.clone().vote(names([name(ballot)])).await?;
        Ok(())
    }

    async fn forget(&self, ballots: Vec<Ballot>) -> Result<()> {
        self.stub.clone().forget(names(ballots.into_iter().map(name))).await?;
        Ok(())
    }
}

fn name(ballot: Ballot) -> String {
    format!("ballot-{}", ballot.number)
}

fn names(names: impl IntoIterator<Item = String>) -> Names {
    Names { names: Some(StrintMap { map: names.into_iter().map(|name| (name, 1)).collect() }) }
}

/// Caller that counts words.
#[derive(Clone)]
pub(super) struct Words {
    stub: WordsClient<pathcall::Channel>,
    channel: pathcall::Channel,
}

impl CountClient for Words {
    async fn count(&mut self, map: HashMap<String, i64>) -> Result<()> {
        self.stub.count(map).await
    }

    async fn all(&mut self) -> Result<HashMap<String, i64>> {
        self.stub.all().await
    }
}

/// Side whose values are processed by an element, or in software.
pub(super) trait Processed {
    fn channel(&self) -> &pathcall::Channel;
}

impl Processed for Small {
    fn channel(&self) -> &pathcall::Channel {
        &self.channel
    }
}

impl Processed for Words {
    fn channel(&self) -> &pathcall::Channel {
        &self.channel
    }
}

/// Values of all callers so far, processed by the element and in software.
pub(super) fn processed<S: Processed + Clone + Send + 'static>(callers: &Callers<S>) -> [u64; 2] {
    let applications = callers.stubs().flat_map(|caller| caller.channel().stats().applications);
    applications.fold([0, 0], |[element, software], application| {
        [element + application.map.lanes_element, software + application.map.lanes_software]
    })
}

/// Checks that most of the values of a turn were processed where the figure says.
pub(super) fn check_place(before: [u64; 2], after: [u64; 2], by_element: bool) -> Result<()> {
    let [element, software] = [0, 1].map(|place| after[place] - before[place]);
    let right = if by_element { element > software } else { element == 0 };
    ensure!(right, "{element} values were processed by the element, {software} in software");
    Ok(())
}
