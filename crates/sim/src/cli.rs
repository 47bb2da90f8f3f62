//! Command line of `pathcall sim`.

use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};

use crate::host::HostPlan;
use crate::link::Outage;
use crate::scenario::WireChange;
use crate::trace::Millis;
use crate::{MapNodeId, MapOutcome, MapReport, Progress, Scenario, generate, play_traced, shrink, sweep};

mod ability;
mod all;
mod clone;
mod delegate;
mod function;
mod place;

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
        Ability::Map(Seeds { seed: Some(seed), shrink: true, .. }) => replay_smallest(*seed),
        Ability::Map(Seeds { seed: Some(seed), .. }) => replay(&generate(*seed)),
        Ability::Map(Seeds { first_seed, seeds, .. }) => sweep_seeds(*first_seed, *seeds),
        Ability::Delegate(seeds) => ability::run::<crate::delegate::DelegateSimulation>(seeds, delegate::table_rows),
        Ability::Clone(seeds) => ability::run::<crate::clone::CloneSimulation>(seeds, clone::table_rows),
        Ability::Function(seeds) => ability::run::<crate::function::FunctionSimulation>(seeds, function::table_rows),
        Ability::Place(seeds) => ability::run::<crate::place::PlaceSimulation>(seeds, place::table_rows),
        Ability::All(seeds) => ability::run::<crate::all::CombinedSimulation>(seeds, all::table_rows),
    };
    match done {
        // The reader of the output has closed it.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        done => Ok(if done? { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
    }
}

/// Plays the smallest scenario with the same violation as the seed's; true if there is no violation.
fn replay_smallest(seed: u64) -> io::Result<bool> {
    let scenario = generate(seed);
    replay(&shrink(&scenario).unwrap_or(scenario))
}

/// Plays a scenario and prints its trace; true if there is no violation.
fn replay(scenario: &Scenario) -> io::Result<bool> {
    let mut out = BufWriter::new(io::stdout().lock());
    let seed = scenario.seed;
    writeln!(out, "seed {seed}: {:?}, {:?} until {:?}", scenario.wire, scenario.faults, scenario.faults_until)?;
    for (index, plan) in scenario.applications.iter().enumerate() {
        let callers: Vec<u32> = plan.callers.iter().map(|caller| caller.endpoint).collect();
        let (owner, memory) = (plan.endpoint, plan.memory.map(|memory| (memory.rows, memory.width)));
        writeln!(out, "a{index}: {:?}, owner {owner}, callers {callers:?}, memory {memory:?}", plan.purpose)?;
    }
    print_faults(scenario, &mut out)?;
    let outcome = play_traced(scenario, &mut out)?;
    writeln!(out, "{}", summary(&outcome))?;
    out.flush()?;
    Ok(outcome.failure.is_none())
}

/// Prints the planned faults of a scenario.
fn print_faults(scenario: &Scenario, out: &mut impl Write) -> io::Result<()> {
    let any = |node: Option<MapNodeId>| node.map_or_else(|| "any".to_owned(), |node| node.to_string());
    let ms = |at: pathcall_wire::Instant| format!("{} ms", Millis(at));
    for Outage { from, to, since, until: end } in &scenario.outages {
        writeln!(out, "cut: {} → {} from {} to {}", any(*from), any(*to), ms(*since), ms(*end))?;
    }
    if scenario.inline {
        writeln!(out, "elements are on the route between hosts")?;
    }
    for Outage { from, to, since, until: end } in &scenario.detours {
        writeln!(out, "route past the element: {} → {} from {} to {}", any(*from), any(*to), ms(*since), ms(*end))?;
    }
    for WireChange { at, node, wire } in &scenario.wire_changes {
        writeln!(out, "links of {} from {}: {wire:?}", any(*node), ms(*at))?;
    }
    for (node, host) in &scenario.hosts {
        let HostPlan { clock, inbox, frame_time, pauses, .. } = host;
        let rate = clock.rate_ppm;
        writeln!(out, "{node}: clock at {rate} ppm, inbox {inbox}, {frame_time:?} a frame, {} pauses", pauses.len())?;
    }
    Ok(())
}

fn summary(outcome: &MapOutcome) -> String {
    let verdict = outcome.finding().map_or_else(|| "all results right".to_owned(), |finding| finding.to_string());
    let MapOutcome { seed, trace_hash, counts, .. } = outcome;
    format!("seed {seed}: {} calls, {} frames, trace {trace_hash:016x}\n{verdict}", counts.calls, counts.frames)
}

/// Plays many seeds; true if there is no violation.
fn sweep_seeds(first_seed: u64, count: u64) -> io::Result<bool> {
    let report = with_progress(|progress| sweep(first_seed, count, progress));
    conclude(&table(first_seed, &report), &report.findings)
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

fn share(part: u64, of: u64) -> String {
    format!("{part} ({:.1} %)", part as f64 * 100.0 / of.max(1) as f64)
}

fn rows(rows: &[(&str, String)]) -> String {
    rows.iter().map(|(name, value)| format!("{name:<21} {value}\n")).collect()
}

fn table(first_seed: u64, report: &MapReport) -> String {
    let MapReport { seeds, counts, trace_hash, wall_time, .. } = report;
    rows(&[
        ("seeds", format!("{seeds} from {first_seed}")),
        ("calls", counts.calls.to_string()),
        ("frames", counts.frames.to_string()),
        ("lost", share(counts.lost, counts.frames)),
        ("of them, link cut", counts.cut.to_string()),
        ("repeated", share(counts.repeated, counts.frames)),
        ("repeated late", counts.late.to_string()),
        ("reordered", share(counts.reordered, counts.frames)),
        ("congestion marks", share(counts.marked, counts.frames)),
        ("hostile datagrams", counts.hostile.to_string()),
        ("refused by token", counts.unauthentic.to_string()),
        ("host pauses", counts.pauses.to_string()),
        ("retransmits", counts.retransmits.to_string()),
        ("lanes in the element", share(counts.lanes_element, counts.lanes_element + counts.lanes_software)),
        ("keys evicted", counts.keys_evicted.to_string()),
        ("silent elements", counts.suspended.to_string()),
        ("virtual time", format!("{:.1} s", counts.virtual_time.as_secs_f64())),
        ("wall time", format!("{:.1} s", wall_time.as_secs_f64())),
        ("traces", format!("{trace_hash:016x}")),
    ])
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::{MapCounts, MapViolation};

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
        let failure = MapViolation::NotIdle { node: MapNodeId::Caller(1, 2) };
        let outcome = MapOutcome {
            seed: 77,
            trace_hash: 0xabc,
            counts: MapCounts { calls: 3, frames: 20, ..MapCounts::default() },
            owners: Vec::new(),
            failure: Some((pathcall_wire::Instant(1_500_000), failure)),
        };
        let text = summary(&outcome);
        assert!(text.contains("seed 77: 3 calls, 20 frames, trace 0000000000000abc\n"), "{text}");
        assert!(text.contains("seed 77, after 1.500000 ms: a1 caller 2 is not idle"), "{text}");
        assert!(text.ends_with("\n  replay: pathcall sim map --seed 77"), "{text}");
    }

    #[test]
    fn table_shows_shares() {
        let counts = MapCounts { frames: 200, lost: 5, lanes_element: 3, lanes_software: 1, ..MapCounts::default() };
        let report = MapReport { seeds: 12, counts, ..MapReport::default() };
        let table = table(4, &report);
        assert!(table.contains("seeds                 12 from 4\n"), "{table}");
        assert!(table.contains("lost                  5 (2.5 %)\n"), "{table}");
        assert!(table.contains("lanes in the element  3 (75.0 %)\n"), "{table}");
    }
}
