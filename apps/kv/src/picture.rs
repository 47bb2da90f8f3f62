//! Chart of latencies: the share of slower calls, on logarithmic axes that show the tails.

use std::path::Path;

use apps_load::Latencies;
use pathcall_plot::{Axis, Chart, DrawError, PlotLine};

/// Draws a line for each of these latencies to `path`.
///
/// # Errors
/// Returns an error if the file can't be written.
pub fn draw(path: &Path, title: &str, lines: &[(&str, &Latencies)]) -> Result<(), DrawError> {
    let line = |(name, latencies): &(&str, &Latencies)| PlotLine { name: (*name).to_owned(), points: tail(latencies) };
    let lines: Vec<PlotLine> = lines.iter().map(line).collect();
    let (x, y) = (Axis::by_factors("latency, ms"), Axis::by_factors("share of calls that took longer"));
    Chart { title, about: "the lower, the fewer calls are slow", x, y, lines: &lines }.draw(path)
}

/// Latency in milliseconds, and share of slower calls, from all to one in a thousand.
fn tail(latencies: &Latencies) -> Vec<(f64, f64)> {
    let shares = (0..=60).map(|step| 10_f64.powf(-f64::from(step) / 20.0));
    shares.map(|slower| (latencies.quantile(1.0 - slower).as_secs_f64() * 1e3, slower)).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn tail_shares_decrease() {
        let mut latencies = Latencies::default();
        (1..=1000).for_each(|ms| latencies.record(Duration::from_millis(ms)));
        let tail = tail(&latencies);
        assert!(tail.windows(2).all(|two| two[0].0 <= two[1].0 && two[0].1 > two[1].1), "{tail:?}");
        let (ms, slower) = tail[40];
        assert!((slower - 0.01).abs() < 1e-9 && (ms / 990.0 - 1.0).abs() < 0.01, "{ms}");
    }
}
