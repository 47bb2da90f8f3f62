//! Reads of registers and counters: the window that `bpf/control.h` fills, and maps.

use std::time::Duration;

use libbpf_rs::MapFlags;
use pathcall_program::{ApplicationCounters, Counters, InstalledApplication};

use crate::kernel::{KernelApplication, PLACES};
use crate::layout::{self, APPLICATION_WORDS, ELEMENT_COUNTERS, Words};
use crate::{Error, KernelSwitch};

/// Registers of one reading (`bpf/control.h`).
const WINDOW: u32 = 4096;

/// Registers of a row except its lanes: `struct row` in `bpf/tables.h`, without its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowRegisters {
    /// Generation: open, committed, version.
    pub generation: [u32; 3],
    /// Round.
    pub round: u32,
    /// Tag that all contributions to the round share.
    pub tag: u32,
    /// Bitmap of the workers that have contributed.
    pub workers: u64,
    /// Sticky congestion mark.
    pub ecn: bool,
    /// Counter of `CntFwd`.
    pub count: u32,
    /// Lock: its owner, and the tag of the owner's acquisition.
    pub lock: [u32; 2],
    /// Number of grants of the lock.
    pub grants: u32,
    /// Length of the ballot's key.
    pub key_len: u32,
    /// Key of the ballot.
    pub key: [u8; 32],
    /// Whether the server counts the votes.
    pub moved: bool,
    /// Whether the server has recorded that the threshold was reached.
    pub decided: bool,
    /// Number of votes.
    pub votes: u32,
    /// Number of clears of the ballot.
    pub ballot_round: u32,
}

/// Entry of the repeat filter: number, generation, mask.
pub type RepeatFilterWords = [u32; 3];

/// Element-wide counters, with those that only the kernel's program has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KernelCounters {
    /// Counters that the reference has as well.
    pub counters: Counters,
    /// Frames with a wrong checksum.
    pub drop_checksum: u64,
    /// Frames left to user space.
    pub passed: u64,
    /// Frames sent by user space.
    pub slow: u64,
    /// Received frames that were addressed to an endpoint (inline mode).
    pub passing: u64,
}

impl KernelSwitch {
    /// Reads lane registers of an application's rows, `width` per row.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn read_rows(&self, gaid: u32, row: u32, count: u32) -> Result<Vec<i32>, Error> {
        let Some(installed) = self.applications.get(&gaid) else { return Ok(Vec::new()) };
        let InstalledApplication { lane_base, width, .. } = installed.application;
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

    /// Reads the repeat-filter entries of a flow slot.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn read_slot(&self, slot: u32) -> Result<Vec<RepeatFilterWords>, Error> {
        let request = &mut Words::of(&[slot * PLACES as u32, PLACES as u32]);
        self.control("read_places", request, "read places")?;
        Ok(self.window(3 * PLACES as u32)?.as_chunks().0.to_vec())
    }

    /// Reads a row, by its number in the element.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn read_row(&self, row: u32) -> Result<RowRegisters, Error> {
        let bytes = self.get("rows", &row.to_ne_bytes(), MapFlags::LOCK)?;
        let w = layout::words(&bytes);
        let mut key = [0; 32];
        key.copy_from_slice(&bytes[56..88]);
        Ok(RowRegisters {
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

    /// Reads the element-wide counters.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn counters(&self) -> Result<KernelCounters, Error> {
        let c: [u64; ELEMENT_COUNTERS] = layout::sums(&self.get_all("element_counters", 0)?);
        let [.., drop_checksum, passed, slow, passing] = c;
        Ok(KernelCounters { counters: layout::element_counters(&c), drop_checksum, passed, slow, passing })
    }

    /// Reads the counters of every application, and the time of its last admitted frame by `CLOCK_MONOTONIC`.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn applications(&self) -> Result<Vec<(InstalledApplication, Option<Duration>, ApplicationCounters)>, Error> {
        let of = |installed: &KernelApplication| {
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
