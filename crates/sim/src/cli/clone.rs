//! `pathcall sim clone`.

use std::io::{self, Write};

use super::{conclude, rows, share, with_progress};
use crate::clone::{Finding, NAME, Report, generate, play_traced, shrink, sweep};

/// Plays many seeds; whether all was right.
pub(super) fn sweep_seeds(first_seed: u64, count: u64) -> io::Result<bool> {
    let report = with_progress(|progress| sweep(first_seed, count, progress));
    conclude(&table(first_seed, &report), &report.findings)
}

/// Plays the plan of a seed, or the smallest that fails as it does, and prints it; whether all was right.
pub(super) fn replay(seed: u64, smallest: bool) -> io::Result<bool> {
    let plan = generate(seed);
    let plan = smallest.then(|| shrink(&plan)).flatten().unwrap_or(plan);
    let mut out = io::stdout().lock();
    writeln!(out, "{plan:#?}")?;
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
        ("calls", tally.calls.to_string()),
        ("answered", share(tally.answered, tally.calls)),
        ("failed at deadlines", share(tally.failed, tally.calls)),
        ("requests worked on", tally.executions.to_string()),
        ("cloned", tally.cloned.to_string()),
        ("clones dropped", tally.clones_dropped.to_string()),
        ("second answers stopped", tally.filtered.to_string()),
        ("second answers come", tally.redundant.to_string()),
        ("requests sent again", tally.resent.to_string()),
        ("refused by budgets", tally.refused.to_string()),
        ("silent elements", tally.silent.to_string()),
        ("frames", tally.frames.to_string()),
        ("lost", share(tally.lost, tally.frames)),
        ("repeated", share(tally.repeated, tally.frames)),
        ("forged", tally.forged.to_string()),
        ("restarts, moves", tally.incidents.to_string()),
        ("virtual time", format!("{:.1} s", tally.virtual_time.as_secs_f64())),
        ("wall time", format!("{:.1} s", wall_time.as_secs_f64())),
        ("traces", format!("{trace_hash:016x}")),
    ])
}
