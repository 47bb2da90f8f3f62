//! A figure as an SVG: one bar a row, the ratio of ours to the peer's, with what is expected marked.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

use super::Row;

const WIDTH: u32 = 900;
const ROW_HEIGHT: u32 = 44;
const MARGIN: u32 = 90;
/// Left of the bars, for their names.
const NAMES: i32 = 380;
const GOOD: RGBColor = RGBColor(46, 125, 80);
const NEUTRAL: RGBColor = RGBColor(70, 110, 170);
const MISSED: RGBColor = RGBColor(190, 90, 50);

/// Draws the rows to `path`.
pub(super) fn draw(path: &Path, title: &str, rows: &[Row]) -> Result<(), Box<dyn Error>> {
    let height = MARGIN + ROW_HEIGHT * u32::try_from(rows.len())?;
    let area = SVGBackend::new(path, (WIDTH, height)).into_drawing_area();
    area.fill(&WHITE)?;
    area.draw_text(title, &("sans-serif", 18).into_text_style(&area).color(&BLACK), (16, 12))?;
    let legend = "ratio of ours to the peer's; thin line: 1, the peer; short thick line: expected";
    area.draw_text(legend, &("sans-serif", 12).into_text_style(&area).color(&BLACK), (16, 36))?;

    let greatest = rows.iter().flat_map(|row| [row.ratio, row.expected.unwrap_or(1.0)]).fold(1.0, f64::max);
    let scale = f64::from(WIDTH as i32 - NAMES - 90) / greatest;
    let x = |ratio: f64| NAMES + (ratio * scale) as i32;
    let small = ("sans-serif", 13).into_text_style(&area);
    let mut top = 64;
    for row in rows {
        let color = match row.reached() {
            Some(true) => GOOD,
            Some(false) => MISSED,
            None => NEUTRAL,
        };
        area.draw_text(&row.case, &small, (16, top + 2))?;
        area.draw_text(&format!("beside {}", row.peer_name), &small, (16, top + 17))?;
        area.draw(&Rectangle::new([(NAMES, top + 4), (x(row.ratio), top + 30)], color.filled()))?;
        area.draw_text(&format!("{:.2}x", row.ratio), &small, (x(row.ratio) + 6, top + 10))?;
        if let Some(expected) = row.expected {
            area.draw(&PathElement::new([(x(expected), top), (x(expected), top + 34)], BLACK.stroke_width(3)))?;
        }
        top += ROW_HEIGHT as i32;
    }
    area.draw(&PathElement::new([(x(1.0), 60), (x(1.0), top)], BLACK.stroke_width(1)))?;
    area.present()?;
    Ok(())
}
