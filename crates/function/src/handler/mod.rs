//! The handler: the part of a function that is C and runs on servers (CLIP §IV-C).
//!
//! ```text
//! ir::Handler ─► Face (C text, layouts) ─► sandbox::build ─► Handler ── call(request, packet) ─► Outcome
//!                                                              │
//!                                    World: tables, registers, ranges, counts; outlives instances
//! ```
//!
//! In the order of use: [`face`] writes the C that is compiled, [`world`] answers what the handler asks for, and
//! [`Handler`] calls it. A handler that traps loses its packet; it gets fresh memory, and `remote_start` may rebuild what it
//! had from its tables, which the world keeps. One that traps again and again is started anew with growing pauses, in
//! which its packets are lost and counted.

mod error;
mod express;
pub mod face;
mod scan;
mod serve;
pub mod world;

use std::path::{Path, PathBuf};
use std::time::Duration;

use pathcall_sandbox::{Built, Guest, OpenError, Source, Trap};

use crate::ir::Program;
use crate::mirror::Mirror;
use crate::mirror::layout::{ENTRY_BYTES_MAX, Key};
pub use error::{FaceError, StartError};
pub use face::{Face, Place};
pub use pathcall_sandbox::{BuildError, Kind, Message, Reason};
use world::Call;
pub use world::World;

/// `pc_enter`'s entries.
const START: u32 = 0;
const CALL: u32 = 1;
const EXPIRED: u32 = 2;
const CHANGED: u32 = 3;
/// The first pause of a handler that has trapped twice without a call that went well; it doubles.
const PAUSE_MS: u64 = 10;
/// The longest.
const PAUSE_MS_MAX: u64 = 5_000;
/// The longest request, and the longest response, bytes.
pub const PARAMETER_BYTES_MAX: usize = 512;
/// Traps of which the report keeps one each of the last.
const TRAPS_KEPT: usize = 16;

/// How a handler is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where; none: the best that this machine has tools for and that contains it.
    pub kind: Option<Kind>,
    /// The processor's time of one call.
    pub limit: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self { kind: None, limit: pathcall_sandbox::LIMIT }
    }
}

/// What a call came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The response stands in [`Handler::response`].
    Done,
    /// The handler ended the packet, for the reason of this number, from 0, by which it is counted.
    Dropped(u32),
    /// The handler trapped; the packet is lost.
    Trapped(Reason),
    /// The handler rests after traps; the packet is lost.
    Resting,
}

/// A trap, for reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trapped {
    /// When.
    pub at_ms: u64,
    /// Why.
    pub reason: Reason,
    /// Where: `file:line`, if it is known.
    pub line: Option<String>,
    /// What it was doing.
    pub during: &'static str,
}

impl std::fmt::Display for Trapped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.line {
            Some(line) => write!(f, "handler ended at {line} in {}: {}; started anew", self.during, self.reason),
            None => write!(f, "handler ended in {}: {}; started anew", self.during, self.reason),
        }
    }
}

/// What a handler did so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that it answered.
    pub done: u64,
    /// Packets that it ended.
    pub dropped: u64,
    /// Packets that came while it rested.
    pub resting: u64,
    /// Traps by reason, as [`Reason::ALL`].
    pub traps: [u64; Reason::ALL.len()],
}

/// A handler with its world.
#[derive(Debug)]
pub struct Handler {
    face: Face,
    built: Built,
    guest: Guest,
    world: World,
    counts: Counts,
    trapped: Vec<Trapped>,
    /// Traps since the last call that went well.
    failures: u32,
    /// When it may be started; none: it is well.
    rests_until_ms: Option<u64>,
}

/// Where handlers are kept that were built: `PATHCALL_CACHE`, or `pathcall` in the user's cache, or beside temporary files.
#[must_use]
pub fn cache_dir() -> PathBuf {
    let named = |name: &str| std::env::var_os(name).filter(|dir| !dir.is_empty()).map(PathBuf::from);
    named("PATHCALL_CACHE")
        .or_else(|| named("XDG_CACHE_HOME").map(|dir| dir.join("pathcall")))
        .or_else(|| named("HOME").map(|dir| dir.join(".cache/pathcall")))
        .unwrap_or_else(|| std::env::temp_dir().join("pathcall"))
        .join("handlers")
}

/// Builds `program`'s handler without running it: whether its C is right. Where it is kept, [`Handler::start`] finds it.
///
/// # Errors
/// What its face, the compilers, or their lack say.
pub fn build(program: &Program, place: Place<'_>, kind: Option<Kind>, cache: &Path) -> Result<(), StartError> {
    let face = Face::new(program, place)?;
    let kind = kind.map_or_else(Kind::best, Ok).map_err(BuildError::from)?;
    pathcall_sandbox::build(kind, Source { text: &face.text }, cache)?;
    Ok(())
}

impl Handler {
    /// Builds and starts `program`'s handler; what is built is kept in `cache`.
    pub fn start(
        program: &Program,
        place: Place<'_>,
        config: &Config,
        cache: &Path,
        now_ms: u64,
    ) -> Result<Self, StartError> {
        let face = Face::new(program, place)?;
        let start = |kind| {
            let built = pathcall_sandbox::build(kind, Source { text: &face.text }, cache)?;
            Self::with(program, face.clone(), built, config, now_ms)
        };
        let Some(kind) = config.kind else {
            // What contains it best, if this machine can do that.
            return match start(Kind::best().map_err(BuildError::from)?) {
                Err(StartError::Build(BuildError::Step { .. }) | StartError::Open(OpenError::Memory)) => {
                    start(Kind::Process)
                }
                started => started,
            };
        };
        start(kind)
    }

    /// One more instance of what was built, with a world of its own.
    pub fn another(&self, program: &Program, config: &Config, now_ms: u64) -> Result<Self, StartError> {
        Self::with(program, self.face.clone(), self.built.clone(), config, now_ms)
    }

    fn with(program: &Program, face: Face, built: Built, config: &Config, now_ms: u64) -> Result<Self, StartError> {
        let tables = face.tables.iter().map(|table| Mirror::new(program, table.id, now_ms));
        let tables = tables.collect::<Result<Vec<_>, _>>().map_err(FaceError::from)?;
        let bits = face.registers.iter().map(|id| program.registers[id.0 as usize].ty.width()).collect();
        let mut world = World::new(tables, bits, program.partitions.len());
        for (ranges, partition) in world.ranges.iter_mut().zip(&program.partitions) {
            // All of it, until a controller says otherwise.
            ranges.push((partition.first as u64, partition.last as u64));
        }
        let guest = Guest::open(&built, face.area_bytes, config.limit)?;
        let mut handler = Self {
            face,
            built,
            guest,
            world,
            counts: Counts::default(),
            trapped: Vec::new(),
            failures: 0,
            rests_until_ms: None,
        };
        handler.begin(now_ms);
        Ok(handler)
    }

    /// What it agrees on with its host.
    #[must_use]
    pub fn face(&self) -> &Face {
        &self.face
    }

    /// Which room it runs in.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.built.kind
    }

    /// What outlives its instances.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The same, to be changed.
    pub fn world_mut(&mut self) -> &mut World {
        &mut self.world
    }

    /// What it did so far.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Its last traps.
    #[must_use]
    pub fn trapped(&self) -> &[Trapped] {
        &self.trapped
    }

    /// The same, which are forgotten then.
    pub fn take_trapped(&mut self) -> Vec<Trapped> {
        std::mem::take(&mut self.trapped)
    }

    /// The request's memory, to be filled before [`call`](Self::call).
    pub fn request(&mut self) -> &mut [u8] {
        let (at, bytes) = (self.face.request_offset, self.face.request.bytes);
        &mut self.guest.area()[at..at + bytes]
    }

    /// The response's memory, after [`call`](Self::call).
    pub fn response(&mut self) -> &[u8] {
        let (at, bytes) = (self.face.response_offset, self.face.response.bytes);
        &self.guest.area()[at..at + bytes]
    }

    /// Calls the handler for a packet, whose request stands in its memory; the response is zeros at first.
    pub fn call(&mut self, now_ms: u64, packet: &[u8]) -> Outcome {
        if !self.is_awake(now_ms) {
            self.counts.resting += 1;
            return Outcome::Resting;
        }
        let area = self.guest.area();
        area[8..12].copy_from_slice(&(packet.len() as u32).to_le_bytes());
        area[12..16].fill(0);
        area[self.face.response_offset..self.face.entry_offset].fill(0);
        if let Err(reason) = self.enter(CALL, 0, now_ms, packet, "remote_handler") {
            return Outcome::Trapped(reason);
        }
        self.failures = 0;
        let dropped = u32::from_le_bytes(self.guest.area()[12..16].try_into().expect("4 bytes"));
        if dropped == 0 {
            self.counts.done += 1;
            return Outcome::Done;
        }
        self.world.count(dropped.into(), 1);
        self.counts.dropped += 1;
        Outcome::Dropped(dropped - 1)
    }

    /// Lets entries go that nothing used for their time; the handler sees them, if it wants to.
    pub fn expire(&mut self, now_ms: u64) {
        let mut entry = [0; ENTRY_BYTES_MAX];
        for index in 0..self.world.tables.len() {
            let bytes = self.world.tables[index].layout().bytes;
            while self.world.tables[index].expire(now_ms, &mut entry[..bytes]) {
                self.expired(index, &entry[..bytes], now_ms);
            }
        }
    }

    /// Lets the entry of this key go as if its time was over; false if there is none.
    pub fn let_go(&mut self, table: usize, key: &Key, now_ms: u64) -> bool {
        let mut entry = [0; ENTRY_BYTES_MAX];
        let Some(mirror) = self.world.tables.get_mut(table) else { return false };
        let Some(found) = mirror.get(key) else { return false };
        let entry = &mut entry[..found.len()];
        entry.copy_from_slice(found);
        mirror.remove(key);
        self.expired(table, entry, now_ms);
        true
    }

    /// An entry has gone; the handler sees it, if it wants to.
    fn expired(&mut self, table: usize, entry: &[u8], now_ms: u64) {
        self.world.gone(table, entry);
        if self.face.expired[table] && self.is_awake(now_ms) {
            let at = self.face.entry_offset;
            self.guest.area()[at..at + entry.len()].copy_from_slice(entry);
            let _ = self.enter(EXPIRED, table as u32, now_ms, &[], "remote_expired");
        }
    }

    /// When [`expire`](Self::expire) has something to do next, at the earliest.
    #[must_use]
    pub fn next_ms(&self) -> Option<u64> {
        self.world.tables.iter().filter_map(Mirror::next_expiry_ms).min()
    }

    /// Gives the server other ranges of a partition.
    pub fn set_ranges(&mut self, partition: usize, ranges: &[(u64, u64)], now_ms: u64) {
        let Some(own) = self.world.ranges.get_mut(partition) else { return };
        own.clear();
        own.extend_from_slice(ranges);
        if self.is_awake(now_ms) {
            let _ = self.enter(CHANGED, partition as u32, now_ms, &[], "a change of its ranges");
        }
    }

    /// Whether it can be called: one that rested is started, when its time has come.
    fn is_awake(&mut self, now_ms: u64) -> bool {
        match self.rests_until_ms {
            None => true,
            Some(until_ms) if now_ms < until_ms => false,
            Some(_) => {
                self.restart(now_ms);
                self.rests_until_ms.is_none()
            }
        }
    }

    fn restart(&mut self, now_ms: u64) {
        // What was written into its memory for the call that is to come stays.
        let mut request = [0; PARAMETER_BYTES_MAX];
        let bytes = self.face.request.bytes;
        let at = self.face.request_offset;
        request[..bytes].copy_from_slice(&self.guest.area()[at..at + bytes]);
        self.rests_until_ms = None;
        if self.guest.restart().is_err() {
            self.rests_until_ms = Some(now_ms + PAUSE_MS_MAX);
            return;
        }
        self.begin(now_ms);
        self.guest.area()[at..at + bytes].copy_from_slice(&request[..bytes]);
    }

    fn begin(&mut self, now_ms: u64) {
        let _ = self.enter(START, 0, now_ms, &[], "remote_start");
    }

    fn enter(
        &mut self,
        entry: u32,
        argument: u32,
        now_ms: u64,
        packet: &[u8],
        during: &'static str,
    ) -> Result<(), Reason> {
        self.world.set_now(now_ms);
        self.guest.area()[..8].copy_from_slice(&now_ms.to_le_bytes());
        let mut host = Call { world: &mut self.world, packet };
        self.guest.enter(entry, argument, &mut host).map_err(|trap| {
            self.ended(trap, now_ms, during);
            trap.reason
        })
    }

    /// A trap: reported, and the handler is started anew, at once the first time.
    fn ended(&mut self, trap: Trap, now_ms: u64, during: &'static str) {
        let place = Reason::ALL.iter().position(|reason| *reason == trap.reason).unwrap_or(0);
        self.counts.traps[place] += 1;
        if self.trapped.len() < TRAPS_KEPT {
            let line = self.built.line(trap.at);
            self.trapped.push(Trapped { at_ms: now_ms, reason: trap.reason, line, during });
        }
        let pause_ms = match self.failures {
            0 => 0,
            before => (PAUSE_MS << (before - 1).min(16)).min(PAUSE_MS_MAX),
        };
        self.failures += 1;
        self.rests_until_ms = Some(now_ms + pause_ms);
    }
}

#[cfg(test)]
mod tests;
