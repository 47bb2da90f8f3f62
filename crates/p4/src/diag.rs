//! Diagnostics of the compiler: message, source position and hint for the author.
//!
//! ```text
//! error: expected `;`, found `}`
//!   --> nat.p4c:12:17
//!    |
//! 12 |     hdr.ttl = 1 }
//!    |                 ^
//!    |
//!    = help: …
//! ```

use crate::ir::SourceSpan;
use crate::source::Sources;
use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use std::fmt;

/// Largest number of diagnostics of one compilation; further ones are dropped.
pub const DIAGNOSTICS_MAX: usize = 100;

/// Mistake in a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Source position.
    pub at: SourceSpan,
    /// Message: the mistake, or the expected and the found token.
    pub message: String,
    /// Text beside the caret; may be empty.
    pub label: String,
    /// Related source position, with its own text.
    pub also: Option<(SourceSpan, String)>,
    /// Suggested correction.
    pub hint: Option<String>,
}

impl Diagnostic {
    /// New diagnostic at a source position.
    #[must_use]
    pub fn new(at: SourceSpan, message: impl Into<String>) -> Self {
        Self { at, message: message.into(), label: String::new(), also: None, hint: None }
    }

    /// Sets the text beside the caret.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Sets the suggested correction.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds a related source position.
    #[must_use]
    pub fn also(mut self, at: SourceSpan, why: impl Into<String>) -> Self {
        self.also = Some((at, why.into()));
        self
    }

    /// Renders the diagnostic without colours: message, `file:line:column`, source line with a caret, hint.
    #[must_use]
    pub fn render(&self, sources: &Sources) -> String {
        let mut group = Level::ERROR.primary_title(&*self.message).element(
            Snippet::source(sources.text(self.at.file)).path(sources.name(self.at.file)).annotations(
                [annotation(AnnotationKind::Primary, sources, self.at, &self.label)].into_iter().chain(
                    self.also
                        .iter()
                        .filter(|(at, _)| at.file == self.at.file)
                        .map(|(at, why)| annotation(AnnotationKind::Context, sources, *at, why)),
                ),
            ),
        );
        if let Some((at, why)) = self.also.as_ref().filter(|(at, _)| at.file != self.at.file) {
            group = group.element(
                Snippet::source(sources.text(at.file)).path(sources.name(at.file)).annotation(annotation(
                    AnnotationKind::Context,
                    sources,
                    *at,
                    why,
                )),
            );
        }
        if let Some(hint) = &self.hint {
            group = group.element(Level::HELP.message(&**hint));
        }
        Renderer::plain().render(&[group])
    }
}

/// Annotation of a span, cut to its first line and to characters that exist.
fn annotation<'a>(
    kind: AnnotationKind,
    sources: &Sources,
    at: SourceSpan,
    label: &'a str,
) -> annotate_snippets::Annotation<'a> {
    let text = sources.text(at.file);
    let floor = |at: u32| (0..=(at as usize).min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let start = floor(at.start);
    let line_end = text[start..].find('\n').map_or(text.len(), |length| start + length);
    let end = floor(at.end).clamp(start, line_end);
    let annotation = kind.span(start..end);
    if label.is_empty() { annotation } else { annotation.label(label) }
}

/// Diagnostics with their sources; `Display` renders them in order.
#[derive(Debug)]
pub struct DiagnosticReport<'a>(pub &'a [Diagnostic], pub &'a Sources);

impl fmt::Display for DiagnosticReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for diagnostic in self.0 {
            writeln!(f, "{}\n", diagnostic.render(self.1))?;
        }
        match self.0.len() {
            1 => write!(f, "1 error"),
            count => write!(f, "{count} errors"),
        }
    }
}

/// Collector of diagnostics. Each is kept once, even if its text is checked several times.
#[derive(Debug, Default)]
pub(crate) struct Sink(Vec<Diagnostic>);

impl Sink {
    /// Adds a diagnostic, unless it is a duplicate.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        if !self.full() && !self.0.iter().any(|d| d.at == diagnostic.at && d.message == diagnostic.message) {
            self.0.push(diagnostic);
        }
    }

    /// True if no further diagnostics are kept.
    pub fn full(&self) -> bool {
        self.0.len() >= DIAGNOSTICS_MAX
    }

    /// True if a diagnostic with this message exists, at any position.
    pub fn has(&self, message: &str) -> bool {
        self.0.iter().any(|diagnostic| diagnostic.message == message)
    }

    /// Number of diagnostics.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there are no diagnostics.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All diagnostics in the order of the text, the main file first.
    pub fn into_vec(mut self) -> Vec<Diagnostic> {
        self.0.sort_by_key(|diagnostic| diagnostic.at);
        self.0
    }
}

/// Error whose diagnostic is already in the [`Sink`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reported;
