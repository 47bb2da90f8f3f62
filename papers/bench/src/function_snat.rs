//! `function-snat`: the element's half of SNAT as it is compiled for XDP, beside one written by hand, over the same packets
//! (`BPF_PROG_TEST_RUN`): in memory, one processor.
//!
//! A packet is run again and again on what it has become: each entry makes its flow the next one's, so that it passes by all
//! flows, in no order, and each run is a look-up, a rewrite and two checksums. Both programs' packets are the same
//! afterwards, and their checksums right.

use anyhow::Result;

use crate::harness::{Bench, Figure};

pub(crate) const FIGURE: Figure = Figure {
    name: "function-snat",
    about: "the compiled SNAT in XDP beside one written by hand, a packet's time",
    run,
};

#[cfg(feature = "xdp")]
fn run(bench: &mut Bench) -> Result<()> {
    measured::run(bench)
}

#[cfg(not(feature = "xdp"))]
fn run(bench: &mut Bench) -> Result<()> {
    bench.says("not made: the bench was built without XDP (XDP=1)");
    Ok(())
}

#[cfg(feature = "xdp")]
mod measured {
    use anyhow::{Result, ensure};

    use crate::function::by_hand::ByHand;
    use crate::function::frames::{HEADERS, is_right, udp};
    use crate::function::work::{Ready, cycle, permitted};
    use crate::harness::{Bench, Better, Metric};

    /// At least as fast as this beside theirs: in time, its inverse.
    const FLOOR: f64 = 0.9;
    /// Flows: few, whose entries stay near; and as many as the element has room for.
    const FLOWS: [usize; 2] = [1 << 10, 1 << 16];
    const RUNS: u32 = 4 << 20;
    const RUNS_QUICK: u32 = 1 << 14;
    /// `XDP_REDIRECT`
    const REDIRECT: u32 = 4;
    /// The interface of this number is `lo`.
    const LO: u32 = 1;

    pub(super) fn run(bench: &mut Bench) -> Result<()> {
        if !permitted(bench) {
            return Ok(());
        }
        let runs = bench.size(RUNS, RUNS_QUICK);
        for count in FLOWS {
            let ready = Ready::snat(count)?;
            let mut ours = ready.by_interfaces()?;
            for port in [1, 0] {
                ours.connect("lo", port)?;
            }
            let frame = udp(ready.flows()[0], HEADERS + 18, [2, 0, 0, 0, 0, 2]);
            // An odd number of runs ends at another flow than it began with.
            let after = ours.repeat(&frame, 1001)?;
            ensure!(after.action == REDIRECT && is_right(&after.packet), "ours: {after:?}");
            ensure!(after.packet[26..30] != frame[26..30] || after.packet[34..36] != frame[34..36], "it never moved");
            for (accounted, name) in [(true, "by hand, that keeps the same books"), (false, "by hand, without books")] {
                let theirs = ByHand::load(accounted, [LO; 2])?;
                let flows = ready.flows();
                for ((number, flow), next) in (0..).zip(flows).zip(cycle(count)) {
                    theirs.map(number, flow, &flows[next])?;
                }
                let same = theirs.repeat(&frame, 1001)?;
                ensure!(same.action == REDIRECT && same.packet == after.packet, "{name}: {same:?} is not {after:?}");
                let metric =
                    Metric::new(format!("{count} flows"), name, "ns/packet", Better::Lower).expect(1.0 / FLOOR);
                bench.compare(
                    [metric],
                    || Ok([ours.repeat(&frame, runs)?.each.as_nanos() as f64]),
                    || Ok([theirs.repeat(&frame, runs)?.each.as_nanos() as f64]),
                )?;
            }
        }
        Ok(())
    }
}
