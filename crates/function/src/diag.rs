//! What is wrong with a program, where, and what would be right: said to its author.
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

use crate::ir::Span;
use crate::source::Sources;
use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use std::fmt;

/// Further ones are not kept: what follows a hundred mistakes is rarely worth reading.
pub const DIAGNOSTICS_MAX: usize = 100;

/// One mistake in a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Where.
    pub at: Span,
    /// What is wrong; what was expected and found.
    pub message: String,
    /// Said beside the caret; may be empty.
    pub label: String,
    /// Another place that has to do with it, and why.
    pub also: Option<(Span, String)>,
    /// What to write instead.
    pub hint: Option<String>,
}

impl Diagnostic {
    /// A mistake at this place.
    #[must_use]
    pub fn new(at: Span, message: impl Into<String>) -> Self {
        Self { at, message: message.into(), label: String::new(), also: None, hint: None }
    }

    /// With words beside the caret.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// With advice.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// With another place.
    #[must_use]
    pub fn also(mut self, at: Span, why: impl Into<String>) -> Self {
        self.also = Some((at, why.into()));
        self
    }

    /// As text without colours: message, `file:line:column`, the line with a caret, the hint.
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

/// A span as a range of characters that exist, on one line: a caret under half a file says nothing.
fn annotation<'a>(
    kind: AnnotationKind,
    sources: &Sources,
    at: Span,
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

/// All mistakes of a program, with its text: prints them in order.
#[derive(Debug)]
pub struct Report<'a>(pub &'a [Diagnostic], pub &'a Sources);

impl fmt::Display for Report<'_> {
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

/// Collects mistakes; each is told once, also if its text is worked on several times.
#[derive(Debug, Default)]
pub(crate) struct Sink(Vec<Diagnostic>);

impl Sink {
    /// Takes note of one.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        if !self.full() && !self.0.iter().any(|d| d.at == diagnostic.at && d.message == diagnostic.message) {
            self.0.push(diagnostic);
        }
    }

    /// Whether there are so many that no more are looked for.
    pub fn full(&self) -> bool {
        self.0.len() >= DIAGNOSTICS_MAX
    }

    /// Whether this was said before, of whatever place.
    pub fn has(&self, message: &str) -> bool {
        self.0.iter().any(|diagnostic| diagnostic.message == message)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All, in the order of the text; the file that was named comes first.
    pub fn into_vec(mut self) -> Vec<Diagnostic> {
        self.0.sort_by_key(|diagnostic| diagnostic.at);
        self.0
    }
}

/// It could not be done, and [`Sink`] knows why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reported;
