//! Figures of the benchmark beside those of the papers: numbers from `docs/bench.md`, text from `docs/figures.toml`.
//!
//! No number of ours is written by hand: a row of `docs/figures.toml` names a row of `docs/bench.md`, which has the
//! result.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Deserialize;

use super::coverage::{Paper, State};
use super::tree::{read, tracked};

/// Relative difference below which two results are on par.
const PAR: f64 = 0.05;

/// Content of `docs/figures.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FiguresText {
    /// Figures in the order of the page.
    #[serde(rename = "figure")]
    pub figures: Vec<Figure>,
}

/// Description of one figure.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Name of the figure in `make bench`.
    pub name: String,
    /// Figure or table of the paper, or `own`.
    pub of: String,
    /// Result of the paper, in our words.
    pub says: String,
    /// Rows of `docs/bench.md`: `case | peer | lower` or `higher`; `| limit` if the peer is a theoretical bound.
    #[serde(default)]
    pub rows: Vec<String>,
    /// Remarks beside the numbers.
    #[serde(default)]
    pub note: String,
}

/// Result of a row of the benchmark.
#[derive(Debug, Clone)]
struct Measured {
    ours: String,
    theirs: String,
    unit: String,
    ratio: f64,
    expected: String,
}

/// Names of all figures with their descriptions, from the benchmark's sources.
pub fn of_the_bench() -> BTreeMap<String, String> {
    let mut figures = BTreeMap::new();
    for file in tracked().iter().filter(|file| file.starts_with("papers/bench/src/") && file.ends_with(".rs")) {
        let text = read(file).unwrap_or_default();
        for part in text.split("Figure {").skip(1) {
            let quoted = |field: &str| {
                let (before, rest) = part.split_once(field)?;
                (before.trim_matches([' ', '\n', ',']).len() < 120).then(|| rest.split('"').next().unwrap_or_default())
            };
            if let (Some(name), Some(about)) = (quoted("name: \""), quoted("about: \"")) {
                figures.insert(name.to_owned(), about.to_owned());
            }
        }
    }
    figures
}

/// Parses `docs/figures.toml`.
///
/// # Errors
/// Returns an error for a missing or invalid file.
pub fn figures_text() -> Result<FiguresText, String> {
    let file = "docs/figures.toml";
    let text = read(file).ok_or_else(|| format!("{file} is missing"))?;
    toml::from_str(&text).map_err(|error| format!("{file}: {error}"))
}

/// Generates the page.
///
/// # Errors
/// Returns an error for a missing or unknown figure, and for a row that `docs/bench.md` does not have exactly once.
pub fn page(figures_text: &FiguresText, papers: &[Paper]) -> Result<String, String> {
    let measured = measured();
    let mut known = of_the_bench();
    let (mut rows, mut tally) = (String::new(), BTreeMap::<&str, usize>::new());
    for figure in &figures_text.figures {
        known
            .remove(&figure.name)
            .ok_or(format!("docs/figures.toml: no figure {}, or it is there twice", figure.name))?;
        row(&mut rows, figure, &measured, &mut tally)?;
    }
    if let Some(name) = known.keys().next() {
        return Err(format!("docs/figures.toml says nothing of {name}"));
    }
    let count = |word: &str| tally.get(word).copied().unwrap_or_default();
    let mut page = String::from(TOP);
    let _ = write!(
        page,
        "\n{} figures; of {} comparisons here {} are won, {} on par, {} lost, and {} reach less than we expected.\n",
        figures_text.figures.len(),
        count("won") + count("on par") + count("lost"),
        count("won"),
        count("on par"),
        count("lost"),
        count("missed")
    );
    page.push_str("\n| figure | of | the paper has | ours, beside its peer | |\n|---|---|---|---|---|\n");
    page.push_str(&rows);
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

const TOP: &str = "# Every figure, beside the papers' words
<!-- Made of docs/figures.toml and docs/bench.md by `UPDATE=1 cargo test -p pathcall-tidy`: change those. -->

What `make bench FIGURE=name` makes, what the paper has there, and what we got: medians from [the tables](bench.md), which
also say how and where they were measured. *Won* and *lost* are beside the row's peer, *on par* within 5 %; what fell
short of what we expected says so, even where it is won. Where the peer is a bound (a bare link, a budget), the row only
says how much of it there is. The papers measured switches and cards of 100 Gbit/s; here it is two processors, or a simulator, so
only ratios can be compared.
";

fn row(
    page: &mut String,
    figure: &Figure,
    measured: &BTreeMap<[String; 3], Vec<Measured>>,
    tally: &mut BTreeMap<&'static str, usize>,
) -> Result<(), String> {
    let (mut ours, mut verdicts) = (Vec::new(), Vec::new());
    for row in &figure.rows {
        let parts: Vec<&str> = row.split(" | ").collect();
        let (case, peer, better, limit) = match parts[..] {
            [case, peer, better @ ("lower" | "higher")] => (case, peer, better, false),
            [case, peer, better @ ("lower" | "higher"), "limit"] => (case, peer, better, true),
            _ => return Err(format!("{}: {row:?}: expected case | peer | lower or higher", figure.name)),
        };
        let key = [figure.name.clone(), case.to_owned(), peer.to_owned()];
        let row = match measured.get(&key).map(Vec::as_slice) {
            Some([row]) => row,
            rows => {
                let found = rows.map_or(0, <[Measured]>::len);
                return Err(format!("docs/bench.md has {found} rows of {} with {case:?} beside {peer:?}", figure.name));
            }
        };
        let expected = if row.expected == "-" { String::new() } else { format!(" ({})", row.expected) };
        ours.push(
            format!(
                "{case}: {} beside {} {} of *{peer}*: **{:.2}x**{expected}",
                row.ours, row.theirs, row.unit, row.ratio
            )
            .replace("  ", " "),
        );
        let gain = if better == "higher" { row.ratio } else { 1.0 / row.ratio };
        let word = match gain {
            _ if limit => "a bound",
            gain if gain >= 1.0 + PAR => "won",
            gain if gain > 1.0 - PAR => "on par",
            _ => "lost",
        };
        *tally.entry(word).or_default() += 1;
        let missed = row.expected.contains("missed");
        *tally.entry("missed").or_default() += usize::from(missed);
        verdicts.push(format!("{word}{}", if missed { ", less than expected" } else { "" }));
    }
    if figure.rows.is_empty() {
        if figure.note.is_empty() {
            return Err(format!("{}: neither rows nor a note why there are none", figure.name));
        }
        verdicts.push("no numbers yet".to_owned());
    }
    if !figure.note.is_empty() {
        ours.push(format!("{}.", figure.note));
    }
    let _ = writeln!(
        page,
        "| `{}` | {} | {} | {} | {} |",
        figure.name,
        figure.of,
        figure.says,
        ours.join("<br>"),
        verdicts.join("<br>")
    );
    Ok(())
}

/// Rows of the tables of `docs/bench.md`, by figure, case and peer.
fn measured() -> BTreeMap<[String; 3], Vec<Measured>> {
    let mut rows: BTreeMap<[String; 3], Vec<Measured>> = BTreeMap::new();
    for line in read("docs/bench.md").unwrap_or_default().lines() {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [figure, case, ours, theirs, peer, unit, ratio, expected] = cells[..] else { continue };
        let Some(ratio) = ratio.trim_matches('*').strip_suffix('x').and_then(|ratio| ratio.parse().ok()) else {
            continue;
        };
        let [ours, theirs, unit, expected] = [ours, theirs, unit, expected].map(str::to_owned);
        let key = [figure.to_owned(), case.to_owned(), peer.to_owned()];
        rows.entry(key).or_default().push(Measured { ours, theirs, unit, ratio, expected });
    }
    rows
}
