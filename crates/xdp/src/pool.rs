//! Pools of servers: their tables in the kernel, and what calls have left in its registers.
//!
//! ```text
//! install_pool ─▶ servers, loads, pairs of interfaces ─▶ pool ─▶ frames
//! ```
//!
//! While a pool's servers change it is not there for some milliseconds: user space works on its frames.

use std::collections::HashMap;
use std::num::NonZeroU16;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use libbpf_rs::MapFlags;
use pathcall_program::{Endpoint, Pool, PoolCounters};
use pathcall_wire::clone::MAX_SERVERS;

use crate::kernel::{POOLS_MAX, Placed};
use crate::layout::{self, POOL_WORDS, Words};
use crate::{Error, Kernel};

/// Servers of a pool whose clones are made in the kernel (`PAIRED_MAX` in `bpf/pools.h`).
const PAIRED_MAX: usize = 16;
/// The arrays of loads, by how they are named there.
const LOADS: [&str; 2] = [".data.loads", ".data.shadows"];

/// A slot of the table of cloned requests or of fingerprints: id, pool, and which servers, or which one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Slot {
    /// The request's id; 0: the slot is free.
    pub req_id: u64,
    /// Its pool.
    pub gaid: u32,
    /// `enum decision`, or a SID.
    pub what: u32,
}

impl Kernel {
    /// Installs a pool, or changes its servers: what [`pathcall_program::Tables::install_pool`] has taken. One that is
    /// refused is not there any more, if it was.
    ///
    /// # Errors
    /// [`Error::Pools`], or what the kernel says.
    pub fn install_pool(&mut self, pool: &Pool) -> Result<(), Error> {
        let done = self.enter_pool(pool);
        self.or_remove(pool.gaid, done)
    }

    fn enter_pool(&mut self, pool: &Pool) -> Result<(), Error> {
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
            self.take("pools", &gaid.to_ne_bytes())?;
            self.wait()?;
        }
        self.rearrange(place, &before, &pool.servers)?;
        self.unpair(gaid)?;
        self.pools.insert(gaid, Placed { pool: pool.clone(), place, paired: Vec::new() });
        for endpoint in before.iter().chain(&pool.servers) {
            if let Some((entry, addr)) = self.endpoints.get(endpoint).copied()
                && entry.gaid == gaid
            {
                let server = self.server_of(&entry);
                self.put("endpoints", &endpoint.to_ne_bytes(), layout::endpoint(&entry, addr, server).bytes())?;
            }
        }
        self.pair(gaid)?;
        let count = pool.servers.len() as u32;
        self.put("pools", &gaid.to_ne_bytes(), Words::of(&[pool.version, count, place]).bytes())
    }

    /// Takes a pool out, if there is one.
    pub(crate) fn remove_pool(&mut self, gaid: u32) -> Result<(), Error> {
        if !self.pools.contains_key(&gaid) {
            return Ok(());
        }
        self.take("pools", &gaid.to_ne_bytes())?;
        self.unpair(gaid)?;
        self.pools.remove(&gaid);
        if self.pools.is_empty() {
            self.wait()?;
            self.control("reset_calls", &mut Words::of(&[0, 0]), "forget calls")?;
        }
        Ok(())
    }

    /// Says by which id the element is known among others on a call's path.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn set_switch_id(&mut self, switch_id: NonZeroU16) -> Result<(), Error> {
        self.put(".data.switch_id", &0_u32.to_ne_bytes(), &u32::from(switch_id.get()).to_ne_bytes())
    }

    /// Says after which number requests are numbered on.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn number_after(&mut self, last: u64) -> Result<(), Error> {
        self.put(".data.number", &0_u32.to_ne_bytes(), &last.to_ne_bytes())
    }

    /// The last number that was given.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn last_number(&self) -> Result<u64, Error> {
        let bytes = self.get(".data.number", &0_u32.to_ne_bytes(), MapFlags::ANY)?;
        Ok(u64::from_ne_bytes(*bytes.first_chunk().ok_or(Error::Missing("number"))?))
    }

    /// Every pool by its id: when its last admitted frame came, on the clock of `CLOCK_MONOTONIC`, and its
    /// counters.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn pools(&self) -> Result<Vec<(u32, Option<Duration>, PoolCounters)>, Error> {
        let of = |(gaid, placed): (&u32, &Placed)| {
            let processors = self.get_all("pool_counters", placed.place)?;
            let last = |one: &Vec<u8>| layout::sums::<POOL_WORDS>(std::slice::from_ref(one))[POOL_WORDS - 1];
            let last = processors.iter().map(last).max().filter(|ns| *ns > 0).map(Duration::from_nanos);
            Ok((*gaid, last, layout::pool_counters(&layout::sums(&processors))))
        };
        self.pools.iter().map(of).collect()
    }

    /// The loads of a pool's servers, and their shadows; empty where there is none.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn loads(&self, gaid: u32) -> Result<[Vec<u16>; 2], Error> {
        let Some(Placed { pool, place, .. }) = self.pools.get(&gaid) else { return Ok(Default::default()) };
        let (at, count) = (*place as usize * MAX_SERVERS, pool.servers.len());
        let read = |array| Ok(self.all_loads(array)?[at..at + count].to_vec());
        Ok([read(LOADS[0])?, read(LOADS[1])?])
    }

    /// A slot of the table of cloned requests.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn read_request(&self, at: u32) -> Result<Slot, Error> {
        self.read_slot_of("requests", at)
    }

    /// A slot of the filter tables, one after the other.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn read_fingerprint(&self, at: u32) -> Result<Slot, Error> {
        self.read_slot_of("filters", at)
    }

    fn read_slot_of(&self, map: &'static str, at: u32) -> Result<Slot, Error> {
        let words = layout::words(&self.get(map, &at.to_ne_bytes(), MapFlags::LOCK)?);
        let &[_, gaid, low, high, what, _] = &words[..] else { return Err(Error::Missing(map)) };
        let req_id = Words::of(&[low, high]);
        let req_id = u64::from_ne_bytes(*req_id.bytes().first_chunk().ok_or(Error::Missing(map))?);
        Ok(Slot { req_id, gaid, what })
    }

    /// A server's SID in the pool that it belongs to, counted from 1; 0: it is none.
    pub(crate) fn server_of(&self, endpoint: &Endpoint) -> u32 {
        let pool = self.pools.get(&endpoint.gaid).map(|placed| &placed.pool);
        pool.and_then(|pool| pool.servers.iter().position(|server| *server == endpoint.endpoint))
            .map_or(0, |sid| sid as u32 + 1)
    }

    /// An endpoint that is a server is entered: one that is `new` has nothing waiting.
    pub(crate) fn begin_server(&mut self, endpoint: &Endpoint, new: bool) -> Result<(), Error> {
        let sid = self.server_of(endpoint) as usize - 1;
        let Some(place) = self.pools.get(&endpoint.gaid).map(|placed| placed.place as usize) else { return Ok(()) };
        if new {
            for array in LOADS {
                let mut all = self.all_loads(array)?;
                all[place * MAX_SERVERS + sid] = 0;
                self.put_loads(array, &all)?;
            }
        }
        self.pair(endpoint.gaid)
    }

    /// Takes loads to their servers' new places. A word that comes meanwhile may be lost: the next is right again.
    fn rearrange(&self, place: u32, before: &[u32], after: &[u32]) -> Result<(), Error> {
        let at = place as usize * MAX_SERVERS;
        if before != after {
            for array in LOADS {
                let known = self.all_loads(array)?;
                let mut all = known.clone();
                for sid in 0..MAX_SERVERS {
                    let server = after.get(sid).and_then(|server| before.iter().position(|other| other == server));
                    all[at + sid] = server.map_or(0, |sid| known[at + sid]);
                }
                self.put_loads(array, &all)?;
            }
        }
        Ok(())
    }

    /// Has the kernel make a pool's clones, if each of its servers is behind an interface of its own.
    fn pair(&mut self, gaid: u32) -> Result<(), Error> {
        self.unpair(gaid)?;
        let Some(Placed { pool, place, .. }) = self.pools.get(&gaid) else { return Ok(()) };
        let mut behind = HashMap::new();
        let mut interfaces = Vec::new();
        for (sid, server) in pool.servers.iter().enumerate() {
            let ifindex = match (self.endpoints.get(server), self.interfaces.first()) {
                (Some((_, addr)), Some(ingress)) => self.way_of(*ingress, *addr)?,
                _ => 0,
            };
            let at = *place * MAX_SERVERS as u32 + sid as u32;
            self.put("servers", &at.to_ne_bytes(), Words::of(&[*server, ifindex]).bytes())?;
            behind.insert(ifindex, sid);
            interfaces.push(ifindex);
        }
        let own = behind.len() == interfaces.len() && !behind.contains_key(&0);
        if !own || !(2..=PAIRED_MAX).contains(&interfaces.len()) {
            return Ok(());
        }
        let place = *place;
        for (second, other) in interfaces.iter().enumerate() {
            for (first, one) in interfaces[..second].iter().enumerate() {
                let map = self.table_of([*one, *other])?;
                let pair = (place * PAIRED_MAX as u32 + first as u32) * PAIRED_MAX as u32 + second as u32;
                self.put("pairs", &pair.to_ne_bytes(), &map.as_fd().as_raw_fd().to_ne_bytes())?;
                self.pools.entry(gaid).and_modify(|placed| placed.paired.push(pair));
            }
        }
        self.put("cloned_here", &place.to_ne_bytes(), &1_u32.to_ne_bytes())
    }

    /// Leaves a pool's clones to user space, and nothing by which the kernel made them.
    fn unpair(&mut self, gaid: u32) -> Result<(), Error> {
        let Some(Placed { place, paired, .. }) = self.pools.get(&gaid) else { return Ok(()) };
        self.put("cloned_here", &place.to_ne_bytes(), &0_u32.to_ne_bytes())?;
        paired.iter().try_for_each(|pair| self.take("pairs", &pair.to_ne_bytes()))?;
        self.pools.entry(gaid).and_modify(|placed| placed.paired.clear());
        Ok(())
    }

    fn all_loads(&self, array: &'static str) -> Result<Vec<u16>, Error> {
        let bytes = self.get(array, &0_u32.to_ne_bytes(), MapFlags::ANY)?;
        Ok(bytes.as_chunks().0.iter().map(|load| u16::from_ne_bytes(*load)).collect())
    }

    fn put_loads(&self, array: &'static str, loads: &[u16]) -> Result<(), Error> {
        let bytes: Vec<u8> = loads.iter().flat_map(|load| load.to_ne_bytes()).collect();
        self.put(array, &0_u32.to_ne_bytes(), &bytes)
    }
}
