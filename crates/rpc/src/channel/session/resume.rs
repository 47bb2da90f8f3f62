//! Grants of a session, and its continuation with another owner.
//!
//! ```text
//! stream of grants ─► new epochs
//!        └─ lost ─► suspended ─ Join with endpoint, secret and known epoch ─► owner that has taken over ─► stream of grants
//! ```

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::HeaderMap;
use pathcall_driver::client::CallerPort;
use pathcall_endpoint::map::client::NewOwner;
use pathcall_endpoint::map::lease::Era;
use pathcall_endpoint::map::{CommittedFrame, EpochChange};
use pathcall_proto::v1::peer_client::PeerClient;
use pathcall_proto::v1::{AppliedFrame, JoinGrant, JoinRequest};
use pathcall_wire::TokenKey;
use tokio::sync::watch;
use tokio::time::sleep;
use tonic::{Code, Status, Streaming};

use super::super::transport::Transport;
use crate::headers;
use crate::process_timeout::{self, TimeBudget};

/// Time for which a caller waits for an owner that takes over; its calls wait, too.
const RESUME_LIMIT: Duration = Duration::from_secs(60);
/// Time limit for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(200);
/// Time in which the end of a connection is noticed, when a later connection exists.
const NOTICE_TIMEOUT: Duration = Duration::from_secs(2);

/// Caller whose owner has ended, and that continues with the owner that takes over.
pub(super) struct ResumingCaller {
    /// Whether the caller waits for that owner.
    pub(super) suspend: watch::Sender<bool>,
    pub(super) request: JoinRequest,
    pub(super) headers: HeaderMap,
    pub(super) transport: Transport,
}

/// Reads the join's stream to its end, and passes new epochs to the map. The end of the stream is the session's, unless the
/// caller can continue with another owner.
pub(super) async fn read_grants(
    mut stream: Streaming<JoinGrant>,
    (map, by_element): (CallerPort, Arc<AtomicBool>),
    over: watch::Sender<Option<Arc<str>>>,
    (uri, resuming): (String, Option<ResumingCaller>),
) {
    let reason = loop {
        let status = match stream.message().await {
            Ok(Some(grant)) => {
                let element: Option<SocketAddr> = grant.element_address.parse().ok();
                by_element.store(element.is_some(), Ordering::Relaxed);
                map.renew(&epoch_change(&grant, element.is_some()), element);
                continue;
            }
            Ok(None) => break format!("the server at {uri} has ended the join"),
            Err(status) => status,
        };
        let reason = format!("the connection to the server at {uri} is lost: {}", status.message());
        let Some(resuming) = &resuming else { break reason };
        resuming.suspend.send_replace(true);
        let Some(known_epoch) = map.suspend() else { break reason };
        tracing::info!(application = resuming.request.application, "{reason}: waiting for an owner that takes over");
        let Some((grant, following)) = resuming.resume(known_epoch).await else { break reason };
        let Some((owner, server)) = new_owner(&grant, resuming.transport.peer()) else { break reason };
        let element: Option<SocketAddr> = grant.element_address.parse().ok();
        by_element.store(element.is_some(), Ordering::Relaxed);
        map.resume(&owner, &epoch_change(&grant, element.is_some()), element, server);
        resuming.suspend.send_replace(false);
        tracing::info!(application = resuming.request.application, "continuing with the owner at {server}");
        stream = following;
    };
    over.send_replace(Some(reason.into()));
}

impl ResumingCaller {
    /// Asks until an owner answers. `None` if it does not know this caller, or none answers in time.
    async fn resume(&self, known_epoch: u32) -> Option<(JoinGrant, Streaming<JoinGrant>)> {
        let mut budget = TimeBudget::new(RESUME_LIMIT);
        loop {
            match process_timeout::timeout(ANSWER_LIMIT, self.ask(known_epoch)).await {
                Ok(Ok(answer)) => return Some(answer),
                Ok(Err(status)) if !is_temporary(&status) => {
                    let application = &self.request.application;
                    tracing::warn!(application, "cannot continue with the owner: {}", status.message());
                    return None;
                }
                Ok(Err(_)) | Err(_) => {}
            }
            // The pause ends by itself, unless the time is over.
            if budget.wait(sleep(PAUSE)).await.is_err() {
                return None;
            }
        }
    }

    async fn ask(&self, known_epoch: u32) -> Result<(JoinGrant, Streaming<JoinGrant>), Status> {
        let request = JoinRequest { known_epoch, ..self.request.clone() };
        let mut client = PeerClient::new(self.transport.channel());
        let mut stream = client.join(headers::request_with(&self.headers, request)).await?.into_inner();
        let grant = stream.message().await?;
        grant.map(|grant| (grant, stream)).ok_or_else(|| Status::unavailable("the server ended the join"))
    }
}

/// Whether another owner may still answer.
fn is_temporary(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable | Code::DeadlineExceeded | Code::Unknown | Code::Cancelled | Code::Internal
    )
}

/// Owner of a grant, and the address of its map frames.
fn new_owner(grant: &JoinGrant, server: Option<IpAddr>) -> Option<(NewOwner, SocketAddr)> {
    let port = u16::try_from(grant.server_udp_port).ok()?;
    let owner = NewOwner {
        gaid: grant.gaid,
        server: grant.server,
        incarnation: grant.server_incarnation,
        key: grant.token_key.map(|key| TokenKey::new(key.into())),
    };
    Some((owner, SocketAddr::new(server?, port)))
}

fn epoch_change(grant: &JoinGrant, element: bool) -> EpochChange {
    let applied = grant.applied_frames.iter().map(|&AppliedFrame { flow, seq, overflowed_lanes }| CommittedFrame {
        flow,
        seq,
        overflowed_lanes,
    });
    EpochChange {
        epoch: grant.epoch,
        element,
        slot_base: grant.slot_base,
        rows: grant.rows,
        era: Era::from_number(grant.lock_era),
        committed: grant.committed_generation,
        applied: applied.collect(),
    }
}

impl super::MapSession {
    /// Whether the session, which its server does not know, continues with another server. Waits for that.
    pub(super) async fn continues_elsewhere(&self) -> bool {
        let Some(mut suspended) = self.suspended.clone() else { return false };
        let lost = process_timeout::timeout(NOTICE_TIMEOUT, suspended.wait_for(|suspended| *suspended)).await;
        let lost = lost.is_ok_and(|lost| lost.is_ok());
        self.continued().await;
        lost && !self.is_over()
    }
}
