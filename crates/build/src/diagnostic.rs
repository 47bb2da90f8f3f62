//! What went wrong and where: every complaint names file, line and column, what was expected, what
//! was found, and what to do about it.

use std::fmt;

/// A piece of a text, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
}

/// A value and the piece of text it was read from. A value that the text leaves out has the span of
/// what it is missing from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spanned<T> {
    /// The value.
    pub value: T,
    /// Where it is written.
    pub span: Span,
}

/// A text with the name that complaints about it carry.
#[derive(Debug, Clone)]
pub struct Source {
    name: String,
    text: String,
}

impl Source {
    /// A text; `name` is usually the path of its file.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into() }
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Line and column of a byte of the text; past the end it is the end.
    #[must_use]
    pub fn locate(&self, byte: usize) -> Location {
        let boundary = (0..=byte.min(self.text.len())).rev().find(|byte| self.text.is_char_boundary(*byte));
        let before = &self.text[..boundary.unwrap_or_default()];
        let line = before.rsplit('\n').next().unwrap_or_default();
        Location { file: self.name.clone(), line: before.matches('\n').count() + 1, column: line.chars().count() + 1 }
    }
}

/// A place in a file, printed `file:line:column`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Location {
    /// The file, as its user named it.
    pub file: String,
    /// Lines count from 1; 0 when only the file is known.
    pub line: usize,
    /// Characters count from 1.
    pub column: usize,
}

impl Location {
    /// A file as a whole.
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

/// Whether a complaint stops the build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// Nothing is generated.
    Error,
    /// Something has no effect.
    Warning,
}

/// One complaint. Its `Display` is one line in the manner of compilers, and one more per hint:
///
/// ```text
/// agtr.nf:5:12: error: addTo: `NewGrad` has no such field: expected `name` or `tensor`, got `tensr`
///   hint: did you mean "NewGrad.tensor"?
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Whether it stops the build.
    pub severity: Severity,
    /// Where.
    pub at: Location,
    /// The filter's field it is about: `addTo`, `CntFwd.key`.
    pub field: Option<String>,
    /// What is wrong.
    pub message: String,
    /// What should be there.
    pub expected: Option<String>,
    /// What is there.
    pub got: Option<String>,
    /// What to do about it.
    pub hint: Option<String>,
    /// Another place that it disagrees with, and what that is.
    pub see: Option<(Location, String)>,
}

impl Diagnostic {
    /// An error.
    pub fn error(at: Location, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { severity: Severity::Error, at, field: None, message, expected: None, got: None, hint: None, see: None }
    }

    /// A warning.
    pub fn warning(at: Location, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(at, message) }
    }

    /// Names the filter's field it is about.
    #[must_use]
    pub fn field(self, field: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..self }
    }

    /// Says what should be there.
    #[must_use]
    pub fn expected(self, expected: impl Into<String>) -> Self {
        Self { expected: Some(expected.into()), ..self }
    }

    /// Says what is there.
    #[must_use]
    pub fn got(self, got: impl Into<String>) -> Self {
        Self { got: Some(got.into()), ..self }
    }

    /// Says what to do about it.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Points at another place.
    #[must_use]
    pub fn see(self, at: Location, what: impl Into<String>) -> Self {
        Self { see: Some((at, what.into())), ..self }
    }
}

impl fmt::Display for Diagnostic {
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

impl std::error::Error for Diagnostic {}

/// The candidate that a misspelt word most likely meant, if any is near.
pub(crate) fn closest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = (word.chars().count() / 2).clamp(1, 2);
    candidates
        .into_iter()
        .map(|candidate| (distance(&word.to_lowercase(), &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= near)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Levenshtein's: insertions, deletions and replacements that lead from one word to the other.
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

/// `a`, `b` or `c`.
pub(crate) fn one_of<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
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
        let source = Source::new("a.nf", "ä{\n  \"x\": 1\n");
        assert_eq!(source.locate(0).to_string(), "a.nf:1:1");
        assert_eq!(source.locate(2).to_string(), "a.nf:1:2");
        assert_eq!(source.locate(1).to_string(), "a.nf:1:1", "inside of ä");
        assert_eq!(source.locate(6).to_string(), "a.nf:2:3");
        assert_eq!(source.locate(1000).to_string(), "a.nf:3:1");
    }

    #[test]
    fn distances() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(closest("addto", ["get", "addTo", "clear"]), Some("addTo"));
        assert_eq!(closest("colour", ["get", "addTo", "clear"]), None);
    }
}
