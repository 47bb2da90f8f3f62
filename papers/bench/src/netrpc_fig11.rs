//! `netrpc-fig11`: throughput of SyncAgtr over the share of values whose sums overflow 32 bits (NetRPC Fig. 11),
//! compared with no overflows, and with no element.
//!
//! A frame has 256 values; the paper's has 32. If any value overflows, all workers send the frame again, and the server
//! adds up the whole frame in 64 bits: with 1 % of such values this affects 92 % of the frames.

use anyhow::Result;
use pathcall_testbed::Testbed;

use crate::harness::{Bench, Better, Figure, Kind, Metric};
use crate::testbed::workers::{VALUES_SHARE, Workers};
use crate::testbed::{ElementTestbed, Hop, has_xdp, mbits, testbed_available};

pub(crate) const FIGURE: Figure = Figure {
    name: "netrpc-fig11",
    about: "throughput of two workers over the share of values that overflow",
    kind: Kind::Measured,
    run,
};

/// Shares of overflowing values: name, and number of values per overflow.
const SHARES: [(&str, usize); 4] = [("0.001%", 100_000), ("0.01%", 10_000), ("0.1%", 1_000), ("1%", 100)];
const RATE: &str = "100mbit";
const WORKERS: usize = 2;
const VALUES: usize = 1 << 18;
const VALUES_QUICK: usize = 1 << 12;
const CALLS: usize = 4;
/// Value whose double exceeds 32-bit signed integers.
const OVERFLOWING: i32 = 1 << 30;
/// Multiplier that maps consecutive numbers to scattered ones (Knuth's multiplicative hash, in 64 bits).
const SCATTER: u64 = 0x9E37_79B9_7F4A_7C15;

fn run(bench: &mut Bench) -> Result<()> {
    if !testbed_available(bench) {
        return Ok(());
    }
    let mut hops = vec![Hop::User];
    if has_xdp(bench) {
        hops.insert(0, Hop::Xdp);
    }
    let (values, calls) = (bench.size(VALUES, VALUES_QUICK), bench.size(CALLS, 1));
    let limit = mbits(RATE)? * VALUES_SHARE;
    let bare = SumSetup::start(Hop::NoElement, calls)?;
    for hop in hops {
        let setting = SumSetup::start(hop, calls)?;
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

/// Two workers and their server on their own testbed.
struct SumSetup {
    workers: Workers,
    calls: usize,
    /// Stage of the workers; dropped last.
    _stage: ElementTestbed,
}

impl SumSetup {
    fn start(hop: Hop, calls: usize) -> Result<Self> {
        let stage = ElementTestbed::start(Testbed::builder().hosts(Workers::hosts(WORKERS)).rate(RATE)?, hop)?;
        Ok(Self { workers: Workers::start(&stage, WORKERS)?, calls, _stage: stage })
    }

    /// Goodput of each worker's values in Mbit/s. The sums are checked in 64 bits.
    fn goodput(&self, part: &[i32]) -> Result<[f64; 1]> {
        let took = self.workers.sum(part, self.calls)?;
        Ok([size_of_val(part) as f64 * 8.0 / took.as_secs_f64() / 1e6])
    }
}

/// Array in which about one of `each` values overflows when two of them are added; none for `None`.
fn array(values: usize, each: Option<usize>) -> Vec<i32> {
    // Overflows at scattered positions.
    let overflows =
        |i: usize| each.is_some_and(|each| ((i as u64).wrapping_mul(SCATTER) >> 32).is_multiple_of(each as u64));
    (0..values).map(|i| if overflows(i) { OVERFLOWING } else { i as i32 }).collect()
}
