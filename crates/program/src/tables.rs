//! Admission tables, set by the controller: applications, endpoints, their memory, and multicast groups.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use pathcall_wire::{Instant, KEYED_LANES, Mutant, TokenKey, W_MAX, mutant};

use crate::ApplicationCounters;
use crate::clone::pools::{self, PoolEntry};
use crate::clone::{CloneRegisters, CloneSize};
use crate::registers::{Ballot, Generation, Lock, Registers, RepeatFilterEntry, RoundState};

/// Sizes of the register arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Rows: round states and counters.
    pub rows: usize,
    /// Lane registers of 32 bits.
    pub lanes: usize,
    /// Flow slots (SRRT) of the repeat filter.
    pub slots: usize,
}

impl Default for Size {
    /// Sizes of NetRPC §6.1: 32 segments of 40k registers; and slots for 4,096 flows.
    fn default() -> Self {
        Self { rows: 40_960, lanes: KEYED_LANES * 40_960, slots: 4_096 }
    }
}

/// Application with its part of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstalledApplication {
    /// Global application id.
    pub gaid: u32,
    /// Epoch of the registers; frames of another epoch are not admitted.
    pub epoch: u32,
    /// Endpoint of the server that owns the values.
    pub owner: u32,
    /// First row.
    pub row_base: u32,
    /// Number of rows.
    pub rows: u32,
    /// First of `rows × width` lane registers.
    pub lane_base: u32,
    /// Lanes of a row.
    pub width: u32,
}

/// Endpoint whose frames are admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// Endpoint id.
    pub endpoint: u32,
    /// Incarnation of the process.
    pub incarnation: u32,
    /// Application that the endpoint belongs to.
    pub gaid: u32,
    /// First flow slot.
    pub slot_base: u32,
    /// Number of flow slots.
    pub slots: u32,
}

/// Error of a change to the tables; nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TableChangeError {
    /// Unknown application.
    #[error("application {0} is not installed")]
    UnknownApplication(u32),
    /// Unknown endpoint.
    #[error("endpoint {0} is not in the table")]
    UnknownEndpoint(u32),
    /// The range exceeds the element's memory.
    #[error("{what} {first}..{end} do not fit: the element has {size}")]
    Range {
        /// "rows", "lanes" or "slots".
        what: &'static str,
        /// First requested index.
        first: u64,
        /// End of the requested range, exclusive.
        end: u64,
        /// Number available.
        size: u64,
    },
    /// The range overlaps the memory of another application or endpoint.
    #[error("{what} {first}..{end} belong to {other} already")]
    Overlap {
        /// "rows", "lanes" or "slots".
        what: &'static str,
        /// First requested index.
        first: u64,
        /// End of the requested range, exclusive.
        end: u64,
        /// Application or endpoint that has the range.
        other: u32,
    },
    /// The id belongs to a pool instead of an application, or vice versa.
    #[error("{gaid} is installed as {what} already")]
    Taken {
        /// Requested id.
        gaid: u32,
        /// Kind of the installed object.
        what: &'static str,
    },
    /// A server is listed twice in a pool.
    #[error("server {0} is listed twice in the pool")]
    Twice(u32),
}

/// Map by endpoint or GAID. The keys are chosen by the controller, so no attacker can cause collisions; a fast hash
/// matters, as each frame needs several lookups.
pub type ById<V> = HashMap<u32, V, FixedState>;

/// Table entry of an application.
#[derive(Debug)]
pub(crate) struct ApplicationEntry {
    pub(crate) application: InstalledApplication,
    /// Token key, if the frames carry tokens.
    pub(crate) key: Option<TokenKey>,
    pub(crate) last_seen: Option<Instant>,
    pub(crate) counters: ApplicationCounters,
    group: Vec<u32>,
}

/// Tables of applications, pools, endpoints and groups, with the registers that they assign.
#[derive(Debug)]
pub struct AdmissionTables {
    applications: ById<ApplicationEntry>,
    pub(crate) pools: ById<PoolEntry>,
    pub(crate) endpoints: ById<Endpoint>,
    pub(crate) registers: Registers,
    pub(crate) clones: CloneRegisters,
}

impl AdmissionTables {
    pub(crate) fn new(size: Size, clones: CloneSize) -> Self {
        Self {
            applications: ById::default(),
            pools: ById::default(),
            endpoints: ById::default(),
            registers: Registers::new(&size),
            clones: CloneRegisters::new(clones),
        }
    }

    /// Installs an application. Its registers are zeroed if it is new, or if its epoch, place or size changed; an
    /// unchanged entry has no effect.
    ///
    /// # Errors
    /// [`TableChangeError`] if the memory does not fit or belongs to another.
    pub fn install(&mut self, application: InstalledApplication) -> Result<(), TableChangeError> {
        let (rows, lanes) = (rows(&application), lanes(&application));
        if self.pools.contains_key(&application.gaid) {
            return Err(TableChangeError::Taken { gaid: application.gaid, what: "a pool" });
        }
        check_bounds("rows", &rows, self.registers.rounds.size())?;
        check_bounds("lanes", &lanes, self.registers.lanes.size())?;
        for other in self.applications.values().map(|entry| entry.application).filter(|a| a.gaid != application.gaid) {
            check_disjoint("rows", &rows, &self::rows(&other), other.gaid)?;
            check_disjoint("lanes", &lanes, &self::lanes(&other), other.gaid)?;
        }
        if let Some(entry) = self.applications.get_mut(&application.gaid) {
            let same = entry.application == InstalledApplication { owner: entry.application.owner, ..application };
            entry.application = application;
            if same {
                return Ok(());
            }
        } else {
            let counters = ApplicationCounters::default();
            let entry = ApplicationEntry { application, key: None, last_seen: None, counters, group: Vec::new() };
            self.applications.insert(application.gaid, entry);
        }
        let (row, count) = (application.row_base as usize, application.rows as usize);
        self.registers.generations.reset(row, count, Generation::default());
        self.zero(&application);
        if mutant::on(Mutant::TogetherPoolsForgotten) {
            self.pools.clear();
        }
        Ok(())
    }

    /// Sets the token key of an application or a pool; `None`: frames carry no tokens. Frames without the right token,
    /// or with a token where there is no key, are dropped. A new entry has no key.
    ///
    /// # Errors
    /// [`TableChangeError::UnknownApplication`].
    pub fn authenticate(&mut self, gaid: u32, key: Option<TokenKey>) -> Result<(), TableChangeError> {
        if let Some(pool) = self.pools.get_mut(&gaid) {
            pool.key = key;
            return Ok(());
        }
        self.entry_mut(gaid).ok_or(TableChangeError::UnknownApplication(gaid))?.key = key;
        Ok(())
    }

    /// Whether the frames of an application or a pool carry tokens.
    #[must_use]
    pub fn is_authenticated(&self, gaid: u32) -> bool {
        self.key(gaid).is_some()
    }

    /// Removes an application or a pool; its frames are no longer admitted.
    ///
    /// # Errors
    /// [`TableChangeError::UnknownApplication`].
    pub fn remove(&mut self, gaid: u32) -> Result<(), TableChangeError> {
        if self.pools.remove(&gaid).is_some() {
            if self.pools.is_empty() {
                self.clones.release();
            }
        } else {
            let entry = self.applications.remove(&gaid).ok_or(TableChangeError::UnknownApplication(gaid))?;
            self.zero(&entry.application);
            if mutant::on(Mutant::TogetherCallsReleased) {
                self.clones.release();
            }
        }
        if let Some(hedges) = &mut self.clones.hedges {
            hedges.forget_pool(gaid);
        }
        self.endpoints.retain(|_, endpoint| endpoint.gaid != gaid);
        Ok(())
    }

    /// Admits an endpoint. Its slots are reset if the endpoint or its incarnation is new.
    ///
    /// # Errors
    /// [`TableChangeError`] if the slots do not fit or belong to another.
    pub fn set_endpoint(&mut self, endpoint: Endpoint) -> Result<(), TableChangeError> {
        let range = slots(&endpoint);
        check_bounds("slots", &range, self.registers.places.size() / W_MAX as usize)?;
        for other in self.endpoints.values().filter(|other| other.endpoint != endpoint.endpoint) {
            check_disjoint("slots", &range, &slots(other), other.endpoint)?;
        }
        let before = self.endpoints.insert(endpoint.endpoint, endpoint);
        if before != Some(endpoint) {
            // A group has only endpoints of its own application.
            for entry in self.applications.values_mut().filter(|entry| entry.application.gaid != endpoint.gaid) {
                entry.group.retain(|member| *member != endpoint.endpoint);
            }
            let first = mutant::on(Mutant::SlotlessEndpointResets) && self.registers.places.size() > 0;
            let slots = endpoint.slots.max(u32::from(first));
            let (at, len) = (endpoint.slot_base as usize * W_MAX as usize, slots as usize * W_MAX as usize);
            self.registers.places.reset(at, len, RepeatFilterEntry::default());
            self.registers.overflows.reset(at, len, 0);
            if let Some(pool) = self.pools.get(&endpoint.gaid) {
                pools::reset_load(pool, endpoint.endpoint, &mut self.clones);
            }
        }
        Ok(())
    }

    /// Removes an endpoint; unknown ids are ignored.
    pub fn remove_endpoint(&mut self, endpoint: u32) {
        self.endpoints.remove(&endpoint);
        for entry in self.applications.values_mut() {
            entry.group.retain(|member| *member != endpoint);
        }
    }

    /// Sets the multicast group of an application.
    ///
    /// # Errors
    /// [`TableChangeError`] if the application or an endpoint is unknown.
    pub fn set_group(&mut self, gaid: u32, endpoints: &[u32]) -> Result<(), TableChangeError> {
        if let Some(unknown) = endpoints.iter().find(|id| !self.is_endpoint_of(**id, gaid)) {
            return Err(TableChangeError::UnknownEndpoint(*unknown));
        }
        self.entry_mut(gaid).ok_or(TableChangeError::UnknownApplication(gaid))?.group = endpoints.to_vec();
        Ok(())
    }

    /// Members of the application's multicast group.
    pub fn group(&self, gaid: u32) -> impl Iterator<Item = &Endpoint> {
        let group = self.applications.get(&gaid).map_or(&[][..], |entry| &entry.group);
        group.iter().filter_map(|id| self.endpoints.get(id))
    }

    /// Token key of an application or a pool, if its frames carry tokens.
    pub(crate) fn key(&self, gaid: u32) -> Option<TokenKey> {
        self.applications.get(&gaid).map_or_else(|| self.pools.get(&gaid)?.key, |entry| entry.key)
    }

    /// Entry of an endpoint.
    #[must_use]
    pub fn endpoint(&self, id: u32) -> Option<&Endpoint> {
        self.endpoints.get(&id)
    }

    /// All endpoints, unordered.
    pub fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.endpoints.values()
    }

    /// All applications with the time of their last admitted frame and their counters, unordered.
    pub fn applications(&self) -> impl Iterator<Item = (InstalledApplication, Option<Instant>, ApplicationCounters)> {
        self.applications.values().map(|entry| (entry.application, entry.last_seen, entry.counters))
    }

    /// Lane registers of an application's rows, `width` per row.
    ///
    /// # Errors
    /// [`TableChangeError`] if there are no such rows.
    pub fn read_rows(&self, gaid: u32, row: u32, count: u32) -> Result<&[i32], TableChangeError> {
        let application = self.applications.get(&gaid).ok_or(TableChangeError::UnknownApplication(gaid))?.application;
        let wanted = u64::from(row)..u64::from(row) + u64::from(count);
        check_bounds("rows", &wanted, application.rows as usize)?;
        let at = application.lane_base as usize + row as usize * application.width as usize;
        Ok(self.registers.lanes.peek(at, count as usize * application.width as usize))
    }

    /// All registers, between frames.
    #[must_use]
    pub fn registers(&self) -> &Registers {
        &self.registers
    }

    /// Zeroes an application's registers and opens its first round again. Generations continue, because callers and the
    /// server count them.
    ///
    /// # Errors
    /// [`TableChangeError::UnknownApplication`].
    pub fn reset(&mut self, gaid: u32) -> Result<(), TableChangeError> {
        let application = self.applications.get(&gaid).ok_or(TableChangeError::UnknownApplication(gaid))?.application;
        self.zero(&application);
        Ok(())
    }

    /// Whether an application with this id is installed.
    pub(crate) fn has_application(&self, gaid: u32) -> bool {
        self.applications.contains_key(&gaid)
    }

    pub(crate) fn entry_mut(&mut self, gaid: u32) -> Option<&mut ApplicationEntry> {
        self.applications.get_mut(&gaid)
    }

    /// Whether a flow slot belongs to an endpoint of the application.
    pub(crate) fn is_slot_of(&self, slot: u32, endpoint: u32, gaid: u32) -> bool {
        let endpoint = self.endpoints.get(&endpoint).filter(|endpoint| endpoint.gaid == gaid);
        endpoint.is_some_and(|endpoint| slots(endpoint).contains(&slot.into()))
    }

    pub(crate) fn is_endpoint_of(&self, id: u32, gaid: u32) -> bool {
        self.endpoints.get(&id).is_some_and(|endpoint| endpoint.gaid == gaid)
    }

    fn zero(&mut self, application: &InstalledApplication) {
        let (row, count) = (application.row_base as usize, application.rows as usize);
        self.registers.rounds.reset(row, count, RoundState::default());
        self.registers.counts.reset(row, count, 0);
        self.registers.ballots.reset(row, count, Ballot::default());
        self.registers.locks.reset(row, count, Lock::default());
        self.registers.grants.reset(row, count, 0);
        self.registers.lanes.reset(application.lane_base as usize, count * application.width as usize, 0);
    }
}

type Span = std::ops::Range<u64>;

fn rows(application: &InstalledApplication) -> Span {
    u64::from(application.row_base)..u64::from(application.row_base) + u64::from(application.rows)
}

fn lanes(application: &InstalledApplication) -> Span {
    let first = u64::from(application.lane_base);
    first..first + u64::from(application.rows) * u64::from(application.width)
}

fn slots(endpoint: &Endpoint) -> Span {
    u64::from(endpoint.slot_base)..u64::from(endpoint.slot_base) + u64::from(endpoint.slots)
}

fn check_bounds(what: &'static str, span: &Span, size: usize) -> Result<(), TableChangeError> {
    let size = size as u64;
    if span.end <= size {
        Ok(())
    } else {
        Err(TableChangeError::Range { what, first: span.start, end: span.end, size })
    }
}

fn check_disjoint(what: &'static str, span: &Span, taken: &Span, other: u32) -> Result<(), TableChangeError> {
    let overlap = span.start < taken.end && taken.start < span.end;
    if overlap { Err(TableChangeError::Overlap { what, first: span.start, end: span.end, other }) } else { Ok(()) }
}
