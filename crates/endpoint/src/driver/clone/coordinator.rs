//! A coordinator on a socket: LÆDGE, to be compared with (NetClone §2.2).

use std::net::SocketAddr;
use std::sync::Arc;

use pathcall_wire::{Instant, TokenKey};

use super::super::Party;
use super::super::link::Link;
use super::super::shared::{Owned, Shared};
use super::{Desk, Learnt, Table, sender};
use crate::clone::{Coordinator, CoordinatorConfig, CoordinatorStats, To};

/// A handle to a coordinator; it stops when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct CoordinatorHandle(Arc<Owned<Desked>>);

impl CoordinatorHandle {
    /// Starts the coordinator on the current tokio runtime. `key` is what signs the pool's frames, if they carry
    /// tokens.
    #[must_use]
    pub fn spawn(config: CoordinatorConfig, table: Table, key: Option<TokenKey>, link: Link) -> Self {
        let mut coordinator = Coordinator::new(config);
        coordinator.pool(table.pool.clone());
        let desked = Desked { coordinator, table, desk: Desk::new(key), callers: Learnt::default() };
        let shared = Shared::new(desked, link);
        tokio::spawn(Arc::clone(&shared).run());
        Self(Arc::new(Owned(shared)))
    }

    /// The pool has changed.
    pub fn renew(&self, table: Table) {
        // One that has stopped serves nobody.
        let _ = self.0.command(table);
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> CoordinatorStats {
        self.0.lock().party.coordinator.stats()
    }
}

struct Desked {
    coordinator: Coordinator,
    table: Table,
    desk: Desk,
    callers: Learnt,
}

impl Party for Desked {
    type Command = Table;

    fn command(&mut self, _: Instant, table: Table, _: impl FnMut(SocketAddr, &[u8])) {
        self.coordinator.pool(table.pool.clone());
        self.table = table;
    }

    fn handle(&mut self, now: Instant, from: SocketAddr, frame: &mut [u8], _: bool, _: impl FnMut(SocketAddr, &[u8])) {
        if !self.desk.admits(frame) {
            return;
        }
        if let Some((endpoint, _)) = sender(frame).filter(|(endpoint, _)| self.table.server(*endpoint).is_none()) {
            self.callers.note(endpoint, from);
        }
        self.coordinator.receive(now, frame);
    }

    fn poll(&mut self, now: Instant, mut send: impl FnMut(SocketAddr, &[u8])) {
        self.coordinator.poll(now);
        while let Some((to, len)) = self.coordinator.transmit(now, &mut self.desk.frame) {
            let To::Endpoint(endpoint) = to else { continue };
            if let Some(at) = self.table.server(endpoint).or_else(|| self.callers.find(endpoint)) {
                send(at, self.desk.leaving(len));
            }
        }
    }

    fn settle(&mut self) {}

    fn deadline(&self) -> Option<Instant> {
        self.coordinator.deadline()
    }

    fn element(&self) -> Option<SocketAddr> {
        None
    }

    fn close(&mut self, _: Instant) {}

    fn is_idle(&self) -> bool {
        true
    }

    fn forsake(&mut self) {}
}
