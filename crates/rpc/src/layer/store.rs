//! Store of the owner's state, and the wait of a standby for it.
//!
//! ```text
//! build ─► standby: looks, until the owner has ended or hangs ─► batches ─► owned_application: continues from them
//! ```

mod etcd;

use std::path::PathBuf;
use std::sync::Arc;

use pathcall_driver::server::RestoreError;
use pathcall_driver::store::directory::{DirectoryStandby, LOOK};
use pathcall_driver::store::{BatchStore, BatchStoreError};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::application::Application;
use etcd::EtcdStandby;

/// Store that keeps an owner's state, so that another server can continue when this one ends.
///
/// It keeps applications whose methods add, read and clear values; the state of others stays in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerStore(StorePlace);

#[derive(Debug, Clone, PartialEq, Eq)]
enum StorePlace {
    Directory(PathBuf),
    Etcd { endpoints: Vec<String>, prefix: String },
}

impl OwnerStore {
    /// Directory, which is created if it does not exist. Servers on several hosts need a file system that they share, with
    /// locks and without caches that differ.
    pub fn directory(path: impl Into<PathBuf>) -> Self {
        Self(StorePlace::Directory(path.into()))
    }

    /// Keys of etcd that begin with `prefix`; `endpoints` are the addresses of its servers, such as `http://host:2379`.
    pub fn etcd(endpoints: impl IntoIterator<Item = impl Into<String>>, prefix: impl Into<String>) -> Self {
        let endpoints = endpoints.into_iter().map(Into::into).collect();
        Self(StorePlace::Etcd { endpoints, prefix: prefix.into() })
    }
}

/// Error of an owner's store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OwnerStoreError {
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] BatchStoreError),
    /// The owner cannot continue from the store.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// A task of the store failed.
    #[error("a task of the owner's store panicked: {0}")]
    Task(#[from] tokio::task::JoinError),
}

/// Store of one application, whose owner is this process.
pub(super) struct OpenStore {
    pub(super) store: Box<dyn BatchStore>,
    /// Batches of former owners.
    pub(super) batches: Vec<Vec<u8>>,
}

/// Waits until this process may be the owner; `None` if the application's state stays in memory.
pub(super) async fn open(store: &OwnerStore, application: &Application) -> Result<Option<OpenStore>, OwnerStoreError> {
    let name = application.name;
    if !application.can_be_stored() {
        tracing::warn!(application = name, "the state stays in memory: a store keeps values, not sums, votes or locks");
        return Ok(None);
    }
    let mut standby = Standby::new(store.0.clone(), name)?;
    let mut waits = false;
    loop {
        let (looked, after) = spawn_blocking(move || (standby.look(), standby)).await?;
        if let Some(open) = looked? {
            tracing::info!(application = name, batches = open.batches.len(), "this server is the owner");
            return Ok(Some(open));
        }
        standby = after;
        if !std::mem::replace(&mut waits, true) {
            tracing::info!(application = name, "standing by: another server is the owner");
        }
        sleep(LOOK).await;
    }
}

/// Standby at a store of any kind.
enum Standby {
    Directory(DirectoryStandby),
    Etcd(EtcdStandby),
}

impl Standby {
    fn new(place: StorePlace, application: &str) -> Result<Self, BatchStoreError> {
        Ok(match place {
            StorePlace::Directory(path) => Self::Directory(DirectoryStandby::new(&path, application)?),
            StorePlace::Etcd { endpoints, prefix } => Self::Etcd(EtcdStandby::new(&endpoints, &prefix, application)?),
        })
    }

    /// Looks once; returns the store if this process is the owner now. Blocks.
    fn look(&mut self) -> Result<Option<OpenStore>, BatchStoreError> {
        let open = |store: Box<dyn BatchStore>, batches| Some(OpenStore { store, batches });
        Ok(match self {
            Self::Directory(standby) => standby.look()?.and_then(|(store, batches)| open(Box::new(store), batches)),
            Self::Etcd(standby) => standby.look()?.and_then(|(store, batches)| open(Box::new(store), batches)),
        })
    }
}

impl std::fmt::Debug for OpenStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenStore").field("batches", &self.batches.len()).finish_non_exhaustive()
    }
}

/// Kinds of notes that the layer keeps with the state: the id of the state, and the text of a long key.
const STATE_ID: u8 = b's';
const LONG_KEY: u8 = b'k';

/// Note with the id of the state.
pub(super) fn id_note(id: u32) -> Vec<u8> {
    [&[STATE_ID][..], &id.to_be_bytes()].concat()
}

/// Note with a long key.
pub(super) fn key_note(key: &str) -> Vec<u8> {
    [&[LONG_KEY], key.as_bytes()].concat()
}

/// Id of the state in these notes.
pub(super) fn state_id(notes: &[Vec<u8>]) -> Option<u32> {
    notes.iter().find_map(|note| Some(u32::from_be_bytes(note.strip_prefix(&[STATE_ID])?.try_into().ok()?)))
}

/// Long keys in these notes, in order.
pub(super) fn long_keys(notes: &[Vec<u8>]) -> impl Iterator<Item = &str> {
    notes.iter().filter_map(|note| std::str::from_utf8(note.strip_prefix(&[LONG_KEY])?).ok())
}

/// Reason for which an owner has ended, in a status.
pub(super) type OwnerEnd = Option<Arc<str>>;
