//! Page of all figures, `docs/figures.md`: every recorded row, lost and missed ones first.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::coverage::{Paper, State};
use super::figures::{Figure, FiguresText, Row, Verdict, is_missed, of_the_bench, rows, verdict};

const KINDS: [&str; 4] = ["measured", "counted", "simulated", "modelled"];

const TOP: &str = "# All figures, beside the papers' words
<!-- Made of docs/figures.toml and bench/*.json by `UPDATE=1 cargo test -p pathcall-tidy`: change those. -->

`make bench FIGURE=name` makes a figure. This page has every row of every figure, as recorded in [`bench/`](../bench);
[how they were measured](bench.md) is a page of its own. Values are medians. The papers measured switches and cards of 100
Gbit/s. Here are two processors, or a simulator, so only ratios can be compared.

A row is *measured* (real programs in real time), *counted* (messages, bytes, instructions, lines), *simulated* (the real
state machines in virtual time; costs of hosts and links are assumed) or *modelled* (virtual time with costs taken from the
paper or fitted to its figures).

| verdict | rule |
|---|---|
| **lost** | at least 5 % worse than the peer |
| **on par** | within 5 % of the peer |
| **won** | at least 5 % better than the peer |
| **as the paper** | modelled, and within 15 % of the paper's ratio, or range of ratios |
| **not reproduced** | modelled, and farther from it; the figure says why |
| **a model** | modelled, and the paper has no number |
| **a bound** | the peer is an ideal, a limit of the machine, or a budget |
| **context** | the row is about another scheme than Pathcall's |

*Missed* stands beside a verdict where a row has less than was expected of it. Lost and missed rows come first in each figure.
";

/// Generates the page.
///
/// # Errors
/// Returns an error for a missing or unknown figure, for text that matches no row, and for modelled rows that are not as
/// in the paper without a reason.
pub fn page(text: &FiguresText, papers: &[Paper]) -> Result<String, String> {
    let mut known = of_the_bench();
    let (mut sections, mut tally) = (String::new(), Tally::default());
    for figure in &text.figures {
        let about = known
            .remove(&figure.name)
            .ok_or(format!("docs/figures.toml: no figure {}, or it is there twice", figure.name))?;
        section(&mut sections, figure, &about, &mut tally)?;
    }
    if let Some(name) = known.keys().next() {
        return Err(format!("docs/figures.toml says nothing of {name}"));
    }
    let mut page = String::from(TOP);
    let _ = write!(page, "\n## Counts\n{} figures, {} rows.\n\n", text.figures.len(), tally.rows());
    page.push_str(&tally.table());
    page.push_str("\n## Figures\n");
    page.push_str(&sections);
    page.push_str("\n## Not made\nFigures and tables of the papers that `make bench` does not make yet, and why:\n\n");
    for paper in papers {
        let missing = paper.parts.iter().filter(|part| part.state == State::NotYet && !part.at.starts_with('§'));
        missing.for_each(|part| {
            let _ = writeln!(page, "- {} {} ({}): {}.", paper.system, part.at, part.what.to_lowercase(), part.note);
        });
    }
    page.push_str("\nThe other parts of the papers are in [coverage](coverage.md).\n");
    Ok(page)
}

/// Numbers of rows by kind and verdict, and of missed ones by kind.
#[derive(Default)]
struct Tally {
    rows: BTreeMap<(usize, Verdict), usize>,
    missed: BTreeMap<usize, usize>,
}

impl Tally {
    fn add(&mut self, row: &Row, verdict: Verdict) -> Result<(), String> {
        let kind = KINDS.iter().position(|kind| *kind == row.kind);
        let kind = kind.ok_or_else(|| format!("{}: {:?} is none of {KINDS:?}", row.case, row.kind))?;
        *self.rows.entry((kind, verdict)).or_default() += 1;
        *self.missed.entry(kind).or_default() += usize::from(is_missed(row));
        Ok(())
    }

    fn rows(&self) -> usize {
        self.rows.values().sum()
    }

    fn table(&self) -> String {
        let mut text = String::from("| |");
        for verdict in Verdict::ALL {
            let _ = write!(text, " {} |", verdict.words());
        }
        text.push_str(" rows | missed |\n|---|");
        text.push_str(&"---|".repeat(Verdict::ALL.len() + 2));
        text.push('\n');
        for (at, kind) in KINDS.iter().enumerate() {
            let count = |verdict: &Verdict| self.rows.get(&(at, *verdict)).copied().unwrap_or_default();
            let _ = write!(text, "| {kind} |");
            for verdict in &Verdict::ALL {
                let _ = write!(text, " {} |", count(verdict));
            }
            let rows: usize = Verdict::ALL.iter().map(count).sum();
            let _ = writeln!(text, " {rows} | {} |", self.missed.get(&at).copied().unwrap_or_default());
        }
        text
    }
}

fn section(page: &mut String, figure: &Figure, about: &str, tally: &mut Tally) -> Result<(), String> {
    let mut judged = Vec::new();
    for row in rows(&figure.name)? {
        let verdict = verdict(figure, &row)?;
        tally.add(&row, verdict)?;
        judged.push((verdict, row));
    }
    check(figure, &judged)?;
    // The order of the figure is kept among equals.
    judged.sort_by_key(|(verdict, row)| (*verdict > Verdict::NotReproduced && !is_missed(row), *verdict));
    let _ = writeln!(page, "\n### `{}`", figure.name);
    let _ = writeln!(page, "{}: {about}.", figure.of);
    if figure.says != "-" {
        let _ = writeln!(page, "The paper: {}.", figure.says);
    }
    if !figure.note.is_empty() {
        let _ = writeln!(page, "\n{}.", figure.note);
    }
    if !figure.not_reproduced.is_empty() {
        let _ = writeln!(page, "\nNot reproduced: {}.", figure.not_reproduced);
    }
    if judged.is_empty() {
        return Ok(());
    }
    page.push_str("\n| case | ours | peer | the peer is | unit | ratio | expected | kind | verdict |\n");
    page.push_str("|---|---|---|---|---|---|---|---|---|\n");
    for (verdict, row) in &judged {
        let Row { case, ours, peer, peer_name, unit, ratio, kind, .. } = row;
        let sign = if row.better == "lower" { "≤" } else { "≥" };
        let expected = row.expected.map_or_else(|| "-".to_owned(), |expected| format!("{sign} {}x", rounded(expected)));
        let missed = if is_missed(row) { ", missed" } else { "" };
        let _ = writeln!(
            page,
            "| {case} | {} | {} | {peer_name} | {unit} | {ratio:.2}x | {expected} | {kind} | {}{missed} |",
            number(*ours),
            number(*peer),
            verdict.words()
        );
    }
    Ok(())
}

/// Checks that all text of a figure is about its rows.
fn check(figure: &Figure, judged: &[(Verdict, Row)]) -> Result<(), String> {
    let name = &figure.name;
    if judged.is_empty() && figure.note.is_empty() {
        return Err(format!("{name}: neither rows in bench/{name}.json nor a note why there are none"));
    }
    for line in &figure.published {
        let is_there = |(_, row): &(Verdict, Row)| line.starts_with(&format!("{} | {} | ", row.case, row.peer_name));
        if !judged.iter().any(is_there) {
            return Err(format!("docs/figures.toml: {name}: bench/{name}.json has no row {line:?}"));
        }
    }
    if let Some(peer) = figure.bounds.iter().find(|peer| !judged.iter().any(|(_, row)| row.peer_name == **peer)) {
        return Err(format!("docs/figures.toml: {name}: bench/{name}.json has no peer {peer:?}"));
    }
    if let Some(part) = figure.context.iter().find(|part| !judged.iter().any(|(_, row)| row.case.contains(*part))) {
        return Err(format!("docs/figures.toml: {name}: bench/{name}.json has no case with {part:?}"));
    }
    let differs = judged.iter().any(|(verdict, _)| *verdict == Verdict::NotReproduced);
    match (differs, figure.not_reproduced.is_empty()) {
        (true, true) => Err(format!("docs/figures.toml: {name}: a row is not as in the paper, and nothing says why")),
        (false, false) => {
            Err(format!("docs/figures.toml: {name}: all rows are as in the paper, but a reason is given"))
        }
        _ => Ok(()),
    }
}

/// Ratio with at most three digits behind the point.
fn rounded(ratio: f64) -> f64 {
    (ratio * 1000.0).round() / 1000.0
}

/// Value with three or four significant digits, as in the tables of `make bench`.
fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 1e9 => format!("{:.2} G", value / 1e9),
        v if v >= 1e6 => format!("{:.2} M", value / 1e6),
        v if v >= 1e4 => format!("{:.1} k", value / 1e3),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
