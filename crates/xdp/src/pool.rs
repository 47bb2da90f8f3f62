//! Pools of servers: their tables in the kernel, and the state of calls in the kernel's registers.
//!
//! ```text
//! install_pool ─▶ servers, loads, pairs of interfaces ─▶ pool ─▶ frames
//! ```
//!
//! While the servers of a pool change, the pool is removed for some milliseconds, and user space processes its frames.

use std::collections::HashMap;
use std::num::NonZeroU16;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use libbpf_rs::MapFlags;
use pathcall_program::{Endpoint, InstalledPool, PoolCounters};
use pathcall_wire::clone::{MAX_SERVERS, ServerReport};

use crate::kernel::{KernelPool, POOLS_MAX};
use crate::layout::{self, POOL_WORDS, Words};
use crate::{Error, KernelSwitch};

/// Most servers of a pool whose clones are made in the kernel (`PAIRED_MAX` in `bpf/pools.h`).
const PAIRED_MAX: usize = 16;
/// Names of the arrays of loads.
const LOADS: [&str; 2] = [".data.loads", ".data.shadows"];

/// Slot of the table of cloned requests or of a filter table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CloneTableSlot {
    /// Id of the request; 0: the slot is free.
    pub req_id: u64,
    /// Pool of the request.
    pub gaid: u32,
    /// `enum decision`, or the id of a server in the pool (SID).
    pub what: u32,
}

impl KernelSwitch {
    /// Installs a pool, or changes its servers, as accepted by [`pathcall_program::AdmissionTables::install_pool`]. A
    /// pool that is refused is removed.
    ///
    /// # Errors
    /// [`Error::Pools`], or errors of the kernel.
    pub fn install_pool(&mut self, pool: &InstalledPool) -> Result<(), Error> {
        let done = self.write_pool(pool);
        self.remove_on_error(pool.gaid, done)
    }

    fn write_pool(&mut self, pool: &InstalledPool) -> Result<(), Error> {
        let gaid = pool.gaid;
        let (place, before) = match self.pools.get(&gaid) {
            Some(placed) => (placed.place, placed.pool.servers.clone()),
            None => {
                let taken = |place: &u32| self.pools.values().any(|placed| placed.place == *place);
                let place = (0..POOLS_MAX as u32).find(|place| !taken(place)).ok_or(Error::Pools(POOLS_MAX))?;
                self.zero_pool_counters(place)?;
                (place, Vec::new())
            }
        };
        if self.pools.contains_key(&gaid) && before != pool.servers {
            self.delete("pools", &gaid.to_ne_bytes())?;
            self.wait()?;
        }
        self.move_loads(place, &before, &pool.servers)?;
        self.remove_pairs(gaid)?;
        self.pools.insert(gaid, KernelPool { pool: pool.clone(), place, paired: Vec::new() });
        for endpoint in before.iter().chain(&pool.servers) {
            if let Some((entry, addr)) = self.endpoints.get(endpoint).copied()
                && entry.gaid == gaid
            {
                let server = self.server_of(&entry);
                self.put("endpoints", &endpoint.to_ne_bytes(), layout::endpoint(&entry, addr, server).bytes())?;
            }
        }
        self.install_pairs(gaid)?;
        let count = pool.servers.len() as u32;
        self.put("pools", &gaid.to_ne_bytes(), Words::of(&[pool.version, count, place]).bytes())
    }

    /// Removes a pool, if it is installed.
    pub(crate) fn remove_pool(&mut self, gaid: u32) -> Result<(), Error> {
        if !self.pools.contains_key(&gaid) {
            return Ok(());
        }
        self.delete("pools", &gaid.to_ne_bytes())?;
        self.remove_pairs(gaid)?;
        self.pools.remove(&gaid);
        if self.pools.is_empty() {
            self.wait()?;
            self.control("reset_calls", &mut Words::of(&[0, 0]), "reset the state of calls")?;
        }
        Ok(())
    }

    /// Sets the id of the element among the elements on a call's path.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn set_switch_id(&mut self, switch_id: NonZeroU16) -> Result<(), Error> {
        self.put(".data.switch_id", &0_u32.to_ne_bytes(), &u32::from(switch_id.get()).to_ne_bytes())
    }

    /// Sets the number after which requests are numbered.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn set_last_number(&mut self, last: u64) -> Result<(), Error> {
        self.put(".data.number", &0_u32.to_ne_bytes(), &last.to_ne_bytes())
    }

    /// Last request number that was assigned.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn last_number(&self) -> Result<u64, Error> {
        let bytes = self.get(".data.number", &0_u32.to_ne_bytes(), MapFlags::ANY)?;
        Ok(u64::from_ne_bytes(*bytes.first_chunk().ok_or(Error::Missing("number"))?))
    }

    /// Reads all pools: id, time of the last admitted frame by `CLOCK_MONOTONIC`, counters.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn pools(&self) -> Result<Vec<(u32, Option<Duration>, PoolCounters)>, Error> {
        let of = |(gaid, placed): (&u32, &KernelPool)| {
            let processors = self.get_all("pool_counters", placed.place)?;
            let last = |one: &Vec<u8>| layout::sums::<POOL_WORDS>(std::slice::from_ref(one))[POOL_WORDS - 1];
            let last = processors.iter().map(last).max().filter(|ns| *ns > 0).map(Duration::from_nanos);
            Ok((*gaid, last, layout::pool_counters(&layout::sums(&processors))))
        };
        self.pools.iter().map(of).collect()
    }

    /// Reads the latest reports of a pool's servers, and their shadow copies; empty for an unknown pool.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn loads(&self, gaid: u32) -> Result<[Vec<ServerReport>; 2], Error> {
        let Some(KernelPool { pool, place, .. }) = self.pools.get(&gaid) else { return Ok(Default::default()) };
        let (at, count) = (*place as usize * MAX_SERVERS, pool.servers.len());
        let read = |array| Ok(self.all_loads(array)?[at..at + count].to_vec());
        Ok([read(LOADS[0])?, read(LOADS[1])?])
    }

    /// Reads a slot of the table of cloned requests.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn read_request(&self, at: u32) -> Result<CloneTableSlot, Error> {
        self.read_slot_of("requests", at)
    }

    /// Reads a slot of the filter tables, which are numbered in sequence.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn read_fingerprint(&self, at: u32) -> Result<CloneTableSlot, Error> {
        self.read_slot_of("filters", at)
    }

    fn read_slot_of(&self, map: &'static str, at: u32) -> Result<CloneTableSlot, Error> {
        let words = layout::words(&self.get(map, &at.to_ne_bytes(), MapFlags::LOCK)?);
        let &[_, gaid, low, high, what, _] = &words[..] else { return Err(Error::Missing(map)) };
        let req_id = Words::of(&[low, high]);
        let req_id = u64::from_ne_bytes(*req_id.bytes().first_chunk().ok_or(Error::Missing(map))?);
        Ok(CloneTableSlot { req_id, gaid, what })
    }

    /// Id of a server in its pool (SID), counted from 1; 0 for an endpoint that is not a server.
    pub(crate) fn server_of(&self, endpoint: &Endpoint) -> u32 {
        let pool = self.pools.get(&endpoint.gaid).map(|placed| &placed.pool);
        pool.and_then(|pool| pool.servers.iter().position(|server| *server == endpoint.endpoint))
            .map_or(0, |sid| sid as u32 + 1)
    }

    /// Enters an endpoint that is a server; a `new` server has an empty queue.
    pub(crate) fn enter_server(&mut self, endpoint: &Endpoint, new: bool) -> Result<(), Error> {
        let sid = self.server_of(endpoint) as usize - 1;
        let Some(place) = self.pools.get(&endpoint.gaid).map(|placed| placed.place as usize) else { return Ok(()) };
        if new {
            for array in LOADS {
                let mut all = self.all_loads(array)?;
                all[place * MAX_SERVERS + sid] = ServerReport::default();
                self.put_loads(array, &all)?;
            }
        }
        self.install_pairs(endpoint.gaid)
    }

    /// Moves loads to the new positions of their servers. A concurrent report may be lost; the next one corrects it.
    fn move_loads(&self, place: u32, before: &[u32], after: &[u32]) -> Result<(), Error> {
        let at = place as usize * MAX_SERVERS;
        if before != after {
            for array in LOADS {
                let known = self.all_loads(array)?;
                let mut all = known.clone();
                for sid in 0..MAX_SERVERS {
                    let server = after.get(sid).and_then(|server| before.iter().position(|other| other == server));
                    all[at + sid] = server.map_or(ServerReport::default(), |sid| known[at + sid]);
                }
                self.put_loads(array, &all)?;
            }
        }
        Ok(())
    }

    /// Makes a pool's clones in the kernel, if each server is behind an interface of its own.
    fn install_pairs(&mut self, gaid: u32) -> Result<(), Error> {
        self.remove_pairs(gaid)?;
        let Some(KernelPool { pool, place, .. }) = self.pools.get(&gaid) else { return Ok(()) };
        let mut sid_by_interface = HashMap::new();
        let mut interfaces = Vec::new();
        for (sid, server) in pool.servers.iter().enumerate() {
            let ifindex = match (self.endpoints.get(server), self.interfaces.first()) {
                (Some((_, addr)), Some(ingress)) => self.egress_interface(*ingress, *addr)?,
                _ => 0,
            };
            let at = *place * MAX_SERVERS as u32 + sid as u32;
            self.put("servers", &at.to_ne_bytes(), Words::of(&[*server, ifindex]).bytes())?;
            sid_by_interface.insert(ifindex, sid);
            interfaces.push(ifindex);
        }
        let separate = sid_by_interface.len() == interfaces.len() && !sid_by_interface.contains_key(&0);
        if !separate || !(2..=PAIRED_MAX).contains(&interfaces.len()) {
            return Ok(());
        }
        let place = *place;
        for (second, other) in interfaces.iter().enumerate() {
            for (first, one) in interfaces[..second].iter().enumerate() {
                let map = self.create_interface_table([*one, *other])?;
                let pair = (place * PAIRED_MAX as u32 + first as u32) * PAIRED_MAX as u32 + second as u32;
                self.put("pairs", &pair.to_ne_bytes(), &map.as_fd().as_raw_fd().to_ne_bytes())?;
                self.pools.entry(gaid).and_modify(|placed| placed.paired.push(pair));
            }
        }
        self.put("cloned_here", &place.to_ne_bytes(), &1_u32.to_ne_bytes())
    }

    /// Leaves a pool's clones to user space, and removes the tables by which the kernel made them.
    fn remove_pairs(&mut self, gaid: u32) -> Result<(), Error> {
        let Some(KernelPool { place, paired, .. }) = self.pools.get(&gaid) else { return Ok(()) };
        self.put("cloned_here", &place.to_ne_bytes(), &0_u32.to_ne_bytes())?;
        paired.iter().try_for_each(|pair| self.delete("pairs", &pair.to_ne_bytes()))?;
        self.pools.entry(gaid).and_modify(|placed| placed.paired.clear());
        Ok(())
    }

    fn all_loads(&self, array: &'static str) -> Result<Vec<ServerReport>, Error> {
        let bytes = self.get(array, &0_u32.to_ne_bytes(), MapFlags::ANY)?;
        let report = |word: u64| ServerReport { number: (word >> 16) as u32, state: word as u16 };
        Ok(bytes.as_chunks().0.iter().map(|word| report(u64::from_ne_bytes(*word))).collect())
    }

    fn put_loads(&self, array: &'static str, loads: &[ServerReport]) -> Result<(), Error> {
        let word = |report: &ServerReport| u64::from(report.number) << 16 | u64::from(report.state);
        let bytes: Vec<u8> = loads.iter().flat_map(|report| word(report).to_ne_bytes()).collect();
        self.put(array, &0_u32.to_ne_bytes(), &bytes)
    }
}
