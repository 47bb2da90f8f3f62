//! `netrpc-fig11`: throughput of SyncAgtr over the share of values whose sums overflow 32 bits (NetRPC Fig. 11),
//! beside the same without overflows, and beside no element.
//!
//! A frame has 256 values, the paper's 32. Where any of them overflows, the server adds up the whole frame's, in
//! 64 bits, from what all workers send once more: of frames with 1 % of such values that is 92 in a hundred.

use anyhow::Result;
use pathcall_testbed::Testbed;

use crate::bed::workers::{VALUES_SHARE, Workers};
use crate::bed::{Hop, Stage, has_xdp, mbits, stands};
use crate::harness::{Bench, Better, Figure, Metric};

pub(crate) const FIGURE: Figure =
    Figure { name: "netrpc-fig11", about: "throughput of two workers over the share of values that overflow", run };

/// Shares of values, as they are called and of how many values one overflows.
const SHARES: [(&str, usize); 4] = [("0.001%", 100_000), ("0.01%", 10_000), ("0.1%", 1_000), ("1%", 100)];
const RATE: &str = "100mbit";
const WORKERS: usize = 2;
const VALUES: usize = 1 << 18;
const VALUES_QUICK: usize = 1 << 12;
const CALLS: usize = 4;
/// Two of them need 33 bits, as 32-bit integers with a sign.
const GREAT: i32 = 1 << 30;
/// Multiplied with it, numbers in a row are as if drawn (Knuth's multiplicative hash, in 64 bits).
const SCATTER: u64 = 0x9E37_79B9_7F4A_7C15;

fn run(bench: &mut Bench) -> Result<()> {
    if !stands(bench) {
        return Ok(());
    }
    let mut hops = vec![Hop::User];
    if has_xdp(bench) {
        hops.insert(0, Hop::Xdp);
    }
    let (values, calls) = (bench.size(VALUES, VALUES_QUICK), bench.size(CALLS, 1));
    let limit = mbits(RATE)? * VALUES_SHARE;
    let bare = Setting::start(Hop::Nothing, calls)?;
    for hop in hops {
        let setting = Setting::start(hop, calls)?;
        let whole = array(values, None);
        for (share, each) in SHARES {
            let part = array(values, Some(each));
            let metric = |peer| {
                let case = format!("{share} overflow, {}", hop.name());
                [Metric::new(case, peer, "Mbit/s", Better::Higher).limit(limit)]
            };
            bench.compare(metric("no overflow"), || setting.goodput(&part), || setting.goodput(&whole))?;
            bench.compare(metric("no element"), || setting.goodput(&part), || bare.goodput(&part))?;
        }
    }
    Ok(())
}

/// Two workers and their server on a bed of their own.
struct Setting {
    workers: Workers,
    calls: usize,
    /// Under them.
    _stage: Stage,
}

impl Setting {
    fn start(hop: Hop, calls: usize) -> Result<Self> {
        let stage = Stage::start(Testbed::builder().hosts(Workers::hosts(WORKERS)).rate(RATE)?, hop)?;
        Ok(Self { workers: Workers::start(&stage, WORKERS)?, calls, _stage: stage })
    }

    /// Mbit/s of each worker's values. That sums are right, in 64 bits, has been checked.
    fn goodput(&self, part: &[i32]) -> Result<[f64; 1]> {
        let took = self.workers.sum(part, self.calls)?;
        Ok([size_of_val(part) as f64 * 8.0 / took.as_secs_f64() / 1e6])
    }
}

/// An array in which about one value of so many overflows when two of them are added; none, if not told.
fn array(values: usize, each: Option<usize>) -> Vec<i32> {
    // Scattered, as they would be.
    let overflows =
        |i: usize| each.is_some_and(|each| ((i as u64).wrapping_mul(SCATTER) >> 32).is_multiple_of(each as u64));
    (0..values).map(|i| if overflows(i) { GREAT } else { i as i32 }).collect()
}
