//! Pools: whose calls are steered, and to whom. What the controller sets.

use pathcall_wire::clone::MAX_SERVERS;
use pathcall_wire::{Instant, TokenKey};

use super::CloneRegisters;
use crate::tables::ById;
use crate::{Endpoint, PoolCounters, TableError, Tables};

/// A pool of servers that do the same: the table of groups, and that of addresses (NetClone §3.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// Its id, among those of applications.
    pub gaid: u32,
    /// Version of the list of servers; groups are drawn under one.
    pub version: u32,
    /// Endpoints of its servers, at most [`MAX_SERVERS`]; the place of one is its SID.
    pub servers: Vec<u32>,
}

pub(crate) type Endpoints = ById<Endpoint>;

/// What the program keeps of a pool.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) pool: Pool,
    /// Which part of the loads is its servers', counted from 0.
    pub(crate) place: usize,
    /// What signs its frames, if they carry tokens.
    pub(crate) key: Option<TokenKey>,
    pub(crate) last_seen: Option<Instant>,
    pub(crate) counters: PoolCounters,
}

impl Entry {
    /// The endpoint of a server.
    pub(crate) fn server(&self, sid: u16) -> Option<u32> {
        self.pool.servers.get(usize::from(sid)).copied()
    }
}

impl Tables {
    /// Installs a pool, or changes its servers. The load of a server that was in it before is kept,
    /// that of a new one is 0.
    ///
    /// # Errors
    /// [`TableError`]: too many servers or pools, a server that stands in it twice, or an id that is an
    /// application's.
    pub fn install_pool(&mut self, pool: Pool) -> Result<(), TableError> {
        let gaid = pool.gaid;
        let range =
            |what, end: usize, size: usize| TableError::Range { what, first: 0, end: end as u64, size: size as u64 };
        if self.has_application(gaid) {
            return Err(TableError::Taken { gaid, what: "an application" });
        }
        if pool.servers.len() > MAX_SERVERS {
            return Err(range("servers", pool.servers.len(), MAX_SERVERS));
        }
        let twice = pool.servers.iter().enumerate().find(|(sid, server)| pool.servers[..*sid].contains(server));
        if let Some((_, server)) = twice {
            return Err(TableError::Twice(*server));
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
        self.clones.rearrange(place, &servers, &pool.servers);
        match self.pools.get_mut(&gaid) {
            Some(entry) => entry.pool = pool,
            None => {
                let counters = PoolCounters::default();
                drop(self.pools.insert(gaid, Entry { pool, place, key: None, last_seen: None, counters }));
            }
        }
        Ok(())
    }

    /// Every pool with the time of its last admitted frame and its counters, in no order.
    pub fn pools(&self) -> impl Iterator<Item = (&Pool, Option<Instant>, PoolCounters)> {
        self.pools.values().map(|entry| (&entry.pool, entry.last_seen, entry.counters))
    }

    /// What is known of how many requests wait at each of a pool's servers, by SID: the table and its
    /// shadow.
    ///
    /// # Errors
    /// [`TableError::UnknownApplication`].
    pub fn loads(&self, gaid: u32) -> Result<(&[u16], &[u16]), TableError> {
        let entry = self.pools.get(&gaid).ok_or(TableError::UnknownApplication(gaid))?;
        let (at, len) = (entry.place * MAX_SERVERS, entry.pool.servers.len());
        Ok((self.clones.loads.peek(at, len), self.clones.shadows.peek(at, len)))
    }

    /// What calls have left in the registers.
    #[must_use]
    pub fn clones(&self) -> &CloneRegisters {
        &self.clones
    }
}

/// A server has started anew: nothing waits there.
pub(crate) fn begin(entry: &Entry, endpoint: u32, registers: &mut CloneRegisters) {
    if let Some(sid) = entry.pool.servers.iter().position(|server| *server == endpoint) {
        registers.loads.reset(entry.place * MAX_SERVERS + sid, 1, 0);
        registers.shadows.reset(entry.place * MAX_SERVERS + sid, 1, 0);
    }
}
