//! The way to one element: pushes its changes in order, each until it is answered.
//!
//! A push that does not get through is tried again until the controller gives the element up, which
//! drops the link. What the element answers goes back to the state as an input.

use std::collections::BTreeSet;
use std::time::Duration;

use pathcall_auth::{Peer, Role, Security, TargetError};
use pathcall_proto::v1::element_client::ElementClient;
use pathcall_proto::v1::{
    CountersRequest, InstallPoolRequest, InstallRequest, RemoveEndpointsRequest, RemoveRequest, SetEndpointsRequest,
    SetGroupRequest,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::state::{ElementPool, Input, Push};

/// Pause before a push that did not get through is tried again.
const RETRY: Duration = Duration::from_millis(50);

/// A client of an element's control service.
pub(crate) type Client = ElementClient<Channel>;

/// The way to one start of an element; dropping it stops it.
#[derive(Debug)]
pub(crate) struct Link {
    client: Client,
    pushes: mpsc::UnboundedSender<(u64, Push)>,
    _task: JoinSet<()>,
}

impl Link {
    /// Connects when there is something to push. Fails for an address that can't be one.
    pub(crate) fn open(
        element: u32,
        boot_id: u64,
        control_address: &str,
        security: &Security,
        inputs: mpsc::UnboundedSender<Input>,
    ) -> Result<Self, TargetError> {
        // With `pathcall up` the element shows the controller's certificate.
        let target = security.target(control_address, Peer::new(Role::Element).or(Role::Controller))?;
        let client = ElementClient::new(target.connect_lazy());
        // Bounded by the state: it gives up an element that leaves too many unconfirmed.
        let (pushes, queue) = mpsc::unbounded_channel();
        let mut task = JoinSet::new();
        let worker = Worker { element, boot_id, client: client.clone(), inputs };
        task.spawn(worker.run(queue));
        Ok(Self { client, pushes, _task: task })
    }

    pub(crate) fn push(&self, seq: u64, push: Push) {
        // The task ends with the link only, or with the engine that owns both.
        let _ = self.pushes.send((seq, push));
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }
}

struct Worker {
    element: u32,
    boot_id: u64,
    client: Client,
    inputs: mpsc::UnboundedSender<Input>,
}

impl Worker {
    async fn run(mut self, mut queue: mpsc::UnboundedReceiver<(u64, Push)>) {
        while let Some((seq, push)) = queue.recv().await {
            let element = self.element;
            let input = match self.settle(&push).await {
                Ok(()) => Input::Confirmed { element, seq },
                // What is to be removed is not there: so it should be.
                Err(status) if push.removes() && status.code() == Code::NotFound => Input::Confirmed { element, seq },
                Err(status) if status.code() == Code::FailedPrecondition => Input::Restarted { element, seq },
                Err(status) => {
                    let reason = format!("{:?}: {}", status.code(), status.message());
                    tracing::warn!(element, ?push, reason, "an element refuses a change of its tables");
                    Input::Refused { element, seq, reason }
                }
            };
            if self.inputs.send(input).is_err() {
                return;
            }
        }
    }

    /// Sends a push until it is answered.
    async fn settle(&mut self, push: &Push) -> Result<(), Status> {
        let mut reported = false;
        loop {
            match self.send(push).await {
                Err(status) if did_not_get_through(&status) => {
                    if !reported {
                        let (element, reason) = (self.element, status.message());
                        tracing::info!(
                            element,
                            reason,
                            "an element does not take a change of its tables; trying again"
                        );
                        reported = true;
                    }
                    tokio::time::sleep(RETRY).await;
                }
                answer => return answer,
            }
        }
    }

    async fn send(&mut self, push: &Push) -> Result<(), Status> {
        let (boot_id, client) = (self.boot_id, &mut self.client);
        match push.clone() {
            Push::Retain(keep) => return self.retain(&keep).await,
            Push::Install(application) => {
                let application = Some(application);
                client.install(InstallRequest { boot_id, application }).await?;
            }
            Push::Remove(gaid) => drop(client.remove(RemoveRequest { boot_id, gaid }).await?),
            Push::SetEndpoints(endpoints) => {
                client.set_endpoints(SetEndpointsRequest { boot_id, endpoints }).await?;
            }
            Push::InstallPool(ElementPool { gaid, version, servers, token_key }) => {
                client.install_pool(InstallPoolRequest { boot_id, gaid, version, servers, token_key }).await?;
            }
            Push::RemoveEndpoints(endpoints) => {
                client.remove_endpoints(RemoveEndpointsRequest { boot_id, endpoints }).await?;
            }
            Push::SetGroup { gaid, endpoints } => {
                client.set_group(SetGroupRequest { boot_id, gaid, endpoints }).await?;
            }
        }
        Ok(())
    }

    /// Removes what this controller does not know of: its store was lost, or is another one.
    async fn retain(&mut self, keep: &[u32]) -> Result<(), Status> {
        // The counters name every application that is installed.
        let counters = self.client.counters(CountersRequest {}).await?.into_inner();
        let installed: BTreeSet<_> = counters.applications.into_keys().collect();
        for gaid in installed.into_iter().filter(|gaid| !keep.contains(gaid)) {
            tracing::info!(element = self.element, gaid, "removing an application of another controller");
            self.client.remove(RemoveRequest { boot_id: self.boot_id, gaid }).await?;
        }
        Ok(())
    }
}

/// Whether the element has said nothing about the push.
fn did_not_get_through(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Cancelled | Code::DeadlineExceeded)
}
