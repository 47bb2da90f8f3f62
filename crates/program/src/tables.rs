//! Who is admitted, where their registers are, and who hears a multicast: what the controller sets.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use pathcall_wire::{Instant, KEYED_LANES, Mutant, TokenKey, W_MAX, mutant};

use crate::ApplicationCounters;
use crate::clone::pools::{self, Entry as PoolEntry};
use crate::clone::{CloneRegisters, CloneSize};
use crate::registers::{Ballot, Generation, Lock, Place, Registers, RoundState};

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
    /// NetRPC §6.1: 32 segments of 40k registers; and slots for 4,096 flows.
    fn default() -> Self {
        Self { rows: 40_960, lanes: KEYED_LANES * 40_960, slots: 4_096 }
    }
}

/// An admission entry: an application and its piece of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Application {
    /// Global application id.
    pub gaid: u32,
    /// Epoch of its registers; frames of another are not admitted.
    pub epoch: u32,
    /// Endpoint of the server that owns the truth.
    pub owner: u32,
    /// First of its rows.
    pub row_base: u32,
    /// Number of its rows.
    pub rows: u32,
    /// First of its lane registers; `rows × width` of them.
    pub lane_base: u32,
    /// Lanes of a row.
    pub width: u32,
}

/// An endpoint whose frames are admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// Its id.
    pub endpoint: u32,
    /// Its process's incarnation.
    pub incarnation: u32,
    /// The application it belongs to.
    pub gaid: u32,
    /// First of its flow slots.
    pub slot_base: u32,
    /// Number of its flow slots.
    pub slots: u32,
}

/// Why a change of the tables is refused; nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// No such application.
    #[error("application {0} is not installed")]
    UnknownApplication(u32),
    /// No such endpoint.
    #[error("endpoint {0} is not in the table")]
    UnknownEndpoint(u32),
    /// Outside the element's memory.
    #[error("{what} {first}..{end} do not fit: the element has {size}")]
    Range {
        /// Rows, lanes or slots.
        what: &'static str,
        /// First asked for.
        first: u64,
        /// One past the last.
        end: u64,
        /// How many there are.
        size: u64,
    },
    /// Somebody else's memory.
    #[error("{what} {first}..{end} belong to {other} already")]
    Overlap {
        /// Rows, lanes or slots.
        what: &'static str,
        /// First asked for.
        first: u64,
        /// One past the last.
        end: u64,
        /// The application or endpoint that has them.
        other: u32,
    },
    /// The id is a pool's where an application's is asked for, or the other way round.
    #[error("{gaid} is installed as {what} already")]
    Taken {
        /// The id.
        gaid: u32,
        /// What it is.
        what: &'static str,
    },
    /// A pool's server stands in it twice.
    #[error("server {0} stands in the pool twice")]
    Twice(u32),
}

/// Anything by endpoints or GAIDs. The controller has chosen those that are in it, so that nobody gains from collisions:
/// each frame is looked up several times, and a hash that holds against strangers took most of that time.
pub type ById<V> = HashMap<u32, V, FixedState>;

/// What the program keeps of an application.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) application: Application,
    /// What signs its frames, if they carry tokens.
    pub(crate) key: Option<TokenKey>,
    pub(crate) last_seen: Option<Instant>,
    pub(crate) counters: ApplicationCounters,
    group: Vec<u32>,
}

/// Admission, endpoints and groups, and the registers they hand out.
#[derive(Debug)]
pub struct Tables {
    applications: ById<Entry>,
    pub(crate) pools: ById<PoolEntry>,
    pub(crate) endpoints: ById<Endpoint>,
    pub(crate) registers: Registers,
    pub(crate) clones: CloneRegisters,
}

impl Tables {
    pub(crate) fn new(size: Size, clones: CloneSize) -> Self {
        Self {
            applications: ById::default(),
            pools: ById::default(),
            endpoints: ById::default(),
            registers: Registers::new(&size),
            clones: CloneRegisters::new(clones),
        }
    }

    /// Installs an application. Its registers start at zero when it is new or its epoch, place or
    /// size changed; the same entry again changes nothing.
    ///
    /// # Errors
    /// [`TableError`] when its memory does not fit or belongs to another.
    pub fn install(&mut self, application: Application) -> Result<(), TableError> {
        let (rows, lanes) = (rows(&application), lanes(&application));
        if self.pools.contains_key(&application.gaid) {
            return Err(TableError::Taken { gaid: application.gaid, what: "a pool" });
        }
        inside("rows", &rows, self.registers.rounds.size())?;
        inside("lanes", &lanes, self.registers.lanes.size())?;
        for other in self.applications.values().map(|entry| entry.application).filter(|a| a.gaid != application.gaid) {
            apart("rows", &rows, &self::rows(&other), other.gaid)?;
            apart("lanes", &lanes, &self::lanes(&other), other.gaid)?;
        }
        if let Some(entry) = self.applications.get_mut(&application.gaid) {
            let same = entry.application == Application { owner: entry.application.owner, ..application };
            entry.application = application;
            if same {
                return Ok(());
            }
        } else {
            let counters = ApplicationCounters::default();
            let entry = Entry { application, key: None, last_seen: None, counters, group: Vec::new() };
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

    /// Says what signs the frames of an application or a pool; `None`: they carry no tokens. A frame of the
    /// other form, or with another token, is dropped. What is installed first has no key.
    ///
    /// # Errors
    /// [`TableError::UnknownApplication`].
    pub fn authenticate(&mut self, gaid: u32, key: Option<TokenKey>) -> Result<(), TableError> {
        if let Some(pool) = self.pools.get_mut(&gaid) {
            pool.key = key;
            return Ok(());
        }
        self.entry_mut(gaid).ok_or(TableError::UnknownApplication(gaid))?.key = key;
        Ok(())
    }

    /// Whether the frames of an application or a pool carry tokens.
    #[must_use]
    pub fn is_authenticated(&self, gaid: u32) -> bool {
        self.key(gaid).is_some()
    }

    /// Takes an application or a pool out; its frames are no longer admitted.
    ///
    /// # Errors
    /// [`TableError::UnknownApplication`].
    pub fn remove(&mut self, gaid: u32) -> Result<(), TableError> {
        if self.pools.remove(&gaid).is_some() {
            if self.pools.is_empty() {
                self.clones.release();
            }
        } else {
            let entry = self.applications.remove(&gaid).ok_or(TableError::UnknownApplication(gaid))?;
            self.zero(&entry.application);
            if mutant::on(Mutant::TogetherCallsReleased) {
                self.clones.release();
            }
        }
        self.endpoints.retain(|_, endpoint| endpoint.gaid != gaid);
        Ok(())
    }

    /// Admits an endpoint. Its slots start anew when it or its incarnation is new.
    ///
    /// # Errors
    /// [`TableError`] when its slots do not fit or belong to another.
    pub fn set_endpoint(&mut self, endpoint: Endpoint) -> Result<(), TableError> {
        let range = slots(&endpoint);
        inside("slots", &range, self.registers.places.size() / W_MAX as usize)?;
        for other in self.endpoints.values().filter(|other| other.endpoint != endpoint.endpoint) {
            apart("slots", &range, &slots(other), other.endpoint)?;
        }
        let before = self.endpoints.insert(endpoint.endpoint, endpoint);
        if before != Some(endpoint) {
            // A group has endpoints of its application alone.
            for entry in self.applications.values_mut().filter(|entry| entry.application.gaid != endpoint.gaid) {
                entry.group.retain(|member| *member != endpoint.endpoint);
            }
            let first = mutant::on(Mutant::TogetherSlotsReset) && self.registers.places.size() > 0;
            let slots = endpoint.slots.max(u32::from(first));
            let (at, len) = (endpoint.slot_base as usize * W_MAX as usize, slots as usize * W_MAX as usize);
            self.registers.places.reset(at, len, Place::default());
            self.registers.overflows.reset(at, len, 0);
            if let Some(pool) = self.pools.get(&endpoint.gaid) {
                pools::begin(pool, endpoint.endpoint, &mut self.clones);
            }
        }
        Ok(())
    }

    /// Takes an endpoint out; unknown ones are fine.
    pub fn remove_endpoint(&mut self, endpoint: u32) {
        self.endpoints.remove(&endpoint);
        for entry in self.applications.values_mut() {
            entry.group.retain(|member| *member != endpoint);
        }
    }

    /// Says who hears a multicast of the application.
    ///
    /// # Errors
    /// [`TableError`] when the application or an endpoint is unknown.
    pub fn set_group(&mut self, gaid: u32, endpoints: &[u32]) -> Result<(), TableError> {
        if let Some(unknown) = endpoints.iter().find(|id| !self.is_endpoint_of(**id, gaid)) {
            return Err(TableError::UnknownEndpoint(*unknown));
        }
        self.entry_mut(gaid).ok_or(TableError::UnknownApplication(gaid))?.group = endpoints.to_vec();
        Ok(())
    }

    /// Who hears a multicast of the application.
    pub fn group(&self, gaid: u32) -> impl Iterator<Item = &Endpoint> {
        let group = self.applications.get(&gaid).map_or(&[][..], |entry| &entry.group);
        group.iter().filter_map(|id| self.endpoints.get(id))
    }

    /// What signs the frames of an application or a pool, if they carry tokens.
    pub(crate) fn key(&self, gaid: u32) -> Option<TokenKey> {
        self.applications.get(&gaid).map_or_else(|| self.pools.get(&gaid)?.key, |entry| entry.key)
    }

    /// An endpoint's entry.
    #[must_use]
    pub fn endpoint(&self, id: u32) -> Option<&Endpoint> {
        self.endpoints.get(&id)
    }

    /// Every endpoint, in no order.
    pub fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.endpoints.values()
    }

    /// Every application with the time of its last admitted frame and its counters, in no order.
    pub fn applications(&self) -> impl Iterator<Item = (Application, Option<Instant>, ApplicationCounters)> {
        self.applications.values().map(|entry| (entry.application, entry.last_seen, entry.counters))
    }

    /// Lane registers of an application's rows, `width` to a row.
    ///
    /// # Errors
    /// [`TableError`] when there are no such rows.
    pub fn read_rows(&self, gaid: u32, row: u32, count: u32) -> Result<&[i32], TableError> {
        let application = self.applications.get(&gaid).ok_or(TableError::UnknownApplication(gaid))?.application;
        let wanted = u64::from(row)..u64::from(row) + u64::from(count);
        inside("rows", &wanted, application.rows as usize)?;
        let at = application.lane_base as usize + row as usize * application.width as usize;
        Ok(self.registers.lanes.peek(at, count as usize * application.width as usize))
    }

    /// All registers, as they are between frames.
    #[must_use]
    pub fn registers(&self) -> &Registers {
        &self.registers
    }

    /// Zeroes an application's registers and opens its first round again. Generations go on: callers
    /// and the server count them.
    ///
    /// # Errors
    /// [`TableError::UnknownApplication`].
    pub fn reset(&mut self, gaid: u32) -> Result<(), TableError> {
        let application = self.applications.get(&gaid).ok_or(TableError::UnknownApplication(gaid))?.application;
        self.zero(&application);
        Ok(())
    }

    /// What is installed as an application.
    pub(crate) fn has_application(&self, gaid: u32) -> bool {
        self.applications.contains_key(&gaid)
    }

    pub(crate) fn entry_mut(&mut self, gaid: u32) -> Option<&mut Entry> {
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

    fn zero(&mut self, application: &Application) {
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

fn rows(application: &Application) -> Span {
    u64::from(application.row_base)..u64::from(application.row_base) + u64::from(application.rows)
}

fn lanes(application: &Application) -> Span {
    let first = u64::from(application.lane_base);
    first..first + u64::from(application.rows) * u64::from(application.width)
}

fn slots(endpoint: &Endpoint) -> Span {
    u64::from(endpoint.slot_base)..u64::from(endpoint.slot_base) + u64::from(endpoint.slots)
}

fn inside(what: &'static str, span: &Span, size: usize) -> Result<(), TableError> {
    let size = size as u64;
    if span.end <= size { Ok(()) } else { Err(TableError::Range { what, first: span.start, end: span.end, size }) }
}

fn apart(what: &'static str, span: &Span, theirs: &Span, other: u32) -> Result<(), TableError> {
    let overlap = span.start < theirs.end && theirs.start < span.end;
    if overlap { Err(TableError::Overlap { what, first: span.start, end: span.end, other }) } else { Ok(()) }
}
