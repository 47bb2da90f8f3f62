//! Ids and epoch of an application without a controller's grant.

use std::net::SocketAddr;
use std::ops::Deref;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pathcall_driver::server::ServerHandle;
use pathcall_endpoint::map::CallError;
use pathcall_endpoint::map::server::durable::ResumeSecret;
use pathcall_endpoint::map::server::{Joined, Member, Permissions};
use tokio::time::sleep_until;

/// Epoch of a server without a controller: seconds from 2025 to the start of the server. Fencing tokens must grow
/// across restarts, and the server stores nothing but the time. So it grants no tokens before this second has ended: a
/// server that starts later has another epoch.
#[derive(Debug)]
pub(super) struct StandaloneEpoch {
    pub(super) number: u32,
    /// End of that second.
    pub(super) ends_at: Instant,
}

impl StandaloneEpoch {
    pub(super) fn new(now: SystemTime) -> Self {
        let since = now.duration_since(UNIX_EPOCH + Duration::from_secs(1_735_689_600)).unwrap_or_default();
        let number = u32::try_from(since.as_secs()).unwrap_or(u32::MAX).max(1);
        let rest = Duration::from_secs(1) - Duration::from_nanos(since.subsec_nanos().into());
        Self { number, ends_at: Instant::now() + rest }
    }
}

/// Driver of the application, which admits no member before a given time.
#[derive(Debug, Clone)]
pub(in super::super) struct DelayedHandle {
    driver: ServerHandle,
    /// Time before which no member is admitted.
    opens_at: Option<Instant>,
}

impl DelayedHandle {
    pub(super) fn new(driver: ServerHandle, opens_at: Option<Instant>) -> Self {
        Self { driver, opens_at }
    }

    /// Admits a caller, see [`ServerHandle::join`].
    pub(in super::super) async fn join(
        &self,
        member: Member,
        may: Permissions,
        address: Option<SocketAddr>,
        secret: ResumeSecret,
        next_chunk: Option<u64>,
    ) -> Result<Joined, CallError> {
        if let Some(opens_at) = self.opens_at {
            sleep_until(opens_at.into()).await;
        }
        self.driver.join(member, may, address, secret, next_chunk).await
    }
}

impl Deref for DelayedHandle {
    type Target = ServerHandle;

    fn deref(&self) -> &ServerHandle {
        &self.driver
    }
}
