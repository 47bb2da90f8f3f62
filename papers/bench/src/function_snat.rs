//! `function-snat`: the element's part of SNAT compiled for XDP, compared with a hand-written one, on the same packets
//! (`BPF_PROG_TEST_RUN`): in memory, on one processor.
//!
//! Each run takes the packet of the run before: each entry maps a flow to the next one, so that the packet passes all
//! flows in random order, and each run is a look-up, a rewrite and two checksums. The final packets of both programs
//! are equal, with correct checksums.

use anyhow::Result;

use crate::harness::{Bench, Figure, Kind};

pub(crate) const FIGURE: Figure = Figure {
    name: "function-snat",
    about: "the compiled SNAT in XDP beside one written by hand, a packet's time",
    kind: Kind::Measured,
    run,
};

#[cfg(feature = "xdp")]
fn run(bench: &mut Bench) -> Result<()> {
    measured::run(bench)
}

#[cfg(not(feature = "xdp"))]
fn run(bench: &mut Bench) -> Result<()> {
    bench.print_note("not made: the bench was built without XDP (XDP=1)");
    Ok(())
}

#[cfg(feature = "xdp")]
mod measured {
    use anyhow::{Result, ensure};

    use crate::function::frames::{HEADERS, has_correct_checksums, udp};
    use crate::function::hand_written::HandWrittenSnat;
    use crate::function::packet_cost::{LoadedFunction, cycle, xdp_available};
    use crate::harness::{Bench, Better, Metric};

    /// Minimum ratio of speeds, ours to theirs; for times, its inverse.
    const FLOOR: f64 = 0.9;
    /// Numbers of flows: few, with cached entries; and as many as entries fit into the element.
    const FLOWS: [usize; 2] = [1 << 10, 1 << 16];
    const RUNS: u32 = 4 << 20;
    const RUNS_QUICK: u32 = 1 << 14;
    /// `XDP_REDIRECT`
    const REDIRECT: u32 = 4;
    /// The interface with this number is `lo`.
    const LO: u32 = 1;

    pub(super) fn run(bench: &mut Bench) -> Result<()> {
        if !xdp_available(bench) {
            return Ok(());
        }
        let runs = bench.size(RUNS, RUNS_QUICK);
        for count in FLOWS {
            let ready = LoadedFunction::snat(count)?;
            let mut ours = ready.by_interfaces()?;
            for port in [1, 0] {
                ours.connect("lo", port)?;
            }
            let frame = udp(ready.flows()[0], HEADERS + 18, [2, 0, 0, 0, 0, 2]);
            // An odd number of runs ends at another flow.
            let after = ours.repeat(&frame, 1001)?;
            ensure!(after.action == REDIRECT && has_correct_checksums(&after.packet), "ours: {after:?}");
            ensure!(
                after.packet[26..30] != frame[26..30] || after.packet[34..36] != frame[34..36],
                "the packet was not rewritten"
            );
            for (accounted, name) in [(true, "by hand, that keeps the same books"), (false, "by hand, without books")] {
                let theirs = HandWrittenSnat::load(accounted, [LO; 2])?;
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
