//! Byte layout of the C structures of `bpf/tables.h`, `counters.h` and `control.h`: 32- and 64-bit words in the
//! machine's byte order, without padding except where noted.

use std::net::SocketAddrV4;

use pathcall_program::{ApplicationCounters, Counters, Endpoint, InstalledApplication, PoolCounters};

/// Sequence of words.
#[derive(Debug, Default)]
pub(crate) struct Words(Vec<u8>);

impl Words {
    pub(crate) fn of(words: &[u32]) -> Self {
        Self(words.iter().flat_map(|word| word.to_ne_bytes()).collect())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// `struct application`; `index`: index of its counters.
pub(crate) fn application(application: &InstalledApplication, index: u32) -> Words {
    let InstalledApplication { epoch, owner, row_base, rows, lane_base, width, .. } = *application;
    Words::of(&[epoch, owner, row_base, rows, lane_base, width, index])
}

/// `struct endpoint`; `server`: its SID, counted from 1, or 0.
pub(crate) fn endpoint(endpoint: &Endpoint, addr: SocketAddrV4, server: u32) -> Words {
    let Endpoint { incarnation, gaid, slot_base, slots, .. } = *endpoint;
    let ip = u32::from_ne_bytes(addr.ip().octets());
    let [high, low] = addr.port().to_be_bytes();
    Words::of(&[incarnation, gaid, slot_base, slots, ip, u32::from_ne_bytes([high, low, 0, 0]), server])
}

/// Parses words.
pub(crate) fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks().0.iter().map(|word| u32::from_ne_bytes(*word)).collect()
}

/// Sums over processors of structures of 64-bit counters.
pub(crate) fn sums<const N: usize>(processors: &[Vec<u8>]) -> [u64; N] {
    let mut sums = [0_u64; N];
    for one in processors {
        for (sum, counter) in sums.iter_mut().zip(one.as_chunks().0) {
            *sum = sum.wrapping_add(u64::from_ne_bytes(*counter));
        }
    }
    sums
}

/// Number of counters in `struct element_counters`.
pub(crate) const ELEMENT_COUNTERS: usize = 14;
/// Number of counters in `struct application_counters`.
pub(crate) const APPLICATION_COUNTERS: usize = 20;
/// Size of `struct application_counters` in 64-bit words: the time of the last frame follows the counters.
pub(crate) const APPLICATION_WORDS: usize = APPLICATION_COUNTERS + 1;

/// Size of `struct pool_counters` in 64-bit words: the time of the last frame follows the counters.
pub(crate) const POOL_WORDS: usize = 14;

/// Element counters that the reference has as well.
pub(crate) fn element_counters(c: &[u64; ELEMENT_COUNTERS]) -> Counters {
    Counters {
        frames_in: c[0],
        frames_out: c[1],
        drop_malformed: c[2],
        drop_forged: c[3],
        drop_stale: c[4],
        drop_counted: c[5],
        drop_not_admitted: c[6],
        drop_unknown_endpoint: c[7],
        drop_unauthentic: c[8],
        drop_filtered: c[9],
    }
}

/// Counters of an application.
pub(crate) fn application_counters(c: &[u64; APPLICATION_WORDS]) -> ApplicationCounters {
    ApplicationCounters {
        admitted: c[0],
        not_admitted: c[1],
        unauthentic: c[2],
        applied: c[3],
        lanes_added: c[4],
        repeats: c[5],
        stale: c[6],
        refused: c[7],
        old: c[8],
        diverted: c[9],
        held: c[10],
        denied: c[11],
        reached: c[12],
        overflow_lanes: c[13],
        results: c[14],
        clears: c[15],
        reads: c[16],
        harvests: c[17],
        ecn_marked: c[18],
        cross: c[19],
    }
}

/// Counters of a pool.
pub(crate) fn pool_counters(c: &[u64; POOL_WORDS]) -> PoolCounters {
    PoolCounters {
        admitted: c[0],
        not_admitted: c[1],
        unauthentic: c[2],
        passed: c[3],
        requests: c[4],
        clones: c[5],
        shorter: c[6],
        direct: c[7],
        stale_groups: c[8],
        replies: c[9],
        filtered: c[10],
        cancels: c[11],
        ecn_marked: c[12],
    }
}
