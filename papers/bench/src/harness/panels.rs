//! Panels of plots, as in papers, with a quotation of the paper below: as SVG and JSON.

use std::error::Error;
use std::path::Path;

use anyhow::{Result as Outcome, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;
use serde::Serialize;

use super::{PlotLine, report};

/// Size of a panel in pixels; two panels per row.
const PANEL: (u32, u32) = (520, 340);
const ACROSS: usize = 2;
/// Height above the panels, and height of a line below them.
const HEAD: u32 = 40;
const WORDS_LINE: u32 = 18;
/// Maximum letters per line of the quotation.
const LETTERS: usize = 150;
const COLORS: [RGBColor; 8] = [
    RGBColor(90, 90, 90),
    RGBColor(190, 90, 50),
    RGBColor(46, 125, 80),
    RGBColor(70, 110, 170),
    RGBColor(130, 90, 150),
    RGBColor(200, 160, 40),
    RGBColor(60, 160, 170),
    RGBColor(170, 70, 110),
];

/// Panels of a figure.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Panels {
    /// Suffix of the file names, after the figure's name: `latency`.
    pub(crate) name: &'static str,
    /// Quotation of the paper about its own figure.
    pub(crate) words: &'static str,
    pub(crate) panels: Vec<Panel>,
}

/// Single plot.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    /// True if the y axis is logarithmic.
    pub(crate) logarithmic: bool,
    pub(crate) lines: Vec<PlotLine>,
}

/// Writes `<figure>-<name>.json` and `.svg`.
pub(crate) fn write_panels(numbers: &Path, pictures: &Path, figure: &str, panels: &Panels) -> Outcome<()> {
    let name = format!("{figure}-{}", panels.name);
    report::write_json(&numbers.join(&name).with_extension("json"), panels)?;
    let path = pictures.join(&name).with_extension("svg");
    draw(&path, figure, panels).map_err(|error| anyhow!("cannot draw {}: {error}", path.display()))
}

fn draw(path: &Path, figure: &str, panels: &Panels) -> Result<(), Box<dyn Error>> {
    let words = lines_of(panels.words);
    let columns = panels.panels.len().clamp(1, ACROSS);
    let rows = panels.panels.len().div_ceil(columns);
    let below = WORDS_LINE * (words.len() as u32 + 1);
    // The quotation is as wide as two panels.
    let size = (PANEL.0 * ACROSS as u32, HEAD + PANEL.1 * rows as u32 + below);
    let area = SVGBackend::new(path, size).into_drawing_area();
    area.fill(&WHITE)?;
    let text = |size: u32| ("sans-serif", size).into_text_style(&area).color(&BLACK);
    area.draw_text(figure, &text(18), (16, 12))?;
    let (above, under) = area.split_vertically(size.1 - below);
    let places = above.margin(HEAD, 0, 8, 8).split_evenly((rows, columns));
    for (panel, place) in panels.panels.iter().zip(&places) {
        let place = place.titled(&panel.title, ("sans-serif", 14))?;
        if panel.logarithmic {
            let [least, most] = range(panel);
            let from = 10_f64.powf(least.log10().floor());
            plot(&place, panel, (from..most * 1.3).log_scale())?;
        } else {
            plot(&place, panel, 0.0..range(panel)[1] * 1.2)?;
        }
    }
    for (i, line) in words.iter().enumerate() {
        under.draw_text(line, &text(13), (16, (WORDS_LINE * i as u32 + 4) as i32))?;
    }
    area.present()?;
    Ok(())
}

/// Least and greatest y of a panel.
fn range(panel: &Panel) -> [f64; 2] {
    let all = panel.lines.iter().flat_map(|line| &line.points).map(|point| point.1);
    let shown = all.filter(|y| *y > 0.0 && y.is_finite());
    let [least, most] = shown.fold([f64::INFINITY, 0.0], |[least, most], y| [y.min(least), y.max(most)]);
    if most > 0.0 { [least, most] } else { [1.0, 10.0] }
}

fn plot<Y>(area: &DrawingArea<SVGBackend<'_>, Shift>, panel: &Panel, y: Y) -> Result<(), Box<dyn Error>>
where
    Y: AsRangedCoord<Value = f64, CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>>,
{
    let width = panel.lines.iter().flat_map(|line| &line.points).map(|point| point.0).fold(f64::MIN_POSITIVE, f64::max);
    let mut chart = ChartBuilder::on(area)
        .margin(4)
        .x_label_area_size(36)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..width * 1.02, y)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc(panel.x)
        .y_desc(panel.y)
        .label_style(("sans-serif", 12))
        .draw()?;
    for (line, color) in panel.lines.iter().zip(COLORS.iter().cycle()) {
        let style = color.stroke_width(2);
        // Zero and infinity have no position on a logarithmic axis.
        let shown = |(_, y): &(f64, f64)| y.is_finite() && (*y > 0.0 || !panel.logarithmic);
        let points = line.points.iter().copied().filter(shown);
        let drawn = chart.draw_series(LineSeries::new(points, style).point_size(2))?;
        drawn.label(&line.name).legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], style));
    }
    let mut labels = chart.configure_series_labels();
    labels.position(SeriesLabelPosition::UpperLeft).label_font(("sans-serif", 12));
    Ok(labels.background_style(WHITE.mix(0.8)).draw()?)
}

/// Wraps words into lines.
fn lines_of(words: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in words.split_whitespace() {
        let line = lines.last_mut().expect("never empty");
        if !line.is_empty() && line.len() + word.len() >= LETTERS {
            lines.push(word.to_owned());
            continue;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_wrapped_without_loss() {
        let words = "word ".repeat(100);
        let lines = lines_of(&words);
        assert!(lines.len() > 2 && lines.iter().all(|line| line.len() < LETTERS), "{lines:?}");
        assert_eq!(lines.join(" "), words.trim());
    }

    #[test]
    fn panels_are_drawn_for_all_values() {
        let line = |points: &[(f64, f64)]| PlotLine { name: "line".to_owned(), points: points.to_vec() };
        let panel = |logarithmic, points: &[(f64, f64)]| Panel {
            title: "panel".to_owned(),
            x: "x",
            y: "y",
            logarithmic,
            lines: vec![line(points)],
        };
        let panels = vec![
            panel(true, &[(0.1, 25.0), (0.9, 2500.0)]),
            panel(true, &[]),
            panel(true, &[(0.5, 0.0), (0.6, f64::INFINITY)]),
            panel(false, &[(0.0, 0.0)]),
        ];
        let directory = std::env::temp_dir().join(format!("pathcall-panels-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let panels = Panels { name: "all", words: "as the paper says", panels };
        let written = write_panels(&directory, &directory, "figure", &panels);
        let svg = std::fs::read_to_string(directory.join("figure-all.svg"));
        std::fs::remove_dir_all(&directory).expect("removed");
        written.expect("drawn");
        let svg = svg.expect("a picture");
        assert!(svg.contains("as the paper says") && svg.matches("panel").count() >= 4, "{svg}");
    }
}
