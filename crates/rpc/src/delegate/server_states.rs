//! States of the servers that delegated requests go to, shared by the clones of a directory and the nodes that learn of
//! servers.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pathcall_driver::node::{ServerEvent, ServerObserver};
use pathcall_endpoint::delegate::servers::ServerStates;
use tokio::time::Instant;

/// Shared states of servers, and the clock of their times.
#[derive(Debug)]
pub(super) struct SharedServers {
    states: Mutex<ServerStates>,
    origin: Instant,
}

impl Default for SharedServers {
    fn default() -> Self {
        Self { states: Mutex::default(), origin: Instant::now() }
    }
}

impl SharedServers {
    pub(super) fn lock(&self) -> MutexGuard<'_, ServerStates> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time of the states.
    pub(super) fn now(&self) -> pathcall_wire::Instant {
        pathcall_wire::Instant(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

impl ServerObserver for SharedServers {
    fn on_server_event(&self, event: ServerEvent) {
        let now = self.now();
        match event {
            ServerEvent::Unreachable(server) => self.lock().record_unreachable(now, server),
            ServerEvent::Load(server, load) => self.lock().record_load(now, server, load),
        }
    }
}
