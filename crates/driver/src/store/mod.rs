//! Stores of an owner's state: where its batches are durable, so that another process can continue.
//!
//! ```text
//! MapServer ─ batch ─► StoreThread ─► BatchStore: one write and one sync for all waiting batches
//!     ▲                    │
//!     └── persisted ◄──────┘       a store that fails, or that another owner has taken, ends the owner
//! ```
//!
//! [`directory`] is the store of one host, or of hosts that share a file system.

pub mod directory;
mod segment;
mod thread;

use std::io;
use std::path::PathBuf;

pub use thread::StoreFailure;
pub(crate) use thread::{StoreState, StoreThread};

/// Store of one application's owner. All functions block.
pub trait BatchStore: Send + 'static {
    /// Makes a group of batches durable. It is applied as a whole or not at all.
    ///
    /// # Errors
    /// The store failed, or another owner has taken it. The owner must end.
    fn append(&mut self, batches: &[Vec<u8>]) -> Result<(), BatchStoreError>;

    /// Replaces all batches so far by this one.
    ///
    /// # Errors
    /// The store failed, or another owner has taken it. The owner must end.
    fn replace(&mut self, snapshot: &[u8]) -> Result<(), BatchStoreError>;

    /// Whether the batches since the last snapshot take so much room that a snapshot pays.
    fn wants_snapshot(&self) -> bool;

    /// Shows other processes that this owner lives. Called each [`BEAT`] at least.
    ///
    /// # Errors
    /// The store failed, or another owner has taken it. The owner must end.
    fn beat(&mut self) -> Result<(), BatchStoreError>;
}

/// Store that this process has become the owner of, with the batches of former owners.
pub type Claimed<S> = (S, Vec<Vec<u8>>);

/// Interval of the signs of life in a store.
pub const BEAT: std::time::Duration = std::time::Duration::from_millis(500);

/// Error of a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BatchStoreError {
    /// Another process has become the owner.
    #[error("another server has taken over the state in {}", place.display())]
    TakenOver {
        /// Folder of the application.
        place: PathBuf,
    },
    /// A file of the store has a record that no owner has written, before later records.
    #[error("the owner's state in {} is damaged at byte {at}", place.display())]
    Damaged {
        /// The file.
        place: PathBuf,
        /// Position of the record.
        at: usize,
    },
    /// The system refuses an operation.
    #[error("cannot {what} the owner's state in {}: {source}", place.display())]
    Failed {
        /// Operation: "read", "write" or "claim".
        what: &'static str,
        /// File or folder.
        place: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}
