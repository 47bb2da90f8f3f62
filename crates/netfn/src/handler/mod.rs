//! Handler of a network function: the part written in C, which runs on servers (CLIP §IV-C).
//!
//! ```text
//! ir::HandlerDecl ─► CInterface (C text, layouts) ─► sandbox::build ─► CHandler ── call(request, packet)
//!                                                              │            ─► CHandlerOutcome
//!                                    HandlerState: tables, registers, ranges, counts; outlives instances
//! ```
//!
//! [`c_interface`] generates the C text, [`host_state`] answers the handler's calls, and [`CHandler`] runs the handler.
//! A handler that traps loses its packet and restarts with fresh memory; `remote_start` can rebuild its state from the
//! tables, which are kept in [`host_state`]. After repeated traps the handler restarts with growing pauses; packets
//! that arrive in a pause are dropped and counted.

pub mod c_interface;
mod c_scan;
mod error;
mod expr_to_c;
pub mod host_state;
mod serve_adapter;

use std::path::{Path, PathBuf};
use std::time::Duration;

use pathcall_sandbox::{BuiltGuest, Guest, GuestSource, OpenError, Trap};

use crate::mirror::MirroredTable;
use crate::mirror::layout::{ENTRY_BYTES_MAX, MirrorKey};
pub use c_interface::{CInterface, LocateSource};
pub use error::{HandlerStartError, InterfaceError};
pub use host_state::HandlerState;
use host_state::HostCall;
use pathcall_p4::ir::Program;
pub use pathcall_sandbox::{CompilerMessage, GuestBuildError, SandboxKind, TrapReason};

/// Entry points of `pc_enter`.
const START: u32 = 0;
const CALL: u32 = 1;
const EXPIRED: u32 = 2;
const CHANGED: u32 = 3;
/// First pause of a handler that trapped twice without a successful call between; doubled with each further trap.
const PAUSE_MS: u64 = 10;
/// Longest pause.
const PAUSE_MS_MAX: u64 = 5_000;
/// Most bytes of a request, and of a response.
pub const PARAMETER_BYTES_MAX: usize = 512;
/// Most trap reports kept.
const TRAPS_KEPT: usize = 16;

/// Settings of a handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Kind of sandbox; none: the strongest kind for which this machine has the tools.
    pub kind: Option<SandboxKind>,
    /// CPU time limit of one call.
    pub limit: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self { kind: None, limit: pathcall_sandbox::LIMIT }
    }
}

/// Result of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CHandlerOutcome {
    /// The response is in [`CHandler::response`].
    Done,
    /// The handler dropped the packet, for the reason with this number (from 0), by which the drop is counted.
    Dropped(u32),
    /// The handler trapped; the packet is lost.
    Trapped(TrapReason),
    /// The handler is in a pause after traps; the packet is lost.
    Paused,
}

/// Report of a trap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrapReport {
    /// Time of the trap.
    pub at_ms: u64,
    /// Reason of the trap.
    pub reason: TrapReason,
    /// Source position `file:line`, if known.
    pub line: Option<String>,
    /// Activity of the handler at the time of the trap.
    pub during: &'static str,
}

impl std::fmt::Display for TrapReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.line {
            Some(line) => write!(f, "handler trapped at {line} in {}: {}; restarted", self.during, self.reason),
            None => write!(f, "handler trapped in {}: {}; restarted", self.during, self.reason),
        }
    }
}

/// Counters of a handler.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HandlerCounters {
    /// Packets answered.
    pub done: u64,
    /// Packets that the handler dropped.
    pub dropped: u64,
    /// Packets that arrived in a pause after traps.
    pub paused: u64,
    /// Traps by reason, indexed as [`TrapReason::ALL`].
    pub traps: [u64; TrapReason::ALL.len()],
}

/// C handler with its sandbox and the state that the host keeps for it.
#[derive(Debug)]
pub struct CHandler {
    interface: CInterface,
    built: BuiltGuest,
    guest: Guest,
    state: HandlerState,
    counts: HandlerCounters,
    trap_reports: Vec<TrapReport>,
    /// Traps since the last successful call.
    failures: u32,
    /// End of the pause after traps; `None` if the handler runs.
    paused_until_ms: Option<u64>,
}

/// Cache directory of built handlers: `PATHCALL_CACHE`, or `pathcall` in the user's cache, or beside temporary files.
#[must_use]
pub fn cache_dir() -> PathBuf {
    let named = |name: &str| std::env::var_os(name).filter(|dir| !dir.is_empty()).map(PathBuf::from);
    named("PATHCALL_CACHE")
        .or_else(|| named("XDG_CACHE_HOME").map(|dir| dir.join("pathcall")))
        .or_else(|| named("HOME").map(|dir| dir.join(".cache/pathcall")))
        .unwrap_or_else(|| std::env::temp_dir().join("pathcall"))
        .join("handlers")
}

/// Builds `program`'s handler without running it, to check its C code; [`CHandler::start`] finds the result in `cache`.
///
/// # Errors
/// Errors of the C interface or of the compilers, or a missing compiler.
pub fn build(
    program: &Program,
    locate: LocateSource<'_>,
    kind: Option<SandboxKind>,
    cache: &Path,
) -> Result<(), HandlerStartError> {
    let interface = CInterface::new(program, locate)?;
    let kind = kind.map_or_else(SandboxKind::best, Ok).map_err(GuestBuildError::from)?;
    pathcall_sandbox::build(kind, GuestSource { text: &interface.text }, cache)?;
    Ok(())
}

impl CHandler {
    /// Builds and starts `program`'s handler; the built code is kept in `cache`.
    pub fn start(
        program: &Program,
        locate: LocateSource<'_>,
        config: &Config,
        cache: &Path,
        now_ms: u64,
    ) -> Result<Self, HandlerStartError> {
        let interface = CInterface::new(program, locate)?;
        let start = |kind| {
            let built = pathcall_sandbox::build(kind, GuestSource { text: &interface.text }, cache)?;
            Self::open(program, interface.clone(), built, config, now_ms)
        };
        let Some(kind) = config.kind else {
            // The strongest sandbox that this machine supports.
            return match start(SandboxKind::best().map_err(GuestBuildError::from)?) {
                Err(
                    HandlerStartError::Build(GuestBuildError::Step { .. }) | HandlerStartError::Open(OpenError::Memory),
                ) => start(SandboxKind::Process),
                started => started,
            };
        };
        start(kind)
    }

    /// Starts one more instance of the built code, with a state of its own.
    pub fn new_instance(&self, program: &Program, config: &Config, now_ms: u64) -> Result<Self, HandlerStartError> {
        Self::open(program, self.interface.clone(), self.built.clone(), config, now_ms)
    }

    fn open(
        program: &Program,
        interface: CInterface,
        built: BuiltGuest,
        config: &Config,
        now_ms: u64,
    ) -> Result<Self, HandlerStartError> {
        let tables = interface.tables.iter().map(|table| MirroredTable::new(program, table.id, now_ms));
        let tables = tables.collect::<Result<Vec<_>, _>>().map_err(InterfaceError::from)?;
        let bits = interface.registers.iter().map(|id| program.registers[id.0 as usize].ty.width()).collect();
        let mut state = HandlerState::new(tables, bits, program.partitions.len());
        for (ranges, partition) in state.ranges.iter_mut().zip(&program.partitions) {
            // The whole partition, until a controller assigns ranges.
            ranges.push((partition.first as u64, partition.last as u64));
        }
        let guest = Guest::open(&built, interface.area_bytes, config.limit)?;
        let mut handler = Self {
            interface,
            built,
            guest,
            state,
            counts: HandlerCounters::default(),
            trap_reports: Vec::new(),
            failures: 0,
            paused_until_ms: None,
        };
        handler.call_start(now_ms);
        Ok(handler)
    }

    /// C interface of the handler.
    #[must_use]
    pub fn interface(&self) -> &CInterface {
        &self.interface
    }

    /// Kind of sandbox that the handler runs in.
    #[must_use]
    pub fn kind(&self) -> SandboxKind {
        self.built.kind
    }

    /// State that the host keeps across restarts of the handler.
    #[must_use]
    pub fn state(&self) -> &HandlerState {
        &self.state
    }

    /// Mutable access to [`Self::state`].
    pub fn state_mut(&mut self) -> &mut HandlerState {
        &mut self.state
    }

    /// Counters of the handler.
    #[must_use]
    pub fn counts(&self) -> &HandlerCounters {
        &self.counts
    }

    /// Reports of the last traps.
    #[must_use]
    pub fn trap_reports(&self) -> &[TrapReport] {
        &self.trap_reports
    }

    /// Removes and returns the reports of the last traps.
    pub fn take_trap_reports(&mut self) -> Vec<TrapReport> {
        std::mem::take(&mut self.trap_reports)
    }

    /// Memory of the request, to be filled before [`call`](Self::call).
    pub fn request(&mut self) -> &mut [u8] {
        let (at, bytes) = (self.interface.request_offset, self.interface.request.bytes);
        &mut self.guest.area()[at..at + bytes]
    }

    /// Memory of the response, to be read after [`call`](Self::call).
    pub fn response(&mut self) -> &[u8] {
        let (at, bytes) = (self.interface.response_offset, self.interface.response.bytes);
        &self.guest.area()[at..at + bytes]
    }

    /// Calls the handler for a packet whose request is in [`Self::request`]; the response is zeroed first.
    pub fn call(&mut self, now_ms: u64, packet: &[u8]) -> CHandlerOutcome {
        if !self.is_ready(now_ms) {
            self.counts.paused += 1;
            return CHandlerOutcome::Paused;
        }
        let area = self.guest.area();
        area[8..12].copy_from_slice(&(packet.len() as u32).to_le_bytes());
        area[12..16].fill(0);
        area[self.interface.response_offset..self.interface.entry_offset].fill(0);
        if let Err(reason) = self.enter(CALL, 0, now_ms, packet, "remote_handler") {
            return CHandlerOutcome::Trapped(reason);
        }
        self.failures = 0;
        let dropped = u32::from_le_bytes(self.guest.area()[12..16].try_into().expect("4 bytes"));
        if dropped == 0 {
            self.counts.done += 1;
            return CHandlerOutcome::Done;
        }
        self.state.count(dropped.into(), 1);
        self.counts.dropped += 1;
        CHandlerOutcome::Dropped(dropped - 1)
    }

    /// Expires entries that were idle for their idle time, and passes them to the handler's `remote_expired`, if it has
    /// one.
    pub fn expire(&mut self, now_ms: u64) {
        let mut entry = [0; ENTRY_BYTES_MAX];
        for index in 0..self.state.tables.len() {
            let bytes = self.state.tables[index].layout().bytes;
            while self.state.tables[index].expire(now_ms, &mut entry[..bytes]) {
                self.report_expired(index, &entry[..bytes], now_ms);
            }
        }
    }

    /// Expires the entry with this key at once; false if there is no such entry.
    pub fn expire_entry(&mut self, table: usize, key: &MirrorKey, now_ms: u64) -> bool {
        let mut entry = [0; ENTRY_BYTES_MAX];
        let Some(mirror) = self.state.tables.get_mut(table) else { return false };
        let Some(found) = mirror.get(key) else { return false };
        let entry = &mut entry[..found.len()];
        entry.copy_from_slice(found);
        mirror.remove(key);
        self.report_expired(table, entry, now_ms);
        true
    }

    /// Passes an expired entry to the handler, if the handler takes entries of this table.
    fn report_expired(&mut self, table: usize, entry: &[u8], now_ms: u64) {
        self.state.queue_removal(table, entry);
        if self.interface.expired[table] && self.is_ready(now_ms) {
            let at = self.interface.entry_offset;
            self.guest.area()[at..at + entry.len()].copy_from_slice(entry);
            let _ = self.enter(EXPIRED, table as u32, now_ms, &[], "remote_expired");
        }
    }

    /// Earliest time at which [`expire`](Self::expire) may expire an entry.
    #[must_use]
    pub fn next_ms(&self) -> Option<u64> {
        self.state.tables.iter().filter_map(MirroredTable::next_expiry_ms).min()
    }

    /// Replaces this server's ranges of a partition.
    pub fn set_ranges(&mut self, partition: usize, ranges: &[(u64, u64)], now_ms: u64) {
        let Some(own) = self.state.ranges.get_mut(partition) else { return };
        own.clear();
        own.extend_from_slice(ranges);
        if self.is_ready(now_ms) {
            let _ = self.enter(CHANGED, partition as u32, now_ms, &[], "the change of its ranges");
        }
    }

    /// Whether the handler can be called; restarts a handler whose pause is over.
    fn is_ready(&mut self, now_ms: u64) -> bool {
        match self.paused_until_ms {
            None => true,
            Some(until_ms) if now_ms < until_ms => false,
            Some(_) => {
                self.restart(now_ms);
                self.paused_until_ms.is_none()
            }
        }
    }

    fn restart(&mut self, now_ms: u64) {
        // The request that was written into the memory for the next call is kept.
        let mut request = [0; PARAMETER_BYTES_MAX];
        let bytes = self.interface.request.bytes;
        let at = self.interface.request_offset;
        request[..bytes].copy_from_slice(&self.guest.area()[at..at + bytes]);
        self.paused_until_ms = None;
        if self.guest.restart().is_err() {
            self.paused_until_ms = Some(now_ms + PAUSE_MS_MAX);
            return;
        }
        self.call_start(now_ms);
        self.guest.area()[at..at + bytes].copy_from_slice(&request[..bytes]);
    }

    fn call_start(&mut self, now_ms: u64) {
        let _ = self.enter(START, 0, now_ms, &[], "remote_start");
    }

    fn enter(
        &mut self,
        entry: u32,
        argument: u32,
        now_ms: u64,
        packet: &[u8],
        during: &'static str,
    ) -> Result<(), TrapReason> {
        self.state.set_now(now_ms);
        self.guest.area()[..8].copy_from_slice(&now_ms.to_le_bytes());
        let mut host = HostCall { state: &mut self.state, packet };
        self.guest.enter(entry, argument, &mut host).map_err(|trap| {
            self.handle_trap(trap, now_ms, during);
            trap.reason
        })
    }

    /// Reports a trap and restarts the handler: at once after the first trap, else after a pause.
    fn handle_trap(&mut self, trap: Trap, now_ms: u64, during: &'static str) {
        let index = TrapReason::ALL.iter().position(|reason| *reason == trap.reason).unwrap_or(0);
        self.counts.traps[index] += 1;
        if self.trap_reports.len() < TRAPS_KEPT {
            let line = self.built.line(trap.at);
            self.trap_reports.push(TrapReport { at_ms: now_ms, reason: trap.reason, line, during });
        }
        let pause_ms = match self.failures {
            0 => 0,
            before => (PAUSE_MS << (before - 1).min(16)).min(PAUSE_MS_MAX),
        };
        self.failures += 1;
        self.paused_until_ms = Some(now_ms + pause_ms);
    }
}

#[cfg(test)]
mod tests;
