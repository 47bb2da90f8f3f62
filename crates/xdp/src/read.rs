//! Registers and counters read back: what `bpf/control.h` puts into its window, and maps.

use std::time::Duration;

use libbpf_rs::MapFlags;
use pathcall_program::{Application, ApplicationCounters, Counters};

use crate::kernel::{Installed, PLACES};
use crate::layout::{self, APPLICATION_WORDS, ELEMENT_COUNTERS, Words};
use crate::{Error, Kernel};

/// Registers that one reading shows (`bpf/control.h`).
const WINDOW: u32 = 4096;

/// A row's registers but its lanes: `struct row` in `bpf/tables.h`, without its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Generation: open, committed, version.
    pub generation: [u32; 3],
    /// Round.
    pub round: u32,
    /// What contributions agree on.
    pub tag: u32,
    /// Who has contributed.
    pub workers: u64,
    /// The sticky mark.
    pub ecn: bool,
    /// `CntFwd`'s counter.
    pub count: u32,
    /// Lock: owner and its acquiring.
    pub lock: [u32; 2],
    /// How often it was granted.
    pub grants: u32,
    /// Ballot: length of its key.
    pub key_len: u32,
    /// Its key.
    pub key: [u8; 32],
    /// The server counts what comes.
    pub moved: bool,
    /// The server has recorded that the threshold was reached.
    pub decided: bool,
    /// Votes.
    pub votes: u32,
    /// How often it was cleared.
    pub ballot_round: u32,
}

/// A place of the repeat filter: number, generation, mask.
pub type Place = [u32; 3];

/// Element-wide counters, and those that only the kernel's program has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Element {
    /// As the reference counts.
    pub counters: Counters,
    /// Frames with a wrong checksum.
    pub drop_checksum: u64,
    /// Frames left to user space.
    pub passed: u64,
    /// Frames that left by user space.
    pub slow: u64,
    /// Frames in that were addressed to an endpoint and passed by.
    pub passing: u64,
}

impl Kernel {
    /// Lane registers of an application's rows, `width` to a row.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn read_rows(&self, gaid: u32, row: u32, count: u32) -> Result<Vec<i32>, Error> {
        let Some(installed) = self.applications.get(&gaid) else { return Ok(Vec::new()) };
        let Application { lane_base, width, .. } = installed.application;
        let (first, count) = (lane_base + row * width, count * width);
        let mut lanes = Vec::with_capacity(count as usize);
        for at in (0..count).step_by(WINDOW as usize) {
            let part = WINDOW.min(count - at);
            let request = &mut Words::of(&[first + at, part]);
            self.control("read_lanes", request, "read lanes")?;
            lanes.extend(self.window(part)?.iter().map(|word| word.cast_signed()));
        }
        Ok(lanes)
    }

    /// The places of a flow slot.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn read_slot(&self, slot: u32) -> Result<Vec<Place>, Error> {
        let request = &mut Words::of(&[slot * PLACES as u32, PLACES as u32]);
        self.control("read_places", request, "read places")?;
        Ok(self.window(3 * PLACES as u32)?.as_chunks().0.to_vec())
    }

    /// A row, counted from the element's first.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn read_row(&self, row: u32) -> Result<Row, Error> {
        let bytes = self.get("rows", &row.to_ne_bytes(), MapFlags::LOCK)?;
        let w = layout::words(&bytes);
        let mut key = [0; 32];
        key.copy_from_slice(&bytes[56..88]);
        Ok(Row {
            generation: [w[1], w[2], w[3]],
            round: w[4],
            tag: w[5],
            workers: u64::from_ne_bytes(*bytes[24..].first_chunk().expect("a row")),
            ecn: w[8] != 0,
            count: w[9],
            lock: [w[10], w[11]],
            grants: w[12],
            key_len: w[13],
            key,
            moved: w[22] != 0,
            decided: w[23] != 0,
            votes: w[24],
            ballot_round: w[25],
        })
    }

    /// Element-wide counters.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn counters(&self) -> Result<Element, Error> {
        let c: [u64; ELEMENT_COUNTERS] = layout::sums(&self.get_all("element_counters", 0)?);
        let [.., drop_checksum, passed, slow, passing] = c;
        Ok(Element { counters: layout::element_counters(&c), drop_checksum, passed, slow, passing })
    }

    /// Every application with its counters, and when its last admitted frame came, on the clock of
    /// `CLOCK_MONOTONIC`.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn applications(&self) -> Result<Vec<(Application, Option<Duration>, ApplicationCounters)>, Error> {
        let of = |installed: &Installed| {
            let processors = self.get_all("application_counters", installed.index)?;
            let c: [u64; APPLICATION_WORDS] = layout::sums(&processors);
            let last = processors
                .iter()
                .map(|one| layout::sums::<APPLICATION_WORDS>(std::slice::from_ref(one))[APPLICATION_WORDS - 1]);
            let last = last.max().filter(|ns| *ns > 0).map(Duration::from_nanos);
            Ok((installed.application, last, layout::application_counters(&c)))
        };
        self.applications.values().map(of).collect()
    }

    pub(crate) fn window(&self, words: u32) -> Result<Vec<u32>, Error> {
        let bytes = self.get("window", &0_u32.to_ne_bytes(), MapFlags::ANY)?;
        Ok(layout::words(&bytes[..words as usize * 4]))
    }
}
