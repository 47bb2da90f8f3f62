//! The nodes' key, and what connections by TCP make of it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pathcall_wire::TokenKey;
use pathcall_wire::messages::Greeting;
use pathcall_wire::messages::token::Direction;
use tokio::sync::watch;

use crate::driver::random;

/// The key, which may change while there are connections.
#[derive(Debug, Default)]
pub(super) struct Keys {
    key: watch::Sender<Option<TokenKey>>,
    refused: AtomicU64,
}

/// A connection that is about to begin.
pub(super) struct Beginning {
    /// What this side says.
    pub(super) hello: [u8; Greeting::LEN],
    /// What it proves by.
    pub(super) key: Option<TokenKey>,
    /// Is told when there is another key.
    pub(super) changes: watch::Receiver<Option<TokenKey>>,
    pub(super) keys: Arc<Keys>,
}

impl Keys {
    pub(super) fn set(&self, key: Option<TokenKey>) {
        self.key.send_if_modified(|known| std::mem::replace(known, key) != key);
    }

    pub(super) fn get(&self) -> Option<TokenKey> {
        *self.key.borrow()
    }

    /// Connections that were ended for a token that was wrong, or none.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Whoever is at the other end does not know the key, or another one: its connection ends.
    pub(super) fn refuse(&self) -> io::Error {
        self.refused.fetch_add(1, Ordering::Relaxed);
        io::ErrorKind::PermissionDenied.into()
    }

    /// Begins a connection: `hello` with this number, that is not 0 where there is a key.
    pub(super) fn begin(self: &Arc<Self>, hello: impl Fn(u64) -> [u8; Greeting::LEN]) -> io::Result<Beginning> {
        let mut changes = self.key.subscribe();
        let key = *changes.borrow_and_update();
        let session = if key.is_some() { random()?.max(1) } else { 0 };
        Ok(Beginning { hello: hello(session), key, changes, keys: Arc::clone(self) })
    }
}

/// Both directions of a connection that is signed.
#[derive(Debug)]
pub(super) struct Signed {
    pub(super) ours: Direction,
    pub(super) theirs: Direction,
}

impl Signed {
    /// Of the side that has made the connection, or of the other one.
    pub(super) fn of(key: &TokenKey, dials: bool, said: &[u8; Greeting::LEN], heard: &[u8; Greeting::LEN]) -> Self {
        let (dialled, taken) = if dials { (said, heard) } else { (heard, said) };
        let [from, to] = Direction::both(key, dialled, taken);
        if dials { Self { ours: from, theirs: to } } else { Self { ours: to, theirs: from } }
    }
}
