//! Pictures of what was measured, as SVG files: lines over an axis, and bars that compare ways to do the same.
//!
//! The bench draws its figures with it, `pathcall demo` what a run came to, and applications their latencies.
//! [`lines`](Chart::draw) are one picture, [`bars`](Bars::draw) another; neither knows what it shows.

mod bars;
mod lines;

use std::fmt;
use std::path::{Path, PathBuf};

use plotters::prelude::*;

pub use bars::{Bars, Group};
pub use lines::{Axis, Chart, Line, Points};

/// Of lines and bars, in their order.
const COLORS: [RGBColor; 4] =
    [RGBColor(46, 125, 80), RGBColor(70, 110, 170), RGBColor(190, 90, 50), RGBColor(130, 90, 150)];

/// Why a picture is not there.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw {}: {said}", path.display())]
pub struct DrawError {
    /// Where it should be.
    pub path: PathBuf,
    /// What the file, or the library that draws, says.
    pub said: String,
}

impl DrawError {
    fn at<E: fmt::Display>(path: &Path) -> impl FnOnce(E) -> Self {
        |error| Self { path: path.to_owned(), said: error.to_string() }
    }
}
