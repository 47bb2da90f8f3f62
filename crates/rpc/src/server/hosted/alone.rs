//! What an application goes by that no controller has granted anything.

use std::net::SocketAddr;
use std::ops::Deref;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pathcall_endpoint::driver::server::ServerHandle;
use pathcall_endpoint::map::CallError;
use pathcall_endpoint::map::server::{Joined, Member, Permissions};
use tokio::time::sleep_until;

/// An epoch that nobody issues: seconds since 2025 until the server began. It keeps nothing over a restart but the
/// time, and fencing tokens are to grow over restarts: there are none before that second is over, so whoever begins
/// after one has another.
#[derive(Debug)]
pub(super) struct OwnEpoch {
    pub(super) number: u32,
    /// When that second is over.
    pub(super) over: Instant,
}

impl OwnEpoch {
    pub(super) fn new(now: SystemTime) -> Self {
        let since = now.duration_since(UNIX_EPOCH + Duration::from_secs(1_735_689_600)).unwrap_or_default();
        let number = u32::try_from(since.as_secs()).unwrap_or(u32::MAX).max(1);
        let rest = Duration::from_secs(1) - Duration::from_nanos(since.subsec_nanos().into());
        Self { number, over: Instant::now() + rest }
    }
}

/// The application's driver, behind a door.
#[derive(Debug, Clone)]
pub(in super::super) struct Handle {
    driver: ServerHandle,
    /// Nobody is let in before it.
    opens: Option<Instant>,
}

impl Handle {
    pub(super) fn new(driver: ServerHandle, opens: Option<Instant>) -> Self {
        Self { driver, opens }
    }

    /// Lets a caller in, see [`ServerHandle::join`].
    pub(in super::super) async fn join(
        &self,
        member: Member,
        may: Permissions,
        address: Option<SocketAddr>,
    ) -> Result<Joined, CallError> {
        if let Some(opens) = self.opens {
            sleep_until(opens.into()).await;
        }
        self.driver.join(member, may, address).await
    }
}

impl Deref for Handle {
    type Target = ServerHandle;

    fn deref(&self) -> &ServerHandle {
        &self.driver
    }
}
