//! Pools of servers, set by the controller.

use pathcall_wire::clone::{MAX_SERVERS, ServerReport};
use pathcall_wire::{Instant, TokenKey};

use super::CloneRegisters;
use crate::tables::ById;
use crate::{AdmissionTables, Endpoint, PoolCounters, TableChangeError};

/// Pool of equivalent servers: the table of groups, and that of addresses (NetClone §3.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledPool {
    /// Id, from the same range as those of applications.
    pub gaid: u32,
    /// Version of the list of servers, under which groups are drawn.
    pub version: u32,
    /// Endpoints of the servers, at most [`MAX_SERVERS`]; the index of a server is its SID.
    pub servers: Vec<u32>,
}

pub(crate) type Endpoints = ById<Endpoint>;

/// Table entry of a pool.
#[derive(Debug)]
pub(crate) struct PoolEntry {
    pub(crate) pool: InstalledPool,
    /// Index of the pool's part of the loads.
    pub(crate) place: usize,
    /// Token key, if the frames carry tokens.
    pub(crate) key: Option<TokenKey>,
    pub(crate) last_seen: Option<Instant>,
    pub(crate) counters: PoolCounters,
}

impl PoolEntry {
    /// Endpoint of a server.
    pub(crate) fn server(&self, sid: u16) -> Option<u32> {
        self.pool.servers.get(usize::from(sid)).copied()
    }
}

impl AdmissionTables {
    /// Installs a pool, or changes its servers. The loads of remaining servers are kept, those of new ones are 0.
    ///
    /// # Errors
    /// [`TableChangeError`]: too many servers or pools, a server that is listed twice, or the id of an application.
    pub fn install_pool(&mut self, pool: InstalledPool) -> Result<(), TableChangeError> {
        let gaid = pool.gaid;
        let range = |what, end: usize, size: usize| TableChangeError::Range {
            what,
            first: 0,
            end: end as u64,
            size: size as u64,
        };
        if self.has_application(gaid) {
            return Err(TableChangeError::Taken { gaid, what: "an application" });
        }
        if pool.servers.len() > MAX_SERVERS {
            return Err(range("servers", pool.servers.len(), MAX_SERVERS));
        }
        let twice = pool.servers.iter().enumerate().find(|(sid, server)| pool.servers[..*sid].contains(server));
        if let Some((_, server)) = twice {
            return Err(TableChangeError::Twice(*server));
        }
        let before = self.pools.get(&gaid).map(|entry| (entry.place, entry.pool.servers.clone()));
        let (place, servers) = match before {
            Some(before) => before,
            None => {
                let taken = |place: &usize| self.pools.values().any(|entry| entry.place == *place);
                let places = self.clones.size().pools;
                let place = (0..places).find(|place| !taken(place));
                (place.ok_or_else(|| range("pools", places + 1, places))?, Vec::new())
            }
        };
        self.clones.provide();
        self.clones.move_loads(place, &servers, &pool.servers);
        match self.pools.get_mut(&gaid) {
            Some(entry) => entry.pool = pool,
            None => {
                let counters = PoolCounters::default();
                drop(self.pools.insert(gaid, PoolEntry { pool, place, key: None, last_seen: None, counters }));
            }
        }
        Ok(())
    }

    /// All pools with the time of their last admitted frame and their counters, unordered.
    pub fn pools(&self) -> impl Iterator<Item = (&InstalledPool, Option<Instant>, PoolCounters)> {
        self.pools.values().map(|entry| (&entry.pool, entry.last_seen, entry.counters))
    }

    /// Latest reports of a pool's servers, by SID: the table and its shadow copy.
    ///
    /// # Errors
    /// [`TableChangeError::UnknownApplication`].
    pub fn loads(&self, gaid: u32) -> Result<(&[ServerReport], &[ServerReport]), TableChangeError> {
        let entry = self.pools.get(&gaid).ok_or(TableChangeError::UnknownApplication(gaid))?;
        let (at, len) = (entry.place * MAX_SERVERS, entry.pool.servers.len());
        Ok((self.clones.loads.peek(at, len), self.clones.shadows.peek(at, len)))
    }

    /// Registers of calls.
    #[must_use]
    pub fn clones(&self) -> &CloneRegisters {
        &self.clones
    }
}

/// Resets the load of a restarted server.
pub(crate) fn reset_load(entry: &PoolEntry, endpoint: u32, registers: &mut CloneRegisters) {
    if let Some(sid) = entry.pool.servers.iter().position(|server| *server == endpoint) {
        registers.loads.reset(entry.place * MAX_SERVERS + sid, 1, ServerReport::default());
        registers.shadows.reset(entry.place * MAX_SERVERS + sid, 1, ServerReport::default());
    }
}
