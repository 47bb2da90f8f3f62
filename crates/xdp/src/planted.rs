//! Test build of the program with planted mistakes (`bpf/planted.h`).

use crate::{Config, Error, KernelSwitch};

/// Program that has all mistakes, and makes the selected one.
const PLANTED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/planted.bpf.o"));

impl KernelSwitch {
    /// Loads the program with a mistake, by its number in `bpf/planted.h`, attached to no interface.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_planted(mistake: u32, config: &Config) -> Result<Self, Error> {
        Self::load_object(PLANTED, config, mistake)
    }
}
