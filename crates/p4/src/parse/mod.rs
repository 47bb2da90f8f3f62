//! Recursive-descent parser: one function for each rule of the grammar.
//!
//! After a mistake the parser skips to the next `;` or `}` and continues, so that one run reports several mistakes.

mod control;
mod decl;
mod expr;
mod handler;
mod parser;
mod stmt;
mod types;

use crate::ast::{Annotation, Decl, Name};
use crate::diag::{Diagnostic, Reported, Sink};
use crate::ir::SourceSpan;
use crate::lex::{Token, TokenKind};
use std::collections::HashSet;
use std::rc::Rc;

/// Largest nesting depth of braces, brackets and operators.
pub(crate) const DEPTH_MAX: u16 = 64;

/// Reserved words (P4_16 §6.3.2); contextual keywords such as `key` are valid names.
pub(crate) const KEYWORDS: [&str; 34] = [
    "abstract",
    "action",
    "bit",
    "bool",
    "const",
    "control",
    "default",
    "else",
    "enum",
    "error",
    "exit",
    "extern",
    "false",
    "header",
    "header_union",
    "if",
    "in",
    "inout",
    "int",
    "match_kind",
    "out",
    "package",
    "parser",
    "return",
    "select",
    "string",
    "struct",
    "switch",
    "table",
    "transition",
    "true",
    "tuple",
    "typedef",
    "varbit",
];

/// Types of the architecture that take type arguments, as in `register<…>`.
const TYPES: [&str; 17] = [
    "packet_in",
    "packet_out",
    "register",
    "counter",
    "meter",
    "direct_counter",
    "direct_meter",
    "action_profile",
    "action_selector",
    "value_set",
    "Checksum16",
    "V1Switch",
    "standard_metadata_t",
    "float",
    "request",
    "response",
    "list",
];

pub(crate) type Parsed<T> = Result<T, Reported>;

/// Parses a whole program. Faulty declarations are reported and left out.
pub(crate) fn program(tokens: &[Token], sink: &mut Sink) -> Vec<Decl> {
    let types = TYPES.iter().map(|name| Rc::from(*name)).collect();
    Parser { tokens, at: 0, sink, depth: 0, stopped: false, types }.parse_program()
}

struct Parser<'a> {
    /// Tokens, the last of which is [`TokenKind::End`].
    tokens: &'a [Token],
    at: usize,
    sink: &'a mut Sink,
    depth: u16,
    /// True after the nesting bound was exceeded: nothing further is parsed or reported.
    stopped: bool,
    /// Known type names, to distinguish a cast `(a) b` from parentheses.
    types: HashSet<Rc<str>>,
}

impl Parser<'_> {
    fn kind(&self) -> &TokenKind {
        &self.tokens[self.at].kind
    }

    /// Token at an offset from the current one; [`TokenKind::End`] beyond the last.
    fn peek(&self, by: usize) -> &Token {
        &self.tokens[(self.at + by).min(self.tokens.len() - 1)]
    }

    fn current_span(&self) -> SourceSpan {
        self.tokens[self.at].at
    }

    /// Span from `start` to the previous token.
    fn span_since(&self, start: SourceSpan) -> SourceSpan {
        let last = self.tokens[self.at.saturating_sub(1)].at;
        if last.file == start.file && last.end > start.start { SourceSpan { end: last.end, ..start } } else { start }
    }

    fn is(&self, text: &str) -> bool {
        self.kind().is(text)
    }

    fn advance(&mut self) -> Token {
        let token = self.tokens[self.at].clone();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    /// Consumes the token if it matches.
    fn eat(&mut self, text: &str) -> bool {
        let is = self.is(text);
        if is {
            self.advance();
        }
        is
    }

    fn fail<T>(&mut self, diagnostic: Diagnostic) -> Parsed<T> {
        if !self.stopped {
            self.sink.push(diagnostic);
        }
        Err(Reported)
    }

    /// Reports the current token as unexpected.
    fn report_unexpected<T>(&mut self, expected: &str) -> Parsed<T> {
        let mut wrong = Diagnostic::new(self.current_span(), format!("expected {expected}, found {}", self.kind()));
        if let TokenKind::Name(word) = self.kind()
            && KEYWORDS.contains(&&**word)
            && expected.contains("name")
        {
            wrong = wrong.hint(format!("`{word}` is a keyword"));
        }
        self.fail(wrong)
    }

    fn expect(&mut self, text: &str) -> Parsed<SourceSpan> {
        if self.is(text) {
            return Ok(self.advance().at);
        }
        // A `;` that is missing at the end of a line is reported there, not at the next line.
        if text == ";" && self.at > 0 && self.tokens[self.at].first {
            let before = self.tokens[self.at - 1].at;
            let at = SourceSpan { start: before.end, end: before.end, ..before };
            let message = format!("expected `;`, found {}", self.kind());
            return self.fail(Diagnostic::new(at, message));
        }
        self.report_unexpected(&format!("`{text}`"))
    }

    fn parse_name(&mut self, what: &str) -> Parsed<Name> {
        match self.kind() {
            TokenKind::Name(text) if !KEYWORDS.contains(&&**text) => {
                let name = Name { text: Rc::clone(text), at: self.current_span() };
                self.advance();
                Ok(name)
            }
            _ => self.report_unexpected(what),
        }
    }

    /// Runs `read` one nesting level deeper, within the bound.
    fn run_nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth >= DEPTH_MAX {
            return self.report_too_deep(self.current_span());
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    fn report_too_deep<T>(&mut self, at: SourceSpan) -> Parsed<T> {
        let wrong = Diagnostic::new(at, format!("nested more than {DEPTH_MAX} levels deep"));
        let failed = self.fail(wrong.hint("split it into named parts"));
        // Without this, every enclosing rule would report the same mistake.
        self.stopped = true;
        self.at = self.tokens.len() - 1;
        failed
    }

    /// Parses `item, item, …` up to and including `end`; a trailing comma is allowed.
    fn parse_list<T>(&mut self, end: &str, mut item: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        let mut items = Vec::new();
        while !self.is(end) {
            items.push(item(self)?);
            if !self.eat(",") && !self.is(end) {
                return self.report_unexpected(&format!("`,` or `{end}`"));
            }
        }
        self.advance();
        Ok(items)
    }

    /// Skips to a point where parsing can continue: behind the next `;`, behind the `}` of a block that was entered on
    /// the way, or before the `}` of an enclosing block.
    fn recover(&mut self) {
        let mut open = 0_usize;
        loop {
            match self.kind() {
                TokenKind::End => return,
                TokenKind::Punct("{") => open += 1,
                TokenKind::Punct("}") if open == 0 => return,
                TokenKind::Punct("}") => {
                    open -= 1;
                    if open == 0 {
                        self.advance();
                        self.eat(";");
                        return;
                    }
                }
                TokenKind::Punct(";") if open == 0 => {
                    self.advance();
                    return;
                }
                _ => {}
            }
            self.advance();
        }
    }

    /// Parses items up to and including `}`; faulty items are left out.
    fn parse_braced<T>(&mut self, mut item: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        let open = self.expect("{")?;
        let mut items = Vec::new();
        while !self.is("}") {
            if *self.kind() == TokenKind::End {
                let wrong = Diagnostic::new(self.current_span(), "expected `}`, found the end of the file");
                return self.fail(wrong.also(open, "unclosed `{`"));
            }
            let before = self.at;
            match item(self) {
                Ok(item) => items.push(item),
                Err(Reported) => {
                    self.recover();
                    if self.at == before && !self.is("}") {
                        self.advance();
                    }
                }
            }
        }
        self.advance();
        Ok(items)
    }

    /// Parses `@name("text") @other …` before a declaration.
    fn parse_annotations(&mut self) -> Parsed<Vec<Annotation>> {
        let mut annotations = Vec::new();
        while self.eat("@") {
            let at = self.current_span();
            let TokenKind::Name(text) = self.kind().clone() else {
                return self.report_unexpected("an annotation name");
            };
            self.advance();
            if let Some((known, hint)) = suggest_annotation(&text) {
                let wrong = Diagnostic::new(at, format!("unknown annotation `@{text}`"));
                return self.fail(wrong.hint(format!("did you mean `@{known}` ({hint})?")));
            }
            let mut string = None;
            if self.is("(") || self.is("[") {
                let mut open = 0_usize;
                loop {
                    match self.kind() {
                        TokenKind::Punct("(" | "[" | "{") => open += 1,
                        TokenKind::Punct(")" | "]" | "}") => open -= 1,
                        TokenKind::Text(text) => string = string.or(Some(Rc::clone(text))),
                        TokenKind::End => return self.report_unexpected("the annotation's end"),
                        _ => {}
                    }
                    self.advance();
                    if open == 0 {
                        break;
                    }
                }
            }
            annotations.push(Annotation { name: Name { text, at }, text: string });
        }
        Ok(annotations)
    }
}

/// Annotations that affect the program, with their purpose.
const ANNOTATIONS: [(&str, &str); 3] = [
    ("flow", "packets with equal values of these request parameters go to one server"),
    ("mirrored", "servers hold the whole table, or the register's cells that its entries name"),
    ("index", "action parameter that indexes mirrored registers"),
];

/// Known annotation that is likely to be meant. Other annotations are ignored, as P4_16 requires (§20).
fn suggest_annotation(name: &str) -> Option<(&'static str, &'static str)> {
    let found = crate::check::closest_name(name, ANNOTATIONS.iter().map(|(known, _)| *known).collect())?;
    ANNOTATIONS.into_iter().find(|(known, _)| *known == found && found != name)
}
