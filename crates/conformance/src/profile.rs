//! The hardware profile: what a pipeline with a register array for each of 32 lanes can do of the program.
//!
//! ```text
//! steps ─► Hardware ─┬─ within the profile ─► execution
//!                    └─ beyond it: refused, or not played; the same for whoever is compared
//! ```
//!
//! A pipeline has applications of rows of at most 32 lanes, or of keys (two banks of 32), without tokens; their frames
//! have at most 32 lanes. Beyond it are frames for which an array were touched twice: rows read across banks, and
//! results of rounds in an application of keys, whose rows have two banks to clear.

use pathcall_program::{Application, Endpoint, Pool, TableError};
use pathcall_wire::{Instant, KEYED_LANES, KEYED_WIDTH, Kind, MapFlags, MapFrame, TokenKey};
use std::collections::BTreeMap;

use crate::{Execution, Failure, Outcome, State};

/// An execution that is given no more than the hardware profile.
#[derive(Debug)]
pub struct Hardware<E> {
    inner: E,
    /// Lanes of a row, by application.
    widths: BTreeMap<u32, u32>,
    /// Frames that were played, and those that were not.
    played: u64,
    left_out: u64,
}

/// Whether a pipeline takes applications with rows of so many lanes.
#[must_use]
pub const fn takes(width: u32) -> bool {
    width as usize <= KEYED_LANES || width as usize == KEYED_WIDTH
}

/// Whether a frame is beyond the profile, in an application with rows of so many lanes.
#[must_use]
pub fn is_beyond(frame: &[u8], width: u32) -> bool {
    let Ok(frame) = MapFrame::new_checked(frame) else { return false };
    let map = frame.map();
    let many = frame.lane_count() > KEYED_LANES;
    match frame.kind() {
        Kind::MapRead => many || !usize::from(map.first_lane()).is_multiple_of(KEYED_LANES),
        Kind::MapResult => map.has(MapFlags::CLEAR | MapFlags::ROUND) && width as usize > KEYED_LANES,
        Kind::MapData | Kind::MapPairs => many,
        _ => false,
    }
}

impl<E: Execution> Hardware<E> {
    /// What it is given of the profile only.
    pub const fn new(inner: E) -> Self {
        Self { inner, widths: BTreeMap::new(), played: 0, left_out: 0 }
    }

    /// Frames that were played, and those that were left out.
    pub const fn frames(&self) -> (u64, u64) {
        (self.played, self.left_out)
    }
}

impl<E: Execution> Execution for Hardware<E> {
    fn install(&mut self, application: Application) -> Result<(), Failure> {
        let Application { gaid, width, .. } = application;
        if !takes(width) {
            let (first, end, size) = (0, width.into(), KEYED_LANES as u64);
            return Err(Failure::Refused(TableError::Range { what: "lanes of a frame", first, end, size }));
        }
        self.inner.install(application)?;
        self.widths.insert(gaid, width);
        Ok(())
    }

    fn remove(&mut self, gaid: u32) -> Result<(), Failure> {
        self.inner.remove(gaid)?;
        self.widths.remove(&gaid);
        Ok(())
    }

    fn reset(&mut self, gaid: u32) -> Result<(), Failure> {
        self.inner.reset(gaid)
    }

    fn authenticate(&mut self, gaid: u32, key: Option<TokenKey>) -> Result<(), Failure> {
        self.inner.authenticate(gaid, key)
    }

    fn set_endpoint(&mut self, endpoint: Endpoint) -> Result<(), Failure> {
        self.inner.set_endpoint(endpoint)
    }

    fn remove_endpoint(&mut self, endpoint: u32) -> Result<(), Failure> {
        self.inner.remove_endpoint(endpoint)
    }

    fn set_group(&mut self, gaid: u32, endpoints: &[u32]) -> Result<(), Failure> {
        self.inner.set_group(gaid, endpoints)
    }

    fn install_pool(&mut self, pool: &Pool) -> Result<(), Failure> {
        self.inner.install_pool(pool)
    }

    fn number_after(&mut self, last: u64) -> Result<(), Failure> {
        self.inner.number_after(last)
    }

    fn process(&mut self, now: Instant, frame: &[u8], congested: bool) -> Result<Outcome, Failure> {
        let gaid = MapFrame::new_checked(frame).map_or(0, |frame| frame.base().gaid());
        if is_beyond(frame, self.widths.get(&gaid).copied().unwrap_or(0)) {
            self.left_out += 1;
            return Ok(Outcome::Drop(None));
        }
        self.played += 1;
        self.inner.process(now, frame, congested)
    }

    fn state(&mut self) -> Result<State, Failure> {
        self.inner.state()
    }
}
