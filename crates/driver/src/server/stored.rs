//! Owner with a store: it continues from the batches of a former one, and its results wait for the store.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use pathcall_endpoint::map::server::durable::{DamagedRecord, ResumeSecret};
use pathcall_endpoint::map::server::{Joined, MapServer, Member, Permissions, ServerConfig};
use pathcall_endpoint::map::{CallError, EpochChange};
use pathcall_wire::{Instant, TokenKey};

use super::ServerHandle;
use crate::link::Link;
use crate::store::{BatchStore, BatchStoreError, StoreFailure, StoreThread};

/// Error of an owner that cannot continue from its store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// A record is damaged, although its checksum is right.
    #[error("{0}: another version of Pathcall wrote it")]
    Record(#[from] DamagedRecord),
    /// The store fails.
    #[error(transparent)]
    Store(#[from] BatchStoreError),
    /// The system has no thread for the store.
    #[error("cannot start the thread of the owner's store: {0}")]
    Thread(#[source] io::Error),
}

/// Member of a former owner that continues.
#[derive(Debug, Clone)]
pub struct ResumedMember {
    /// Epoch of this owner.
    pub epoch: u32,
    /// Rows, lanes and era of the application.
    pub joined: Joined,
    /// What the former owners had of the caller.
    pub change: EpochChange,
}

impl ServerHandle {
    /// Starts an owner that continues from these batches of the store, in order, and hands its own over to it. The epoch of
    /// `config` is used if it is later than those of all former owners; [`ServerHandle::epoch`] tells which one is used. Blocks
    /// for one write to the store.
    ///
    /// # Errors
    /// The batches are damaged, or the store fails.
    pub fn spawn_stored(
        config: ServerConfig,
        key: Option<TokenKey>,
        link: Link,
        element: Option<SocketAddr>,
        mut store: Box<dyn BatchStore>,
        batches: &[Vec<u8>],
    ) -> Result<Self, RestoreError> {
        let server = MapServer::restore(Instant(0), config, batches.iter().map(|batch| &batch[..]))?;
        // Before it serves anyone, so that the former owner's segments are not needed any more.
        let snapshot = server.snapshot();
        // In a thread: a store may wait for a runtime of its own, which a task may not.
        let written = thread::scope(|scope| scope.spawn(|| store.replace(&snapshot)).join());
        written.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let mut handle = Self::run(server, key, link, element);
        let owner = Arc::downgrade(&handle.owner.0);
        let thread = StoreThread::start(store, move |state| {
            if let Some(owner) = owner.upgrade() {
                let _ = owner.command(|owner, _, _| owner.on_store(state));
            }
        });
        let thread = thread.map_err(RestoreError::Thread)?;
        handle.stored = Some(thread.state());
        let _ = handle.command(|owner, _, _| owner.store = Some(thread));
        Ok(handle)
    }

    /// Current epoch.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.owner.lock().machine.server.epoch()
    }

    /// Whether this is a member of a former owner that has not continued yet, see [`MapServer::may_resume`].
    #[must_use]
    pub fn may_resume(&self, endpoint: u32, incarnation: u32, secret: ResumeSecret) -> bool {
        self.owner.lock().machine.server.may_resume(endpoint, incarnation, &secret)
    }

    /// Lets a member of a former owner continue, see [`MapServer::resume`]; `None` if it must join.
    ///
    /// # Errors
    /// [`CallError::Closed`].
    pub async fn resume(
        &self,
        member: Member,
        may: Permissions,
        address: Option<SocketAddr>,
        secret: ResumeSecret,
        known_epoch: u32,
    ) -> Result<Option<ResumedMember>, CallError> {
        let resumed = self.command(|owner, _, _| {
            let (joined, change) = owner.server.resume(member, secret, known_epoch)?;
            owner.server.set_permissions(member.endpoint, member.incarnation, may);
            if let Some(address) = address {
                owner.members.insert(member.endpoint, address);
            }
            Some(ResumedMember { epoch: owner.server.epoch(), joined, change })
        })?;
        self.persisted(resumed).await
    }

    /// Keeps a note with the owner's state. It is durable when a later result is.
    pub fn keep_note(&self, note: &[u8]) {
        let _ = self.command(|owner, _, _| owner.server.keep_note(note));
    }

    /// Notes of this owner and former ones, in order.
    #[must_use]
    pub fn notes(&self) -> Vec<Vec<u8>> {
        self.owner.lock().machine.server.notes().map(<[u8]>::to_vec).collect()
    }

    /// Waits until the owner's state, as it is now, is in the store; then returns the value.
    ///
    /// # Errors
    /// [`CallError::Closed`]: the store has failed.
    pub async fn persisted<T>(&self, value: T) -> Result<T, CallError> {
        let Some(mut stored) = self.stored.clone() else { return Ok(value) };
        let ticket = self.owner.lock().machine.server.ticket();
        let reached = stored.wait_for(|state| state.persisted >= ticket || state.failure.is_some()).await;
        match reached {
            Ok(state) if state.failure.is_none() => Ok(value),
            _ => Err(CallError::Closed),
        }
    }

    /// Resolves when the owner's store has failed, or another owner has taken it; never without a store.
    pub fn store_failure(&self) -> impl Future<Output = StoreFailure> + Send + 'static {
        let stored = self.stored.clone();
        async move {
            if let Some(mut stored) = stored
                && let Ok(state) = stored.wait_for(|state| state.failure.is_some()).await
                && let Some(failure) = &state.failure
            {
                return Arc::clone(failure);
            }
            std::future::pending().await
        }
    }
}
