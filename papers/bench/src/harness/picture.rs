//! SVG picture of a figure: one bar per row, the ratio of ours to the peer's on a logarithmic scale, so that half and
//! twice have equal lengths; with the expected ratio, and both values.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

use super::Row;
use super::report::{Better, number};

const WIDTH: u32 = 1000;
const ROW_HEIGHT: i32 = 40;
const TOP: i32 = 84;
/// Left and right ends of the bars; names are on the left, values on the right.
const LEFT: i32 = 400;
const RIGHT: i32 = 800;
/// Ticks of the axis, and its minimum reach in either direction.
const TICKS: [f64; 13] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];
const REACH_LEAST: f64 = 2.0;
const GOOD: RGBColor = RGBColor(46, 125, 80);
const NEUTRAL: RGBColor = RGBColor(70, 110, 170);
const MISSED: RGBColor = RGBColor(190, 90, 50);
const FAINT: RGBColor = RGBColor(215, 215, 215);
const GREY: RGBColor = RGBColor(90, 90, 90);

/// Draws the rows to `path`.
pub(super) fn draw(path: &Path, title: &str, rows: &[Row]) -> Result<(), Box<dyn Error>> {
    let bottom = TOP + ROW_HEIGHT * i32::try_from(rows.len())?;
    let area = SVGBackend::new(path, (WIDTH, u32::try_from(bottom + 12)?)).into_drawing_area();
    area.fill(&WHITE)?;
    let text = |size: u32, color: &'static RGBColor| ("sans-serif", size).into_text_style(&area).color(color);
    area.draw_text(title, &text(18, &BLACK), (16, 12))?;
    let legend = "ours, as a multiple of the peer's; short thick line: expected; green: reached, red: missed";
    area.draw_text(legend, &text(12, &GREY), (16, 38))?;

    // The axis is symmetric, and covers every ratio and every expectation.
    let all = rows.iter().flat_map(|row| [Some(row.ratio), row.expected]).flatten();
    let reach = all.filter(|ratio| drawable(*ratio)).map(|ratio| ratio.max(1.0 / ratio)).fold(REACH_LEAST, f64::max);
    let middle = (LEFT + RIGHT) / 2;
    let half = f64::from(RIGHT - LEFT) / 2.0 / (reach * 1.1).ln();
    let x = |ratio: f64| match ratio {
        ratio if drawable(ratio) => middle + (ratio.ln() * half) as i32,
        ratio if ratio > 1.0 => RIGHT,
        _ => LEFT,
    };
    for tick in TICKS.into_iter().filter(|tick| (LEFT..=RIGHT).contains(&x(*tick))) {
        let style = if tick == 1.0 { BLACK.stroke_width(1) } else { FAINT.stroke_width(1) };
        area.draw(&PathElement::new([(x(tick), TOP - 6), (x(tick), bottom)], style))?;
        area.draw_text(&format!("{tick}x"), &text(11, &GREY), (x(tick) - 8, TOP - 20))?;
    }
    let mut top = TOP;
    for row in rows {
        let color = match row.reached() {
            Some(true) => GOOD,
            Some(false) => MISSED,
            None => NEUTRAL,
        };
        let better = if row.better == Better::Lower { "lower" } else { "higher" };
        area.draw_text(&row.case, &text(13, &BLACK), (16, top + 1))?;
        area.draw_text(&format!("beside {}; {better} is better", row.peer_name), &text(11, &GREY), (16, top + 17))?;
        let (from, to) = (x(row.ratio).min(middle), x(row.ratio).max(middle));
        area.draw(&Rectangle::new([(from, top + 5), (to, top + 27)], color.filled()))?;
        if let Some(expected) = row.expected {
            area.draw(&PathElement::new([(x(expected), top + 1), (x(expected), top + 31)], BLACK.stroke_width(3)))?;
        }
        area.draw_text(&format!("{:.2}x", row.ratio), &text(13, &BLACK), (RIGHT + 12, top + 1))?;
        let values = format!("{} / {} {}", number(row.ours), number(row.peer), row.unit);
        area.draw_text(&values, &text(11, &GREY), (RIGHT + 12, top + 17))?;
        top += ROW_HEIGHT;
    }
    area.present()?;
    Ok(())
}

/// True if a ratio has a position on the scale: zero and infinity have none.
fn drawable(ratio: f64) -> bool {
    ratio.is_finite() && ratio > 0.0
}
