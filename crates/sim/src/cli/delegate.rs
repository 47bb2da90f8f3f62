//! `pathcall sim delegate`.

use std::io::{self, Write};

use super::{conclude, rows, share, with_progress};
use crate::delegate::{Finding, NAME, Report, generate, play_traced, sweep};

/// Plays many seeds; whether all was right.
pub(super) fn sweep_seeds(first_seed: u64, count: u64) -> io::Result<bool> {
    let report = with_progress(|progress| sweep(first_seed, count, progress));
    conclude(&table(first_seed, &report), &report.findings)
}

/// Plays the plan of a seed and prints it; whether all was right.
pub(super) fn replay(seed: u64) -> io::Result<bool> {
    let plan = generate(seed);
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
        ("requests planned", tally.requests.to_string()),
        ("requests worked on", tally.executions.to_string()),
        ("replies", tally.replies.to_string()),
        ("complete", share(tally.complete, tally.calls)),
        ("failed", share(tally.failed, tally.calls)),
        ("aborted", share(tally.aborted, tally.calls)),
        ("messages", tally.messages.to_string()),
        ("lost", share(tally.lost, tally.messages)),
        ("repeated by a stranger", tally.repeated.to_string()),
        ("forged", tally.forged.to_string()),
        ("processes that died", tally.crashes.to_string()),
        ("virtual time", format!("{:.1} s", tally.virtual_time.as_secs_f64())),
        ("wall time", format!("{:.1} s", wall_time.as_secs_f64())),
        ("traces", format!("{trace_hash:016x}")),
    ])
}
