//! The program with mistakes in it, of which a test has it make one (`bpf/planted.h`).

use crate::{Config, Error, Kernel};

/// It has all mistakes, and makes the one that it is told to.
const PLANTED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/planted.bpf.o"));

impl Kernel {
    /// Loads the program with a mistake in it, by its number in `bpf/planted.h`, attached to nothing.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_planted(mistake: u32, config: &Config) -> Result<Self, Error> {
        Self::load_object(PLANTED, config, mistake)
    }
}
