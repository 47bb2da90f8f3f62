//! Caller of a former owner that continues with this one.

use pathcall_endpoint::map::EpochChange;
use pathcall_endpoint::map::server::{Joined, Member, Permissions};
use tokio::sync::{mpsc, watch};
use tonic::Status;

use super::super::owned_application::{ActiveApplication, OwnedApplication};
use super::super::sessions::SessionId;
use super::super::store::OwnerEnd;
use super::JoiningCaller;
use crate::status;

impl JoiningCaller {
    /// Checks that the caller is the member that it names, before anything happens to this member. Returns its secret.
    pub(super) fn check_secret(
        &self,
        owned: &OwnedApplication,
        active: &ActiveApplication,
    ) -> Result<SessionId, Status> {
        let (endpoint, incarnation) = (self.request.resumed_endpoint, self.request.incarnation);
        let secret = SessionId::try_from(&self.request.session[..]).ok();
        let secret = secret.filter(|secret| active.handle.may_resume(endpoint, incarnation, *secret));
        secret.ok_or_else(|| unknown_member(owned))
    }

    /// Lets the caller continue.
    pub(super) async fn resume(
        &self,
        owned: &OwnedApplication,
        active: &ActiveApplication,
        member: Member,
        may: Permissions,
        secret: SessionId,
    ) -> Result<(Joined, Option<EpochChange>), Status> {
        let resumed = active.handle.resume(member, may, self.address, secret, self.request.known_epoch).await;
        let (endpoint, incarnation) = (member.endpoint, member.incarnation);
        let Some(resumed) = resumed.map_err(|error| status::of_join(&error))? else {
            // The terms may have changed meanwhile: then the caller asks again.
            return Err(match active.handle.may_resume(endpoint, incarnation, secret) {
                true => Status::unavailable("the server's terms have changed meanwhile"),
                false => unknown_member(owned),
            });
        };
        Ok((resumed.joined, Some(resumed.change)))
    }
}

fn unknown_member(owned: &OwnedApplication) -> Status {
    Status::not_found(format!("the server of {} does not know this caller: it must join again", owned.application.name))
}

/// Ends a membership when this server is not the owner any more.
pub(super) async fn end_with_owner(mut ended: watch::Receiver<OwnerEnd>, end: mpsc::Sender<Status>) {
    if let Ok(reason) = ended.wait_for(Option::is_some).await.map(|reason| reason.clone().unwrap_or_default()) {
        // The send fails if the caller's stream has already ended.
        let _ = end.send(Status::unavailable(&*reason)).await;
    }
}
