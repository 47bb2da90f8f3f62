//! Line charts over one axis.

use std::error::Error;
use std::path::Path;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;
use serde::Serialize;

use crate::{COLORS, DrawError};

const SIZE: (u32, u32) = (900, 420);

/// Points, each with x and y.
pub type Points = Vec<(f64, f64)>;

/// Line of a chart.
#[derive(Debug, Clone, Serialize)]
pub struct PlotLine {
    /// Name of the line.
    pub name: String,
    /// Points, in the order of x.
    pub points: Points,
}

/// Axis of a chart.
#[derive(Debug, Clone, Copy)]
pub struct Axis<'a> {
    /// Name of the quantity, with its unit.
    pub name: &'a str,
    /// True: logarithmic. False: linear from 0.
    pub by_factors: bool,
}

/// Line chart.
#[derive(Debug, Clone, Copy)]
pub struct Chart<'a> {
    /// Title of the chart.
    pub title: &'a str,
    /// One-line description.
    pub about: &'a str,
    /// Horizontal axis.
    pub x: Axis<'a>,
    /// Vertical axis.
    pub y: Axis<'a>,
    /// Lines, each with its color.
    pub lines: &'a [PlotLine],
}

impl<'a> Axis<'a> {
    /// Linear axis that begins with 0.
    #[must_use]
    pub const fn from_zero(name: &'a str) -> Self {
        Self { name, by_factors: false }
    }

    /// Logarithmic axis; values of 0 or below are not drawn.
    #[must_use]
    pub const fn by_factors(name: &'a str) -> Self {
        Self { name, by_factors: true }
    }
}

impl Chart<'_> {
    /// Draws the chart to `path`.
    ///
    /// # Errors
    /// Returns an error if the file can't be written.
    pub fn draw(&self, path: &Path) -> Result<(), DrawError> {
        self.draw_to(path).map_err(DrawError::at(path))
    }

    fn draw_to(&self, path: &Path) -> Result<(), Box<dyn Error + Send + Sync>> {
        let area = SVGBackend::new(path, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        area.draw_text(self.title, &("sans-serif", 18).into_text_style(&area).color(&BLACK), (16, 12))?;
        area.draw_text(self.about, &("sans-serif", 12).into_text_style(&area).color(&BLACK), (16, 36))?;
        let place = area.margin(56, 8, 8, 24);
        let ([left, right], [low, high]) = (self.range(|point| point.0), self.range(|point| point.1));
        let head = if self.y.by_factors { 1.0 } else { 1.2 };
        match (self.x.by_factors, self.y.by_factors) {
            (false, false) => self.plot(&place, 0.0..right, 0.0..high * head)?,
            (false, true) => self.plot(&place, 0.0..right, (low..high * head).log_scale())?,
            (true, false) => self.plot(&place, (left..right).log_scale(), 0.0..high * head)?,
            (true, true) => self.plot(&place, (left..right).log_scale(), (low..high * head).log_scale())?,
        }
        area.present()?;
        Ok(())
    }

    /// Least and greatest positive value.
    fn range(&self, of: fn(&(f64, f64)) -> f64) -> [f64; 2] {
        let all = self.lines.iter().flat_map(|line| &line.points).map(of).filter(|at| *at > 0.0 && at.is_finite());
        let [least, most] = all.fold([f64::INFINITY, 0.0], |[least, most], at| [at.min(least), at.max(most)]);
        if most > 0.0 { [least.min(most / 2.0), most] } else { [0.5, 1.0] }
    }

    fn plot<X, Y>(
        &self,
        area: &DrawingArea<SVGBackend<'_>, Shift>,
        x: X,
        y: Y,
    ) -> Result<(), Box<dyn Error + Send + Sync>>
    where
        X: AsRangedCoord<Value = f64, CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>>,
        Y: AsRangedCoord<Value = f64, CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>>,
    {
        let mut chart = ChartBuilder::on(area).x_label_area_size(40).y_label_area_size(64).build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .x_desc(self.x.name)
            .y_desc(self.y.name)
            .label_style(("sans-serif", 13))
            .x_label_formatter(&number)
            .y_label_formatter(&number)
            .draw()?;
        let has_place = |(x, y): &(f64, f64)| {
            x.is_finite() && y.is_finite() && (*x > 0.0 || !self.x.by_factors) && (*y > 0.0 || !self.y.by_factors)
        };
        for (line, color) in self.lines.iter().zip(COLORS.iter().cycle()) {
            let style = color.stroke_width(2);
            let points = line.points.iter().copied().filter(has_place);
            let drawn = chart.draw_series(LineSeries::new(points, style))?;
            drawn.label(&line.name).legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
        }
        let mut labels = chart.configure_series_labels();
        labels.position(SeriesLabelPosition::UpperRight).label_font(("sans-serif", 13));
        labels.background_style(WHITE.mix(0.8)).draw()?;
        Ok(())
    }
}

/// Formats a number without trailing zeros: 10000, 2.5, 0.01.
fn number(value: &f64) -> String {
    format!("{}", (value * 1e6).round() / 1e6)
}
