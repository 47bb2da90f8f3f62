//! Locks and votes through stubs: the callers, and the handler for runs without Pathcall.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use pathcall::types::StrintMap;
use tokio::sync::oneshot;
use tonic::{Request, Response, Status};

use crate::stubs::pb::small_client::SmallClient;
use crate::stubs::pb::small_server::Small;
use crate::stubs::pb::{Done, Names};

/// Stub of one caller.
pub(crate) trait LockVoteCaller {
    /// Takes a lock.
    async fn take(&mut self, name: &str) -> Result<()>;
    /// Releases a lock.
    async fn give(&mut self, name: &str) -> Result<()>;
    /// Votes, and waits for the decision.
    async fn cast(&mut self, name: &str) -> Result<()>;
    /// Clears a decided ballot.
    async fn clear(&mut self, name: &str) -> Result<()>;
    /// Votes in a ballot that three votes decide, and waits for the decision.
    async fn cast_of_three(&mut self, name: &str) -> Result<()>;
    /// Clears a decided ballot of three votes.
    async fn clear_of_three(&mut self, name: &str) -> Result<()>;
}

macro_rules! callers {
    ($($channel:ty),+) => {
        $(impl LockVoteCaller for SmallClient<$channel> {
            async fn take(&mut self, name: &str) -> Result<()> {
                self.lock(names(name)).await?;
                Ok(())
            }

            async fn give(&mut self, name: &str) -> Result<()> {
                self.release(names(name)).await?;
                Ok(())
            }

            async fn cast(&mut self, name: &str) -> Result<()> {
                SmallClient::vote(self, names(name)).await?;
                Ok(())
            }

            async fn clear(&mut self, name: &str) -> Result<()> {
                self.forget(names(name)).await?;
                Ok(())
            }

            async fn cast_of_three(&mut self, name: &str) -> Result<()> {
                self.vote_of_three(names(name)).await?;
                Ok(())
            }

            async fn clear_of_three(&mut self, name: &str) -> Result<()> {
                self.forget_of_three(names(name)).await?;
                Ok(())
            }
        })+
    };
}

callers!(pathcall::Channel, tonic::transport::Channel);

fn names(name: &str) -> Names {
    Names { names: Some(StrintMap { map: [(name.to_owned(), 1)].into() }) }
}

/// Handler of locks and votes for runs without Pathcall.
#[derive(Debug, Clone, Default)]
pub(crate) struct LockVoteHandler {
    locked: Arc<Mutex<HashSet<String>>>,
    /// Voters that wait for the decision, by ballot.
    open: Arc<Mutex<HashMap<String, Vec<oneshot::Sender<()>>>>>,
}

impl LockVoteHandler {
    /// Votes, and waits until `votes` callers have voted.
    async fn decide(&self, request: Request<Names>, votes: usize) -> Result<Response<Done>, Status> {
        for name in request.into_inner().names.unwrap_or_default().map.into_keys() {
            let decision = {
                let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
                let waiting = open.entry(name.clone()).or_default();
                if waiting.len() + 1 == votes {
                    // A disconnected voter needs no answer.
                    for voter in open.remove(&name).into_iter().flatten() {
                        let _ = voter.send(());
                    }
                    None
                } else {
                    let (decided, decision) = oneshot::channel();
                    waiting.push(decided);
                    Some(decision)
                }
            };
            if let Some(decision) = decision {
                decision.await.map_err(|_| Status::cancelled("the other voters left"))?;
            }
        }
        Ok(Response::new(Done {}))
    }
}

#[tonic::async_trait]
impl Small for LockVoteHandler {
    async fn lock(&self, request: Request<Names>) -> Result<Response<Done>, Status> {
        let mut locked = self.locked.lock().unwrap_or_else(PoisonError::into_inner);
        for name in request.into_inner().names.unwrap_or_default().map.into_keys() {
            if !locked.insert(name) {
                return Err(Status::failed_precondition("the lock is held"));
            }
        }
        Ok(Response::new(Done {}))
    }

    async fn release(&self, request: Request<Names>) -> Result<Response<Done>, Status> {
        let mut locked = self.locked.lock().unwrap_or_else(PoisonError::into_inner);
        for name in request.into_inner().names.unwrap_or_default().map.keys() {
            locked.remove(name);
        }
        Ok(Response::new(Done {}))
    }

    async fn vote(&self, request: Request<Names>) -> Result<Response<Done>, Status> {
        self.decide(request, 2).await
    }

    async fn vote_of_three(&self, request: Request<Names>) -> Result<Response<Done>, Status> {
        self.decide(request, 3).await
    }

    /// Decided ballots have left the table.
    async fn forget(&self, _: Request<Names>) -> Result<Response<Done>, Status> {
        Ok(Response::new(Done {}))
    }
    async fn forget_of_three(&self, _: Request<Names>) -> Result<Response<Done>, Status> {
        Ok(Response::new(Done {}))
    }
}
