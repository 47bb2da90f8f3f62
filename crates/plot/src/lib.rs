//! Charts of measurements as SVG files: lines over an axis, bars that compare alternatives, and comparisons with baselines.
//!
//! Used by the benchmark's figures, the results of `pathcall demo`, and latencies of applications.
//! [`Chart`], [`Bars`] and [`Comparison`] each draw one file.

mod bars;
mod comparison;
mod lines;

use std::fmt;
use std::path::{Path, PathBuf};

use plotters::prelude::*;

pub use bars::{BarGroup, Bars};
pub use comparison::{BarRole, Comparison, ComparisonBar, ComparisonPanel};
pub use lines::{Axis, Chart, PlotLine, Points};

/// Colors of lines and bars, in order.
const COLORS: [RGBColor; 4] =
    [RGBColor(46, 125, 80), RGBColor(70, 110, 170), RGBColor(190, 90, 50), RGBColor(130, 90, 150)];

/// Error: a chart could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw {}: {reason}", path.display())]
pub struct DrawError {
    /// Output file.
    pub path: PathBuf,
    /// Error of the file or of the drawing library.
    pub reason: String,
}

impl DrawError {
    fn at<E: fmt::Display>(path: &Path) -> impl FnOnce(E) -> Self {
        |error| Self { path: path.to_owned(), reason: error.to_string() }
    }
}
