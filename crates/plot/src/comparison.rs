//! Comparison charts: our paths beside baselines, with the gain and the loss in words.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

use crate::{COLORS, DrawError};

const WIDTH: u32 = 960;
const TOP: i32 = 84;
const BAR: i32 = 26;
const BAR_GAP: i32 = 8;
/// Heights of a panel's heading, of its axis, and of a line of the note.
const HEADING: i32 = 32;
const AXIS: i32 = 44;
const NOTE_LINE: i32 = 22;
/// X positions: of all texts at the left, of the axis' begin, and of the longest bar's end.
const MARGIN: i32 = 28;
const LEFT: i32 = 210;
const RIGHT: i32 = 540;
/// Ticks of an axis, at most.
const TICKS_MAX: f64 = 6.0;
const GREY: RGBColor = RGBColor(150, 154, 160);
const TEXT: RGBColor = RGBColor(40, 44, 52);
const LOSS: RGBColor = RGBColor(190, 90, 50);
const VARIANT: RGBColor = RGBColor(150, 195, 170);

/// Comparison of our paths with baselines, each quantity on an axis of its own.
#[derive(Debug, Clone, Copy)]
pub struct Comparison<'a> {
    /// What is compared, and the result.
    pub title: &'a str,
    /// Workload, in one line.
    pub about: &'a str,
    /// Quantities, from top to bottom.
    pub panels: &'a [ComparisonPanel],
    /// Limits of the gain, one line each.
    pub notes: &'a [String],
}

/// One quantity of a comparison.
#[derive(Debug, Clone)]
pub struct ComparisonPanel {
    /// Quantity, and whether more or less of it is better.
    pub quantity: String,
    /// Unit of the values.
    pub unit: &'static str,
    /// Bars from top to bottom.
    pub bars: Vec<ComparisonBar>,
}

/// Bar of a comparison.
#[derive(Debug, Clone)]
pub struct ComparisonBar {
    /// Name of the path.
    pub name: String,
    /// Value in the panel's unit.
    pub value: f64,
    /// What the bar shows, which decides its color.
    pub role: BarRole,
    /// Gain or loss in words, written behind the value; empty for none.
    pub note: String,
}

/// Role of a bar in a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BarRole {
    /// Our path, which gains.
    Gain,
    /// Our path, which loses.
    Loss,
    /// Another path of ours.
    Variant,
    /// System that ours is compared with.
    Baseline,
}

impl Comparison<'_> {
    /// Draws the chart to `path`.
    ///
    /// # Errors
    /// Returns an error if the file can't be written.
    pub fn draw(&self, path: &Path) -> Result<(), DrawError> {
        self.draw_to(path).map_err(DrawError::at(path))
    }

    fn draw_to(&self, path: &Path) -> Result<(), Box<dyn Error + Send + Sync>> {
        let panel = |panel: &ComparisonPanel| HEADING + height_of(&panel.bars) + AXIS;
        let notes = self.notes.len() as i32 * NOTE_LINE;
        let height = TOP + self.panels.iter().map(panel).sum::<i32>() + notes + MARGIN / 2;
        let area = SVGBackend::new(path, (WIDTH, u32::try_from(height)?)).into_drawing_area();
        area.fill(&WHITE)?;
        let bold =
            |size: u32, color: RGBColor| FontDesc::from(("sans-serif", size)).style(FontStyle::Bold).color(&color);
        let text = |size: u32| FontDesc::from(("sans-serif", size)).color(&TEXT);
        area.draw_text(self.title, &bold(22, TEXT), (MARGIN, 18))?;
        area.draw_text(self.about, &text(15), (MARGIN, 50))?;
        let mut top = TOP;
        for ComparisonPanel { quantity, unit, bars } in self.panels {
            area.draw_text(&format!("{quantity}, {unit}"), &bold(16, TEXT), (MARGIN, top + 4))?;
            top += HEADING;
            let (step, last) = ticks(bars.iter().map(|bar| bar.value).filter(|at| at.is_finite()).fold(0.0, f64::max));
            let at = |value: f64| LEFT + (f64::from(RIGHT - LEFT) * (value / last).clamp(0.0, 1.0)) as i32;
            let bottom = top + height_of(bars);
            for tick in (0..).map(|n| f64::from(n) * step).take_while(|tick| *tick <= last * 1.001) {
                let x = at(tick);
                area.draw(&PathElement::new([(x, top - 4), (x, bottom)], RGBColor(225, 227, 230).stroke_width(1)))?;
                let label = number(tick, step);
                // A digit is about 8 wide.
                area.draw_text(&label, &text(13), (x - 4 * label.len() as i32, bottom + 6))?;
            }
            for bar in bars {
                let end = at(bar.value).max(LEFT + 2);
                let color = match bar.role {
                    BarRole::Gain => COLORS[0],
                    BarRole::Loss => LOSS,
                    BarRole::Variant => VARIANT,
                    BarRole::Baseline => GREY,
                };
                let label = if matches!(bar.role, BarRole::Gain | BarRole::Loss) { bold(15, TEXT) } else { text(15) };
                area.draw_text(&bar.name, &label, (MARGIN, top + 5))?;
                area.draw(&Rectangle::new([(LEFT, top), (end, top + BAR)], color.filled()))?;
                let value = format!("{} {unit}", shown(bar.value));
                area.draw_text(&value, &bold(15, TEXT), (end + 8, top + 5))?;
                let behind = end + 8 + 9 * value.chars().count() as i32 + 10;
                area.draw_text(&bar.note, &bold(15, color), (behind, top + 5))?;
                top += BAR + BAR_GAP;
            }
            area.draw(&PathElement::new([(LEFT, bottom - height_of(bars)), (LEFT, bottom)], TEXT.stroke_width(1)))?;
            top += AXIS;
        }
        for note in self.notes {
            area.draw_text(note, &text(15), (MARGIN, top))?;
            top += NOTE_LINE;
        }
        area.present()?;
        Ok(())
    }
}

fn height_of(bars: &[ComparisonBar]) -> i32 {
    bars.len() as i32 * (BAR + BAR_GAP)
}

/// Step and end of an axis that reaches this value: 1, 2 or 5 times a power of ten.
fn ticks(most: f64) -> (f64, f64) {
    let most = if most > 0.0 { most } else { 1.0 };
    let power = 10_f64.powf((most / TICKS_MAX).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|times| times * power).into_iter().find(|step| most / step <= TICKS_MAX);
    let step = step.unwrap_or(10.0 * power);
    (step, (most / step).ceil() * step)
}

/// Formats a tick with as many decimals as its step has.
fn number(tick: f64, step: f64) -> String {
    let decimals = (-step.log10().floor()).max(0.0) as usize;
    format!("{tick:.decimals$}")
}

/// Formats a value with two or three significant digits, and thousands apart.
fn shown(value: f64) -> String {
    match value.abs() {
        less if less < 10.0 => format!("{value:.2}"),
        less if less < 100.0 => format!("{value:.1}"),
        less if less < 10_000.0 => format!("{value:.0}"),
        _ => format!("{:.0},{:03.0}", (value / 1e3).trunc(), value.abs() % 1e3),
    }
}
