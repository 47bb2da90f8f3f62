//! What a figure shows besides its rows: lines over time, or over whatever else, as an SVG and as JSON.

use std::path::Path;

use pathcall_plot::{Axis, Chart, DrawError};
pub(crate) use pathcall_plot::{Line, Points};
use serde::Serialize;

/// Lines over one axis.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Curves {
    /// Goes into the names of files, after the figure's: `over-time`.
    pub(crate) name: &'static str,
    /// What is seen, in a line.
    pub(crate) about: String,
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    pub(crate) lines: Vec<Line>,
}

/// Draws them to `path`.
pub(super) fn draw(path: &Path, figure: &str, curves: &Curves) -> Result<(), DrawError> {
    let Curves { about, x, y, lines, .. } = curves;
    Chart { title: figure, about, x: Axis::from_zero(x), y: Axis::from_zero(y), lines }.draw(path)
}
