//! Command line of `pathcall sim`.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};

use crate::all::CombinedSimulation;
use crate::clone::CloneSimulation;
use crate::delegate::DelegateSimulation;
use crate::function::FunctionSimulation;
use crate::map::MapSimulation;
use crate::place::PlaceSimulation;
use crate::{Progress, Simulation, SweepReport};
use tables::Rows;

mod tables;

/// Minimum time between two progress lines.
const PROGRESS: Duration = Duration::from_millis(200);

/// Plays faulty networks from seeds and checks every result.
#[derive(Debug, Clone, Args)]
pub struct SimArgs {
    #[command(subcommand)]
    ability: Ability,
}

#[derive(Debug, Clone, Subcommand)]
enum Ability {
    /// Sums, additions, votes and locks, processed in an element
    Map(Seeds),
    /// Calls that servers delegate to other servers
    Delegate(Seeds),
    /// Calls to a pool of servers, steered and cloned in the network
    Clone(Seeds),
    /// Network functions that are split between an element and servers
    Function(Seeds),
    /// Hosts that select a path over processor or accelerator for each message
    Place(Seeds),
    /// All abilities at one time, on one element and the same machines
    All(Seeds),
}

#[derive(Debug, Clone, Args)]
struct Seeds {
    /// Number of seeds to play
    #[arg(long, default_value_t = 2000)]
    seeds: u64,
    /// First seed to play
    #[arg(long, default_value_t = 1)]
    first_seed: u64,
    /// Play only this seed and print its trace
    #[arg(long, conflicts_with_all = ["seeds", "first_seed"])]
    seed: Option<u64>,
    /// If the seed fails, shrink it to what the failure needs, and print that trace
    #[arg(long, requires = "seed")]
    shrink: bool,
}

/// Runs `pathcall sim`. The exit code is 0 if no seed has a violation.
///
/// # Errors
/// If the standard output cannot be written.
pub fn run_cli(args: &SimArgs) -> io::Result<ExitCode> {
    let done = match &args.ability {
        Ability::Map(seeds) => run::<MapSimulation>(seeds, tables::map),
        Ability::Delegate(seeds) => run::<DelegateSimulation>(seeds, tables::delegate),
        Ability::Clone(seeds) => run::<CloneSimulation>(seeds, tables::clone),
        Ability::Function(seeds) => run::<FunctionSimulation>(seeds, tables::function),
        Ability::Place(seeds) => run::<PlaceSimulation>(seeds, tables::place),
        Ability::All(seeds) => run::<CombinedSimulation>(seeds, tables::all),
    };
    match done {
        // The reader of the output has closed it.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        done => Ok(if done? { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
    }
}

/// Plays the seeds of the command line; `table_rows` makes the table's rows. True if there is no violation.
fn run<A: Simulation>(seeds: &Seeds, table_rows: fn(&A::Counts) -> Rows) -> io::Result<bool> {
    match *seeds {
        Seeds { seed: Some(seed), shrink, .. } => replay::<A>(seed, shrink),
        Seeds { first_seed, seeds, .. } => {
            let report = with_progress(|progress| A::sweep(first_seed, seeds, progress));
            conclude(&table(first_seed, &report, table_rows(&report.counts)), &report.findings)
        }
    }
}

/// Plays the plan of a seed, or its smallest version, and prints the trace; true if there is no violation.
fn replay<A: Simulation>(seed: u64, smallest: bool) -> io::Result<bool> {
    let plan = A::generate(seed);
    let plan = smallest.then(|| A::shrink(&plan)).flatten().unwrap_or(plan);
    let mut out = io::stdout().lock();
    write!(out, "{}", A::describe(&plan))?;
    let (outcome, text) = A::play_traced(&plan);
    write!(out, "{text}")?;
    writeln!(out, "{:#?}, trace {:016x}", outcome.counts, outcome.trace_hash)?;
    let finding = outcome.into_finding(A::NAME);
    match &finding {
        Some(finding) => writeln!(out, "{finding}")?,
        None => writeln!(out, "all results right")?,
    }
    Ok(finding.is_none())
}

/// Runs `play` and shows its progress on the terminal.
fn with_progress<R>(play: impl FnOnce(&mut dyn FnMut(Progress)) -> R) -> R {
    let mut shown = Instant::now();
    let interactive = io::stderr().is_terminal();
    let report = play(&mut |Progress { done, of, findings }| {
        if interactive && shown.elapsed() >= PROGRESS {
            shown = Instant::now();
            eprint!("\r{done} of {of} seeds, {findings} failures ");
        }
    });
    if interactive {
        eprint!("\r\x1b[K");
    }
    report
}

/// Prints the table and the findings; true if there are no findings.
fn conclude(table: &str, findings: &[impl std::fmt::Display]) -> io::Result<bool> {
    let mut out = io::stdout().lock();
    write!(out, "{table}")?;
    for finding in findings {
        writeln!(out, "{finding}")?;
    }
    writeln!(out, "{}", if findings.is_empty() { "all results right" } else { "FAILED" })?;
    Ok(findings.is_empty())
}

/// Table of a sweep; `of_ability` are the rows of its counts.
fn table<T, W>(first_seed: u64, report: &SweepReport<T, W>, of_ability: Rows) -> String {
    let SweepReport { seeds, trace_hash, wall_time, .. } = report;
    let mut rows = vec![("seeds", format!("{seeds} from {first_seed}"))];
    rows.extend(of_ability);
    rows.push(("wall time", format!("{:.1} s", wall_time.as_secs_f64())));
    rows.push(("traces", format!("{trace_hash:016x}")));
    rows.iter().map(|(name, value)| format!("{name:<21} {value}\n")).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::map::{MapCounts, MapNodeId, MapOutcome, MapViolation};

    #[derive(Debug, Parser)]
    struct Wrapper {
        #[command(flatten)]
        sim: SimArgs,
    }

    fn parsed(line: &str) -> Result<Seeds, clap::Error> {
        match Wrapper::try_parse_from(line.split(' '))?.sim.ability {
            Ability::Map(args) => Ok(args),
            other => panic!("expected map, got {other:?}"),
        }
    }

    #[test]
    fn command_line_is_parsed() {
        let args = parsed("sim map --seeds 5 --first-seed 3").expect("valid");
        assert_eq!((args.seeds, args.first_seed, args.seed), (5, 3, None));
        assert_eq!(parsed("sim map").expect("valid").seeds, 2000);
        assert_eq!(parsed("sim map --seed 9").expect("valid").seed, Some(9));
        assert!(parsed("sim map --seed 9 --seeds 2").is_err(), "one seed or a range");
        assert!(parsed("sim map --seed 9 --shrink").expect("valid").shrink);
        assert!(parsed("sim map --shrink").is_err(), "one seed is shrunk");
        assert!(parsed("sim").is_err(), "an ability is required");
        let all = Wrapper::try_parse_from("sim all --seed 9 --shrink".split(' ')).expect("valid").sim.ability;
        assert!(matches!(all, Ability::All(Seeds { seed: Some(9), shrink: true, .. })));
    }

    #[test]
    fn finding_ends_with_replay_command() {
        let failure =
            Some((pathcall_wire::Instant(1_500_000), MapViolation::NotIdle { node: MapNodeId::Caller(1, 2) }));
        let outcome = MapOutcome { seed: 77, trace_hash: 0xabc, counts: MapCounts::default(), failure };
        let text = outcome.into_finding(MapSimulation::NAME).expect("run has a violation").to_string();
        assert!(text.starts_with("seed 77, after 1.500000 ms: a1 caller 2 is not idle"), "{text}");
        assert!(text.ends_with("\n  replay: pathcall sim map --seed 77"), "{text}");
    }

    #[test]
    fn table_shows_shares() {
        let counts = MapCounts { frames: 200, lost: 5, lanes_element: 3, lanes_software: 1, ..MapCounts::default() };
        let mut report = MapSimulation::sweep(4, 0, drop);
        (report.seeds, report.counts) = (12, counts);
        let table = table(4, &report, tables::map(&report.counts));
        assert!(table.contains("seeds                 12 from 4\n"), "{table}");
        assert!(table.contains("lost                  5 (2.5 %)\n"), "{table}");
        assert!(table.contains("lanes in the element  3 (75.0 %)\n"), "{table}");
    }
}
