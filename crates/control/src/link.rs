//! Connection to one element: pushes changes of its tables in order, each until it is answered.
//!
//! A push that is not delivered is sent again until the controller takes the element out of service, which drops the
//! link. The element's answers go to the state as inputs.

use std::collections::BTreeSet;
use std::time::Duration;

use pathcall_auth::{ConnectTargetError, ExpectedPeer, PartyRole, Security};
use pathcall_proto::v1::element_client::ElementClient;
use pathcall_proto::v1::{
    CountersRequest, InstallApplicationRequest, InstallPoolRequest, LastSeenRequest, RemoveEndpointsRequest,
    RemoveRequest, SetEndpointsRequest, SetMulticastGroupRequest,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::state::{ElementPool, Input, Push};

/// Pause before an undelivered push is sent again.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Time limit for an element's answer to the question for last frames.
const LAST_FRAMES_MAX: Duration = Duration::from_secs(1);

/// Client of an element's control service.
pub(crate) type Client = ElementClient<Channel>;

/// Connection to one start of an element; dropping it stops the pushes.
#[derive(Debug)]
pub(crate) struct ElementLink {
    client: Client,
    pushes: mpsc::UnboundedSender<(u64, Push)>,
    /// Task of the pushes, and questions that are not answered yet.
    tasks: JoinSet<()>,
}

impl ElementLink {
    /// Creates a link, which connects at the first push. Fails for an invalid address.
    pub(crate) fn open(
        element: u32,
        boot_id: u64,
        control_address: &str,
        security: &Security,
        inputs: mpsc::UnboundedSender<Input>,
    ) -> Result<Self, ConnectTargetError> {
        // With `pathcall up` the element has the controller's certificate.
        let target =
            security.target(control_address, ExpectedPeer::new(PartyRole::Element).or(PartyRole::Controller))?;
        let client = ElementClient::new(target.connect_lazy());
        // Bounded by the state: an element with too many unconfirmed pushes is taken out of service.
        let (pushes, queue) = mpsc::unbounded_channel();
        let mut task = JoinSet::new();
        let worker = PushTask { element, boot_id, client: client.clone(), inputs };
        task.spawn(worker.run(queue));
        Ok(Self { client, pushes, tasks: task })
    }

    pub(crate) fn push(&self, seq: u64, push: Push) {
        // The task ends only with the link, or with the engine that owns both.
        let _ = self.pushes.send((seq, push));
    }

    /// Asks the element once for the times of the last frames; the answer becomes an input.
    pub(crate) fn ask_last_frames(&mut self, element: u32, boot_id: u64, inputs: mpsc::UnboundedSender<Input>) {
        let mut client = self.client.clone();
        while self.tasks.try_join_next().is_some() {}
        self.tasks.spawn(async move {
            let asked = tokio::time::timeout(LAST_FRAMES_MAX, client.last_seen(LastSeenRequest {})).await;
            // An element that does not answer is asked again later.
            let Ok(Ok(reply)) = asked else { return };
            let ages = reply.into_inner().age_ns.into_iter().map(|(gaid, age)| (gaid, Duration::from_nanos(age)));
            let _ = inputs.send(Input::LastFrames { element, boot_id, ages: ages.collect() });
        });
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }
}

struct PushTask {
    element: u32,
    boot_id: u64,
    client: Client,
    inputs: mpsc::UnboundedSender<Input>,
}

impl PushTask {
    async fn run(mut self, mut queue: mpsc::UnboundedReceiver<(u64, Push)>) {
        while let Some((seq, push)) = queue.recv().await {
            let element = self.element;
            let input = match self.send_until_answered(&push).await {
                Ok(()) => Input::Confirmed { element, seq },
                // The entry to remove does not exist, as intended.
                Err(status) if push.removes() && status.code() == Code::NotFound => Input::Confirmed { element, seq },
                Err(status) if status.code() == Code::FailedPrecondition => Input::Restarted { element, seq },
                Err(status) => {
                    let reason = format!("{:?}: {}", status.code(), status.message());
                    tracing::warn!(element, ?push, reason, "an element refused a table change");
                    Input::Refused { element, seq, reason }
                }
            };
            if self.inputs.send(input).is_err() {
                return;
            }
        }
    }

    /// Sends a push until it is answered.
    async fn send_until_answered(&mut self, push: &Push) -> Result<(), Status> {
        let mut reported = false;
        loop {
            match self.send(push).await {
                Err(status) if is_undelivered(&status) => {
                    if !reported {
                        let (element, reason) = (self.element, status.message());
                        tracing::info!(element, reason, "a table change of an element failed; trying again");
                        reported = true;
                    }
                    tokio::time::sleep(RETRY_PAUSE).await;
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
                client.install_application(InstallApplicationRequest { boot_id, application }).await?;
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
                client.set_multicast_group(SetMulticastGroupRequest { boot_id, gaid, endpoints }).await?;
            }
        }
        Ok(())
    }

    /// Removes applications that this controller does not know: its store was lost, or is a different one.
    async fn retain(&mut self, keep: &[u32]) -> Result<(), Status> {
        // The counters list every installed application.
        let counters = self.client.counters(CountersRequest {}).await?.into_inner();
        let installed: BTreeSet<_> = counters.applications.into_keys().collect();
        for gaid in installed.into_iter().filter(|gaid| !keep.contains(gaid)) {
            tracing::info!(element = self.element, gaid, "removing an application of another controller");
            self.client.remove(RemoveRequest { boot_id: self.boot_id, gaid }).await?;
        }
        Ok(())
    }
}

/// Whether the element has not answered the push.
fn is_undelivered(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Cancelled | Code::DeadlineExceeded)
}
