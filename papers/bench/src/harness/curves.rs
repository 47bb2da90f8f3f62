//! Line plots of a figure, over time or another quantity, as SVG and JSON.

use std::path::Path;

use pathcall_plot::{Axis, Chart, DrawError};
pub(crate) use pathcall_plot::{PlotLine, Points};
use serde::Serialize;

/// Lines over one axis.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Curves {
    /// Suffix of the file names, after the figure's name: `over-time`.
    pub(crate) name: &'static str,
    /// Description of the plot, in one line.
    pub(crate) about: String,
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    pub(crate) lines: Vec<PlotLine>,
}

/// Draws the lines to `path`.
pub(super) fn draw(path: &Path, figure: &str, curves: &Curves) -> Result<(), DrawError> {
    let Curves { about, x, y, lines, .. } = curves;
    Chart { title: figure, about, x: Axis::from_zero(x), y: Axis::from_zero(y), lines }.draw(path)
}
