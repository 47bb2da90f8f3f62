//! `pathcall sim`: seeds in, one line or a table out.

use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};

use crate::host::HostPlan;
use crate::link::Outage;
use crate::scenario::WireChange;
use crate::trace::Millis;
use crate::{Node, Outcome, Progress, Report, Scenario, generate, play_traced, shrink, sweep};

mod ability;
mod all;
mod clone;
mod delegate;
mod function;
mod place;

/// Pause between two progress lines.
const PROGRESS: Duration = Duration::from_millis(200);

/// Plays faulty networks from seeds and checks every result.
#[derive(Debug, Clone, Args)]
pub struct SimArgs {
    #[command(subcommand)]
    ability: Ability,
}

#[derive(Debug, Clone, Subcommand)]
enum Ability {
    /// Sums, additions, counts and locks, worked on in an element
    Map(Seeds),
    /// Calls that servers pass on to others
    Delegate(Seeds),
    /// Calls that any of several servers can answer, steered and cloned on their way
    Clone(Seeds),
    /// Network functions that are split between an element and servers
    Function(Seeds),
    /// Hosts that choose a path over processor or accelerator for each message
    Place(Seeds),
    /// All of them at one time, on one element and the same machines
    All(Seeds),
}

#[derive(Debug, Clone, Args)]
struct Seeds {
    /// How many seeds to play
    #[arg(long, default_value_t = 2000)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 1)]
    first_seed: u64,
    /// Play only this one and print all that happens
    #[arg(long, conflicts_with_all = ["seeds", "first_seed"])]
    seed: Option<u64>,
    /// If it fails, leave out whatever the failure does not need, and print what happens then
    #[arg(long, requires = "seed")]
    shrink: bool,
}

/// Runs `pathcall sim`; the exit code says whether every result was right.
///
/// # Errors
/// When the standard output can't be written.
pub fn run_cli(args: &SimArgs) -> io::Result<ExitCode> {
    let done = match &args.ability {
        Ability::Map(Seeds { seed: Some(seed), shrink: true, .. }) => replay_smallest(*seed),
        Ability::Map(Seeds { seed: Some(seed), .. }) => replay(&generate(*seed)),
        Ability::Map(Seeds { first_seed, seeds, .. }) => sweep_seeds(*first_seed, *seeds),
        Ability::Delegate(seeds) => ability::run::<crate::delegate::Sim>(seeds, delegate::counts),
        Ability::Clone(seeds) => ability::run::<crate::clone::Sim>(seeds, clone::counts),
        Ability::Function(seeds) => ability::run::<crate::function::Sim>(seeds, function::counts),
        Ability::Place(seeds) => ability::run::<crate::place::Sim>(seeds, place::counts),
        Ability::All(seeds) => ability::run::<crate::all::Sim>(seeds, all::counts),
    };
    match done {
        // Whoever read the output has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        done => Ok(if done? { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
    }
}

/// Plays the smallest scenario that fails as that of the seed; whether none does.
fn replay_smallest(seed: u64) -> io::Result<bool> {
    let scenario = generate(seed);
    replay(&shrink(&scenario).unwrap_or(scenario))
}

/// Plays a scenario with its trace; whether all was right.
fn replay(scenario: &Scenario) -> io::Result<bool> {
    let mut out = BufWriter::new(io::stdout().lock());
    let seed = scenario.seed;
    writeln!(out, "seed {seed}: {:?}, {:?} until {:?}", scenario.wire, scenario.faults, scenario.faults_until)?;
    for (index, plan) in scenario.applications.iter().enumerate() {
        let callers: Vec<u32> = plan.callers.iter().map(|caller| caller.endpoint).collect();
        let (owner, memory) = (plan.endpoint, plan.memory.map(|memory| (memory.rows, memory.width)));
        writeln!(out, "a{index}: {:?}, owner {owner}, callers {callers:?}, memory {memory:?}", plan.purpose)?;
    }
    weather(scenario, &mut out)?;
    let outcome = play_traced(scenario, &mut out)?;
    writeln!(out, "{}", summary(&outcome))?;
    out.flush()?;
    Ok(outcome.failure.is_none())
}

/// What goes wrong in it, but for chance.
fn weather(scenario: &Scenario, out: &mut impl Write) -> io::Result<()> {
    let any = |node: Option<Node>| node.map_or_else(|| "any".to_owned(), |node| node.to_string());
    let ms = |at: pathcall_wire::Instant| format!("{} ms", Millis(at));
    for Outage { from, to, since, until: end } in &scenario.outages {
        writeln!(out, "cut: {} → {} from {} to {}", any(*from), any(*to), ms(*since), ms(*end))?;
    }
    if scenario.inline {
        writeln!(out, "elements are on the way between hosts")?;
    }
    for Outage { from, to, since, until: end } in &scenario.detours {
        writeln!(out, "past the element: {} → {} from {} to {}", any(*from), any(*to), ms(*since), ms(*end))?;
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

fn summary(outcome: &Outcome) -> String {
    let verdict = outcome.finding().map_or_else(|| "all results right".to_owned(), |finding| finding.to_string());
    let Outcome { seed, trace_hash, tally, .. } = outcome;
    format!("seed {seed}: {} calls, {} frames, trace {trace_hash:016x}\n{verdict}", tally.calls, tally.frames)
}

/// Plays many seeds; whether all was right.
fn sweep_seeds(first_seed: u64, count: u64) -> io::Result<bool> {
    let report = with_progress(|progress| sweep(first_seed, count, progress));
    conclude(&table(first_seed, &report), &report.findings)
}

/// Has `play` tell on the terminal how far it is.
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

/// Prints what came out; whether all was right.
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

fn table(first_seed: u64, report: &Report) -> String {
    let Report { seeds, tally, trace_hash, wall_time, .. } = report;
    rows(&[
        ("seeds", format!("{seeds} from {first_seed}")),
        ("calls", tally.calls.to_string()),
        ("frames", tally.frames.to_string()),
        ("lost", share(tally.lost, tally.frames)),
        ("of them, link cut", tally.cut.to_string()),
        ("repeated", share(tally.repeated, tally.frames)),
        ("repeated late", tally.late.to_string()),
        ("reordered", share(tally.reordered, tally.frames)),
        ("congestion marks", share(tally.marked, tally.frames)),
        ("hostile datagrams", tally.hostile.to_string()),
        ("refused by token", tally.unauthentic.to_string()),
        ("pauses of hosts", tally.pauses.to_string()),
        ("retransmits", tally.retransmits.to_string()),
        ("lanes in the element", share(tally.lanes_element, tally.lanes_element + tally.lanes_software)),
        ("keys evicted", tally.keys_evicted.to_string()),
        ("silent elements", tally.suspended.to_string()),
        ("virtual time", format!("{:.1} s", tally.virtual_time.as_secs_f64())),
        ("wall time", format!("{:.1} s", wall_time.as_secs_f64())),
        ("traces", format!("{trace_hash:016x}")),
    ])
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::{Failure, Tally};

    #[derive(Debug, Parser)]
    struct Wrapper {
        #[command(flatten)]
        sim: SimArgs,
    }

    fn parsed(line: &str) -> Result<Seeds, clap::Error> {
        match Wrapper::try_parse_from(line.split(' '))?.sim.ability {
            Ability::Map(args) => Ok(args),
            other => panic!("map was asked for, got {other:?}"),
        }
    }

    #[test]
    fn the_command_line_is_read() {
        let args = parsed("sim map --seeds 5 --first-seed 3").expect("valid");
        assert_eq!((args.seeds, args.first_seed, args.seed), (5, 3, None));
        assert_eq!(parsed("sim map").expect("valid").seeds, 2000);
        assert_eq!(parsed("sim map --seed 9").expect("valid").seed, Some(9));
        assert!(parsed("sim map --seed 9 --seeds 2").is_err(), "one seed or many");
        assert!(parsed("sim map --seed 9 --shrink").expect("valid").shrink);
        assert!(parsed("sim map --shrink").is_err(), "one seed is shrunk");
        assert!(parsed("sim").is_err(), "an ability is asked for");
        let all = Wrapper::try_parse_from("sim all --seed 9 --shrink".split(' ')).expect("valid").sim.ability;
        assert!(matches!(all, Ability::All(Seeds { seed: Some(9), shrink: true, .. })));
    }

    #[test]
    fn a_failure_is_told_with_the_command_that_shows_it_again() {
        let failure = Failure::NotIdle { node: Node::Caller(1, 2) };
        let outcome = Outcome {
            seed: 77,
            trace_hash: 0xabc,
            tally: Tally { calls: 3, frames: 20, ..Tally::default() },
            owners: Vec::new(),
            failure: Some((pathcall_wire::Instant(1_500_000), failure)),
        };
        let text = summary(&outcome);
        assert!(text.contains("seed 77: 3 calls, 20 frames, trace 0000000000000abc\n"), "{text}");
        assert!(text.contains("seed 77, after 1.500000 ms: a1 caller 2 is not idle"), "{text}");
        assert!(text.ends_with("\n  replay: pathcall sim map --seed 77"), "{text}");
    }

    #[test]
    fn the_table_has_shares() {
        let tally = Tally { frames: 200, lost: 5, lanes_element: 3, lanes_software: 1, ..Tally::default() };
        let report = Report { seeds: 12, tally, ..Report::default() };
        let table = table(4, &report);
        assert!(table.contains("seeds                 12 from 4\n"), "{table}");
        assert!(table.contains("lost                  5 (2.5 %)\n"), "{table}");
        assert!(table.contains("lanes in the element  3 (75.0 %)\n"), "{table}");
    }
}
