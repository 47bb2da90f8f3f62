//! `pathcall sim` of an ability.

use std::io::{self, Write};

use super::{Seeds, conclude, rows, with_progress};
use crate::ability::{Ability, Finding, Report};

/// Rows of a table: what, and how much.
pub(super) type Rows = Vec<(&'static str, String)>;

/// Plays the seeds that were asked for; `counts`: the rows of what was counted. Whether all was right.
pub(super) fn run<A: Ability>(seeds: &Seeds, counts: impl FnOnce(&A::Tally) -> Rows) -> io::Result<bool> {
    match *seeds {
        Seeds { seed: Some(seed), shrink, .. } => replay::<A>(seed, shrink),
        Seeds { first_seed, seeds, .. } => sweep_seeds::<A>(first_seed, seeds, counts),
    }
}

fn sweep_seeds<A: Ability>(first_seed: u64, count: u64, counts: impl FnOnce(&A::Tally) -> Rows) -> io::Result<bool> {
    let report = with_progress(|progress| A::sweep(first_seed, count, progress));
    let Report { seeds, tally, trace_hash, findings, wall_time } = &report;
    let mut all = vec![("seeds", format!("{seeds} from {first_seed}"))];
    all.extend(counts(tally));
    all.push(("wall time", format!("{:.1} s", wall_time.as_secs_f64())));
    all.push(("traces", format!("{trace_hash:016x}")));
    conclude(&rows(&all), findings)
}

/// Plays the plan of a seed, or the smallest that fails as it does, and prints it; whether all was right.
fn replay<A: Ability>(seed: u64, smallest: bool) -> io::Result<bool> {
    let plan = A::generate(seed);
    let plan = smallest.then(|| A::shrink(&plan)).flatten().unwrap_or(plan);
    let mut out = io::stdout().lock();
    writeln!(out, "{plan:#?}")?;
    let (outcome, text) = A::play_traced(&plan);
    write!(out, "{text}")?;
    writeln!(out, "{:#?}, trace {:016x}", outcome.tally, outcome.trace_hash)?;
    let finding = outcome.failure.map(|(at, wrong)| Finding { ability: A::NAME, seed, at, wrong });
    match &finding {
        Some(finding) => writeln!(out, "{finding}")?,
        None => writeln!(out, "all results right")?,
    }
    Ok(finding.is_none())
}
