//! Latencies as a picture: the share of calls that took longer, both by factors, so that tails can be seen.

use std::error::Error;
use std::path::Path;

use apps_load::Latencies;
use plotters::prelude::*;

const SIZE: (u32, u32) = (720, 420);
/// The rarest calls that are shown: one of a thousand.
const RAREST: f64 = 1e-3;
const COLORS: [RGBColor; 3] = [RGBColor(46, 125, 80), RGBColor(70, 110, 170), RGBColor(190, 90, 50)];

/// Draws a line for each of these to `path`.
///
/// # Errors
/// When it can't be written.
pub fn draw(path: &Path, title: &str, lines: &[(&str, &Latencies)]) -> Result<(), Box<dyn Error + Send + Sync>> {
    let all: Vec<_> = lines.iter().map(|(name, latencies)| (name, tail(latencies))).collect();
    let times = || all.iter().flat_map(|(_, points)| points).map(|(ms, _)| *ms).filter(|ms| *ms > 0.0);
    let (least, most) = times().fold((f64::INFINITY, 1e-3), |(least, most), ms| (ms.min(least), ms.max(most)));
    let least = least.min(most / 2.0);

    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let area = area.titled(title, ("sans-serif", 16))?;
    let mut chart = ChartBuilder::on(&area)
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d((least..most * 1.1).log_scale(), (RAREST..1.0).log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc("latency, ms")
        .y_desc("share of calls that took longer")
        .label_style(("sans-serif", 12))
        .draw()?;
    for ((name, points), color) in all.iter().zip(COLORS.iter().cycle()) {
        let style = color.stroke_width(2);
        let drawn = chart.draw_series(LineSeries::new(points.iter().copied().filter(|(ms, _)| *ms > 0.0), style))?;
        drawn.label(**name).legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    let mut labels = chart.configure_series_labels();
    labels.position(SeriesLabelPosition::UpperRight).label_font(("sans-serif", 12));
    labels.background_style(WHITE.mix(0.8)).draw()?;
    area.present()?;
    Ok(())
}

/// Milliseconds, and the share of calls that took longer, from all to one of a thousand.
fn tail(latencies: &Latencies) -> Vec<(f64, f64)> {
    let shares = (0..=60).map(|step| 10_f64.powf(-f64::from(step) / 20.0));
    shares.map(|slower| (latencies.quantile(1.0 - slower).as_secs_f64() * 1e3, slower)).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_tail_falls_to_the_rarest() {
        let mut latencies = Latencies::default();
        (1..=1000).for_each(|ms| latencies.record(Duration::from_millis(ms)));
        let tail = tail(&latencies);
        assert!(tail.windows(2).all(|two| two[0].0 <= two[1].0 && two[0].1 > two[1].1), "{tail:?}");
        let (ms, slower) = tail[40];
        assert!((slower - 0.01).abs() < 1e-9 && (ms / 990.0 - 1.0).abs() < 0.01, "{ms}");
    }
}
