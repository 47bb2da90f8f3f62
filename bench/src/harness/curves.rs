//! What a figure shows besides its rows: lines over time, or over whatever else, as an SVG and as JSON.

use std::error::Error;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use serde::Serialize;

const SIZE: (u32, u32) = (900, 420);
const COLORS: [RGBColor; 4] =
    [RGBColor(46, 125, 80), RGBColor(70, 110, 170), RGBColor(190, 90, 50), RGBColor(130, 90, 150)];

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

/// One of them.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Points,
}

/// Each x and y.
pub(crate) type Points = Vec<(f64, f64)>;

/// Draws them to `path`.
pub(super) fn draw(path: &Path, figure: &str, curves: &Curves) -> Result<(), Box<dyn Error>> {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    area.draw_text(figure, &("sans-serif", 18).into_text_style(&area).color(&BLACK), (16, 12))?;
    area.draw_text(&curves.about, &("sans-serif", 12).into_text_style(&area).color(&BLACK), (16, 36))?;
    plot(&area.margin(56, 8, 8, 24), curves)?;
    area.present()?;
    Ok(())
}

fn plot(area: &DrawingArea<SVGBackend<'_>, Shift>, curves: &Curves) -> Result<(), Box<dyn Error>> {
    let points = || curves.lines.iter().flat_map(|line| &line.points);
    let greatest = |of: fn(&(f64, f64)) -> f64| points().map(of).fold(f64::MIN_POSITIVE, f64::max);
    let (width, height) = (greatest(|point| point.0), greatest(|point| point.1) * 1.2);
    let mut chart = ChartBuilder::on(area)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..width, 0.0..height)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc(curves.x)
        .y_desc(curves.y)
        .label_style(("sans-serif", 13))
        .draw()?;
    for (line, color) in curves.lines.iter().zip(COLORS.iter().cycle()) {
        let style = color.stroke_width(2);
        let drawn = chart.draw_series(LineSeries::new(line.points.iter().copied(), style))?;
        drawn.label(&line.name).legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    let labels =
        chart.configure_series_labels().position(SeriesLabelPosition::UpperRight).label_font(("sans-serif", 13)).draw();
    Ok(labels?)
}
