//! Trace of a run: a hash of all events, and text if requested.

use std::fmt::{self, Write};

use pathcall_wire::Instant;

/// Recorder of the events of a run.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    /// Hash that differs between different runs; used only to compare runs.
    pub(crate) hash: u64,
    /// Text, if it was requested.
    pub(crate) text: Option<String>,
}

impl Trace {
    /// Adds a word to the hash.
    pub(crate) fn mix(&mut self, word: u64) {
        self.hash = (self.hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    /// Appends a line to the text.
    pub(crate) fn line(&mut self, now: Instant, what: impl FnOnce() -> String) {
        if let Some(text) = &mut self.text {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{:>12} {}", Millis(now), what());
        }
    }

    /// Moves the lines of a part to this trace, each with the part's name in front.
    pub(crate) fn take_lines(&mut self, name: &str, part: &mut Self) {
        if let (Some(text), Some(lines)) = (&mut self.text, &mut part.text) {
            for line in std::mem::take(lines).lines() {
                let _ = writeln!(text, "{name:<8} {line}");
            }
        }
    }
}

/// Time in milliseconds, to the nanosecond.
pub(crate) struct Millis(pub(crate) Instant);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{:06}", self.0.0 / 1_000_000, self.0.0 % 1_000_000))
    }
}

/// Debug text, truncated to this number of characters.
pub(crate) fn brief(what: &impl fmt::Debug, chars: usize) -> String {
    let mut text = format!("{what:?}");
    if let Some((end, _)) = text.char_indices().nth(chars) {
        text.truncate(end);
        text.push('…');
    }
    text
}
