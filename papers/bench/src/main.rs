//! Benchmark program: every figure compares ours with a peer, measured in turn.
//!
//! ```text
//! figures (one file each) ─► harness (turns, medians) ─► table on stdout, JSON and SVG under target/
//! ```
//!
//! `make bench` makes all figures, `make bench FIGURE=name` one; `docs/bench.md` describes them. Order of the figures:
//! the switch program alone, links, an element on a link, calls through stubs, calls between hosts of a testbed,
//! delegated calls.

mod by_network;
mod clone_hedging;
mod dpc;
mod element_rate;
mod function;
mod function_fig10;
mod function_fig11;
mod function_fig5;
mod function_fig6;
mod function_fig7;
mod function_fig8;
mod function_fig9;
mod function_snat;
mod function_table1;
mod function_table2;
mod function_table3;
mod function_table4;
mod gradient_accuracy;
mod harness;
mod leo;
mod leo_fig10;
mod leo_fig11;
mod leo_fig12;
mod leo_fig13;
mod leo_fig3;
mod leo_fig9;
mod links;
mod net;
mod netclone;
mod netclone_fig10;
mod netclone_fig11;
mod netclone_fig12;
mod netclone_fig13;
mod netclone_fig14;
mod netclone_fig15;
mod netclone_fig16;
mod netclone_fig7;
mod netclone_fig8;
mod netclone_fig9;
mod netclone_real;
mod netrpc_async;
mod netrpc_fig10;
mod netrpc_fig11;
mod netrpc_fig12;
mod netrpc_fig7;
mod netrpc_fig8;
mod netrpc_fig9;
mod netrpc_sync;
mod netrpc_table5;
mod netrpc_table6;
mod netrpc_table7;
mod never_slower;
mod place_apps;
mod place_select;
mod place_transfer;
mod program_frame;
mod reduce;
mod round_trip;
mod small;
mod stubs;
mod testbed;
mod testbed_allreduce;
mod testbed_function;
mod testbed_goodput;
mod testbed_gradients;
mod testbed_lock;
mod testbed_vote;
mod traffic;
mod users_pick;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use harness::{Bench, BenchSettings, Figure, REPS, REPS_QUICK, Side};
use pathcall_models::clone::Scheme;

/// Figures of *map*, *clone*, *function* and *place*, in order; the figures of *delegate* follow.
const FIGURES: [Figure; 57] = [
    program_frame::FIGURE,
    links::FIGURE,
    element_rate::FIGURE,
    netrpc_sync::FIGURE,
    netrpc_async::FIGURE,
    netrpc_table5::FIGURE,
    netrpc_table6::FIGURE,
    netrpc_table7::FIGURE,
    round_trip::FIGURE,
    testbed_lock::FIGURE,
    testbed_vote::FIGURE,
    testbed_allreduce::FIGURE,
    testbed_gradients::FIGURE,
    gradient_accuracy::FIGURE,
    testbed_goodput::FIGURE,
    users_pick::FIGURE,
    never_slower::FIGURE,
    netrpc_fig7::FIGURE,
    netrpc_fig8::FIGURE,
    netrpc_fig9::FIGURE,
    netrpc_fig10::FIGURE,
    netrpc_fig11::FIGURE,
    netrpc_fig12::FIGURE,
    clone_hedging::FIGURE,
    netclone_fig7::FIGURE,
    netclone_fig8::FIGURE,
    netclone_fig9::FIGURE,
    netclone_fig10::FIGURE,
    netclone_fig11::FIGURE,
    netclone_fig12::FIGURE,
    netclone_fig13::FIGURE,
    netclone_fig14::FIGURE,
    netclone_fig15::FIGURE,
    netclone_fig16::FIGURE,
    netclone_real::FIGURE,
    function_fig5::FIGURE,
    function_fig6::FIGURE,
    function_fig7::FIGURE,
    function_fig8::FIGURE,
    function_fig9::FIGURE,
    function_fig10::FIGURE,
    function_fig11::FIGURE,
    function_table1::FIGURE,
    function_table2::FIGURE,
    function_table3::FIGURE,
    function_table4::FIGURE,
    function_snat::FIGURE,
    testbed_function::FIGURE,
    leo_fig3::FIGURE,
    leo_fig9::FIGURE,
    leo_fig10::FIGURE,
    leo_fig11::FIGURE,
    leo_fig12::FIGURE,
    leo_fig13::FIGURE,
    place_apps::FIGURE,
    place_select::FIGURE,
    place_transfer::FIGURE,
];

/// Makes figures that compare Pathcall with peers.
#[derive(Debug, Parser)]
#[command(name = "pathcall-bench")]
struct Args {
    /// Figures to make; by default all
    figures: Vec<String>,
    /// List the figures
    #[arg(long)]
    list: bool,
    /// Few and short turns: only test that the figures can be made
    #[arg(long)]
    quick: bool,
    /// Turns per side
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    reps: Option<u16>,
    /// Only comparisons with this text in their name, as printed by the turns
    #[arg(long, value_name = "TEXT", default_value = "")]
    case: String,
    /// Run one side only, for a profiler: no table and no files
    #[arg(long, value_name = "SIDE")]
    only: Option<Side>,
    /// Only these schemes, in figures that compare several: random, round-robin, jsq, hedging, c-clone, laedge,
    /// netclone, netclone+jsq, learned-hedging, automatic
    #[arg(long = "scheme", value_name = "NAME", value_delimiter = ',')]
    schemes: Vec<Scheme>,
    /// Only make this number of calls of one hop, with --only, to count their instructions
    #[arg(long, value_name = "CALLS", requires = "only", hide = true)]
    one_hop: Option<usize>,
    /// Interface of the calls of --one-hop
    #[arg(long, value_name = "FACE", default_value = "nodes", hide = true)]
    by: dpc::CallInterface,
    /// Only run as a rank of `leo-fig12`
    #[arg(long, value_name = "JOB", hide = true)]
    reduce_as: Option<String>,
    /// Only run as a part of the live function of `function-table3`
    #[cfg(feature = "xdp")]
    #[arg(long, value_name = "PART", hide = true)]
    live_part: Option<String>,
    /// Only run as the other process of `place-transfer`
    #[arg(long, hide = true)]
    own_memory: bool,
    /// Directory of the results: `<DIR>/bench/<figure>.json` and `<DIR>/figures/<figure>.svg`
    #[arg(long, value_name = "DIR", env = "CARGO_TARGET_DIR", default_value = "../target")]
    out: PathBuf,
    /// Keep the rows in this directory, too: `<DIR>/<figure>.json`
    #[arg(long, value_name = "DIR", conflicts_with_all = ["quick", "case", "schemes"])]
    record: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pathcall-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    if args.list {
        figures().for_each(|figure| println!("{:<20}{}", figure.name, figure.about));
        return Ok(());
    }
    if let (Some(calls), Some(side)) = (args.one_hop, args.only) {
        return dpc::one_hop(args.by, side, calls);
    }
    if let Some(job) = &args.reduce_as {
        return reduce::rank::RankJob::from_args(job)?.run();
    }
    #[cfg(feature = "xdp")]
    if let Some(part) = &args.live_part {
        return function::live_snat::run_part(part);
    }
    if args.own_memory {
        return place_transfer::serve_memory();
    }
    let chosen = choose(&args.figures)?;
    let (numbers, pictures) = (args.out.join("bench"), args.out.join("figures"));
    for directory in [&numbers, &pictures] {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot create directory {}", directory.display()))?;
    }
    let reps = args.reps.map_or(if args.quick { REPS_QUICK } else { REPS }, usize::from);
    let (case, schemes) = (args.case.clone(), args.schemes.clone());
    let settings =
        BenchSettings { reps, reps_asked: args.reps.is_some(), quick: args.quick, case, only: args.only, schemes };
    let mut failed = Vec::new();
    for figure in chosen {
        let begun = Instant::now();
        let made = make(&figure, &settings, (&numbers, &pictures), args.record.as_deref());
        eprintln!("{} took {:.0} s", figure.name, begun.elapsed().as_secs_f64());
        // A failed figure does not stop the others.
        if let Err(error) = made {
            eprintln!("pathcall-bench: figure {}: {error:#}", figure.name);
            failed.push(figure.name);
        }
    }
    ensure!(failed.is_empty(), "not made: {}", failed.join(", "));
    Ok(())
}

/// Makes a figure, prints its table and writes its files.
fn make(
    figure: &Figure,
    settings: &BenchSettings,
    (numbers, pictures): (&Path, &Path),
    kept: Option<&Path>,
) -> Result<()> {
    let mut bench = Bench::new(*figure, settings.clone());
    (figure.run)(&mut bench)?;
    let (rows, curves, panels) = bench.finish();
    if rows.is_empty() {
        return Ok(());
    }
    println!("\n{}: {}\n\n{}", figure.name, figure.about, harness::table(&rows));
    let file = format!("{}.json", figure.name);
    for directory in [Some(numbers), kept].into_iter().flatten() {
        harness::write_rows(&directory.join(&file), &rows)?;
    }
    harness::draw(&pictures.join(format!("{}.svg", figure.name)), figure.name, &rows)?;
    curves.iter().try_for_each(|curves| harness::write_curves(numbers, pictures, figure.name, curves))?;
    panels.iter().try_for_each(|panels| harness::write_panels(numbers, pictures, figure.name, panels))?;
    if figure.name == never_slower::FIGURE.name { never_slower::check(&rows) } else { Ok(()) }
}

fn figures() -> impl Iterator<Item = Figure> {
    FIGURES.into_iter().chain(dpc::FIGURES)
}

/// Figures with these names; all if `names` is empty.
fn choose(names: &[String]) -> Result<Vec<Figure>> {
    if names.is_empty() {
        return Ok(figures().collect());
    }
    let find = |name: &String| match figures().find(|figure| figure.name == name) {
        Some(figure) => Ok(figure),
        None => bail!("unknown figure {name:?}; --list shows all figures"),
    };
    names.iter().map(find).collect()
}
