//! Hardware profile: the part of the program that a pipeline with a register array for each lane supports.
//!
//! ```text
//! steps ─► HardwareExecution ─┬─ within the profile ─► execution
//!                             └─ beyond it: refused, or skipped, for all compared executions
//! ```
//!
//! A pipeline has applications of rows of at most 32 lanes, or of keys (two banks of 32), without tokens; frames have
//! at most 32 lanes. Not supported are frames that would access an array twice: reads across banks, and results of
//! rounds in an application of keys, whose rows have two banks to clear; and parts with tag 0, which no host sends. A
//! profile of one ability refuses what needs the other.

use pathcall_program::pipeline::PipelineProfile;
use pathcall_program::{Endpoint, InstalledApplication, InstalledPool, TableChangeError};
use pathcall_wire::clone::is_clone;
use pathcall_wire::{Base, FrameKind, Instant, KEYED_LANES, MapFlags, MapFrame, TokenKey};
use std::collections::BTreeMap;

use crate::{ExecutionFailure, ExecutionState, ProgramExecution, ProgramOutcome};

/// Execution that receives only steps within the hardware profile.
#[derive(Debug)]
pub struct HardwareExecution<E> {
    inner: E,
    profile: PipelineProfile,
    /// Lanes of a row, by application.
    widths: BTreeMap<u32, u32>,
    /// Numbers of frames played and left out.
    played: u64,
    left_out: u64,
}

/// Refuses an application that the profile cannot serve.
pub(crate) fn check_application(profile: PipelineProfile, width: u32) -> Result<(), ExecutionFailure> {
    let what = if profile.has_map() { "lanes of a frame" } else { "lanes of a profile without map" };
    let size = if profile.has_map() { KEYED_LANES as u64 } else { 0 };
    match profile.takes_rows_of(width) {
        true => Ok(()),
        false => Err(ExecutionFailure::Refused(TableChangeError::Range { what, first: 0, end: width.into(), size })),
    }
}

/// Refuses a pool if the profile has no calls.
pub(crate) fn check_pool(profile: PipelineProfile) -> Result<(), ExecutionFailure> {
    let (what, first, end, size) = ("pools of the profile", 0, 1, 0);
    match profile.has_calls() {
        true => Ok(()),
        false => Err(ExecutionFailure::Refused(TableChangeError::Range { what, first, end, size })),
    }
}

/// True if a frame exceeds the profile, in an application with rows of this width.
#[must_use]
pub fn is_beyond(profile: PipelineProfile, frame: &[u8], width: u32) -> bool {
    if is_clone(frame) {
        return !profile.has_calls();
    }
    if !profile.has_map() {
        return Base::new_checked(frame).is_ok();
    }
    let Ok(frame) = MapFrame::new_checked(frame) else { return false };
    let map = frame.map();
    let many = frame.lane_count() > KEYED_LANES;
    match frame.kind() {
        FrameKind::MapRead => many || !usize::from(map.first_lane()).is_multiple_of(KEYED_LANES),
        FrameKind::MapResult => map.has(MapFlags::CLEAR | MapFlags::ROUND) && width as usize > KEYED_LANES,
        FrameKind::MapData => many || map.has(MapFlags::LINEAR) && map.tag() == 0,
        FrameKind::MapPairs => many,
        _ => false,
    }
}

impl<E: ProgramExecution> HardwareExecution<E> {
    /// Restricts an execution to a profile.
    pub const fn new(inner: E, profile: PipelineProfile) -> Self {
        Self { inner, profile, widths: BTreeMap::new(), played: 0, left_out: 0 }
    }

    /// Numbers of frames played and left out.
    pub const fn frames(&self) -> (u64, u64) {
        (self.played, self.left_out)
    }
}

impl<E: ProgramExecution> ProgramExecution for HardwareExecution<E> {
    fn install(&mut self, application: InstalledApplication) -> Result<(), ExecutionFailure> {
        let InstalledApplication { gaid, width, .. } = application;
        check_application(self.profile, width)?;
        self.inner.install(application)?;
        self.widths.insert(gaid, width);
        Ok(())
    }

    fn remove(&mut self, gaid: u32) -> Result<(), ExecutionFailure> {
        self.inner.remove(gaid)?;
        self.widths.remove(&gaid);
        Ok(())
    }

    fn reset(&mut self, gaid: u32) -> Result<(), ExecutionFailure> {
        self.inner.reset(gaid)
    }

    fn authenticate(&mut self, gaid: u32, key: Option<TokenKey>) -> Result<(), ExecutionFailure> {
        self.inner.authenticate(gaid, key)
    }

    fn set_endpoint(&mut self, endpoint: Endpoint) -> Result<(), ExecutionFailure> {
        self.inner.set_endpoint(endpoint)
    }

    fn remove_endpoint(&mut self, endpoint: u32) -> Result<(), ExecutionFailure> {
        self.inner.remove_endpoint(endpoint)
    }

    fn set_group(&mut self, gaid: u32, endpoints: &[u32]) -> Result<(), ExecutionFailure> {
        self.inner.set_group(gaid, endpoints)
    }

    fn install_pool(&mut self, pool: &InstalledPool) -> Result<(), ExecutionFailure> {
        check_pool(self.profile)?;
        self.inner.install_pool(pool)
    }

    fn set_last_number(&mut self, last: u64) -> Result<(), ExecutionFailure> {
        if self.profile.has_calls() { self.inner.set_last_number(last) } else { Ok(()) }
    }

    fn process(&mut self, now: Instant, frame: &[u8], congested: bool) -> Result<ProgramOutcome, ExecutionFailure> {
        let gaid = MapFrame::new_checked(frame).map_or(0, |frame| frame.base().gaid());
        if is_beyond(self.profile, frame, self.widths.get(&gaid).copied().unwrap_or(0)) {
            self.left_out += 1;
            return Ok(ProgramOutcome::Drop(None));
        }
        self.played += 1;
        self.inner.process(now, frame, congested)
    }

    fn state(&mut self) -> Result<ExecutionState, ExecutionFailure> {
        let mut state = self.inner.state()?;
        // A tag has a meaning only with the parts that share it.
        for row in state.applications.values_mut().flat_map(|application| &mut application.rows) {
            row.round.tag *= u32::from(row.round.workers != 0);
        }
        Ok(state)
    }
}
