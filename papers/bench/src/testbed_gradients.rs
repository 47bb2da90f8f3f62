//! `testbed-gradients`: bytes on a worker's link for each byte of a gradient in 32 bits, of sums in small values compared
//! with sums of 32-bit lanes, on the same links.

use anyhow::Result;
use pathcall_endpoint::map::LaneFormat;
use pathcall_endpoint::map::gradient::GradientFormat;
use pathcall_testbed::Testbed;

use crate::harness::{Bench, Better, Figure, Kind, Metric};
use crate::testbed::workers::Workers;
use crate::testbed::{ElementTestbed, Hop, has_xdp, testbed_available};

pub(crate) const FIGURE: Figure = Figure {
    name: "testbed-gradients",
    about: "bytes on a worker's link for each byte of a gradient of four-byte values",
    kind: Kind::Measured,
    run,
};

const WORKERS: usize = 4;
const RATE: &str = "1gbit";
const VALUES: usize = 1 << 20;
const VALUES_QUICK: usize = 1 << 14;
const CALLS: usize = 5;

fn run(bench: &mut Bench) -> Result<()> {
    if !testbed_available(bench) {
        return Ok(());
    }
    let mut hops = vec![Hop::User];
    if has_xdp(bench) {
        hops.insert(0, Hop::Xdp);
    }
    let (values, calls) = (bench.size(VALUES, VALUES_QUICK), bench.size(CALLS, 1));
    for hop in hops {
        let stage = ElementTestbed::start(Testbed::builder().hosts(Workers::hosts(WORKERS)).rate(RATE)?, hop)?;
        let workers = Workers::start(&stage, WORKERS)?;
        for (lanes, topk, expected) in
            [(LaneFormat::Int16, 0, Some(0.6)), (LaneFormat::Int8, 0, Some(0.35)), (LaneFormat::Int8, 10_000, None)]
        {
            let format = GradientFormat { lanes, workers: WORKERS as u32, topk };
            let choice = if topk == 0 { String::new() } else { format!(", topk {}", f64::from(topk) / 1e6) };
            let case = format!("{WORKERS} workers, {}, {}{choice}", hop.name(), lanes.name());
            let bytes = Metric::new(format!("{case}, bytes on a link"), "int32", "B/B", Better::Lower);
            let bytes = if let Some(ratio) = expected { bytes.expect(ratio) } else { bytes };
            let per_byte = |work: &dyn Fn() -> Result<()>| -> Result<[f64; 1]> {
                let before = carried(&stage.testbed)?;
                work()?;
                let bytes = (carried(&stage.testbed)? - before) as f64;
                Ok([bytes / (WORKERS * calls * values * size_of::<f32>()) as f64])
            };
            bench.compare(
                [bytes],
                || per_byte(&|| workers.gradients(format, values, calls)),
                || per_byte(&|| workers.turn(values, calls).map(drop)),
            )?;
        }
    }
    Ok(())
}

fn carried(testbed: &Testbed) -> Result<u64> {
    let links = Workers::at(WORKERS).map(|k| Ok(testbed.link(k)?.traffic()?)).collect::<Result<Vec<_>>>()?;
    Ok(links.iter().map(|link| link.up.bytes + link.down.bytes).sum())
}
