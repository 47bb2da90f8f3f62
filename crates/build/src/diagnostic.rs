//! Diagnostics of NetFilters and options: file, line and column, the error, the expected and the actual text, and a
//! hint.

use std::fmt;

/// Range of bytes in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TextRange {
    /// Position of the first byte.
    pub start: usize,
    /// Position after the last byte.
    pub end: usize,
}

/// Value with the range of text that it was read from. A missing value has the range of the object that lacks it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Positioned<T> {
    /// Value.
    pub value: T,
    /// Range in the text.
    pub span: TextRange,
}

/// Text with a name for diagnostics.
#[derive(Debug, Clone)]
pub struct SourceText {
    name: String,
    text: String,
}

impl SourceText {
    /// Creates a source; `name` is usually the path of its file.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into() }
    }

    /// Text of the source.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Name of the source.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Line and column of a byte; bytes beyond the end count as the end.
    #[must_use]
    pub fn locate(&self, byte: usize) -> Location {
        let boundary = (0..=byte.min(self.text.len())).rev().find(|byte| self.text.is_char_boundary(*byte));
        let before = &self.text[..boundary.unwrap_or_default()];
        let line = before.rsplit('\n').next().unwrap_or_default();
        Location { file: self.name.clone(), line: before.matches('\n').count() + 1, column: line.chars().count() + 1 }
    }
}

/// Position in a file, printed as `file:line:column`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Location {
    /// File, as named by the user.
    pub file: String,
    /// Line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

impl Location {
    /// Location of a whole file.
    pub fn file(file: impl Into<String>) -> Self {
        Self { file: file.into(), line: 0, column: 0 }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.file),
            line => write!(f, "{}:{line}:{}", self.file, self.column),
        }
    }
}

/// Severity of a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// Stops the build: nothing is generated.
    Error,
    /// A setting has no effect.
    Warning,
}

/// Diagnostic of one problem. Its `Display` is one line in the format of compilers, with further lines for references
/// and hints:
///
/// ```text
/// agtr.nf:5:12: error: addTo: `NewGrad` has no such field: expected `name` or `tensor`, got `tensr`
///   hint: did you mean "NewGrad.tensor"?
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildDiagnostic {
    /// Severity of the problem.
    pub severity: Severity,
    /// Position of the problem.
    pub at: Location,
    /// Field of the filter: `addTo`, `CntFwd.key`.
    pub field: Option<String>,
    /// Description of the problem.
    pub message: String,
    /// Expected text.
    pub expected: Option<String>,
    /// Actual text.
    pub got: Option<String>,
    /// Suggested fix.
    pub hint: Option<String>,
    /// Related position with an explanation.
    pub see: Option<(Location, String)>,
}

impl BuildDiagnostic {
    /// Creates an error.
    pub fn error(at: Location, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { severity: Severity::Error, at, field: None, message, expected: None, got: None, hint: None, see: None }
    }

    /// Creates a warning.
    pub fn warning(at: Location, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(at, message) }
    }

    /// Sets the field of the filter.
    #[must_use]
    pub fn field(self, field: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..self }
    }

    /// Sets the expected text.
    #[must_use]
    pub fn expected(self, expected: impl Into<String>) -> Self {
        Self { expected: Some(expected.into()), ..self }
    }

    /// Sets the actual text.
    #[must_use]
    pub fn got(self, got: impl Into<String>) -> Self {
        Self { got: Some(got.into()), ..self }
    }

    /// Sets the suggested fix.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Adds a related position.
    #[must_use]
    pub fn see(self, at: Location, what: impl Into<String>) -> Self {
        Self { see: Some((at, what.into())), ..self }
    }
}

impl fmt::Display for BuildDiagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{}: {severity}: ", self.at)?;
        if let Some(field) = &self.field {
            write!(f, "{field}: ")?;
        }
        f.write_str(&self.message)?;
        match (&self.expected, &self.got) {
            (Some(expected), Some(got)) => write!(f, ": expected {expected}, got {got}")?,
            (Some(expected), None) => write!(f, ": expected {expected}")?,
            (None, Some(got)) => write!(f, ": got {got}")?,
            (None, None) => {}
        }
        if let Some((at, what)) = &self.see {
            write!(f, "\n  {at}: {what}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\n  hint: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for BuildDiagnostic {}

/// Candidate nearest to a misspelt word, if any is near enough.
pub(crate) fn closest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = (word.chars().count() / 2).clamp(1, 2);
    candidates
        .into_iter()
        .map(|candidate| (distance(&word.to_lowercase(), &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= near)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Levenshtein distance: insertions, deletions and replacements between two words.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

/// Formats alternatives as `a`, `b` or `c`.
pub fn one_of<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<_> = words.into_iter().map(|word| format!("`{word}`")).collect();
    match &words[..] {
        [] => "nothing".to_owned(),
        [word] => word.clone(),
        [words @ .., last] => format!("{} or {last}", words.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_count_from_one() {
        let source = SourceText::new("a.nf", "ä{\n  \"x\": 1\n");
        assert_eq!(source.locate(0).to_string(), "a.nf:1:1");
        assert_eq!(source.locate(2).to_string(), "a.nf:1:2");
        assert_eq!(source.locate(1).to_string(), "a.nf:1:1", "inside of ä");
        assert_eq!(source.locate(6).to_string(), "a.nf:2:3");
        assert_eq!(source.locate(1000).to_string(), "a.nf:3:1");
    }

    #[test]
    fn edit_distance_matches_known_values() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(closest("addto", ["get", "addTo", "clear"]), Some("addTo"));
        assert_eq!(closest("colour", ["get", "addTo", "clear"]), None);
    }
}
