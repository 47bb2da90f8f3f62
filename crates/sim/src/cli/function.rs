//! `pathcall sim function`.

use std::io::{self, Write};

use super::{conclude, rows, share, with_progress};
use crate::function::{Finding, NAME, Report, generate, play_traced, sweep};

/// Plays many seeds; whether all was right.
pub(super) fn sweep_seeds(first_seed: u64, count: u64) -> io::Result<bool> {
    let report = with_progress(|progress| sweep(first_seed, count, progress));
    conclude(&table(first_seed, &report), &report.findings)
}

/// Plays the plan of a seed and prints what happens; whether all was right.
pub(super) fn replay(seed: u64) -> io::Result<bool> {
    let plan = generate(seed);
    let mut out = io::stdout().lock();
    writeln!(out, "{:?}\n{:?}\n{:?}", plan.sizes, plan.place, plan.scale)?;
    writeln!(out, "{} packets, {} servers, {:?} of them at first", plan.packets.len(), plan.servers, plan.wanted)?;
    let (outcome, text) = play_traced(&plan);
    write!(out, "{text}")?;
    writeln!(out, "{:#?}, trace {:016x}", outcome.tally, outcome.trace_hash)?;
    let finding = outcome.failure.map(|(at, wrong)| Finding { ability: NAME, seed, at, wrong });
    match &finding {
        Some(finding) => writeln!(out, "{finding}")?,
        None => writeln!(out, "all results right")?,
    }
    Ok(finding.is_none())
}

fn table(first_seed: u64, report: &Report) -> String {
    let Report { seeds, tally, trace_hash, wall_time, .. } = report;
    rows(&[
        ("seeds", format!("{seeds} from {first_seed}")),
        ("packets", tally.packets.to_string()),
        ("left", share(tally.out, tally.packets)),
        ("in the element alone", share(tally.in_element, tally.out)),
        ("lost", share(tally.lost, tally.packets)),
        ("without a server", tally.no_server.to_string()),
        ("reports of flows", tally.reports.to_string()),
        ("entries placed", tally.placed.to_string()),
        ("replaced", tally.replaced.to_string()),
        ("recalled", tally.recalled.to_string()),
        ("changes of groups", tally.groups.to_string()),
        ("deaths of servers", tally.deaths.to_string()),
        ("virtual time", format!("{:.1} s", tally.virtual_time.as_secs_f64())),
        ("wall time", format!("{:.1} s", wall_time.as_secs_f64())),
        ("traces", format!("{trace_hash:016x}")),
    ])
}
