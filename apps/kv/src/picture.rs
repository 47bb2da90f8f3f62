//! Latencies as a picture: the share of calls that took longer, both by factors, so that tails can be seen.

use std::path::Path;

use apps_load::Latencies;
use pathcall_plot::{Axis, Chart, DrawError, Line};

/// Draws a line for each of these to `path`.
///
/// # Errors
/// When it can't be written.
pub fn draw(path: &Path, title: &str, lines: &[(&str, &Latencies)]) -> Result<(), DrawError> {
    let line = |(name, latencies): &(&str, &Latencies)| Line { name: (*name).to_owned(), points: tail(latencies) };
    let lines: Vec<Line> = lines.iter().map(line).collect();
    let (x, y) = (Axis::by_factors("latency, ms"), Axis::by_factors("share of calls that took longer"));
    Chart { title, about: "the lower, the fewer calls are slow", x, y, lines: &lines }.draw(path)
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
