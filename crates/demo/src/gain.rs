//! Gain of our path over a baseline, in words.

use pathcall_plot::{BarRole, ComparisonBar};

use crate::findings::wrap;

/// Ratios that differ less from 1 are neither gain nor loss.
const SAME: f64 = 0.05;

/// Ratio of a baseline's value to ours, for a quantity of which less is better.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gain {
    ratio: f64,
    /// Words for a gain and for a loss.
    words: (&'static str, &'static str),
}

impl Gain {
    /// Gain in time.
    pub(crate) fn time(ours: f64, baseline: f64) -> Self {
        Self { ratio: baseline / ours, words: ("faster", "slower") }
    }

    /// Gain in latency.
    pub(crate) fn latency(ours: f64, baseline: f64) -> Self {
        Self { ratio: baseline / ours, words: ("lower", "higher") }
    }

    /// Gain in bytes.
    pub(crate) fn bytes(ours: f64, baseline: f64) -> Self {
        Self { ratio: baseline / ours, words: ("fewer bytes", "more bytes") }
    }

    /// Gain in a rate, of which more is better.
    pub(crate) fn rate(ours: f64, baseline: f64) -> Self {
        Self { ratio: ours / baseline, words: ("more", "fewer") }
    }

    /// Part of a sentence: `5.6× faster than plain gRPC`.
    pub(crate) fn than(self, baseline: &str) -> String {
        if !self.is_loss() && !self.is_gain() {
            return format!("about the same as {baseline}");
        }
        let (word, ratio) = if self.is_loss() { (self.words.1, 1.0 / self.ratio) } else { (self.words.0, self.ratio) };
        format!("{ratio:.1}× {word} than {baseline}")
    }

    /// Bar of our path, with the gain or the loss.
    pub(crate) fn bar(self, name: &str, value: f64, baseline: &str) -> ComparisonBar {
        let role = if self.is_loss() { BarRole::Loss } else { BarRole::Gain };
        ComparisonBar { name: name.to_owned(), value, role, note: self.than(baseline) }
    }

    fn is_loss(self) -> bool {
        self.ratio < 1.0 - SAME
    }

    fn is_gain(self) -> bool {
        self.ratio > 1.0 + SAME
    }
}

/// Verdict of a part, below its table: first what is not gained, then what is gained. An outcome is a subject with its verb, its
/// gain or loss, and the baseline; `price` is what a gain costs in any case.
pub(crate) fn outcomes(outcomes: &[(&str, Gain, &str)], price: Option<String>) -> String {
    let sentence = |(subject, gain, baseline): &(&str, Gain, &str)| format!("{subject} {}", gain.than(baseline));
    let (gained, lost): (Vec<_>, Vec<_>) = outcomes.iter().partition(|(_, gain, _)| gain.is_gain());
    let mut lost: Vec<String> = lost.into_iter().map(sentence).collect();
    let gained: Vec<String> = gained.into_iter().map(sentence).collect();
    lost.extend(price);
    let line = |title: &str, sentences: &[String]| match sentences {
        [] => String::new(),
        sentences => wrap(&format!("{title}: {}.", sentences.join("; "))),
    };
    line("No gain", &lost) + &line("Gain", &gained)
}

/// Bar of another path.
pub(crate) fn other(name: &str, value: f64, role: BarRole) -> ComparisonBar {
    ComparisonBar { name: name.to_owned(), value, role, note: String::new() }
}
