//! Rows of a figure, as a Markdown table and as JSON.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use super::{Figure, Kind, Metric};

/// Direction of improvement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Better {
    /// Lower values, as for times and costs.
    Lower,
    /// Higher values, as for rates.
    Higher,
}

/// Comparison of ours with one peer.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    figure: &'static str,
    pub(super) case: String,
    /// Median of our turns.
    pub(super) ours: f64,
    /// Median of the peer's turns.
    pub(super) peer: f64,
    pub(super) peer_name: String,
    pub(super) unit: &'static str,
    pub(super) better: Better,
    /// Ratio of ours to the peer's.
    pub(super) ratio: f64,
    /// Expected ratio, if any.
    pub(super) expected: Option<f64>,
    /// Limit of the machine in `unit`, if known.
    limit: Option<f64>,
    kind: Kind,
    reps: usize,
    /// Least and greatest value of our turns.
    min: f64,
    max: f64,
    /// Least and greatest value of the peer's turns.
    peer_min: f64,
    peer_max: f64,
}

impl Row {
    pub(super) fn new(figure: &Figure, metric: Metric, ours: &[f64], peer: &[f64]) -> Self {
        let Metric { case, peer_name, unit, better, expected, limit, limit_of_peer, kind } = metric;
        let (ours_median, peer_median) = (median(ours), median(peer));
        Self {
            figure: figure.name,
            case,
            ours: ours_median,
            peer: peer_median,
            peer_name,
            unit,
            better,
            ratio: ours_median / peer_median,
            expected,
            limit: limit.or(limit_of_peer.map(|ratio| ratio * peer_median)),
            kind: kind.unwrap_or(figure.kind),
            reps: ours.len(),
            min: ours.iter().copied().fold(f64::INFINITY, f64::min),
            max: ours.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            peer_min: peer.iter().copied().fold(f64::INFINITY, f64::min),
            peer_max: peer.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }

    /// Work and ratio, for messages.
    pub(crate) fn name_and_ratio(&self) -> String {
        format!("{} {:.2}x", self.case, self.ratio)
    }

    /// True if the ratio is at least as good as expected; `None` without an expected ratio.
    pub(crate) fn reached(&self) -> Option<bool> {
        self.expected.map(|expected| match self.better {
            Better::Lower => self.ratio <= expected,
            Better::Higher => self.ratio >= expected,
        })
    }
}

/// Median of a non-empty list.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) { (sorted[middle - 1] + sorted[middle]) / 2.0 } else { sorted[middle] }
}

/// Table in Markdown.
pub(crate) fn table(rows: &[Row]) -> String {
    let header = ["case", "ours (min–max)", "peer (min–max)", "peer is", "unit", "ratio", "expected", "of the limit"];
    let mut lines = vec![header.map(str::to_owned)];
    for row in rows {
        let sign = if row.better == Better::Lower { "≤" } else { "≥" };
        let verdict = match row.reached() {
            Some(false) => ", missed",
            _ => "",
        };
        let of_limit = row.limit.map(|limit| match row.better {
            Better::Lower => limit / row.ours,
            Better::Higher => row.ours / limit,
        });
        lines.push([
            row.case.clone(),
            format!("{} ({}–{})", number(row.ours), number(row.min), number(row.max)),
            format!("{} ({}–{})", number(row.peer), number(row.peer_min), number(row.peer_max)),
            row.peer_name.clone(),
            row.unit.to_owned(),
            format!("{:.2}x", row.ratio),
            row.expected.map_or_else(|| "-".to_owned(), |expected| format!("{sign} {}x{verdict}", short(expected))),
            of_limit.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0)),
        ]);
    }
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let mut text = String::new();
    for (i, line) in lines.iter().enumerate() {
        let cells: Vec<String> = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text += &format!("| {} |\n", cells.join(" | "));
        if i == 0 {
            let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
            text += &format!("| {} |\n", rule.join(" | "));
        }
    }
    text
}

/// Ratio rounded to at most three digits.
fn short(ratio: f64) -> f64 {
    (ratio * 1000.0).round() / 1000.0
}

/// Value with three or four significant digits.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 1e9 => format!("{:.2} G", value / 1e9),
        v if v >= 1e6 => format!("{:.2} M", value / 1e6),
        v if v >= 1e4 => format!("{:.1} k", value / 1e3),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Writes rows as JSON, one a line, so that a new run of a recorded figure shows as a difference of lines.
pub(crate) fn write_rows(path: &Path, rows: &[Row]) -> Result<()> {
    let lines = rows.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
    std::fs::write(path, format!("[\n{}\n]\n", lines.join(",\n")))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Writes lines or plots as JSON.
pub(super) fn write_json(path: &Path, what: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(what)?;
    std::fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_contains_medians_spread_and_verdict() {
        let name = "f";
        let figure = Figure { name, about: "", kind: Kind::Measured, run: |_| Ok(()) };
        let metric = Metric::new("c", "p", "ns", Better::Lower).expect(0.6);
        let row = Row::new(&figure, metric, &[5.0, 1.0, 3.0], &[10.0, 20.0, 30.0, 0.0]);
        assert_eq!((row.ours, row.peer, row.ratio), (3.0, 15.0, 0.2));
        assert_eq!((row.min, row.max, row.reps, row.reached()), (1.0, 5.0, 3, Some(true)));
        let metric = Metric::new("c", "p", "frames/s", Better::Higher).expect(0.6).kind(Kind::Counted);
        let row = Row::new(&figure, metric, &[5.0], &[10.0]);
        assert_eq!((row.reached(), row.kind), (Some(false), Kind::Counted));
    }
}
