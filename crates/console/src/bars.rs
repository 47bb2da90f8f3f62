//! Bar charts of text.

/// Characters of the longest bar.
const LONGEST: f64 = 48.0;

/// Formats one line for each name and value: the name, a bar scaled to the largest value, the value and its unit.
#[must_use]
pub fn bars(rows: &[(String, f64)], unit: &str) -> String {
    let largest = rows.iter().map(|(_, value)| *value).fold(f64::MIN_POSITIVE, f64::max);
    let line = |(name, value): &(String, f64)| {
        let bar = "#".repeat((value / largest * LONGEST).round().max(1.0) as usize);
        format!("{name}  {bar} {value:.1} {unit}\n")
    };
    rows.iter().map(line).collect()
}
