//! Command line of the simulation of one ability.

use std::io::{self, Write};

use super::{Seeds, conclude, rows, with_progress};
use crate::simulation::{Simulation, SweepFinding, SweepReport};

/// Rows of a table: name and value.
pub(super) type Rows = Vec<(&'static str, String)>;

/// Plays the seeds of the command line; `counts` makes the table's rows. True if there is no violation.
pub(super) fn run<A: Simulation>(seeds: &Seeds, table_rows: impl FnOnce(&A::Counts) -> Rows) -> io::Result<bool> {
    match *seeds {
        Seeds { seed: Some(seed), shrink, .. } => replay::<A>(seed, shrink),
        Seeds { first_seed, seeds, .. } => sweep_seeds::<A>(first_seed, seeds, table_rows),
    }
}

fn sweep_seeds<A: Simulation>(
    first_seed: u64,
    count: u64,
    table_rows: impl FnOnce(&A::Counts) -> Rows,
) -> io::Result<bool> {
    let report = with_progress(|progress| A::sweep(first_seed, count, progress));
    let SweepReport { seeds, counts, trace_hash, findings, wall_time } = &report;
    let mut all = vec![("seeds", format!("{seeds} from {first_seed}"))];
    all.extend(table_rows(counts));
    all.push(("wall time", format!("{:.1} s", wall_time.as_secs_f64())));
    all.push(("traces", format!("{trace_hash:016x}")));
    conclude(&rows(&all), findings)
}

/// Plays the plan of a seed, or its smallest version, and prints the trace; true if there is no violation.
fn replay<A: Simulation>(seed: u64, smallest: bool) -> io::Result<bool> {
    let plan = A::generate(seed);
    let plan = smallest.then(|| A::shrink(&plan)).flatten().unwrap_or(plan);
    let mut out = io::stdout().lock();
    writeln!(out, "{plan:#?}")?;
    let (outcome, text) = A::play_traced(&plan);
    write!(out, "{text}")?;
    writeln!(out, "{:#?}, trace {:016x}", outcome.counts, outcome.trace_hash)?;
    let finding = outcome.failure.map(|(at, violation)| SweepFinding { ability: A::NAME, seed, at, violation });
    match &finding {
        Some(finding) => writeln!(out, "{finding}")?,
        None => writeln!(out, "all results right")?,
    }
    Ok(finding.is_none())
}
