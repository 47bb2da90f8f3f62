//! `leo-fig11`: reads per second of elastic block storage, over the cores of both hosts (LEO Fig. 11), in virtual time
//! with the real selector, on on-path hosts.

use anyhow::Result;
use pathcall_models::place::testbeds;

use crate::harness::{Bench, Better, Figure, Kind, Metric, Panel, Panels, PlotLine};
use crate::leo::{ALL_ACC, ALL_CPU, LEO, MIGRATION, NamedPolicy, throughput};

pub(crate) const FIGURE: Figure = Figure {
    name: "leo-fig11",
    about: "simulated: elastic block storage's reads a second over cores",
    kind: Kind::Modelled,
    run,
};

const POLICIES: [NamedPolicy; 4] = [LEO, MIGRATION, ALL_ACC, ALL_CPU];
const CORES: [u32; 4] = [1, 2, 4, 8];
const WINDOW: usize = 128;
/// Least gain of the paper, and unit of its reads: gigabits, or reads.
const SIZES: [(&str, bool, f64, &str); 2] =
    [("64 KiB reads", true, 1.14, "Gbit/s"), ("4 KiB reads", false, 1.1, "reads/s")];
/// Gigabits of a read of 64 KiB.
const LARGE_GBIT: f64 = 64.0 * 1024.0 * 8.0 / 1e9;
const WORDS: &str = "The paper (§V-B, Fig. 11): iPipe \"achieves better throughput and IOPS by 1.04–1.25× and 1.19–1.71×, \
    respectively, than CPU and Solar with different number of cores. However, it performs worse than LEO as its migration \
    signal, end-to-end JCT, can be affected by network variation. […] The throughput of 64KB read increases by 1.14–1.75× \
    […], while the IOPS of 4KB read also exhibits a rise of 1.1–1.9×.\" Assumed: look-ups for 4 KiB take a core 3.6 us, the \
    accelerator 0.5 us; those of 64 KiB, 16 times as long.";

fn run(bench: &mut Bench) -> Result<()> {
    let panels = SIZES.iter().map(|size| plot(bench, size)).collect();
    bench.show_panels(Panels { name: "throughput", words: WORDS, panels });
    Ok(())
}

fn plot(bench: &mut Bench, &(title, large, gain, unit): &(&str, bool, f64, &'static str)) -> Panel {
    let mut lines = POLICIES.map(|(name, _)| PlotLine { name: name.to_owned(), points: Vec::new() });
    for cores in CORES {
        let setting = testbeds::ebs(cores, large);
        let scale = if large { LARGE_GBIT } else { 1.0 };
        let of = |policy| throughput(bench, &setting, policy, WINDOW);
        let all = POLICIES.map(of).map(|rates| rates.iter().map(|rate| rate * scale).collect::<Vec<_>>());
        lines.iter_mut().zip(&all).for_each(|(line, rates)| line.points.push((f64::from(cores), rates[0])));
        let [leo, migration, acc, cpu] = &all;
        let single = if cpu[0] > acc[0] { (ALL_CPU.0, cpu) } else { (ALL_ACC.0, acc) };
        let metric = |peer| Metric::new(format!("{title}, {cores} cores"), peer, unit, Better::Higher);
        bench.row(metric(single.0).expect(gain), leo, single.1);
        bench.row(metric(MIGRATION.0).expect(1.0), leo, migration);
    }
    Panel { title: title.to_owned(), x: "cores", y: unit, logarithmic: false, lines: lines.into() }
}
