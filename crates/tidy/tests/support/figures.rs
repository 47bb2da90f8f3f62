//! Figures of the benchmark beside those of the papers: rows from `bench/*.json`, text from `docs/figures.toml`.
//!
//! One rule, [`verdict`], judges every row. No number of ours is written by hand.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::tree::{read, tracked};

/// Relative difference to a peer below which two results are on par.
const PAR: f64 = 0.05;
/// Relative difference to the paper's ratio below which a modelled row is as the paper has it.
const BAND: f64 = 0.15;

/// Content of `docs/figures.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FiguresText {
    /// Figures in the order of the page.
    #[serde(rename = "figure")]
    pub figures: Vec<Figure>,
}

/// Text beside one figure.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Name of the figure in `make bench`.
    pub name: String,
    /// Figure or table of the paper, or `own`.
    pub of: String,
    /// Result of the paper, in our words.
    pub says: String,
    /// The paper's ratio of a row: `case | peer | ratio`, or `case | peer | least | greatest`.
    #[serde(default)]
    pub published: Vec<String>,
    /// Reason why modelled rows lie outside of the paper's range.
    #[serde(default)]
    pub not_reproduced: String,
    /// Peers that are an ideal, a limit or a budget.
    #[serde(default)]
    pub bounds: Vec<String>,
    /// Parts of cases that are not about Pathcall's own result.
    #[serde(default)]
    pub context: Vec<String>,
    /// Remark on the figure.
    #[serde(default)]
    pub note: String,
}

/// Row of the benchmark, as `make bench RECORD=1` writes it.
#[derive(Debug, Clone, Deserialize)]
pub struct Row {
    /// Work that both sides do.
    pub case: String,
    /// Median of ours.
    pub ours: f64,
    /// Median of the peer.
    pub peer: f64,
    /// Peer.
    pub peer_name: String,
    /// Unit of both values.
    pub unit: String,
    /// `lower` or `higher`.
    pub better: String,
    /// Ours divided by the peer's.
    pub ratio: f64,
    /// Ratio that was expected.
    pub expected: Option<f64>,
    /// `measured`, `counted`, `simulated` or `modelled`.
    pub kind: String,
}

/// Verdict on a row, in the order of the page: what is lost or missed comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// Worse than the peer.
    Lost,
    /// Modelled, and not as in the paper.
    NotReproduced,
    /// Within 5 % of the peer.
    OnPar,
    /// Better than the peer.
    Won,
    /// Modelled, and as in the paper.
    AsThePaper,
    /// Modelled, and the paper has no number.
    Model,
    /// Beside an ideal, a limit or a budget.
    Bound,
    /// Not about Pathcall's own result.
    Context,
}

impl Verdict {
    /// All verdicts, in the order of the page.
    pub const ALL: [Self; 8] = [
        Self::Lost,
        Self::NotReproduced,
        Self::OnPar,
        Self::Won,
        Self::AsThePaper,
        Self::Model,
        Self::Bound,
        Self::Context,
    ];

    /// The verdict in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::NotReproduced => "not reproduced",
            Self::OnPar => "on par",
            Self::Won => "won",
            Self::AsThePaper => "as the paper",
            Self::Model => "a model",
            Self::Bound => "a bound",
            Self::Context => "context",
        }
    }
}

/// Verdict on a row of a figure. A modelled row is never won or lost: its costs were fitted to the paper, so it can only
/// agree with the paper, within [`BAND`].
///
/// # Errors
/// Returns an error for a published ratio that is not written as `case | peer | ratio`.
pub fn verdict(figure: &Figure, row: &Row) -> Result<Verdict, String> {
    if figure.context.iter().any(|part| row.case.contains(part)) {
        return Ok(Verdict::Context);
    }
    if row.kind == "modelled" {
        let Some((least, greatest)) = published(figure, row)? else { return Ok(Verdict::Model) };
        let within = row.ratio >= least * (1.0 - BAND) && row.ratio <= greatest * (1.0 + BAND);
        return Ok(if within { Verdict::AsThePaper } else { Verdict::NotReproduced });
    }
    if figure.bounds.contains(&row.peer_name) {
        return Ok(Verdict::Bound);
    }
    let gain = if row.better == "higher" { row.ratio } else { 1.0 / row.ratio };
    Ok(match gain {
        gain if gain >= 1.0 + PAR => Verdict::Won,
        gain if gain > 1.0 - PAR => Verdict::OnPar,
        _ => Verdict::Lost,
    })
}

/// The paper's range of a row's ratio.
fn published(figure: &Figure, row: &Row) -> Result<Option<(f64, f64)>, String> {
    for line in &figure.published {
        let wrong = || format!("docs/figures.toml: {}: {line:?}: expected case | peer | ratio", figure.name);
        let parts: Vec<&str> = line.split(" | ").collect();
        let [case, peer, ref range @ ..] = parts[..] else { return Err(wrong()) };
        let range: Vec<f64> =
            range.iter().map(|number| number.parse()).collect::<Result<_, _>>().map_err(|_| wrong())?;
        let (Some(least), Some(greatest)) = (range.first(), range.last()) else { return Err(wrong()) };
        if (case, peer) == (row.case.as_str(), row.peer_name.as_str()) {
            return Ok(Some((*least, *greatest)));
        }
    }
    Ok(None)
}

/// Whether a row has less than was expected.
pub fn is_missed(row: &Row) -> bool {
    row.expected.is_some_and(|expected| match row.better.as_str() {
        "higher" => row.ratio < expected,
        _ => row.ratio > expected,
    })
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

/// Parses the recorded rows of a figure; none if it was not made yet.
///
/// # Errors
/// Returns an error for an invalid file.
pub fn rows(figure: &str) -> Result<Vec<Row>, String> {
    let file = format!("bench/{figure}.json");
    let Some(text) = read(&file) else { return Ok(Vec::new()) };
    serde_json::from_str(&text).map_err(|error| format!("{file}: {error}"))
}
