//! gRPC service of a replica: messages of the others, and commands of clients.

use std::sync::mpsc::Sender;

use tokio::sync::oneshot;
use tonic::{Request, Response, Status};

use super::log_thread::Work;
use crate::consensus::{Input, ReplicaConfig};
use crate::convert::message;
use crate::pb;

/// Handler of the service.
#[derive(Debug, Clone)]
pub(crate) struct ReplicaService {
    work: Sender<Work>,
    config: ReplicaConfig,
}

impl ReplicaService {
    pub(crate) fn new(work: Sender<Work>, config: ReplicaConfig) -> Self {
        Self { work, config }
    }

    fn send(&self, work: Work) -> Result<(), Status> {
        self.work.send(work).map_err(|_| Status::unavailable("this replica has stopped: its disk has failed"))
    }
}

#[tonic::async_trait]
impl pb::replica_server::Replica for ReplicaService {
    async fn deliver(&self, request: Request<pb::Envelope>) -> Result<Response<pb::Delivered>, Status> {
        let (from, message) =
            message(request.into_inner()).map_err(|error| Status::invalid_argument(format!("{error:#}")))?;
        if from >= self.config.replicas {
            return Err(Status::invalid_argument(format!("sender {from} of {} replicas", self.config.replicas)));
        }
        self.send(Work::Input(Input::Message { from, message }))?;
        Ok(Response::new(pb::Delivered {}))
    }

    async fn execute(&self, request: Request<pb::Command>) -> Result<Response<pb::Outcome>, Status> {
        let (answer, outcome) = oneshot::channel();
        self.send(Work::Execute { command: request.into_inner(), answer })?;
        let outcome = outcome.await.map_err(|_| Status::unavailable("the command was sent again, or has to be"))?;
        outcome.map(Response::new)
    }

    async fn inspect(&self, _: Request<pb::Question>) -> Result<Response<pb::Condition>, Status> {
        let (answer, condition) = oneshot::channel();
        self.send(Work::Inspect(answer))?;
        condition.await.map(Response::new).map_err(|_| Status::unavailable("this replica has stopped"))
    }
}
