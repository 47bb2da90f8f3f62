//! Bar charts that compare alternatives in groups.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

use crate::{COLORS, DrawError};

const WIDTH: u32 = 900;
const TOP: i32 = 64;
const BAR: i32 = 18;
/// Space between two groups.
const GAP: i32 = 14;
/// X positions: of the alternatives' names, of the bars' left ends, and of the longest bar's right end.
const WAYS: i32 = 150;
const LEFT: i32 = 270;
const RIGHT: i32 = 760;

/// Bar chart.
#[derive(Debug, Clone, Copy)]
pub struct Bars<'a> {
    /// Title of the chart.
    pub title: &'a str,
    /// One-line description; in each group, the longest bar has the same length.
    pub about: &'a str,
    /// Unit of the values.
    pub unit: &'a str,
    /// Groups, from top to bottom.
    pub groups: &'a [BarGroup],
}

/// Group of bars that are compared.
#[derive(Debug, Clone)]
pub struct BarGroup {
    /// Name of the group.
    pub name: String,
    /// Name and value of each alternative.
    pub bars: Vec<(String, f64)>,
}

impl Bars<'_> {
    /// Draws the chart to `path`.
    ///
    /// # Errors
    /// Returns an error if the file can't be written.
    pub fn draw(&self, path: &Path) -> Result<(), DrawError> {
        self.draw_to(path).map_err(DrawError::at(path))
    }

    fn draw_to(&self, path: &Path) -> Result<(), Box<dyn Error + Send + Sync>> {
        let bars = self.groups.iter().map(|group| group.bars.len() as i32);
        let height = TOP + bars.map(|bars| bars * BAR + GAP).sum::<i32>();
        let area = SVGBackend::new(path, (WIDTH, u32::try_from(height)?)).into_drawing_area();
        area.fill(&WHITE)?;
        let text = |size: u32| ("sans-serif", size).into_text_style(&area).color(&BLACK);
        area.draw_text(self.title, &text(18), (16, 12))?;
        area.draw_text(self.about, &text(12), (16, 36))?;
        let mut top = TOP;
        for group in self.groups {
            area.draw_text(&group.name, &text(13), (16, top + 2))?;
            let longest = group.bars.iter().map(|bar| bar.1).filter(|at| at.is_finite()).fold(0.0, f64::max);
            for ((name, value), color) in group.bars.iter().zip(COLORS.iter().cycle()) {
                area.draw_text(name, &text(12), (WAYS, top + 2))?;
                let share = if longest > 0.0 { (value / longest).clamp(0.0, 1.0) } else { 0.0 };
                let end = LEFT + (f64::from(RIGHT - LEFT) * share) as i32;
                area.draw(&Rectangle::new([(LEFT, top + 2), (end, top + BAR - 2)], color.filled()))?;
                area.draw_text(&format!("{} {}", shown(*value), self.unit), &text(12), (end + 6, top + 2))?;
                top += BAR;
            }
            top += GAP;
        }
        area.present()?;
        Ok(())
    }
}

/// Formats a value with its significant digits.
fn shown(value: f64) -> String {
    if value.abs() < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}
