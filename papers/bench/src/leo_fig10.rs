//! `leo-fig10`: files per second that a distributed file system compresses, sends and decompresses, over the cores of
//! both hosts (LEO Fig. 10), in virtual time with the real selector.

use anyhow::Result;
use pathcall_models::place::testbeds;

use crate::harness::{Bench, Better, Figure, Kind, Metric, Panel, Panels, PlotLine};
use crate::leo::{ALL_ACC, ALL_CPU, LEO, throughput};

pub(crate) const FIGURE: Figure = Figure {
    name: "leo-fig10",
    about: "simulated: a distributed file system's throughput over cores",
    kind: Kind::Modelled,
    run,
};

/// Compression time of a file (§V-B).
const CPU_S: f64 = 0.89e-3;
const ACC_S: f64 = 2.18e-3;
/// Least gain of the paper over either device.
const GAIN: f64 = 1.19;
/// Maximum cores for this gain; with more cores the accelerator contributes less: (8 / 0.89 + 1 / 2.18) / (8 / 0.89) =
/// 1.05.
const CORES_GAIN_MAX: u32 = 2;
const CORES: [u32; 4] = [1, 2, 4, 8];
/// Megabytes of a file, of 2^20 bytes each.
const FILE_MIB: f64 = 1.0;
const WINDOW: usize = 32;
const WORDS: &str = "The paper (§V-B, Fig. 10): \"DOCA performs the worst because its compression time is longer than that of the \
    CPU, i.e., 2.18ms vs 0.89ms […]. Overall, LEO outperforms DOCA and CPU by 1.19–4.69× as the number of clients \
    increases.\" Assumed: a core decompresses a file in 0.22 ms; compressing is what takes longest.";

fn run(bench: &mut Bench) -> Result<()> {
    let mut lines = [LEO, ALL_ACC, ALL_CPU].map(|(name, _)| PlotLine { name: name.to_owned(), points: Vec::new() });
    for cores in CORES {
        let setting = testbeds::dfs(cores);
        let of = |policy| throughput(bench, &setting, policy, WINDOW);
        let all =
            [LEO, ALL_ACC, ALL_CPU].map(of).map(|rates| rates.iter().map(|rate| rate * FILE_MIB).collect::<Vec<_>>());
        lines.iter_mut().zip(&all).for_each(|(line, rates)| line.points.push((f64::from(cores), rates[0])));
        let most = f64::from(cores) / CPU_S + 1.0 / ACC_S;
        let metric = |peer: &'static str| {
            let case = format!("{cores} cores: files of 1 MiB written");
            Metric::new(case, peer, "MiB/s", Better::Higher).limit(most)
        };
        let [leo, acc, cpu] = &all;
        bench.row(metric("all on the accelerator (DOCA)").expect(GAIN), leo, acc);
        let beside_cpu = metric(ALL_CPU.0);
        let beside_cpu = if cores <= CORES_GAIN_MAX { beside_cpu.expect(GAIN) } else { beside_cpu };
        bench.row(beside_cpu, leo, cpu);
    }
    let panel = Panel {
        title: "files of 1 MiB in chunks of 256 KiB".to_owned(),
        x: "cores",
        y: "MiB/s",
        logarithmic: false,
        lines: lines.into(),
    };
    bench.show_panels(Panels { name: "throughput", words: WORDS, panels: vec![panel] });
    Ok(())
}
