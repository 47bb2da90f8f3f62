//! Key of a node, and the signing state that TCP connections derive from it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pathcall_wire::TokenKey;
use pathcall_wire::messages::Greeting;
use pathcall_wire::messages::token::DirectionSigner;
use tokio::sync::watch;

use crate::random;

/// Key of a node, which may change while connections are open.
#[derive(Debug, Default)]
pub(super) struct Keys {
    key: watch::Sender<Option<TokenKey>>,
    unauthenticated: AtomicU64,
}

/// State of a handshake.
pub(super) struct Handshake {
    /// Greeting that this side sends.
    pub(super) hello: [u8; Greeting::LEN],
    /// Key that this side proves.
    pub(super) key: Option<TokenKey>,
    /// Watches changes of the key.
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

    /// Connections that ended because of a wrong or missing token.
    pub(super) fn unauthenticated(&self) -> u64 {
        self.unauthenticated.load(Ordering::Relaxed)
    }

    /// Counts a peer without the right key, and returns the error that ends its connection.
    pub(super) fn reject(&self) -> io::Error {
        self.unauthenticated.fetch_add(1, Ordering::Relaxed);
        io::ErrorKind::PermissionDenied.into()
    }

    /// Starts a handshake: the greeting has a session number, which is nonzero if there is a key.
    pub(super) fn start_handshake(
        self: &Arc<Self>,
        hello: impl Fn(u64) -> [u8; Greeting::LEN],
    ) -> io::Result<Handshake> {
        let mut changes = self.key.subscribe();
        let key = *changes.borrow_and_update();
        let session = if key.is_some() { random()?.max(1) } else { 0 };
        Ok(Handshake { hello: hello(session), key, changes, keys: Arc::clone(self) })
    }
}

/// Signing state of both directions of a connection.
#[derive(Debug)]
pub(super) struct SignedDirections {
    pub(super) outgoing: DirectionSigner,
    pub(super) incoming: DirectionSigner,
}

impl SignedDirections {
    /// Derives the state; `connects`: this side made the connection.
    pub(super) fn new(
        key: &TokenKey,
        connects: bool,
        sent: &[u8; Greeting::LEN],
        received: &[u8; Greeting::LEN],
    ) -> Self {
        let (dialled, accepted) = if connects { (sent, received) } else { (received, sent) };
        let [from, to] = DirectionSigner::both(key, dialled, accepted);
        if connects { Self { outgoing: from, incoming: to } } else { Self { outgoing: to, incoming: from } }
    }
}
