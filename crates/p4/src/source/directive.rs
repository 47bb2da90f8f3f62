//! Preprocessor directives.

use super::expand::Macro;
use super::preprocess::{Condition, Preprocessor};
use crate::diag::{Diagnostic, Sink};
use crate::ir::SourceSpan;
use crate::lex::{Scanner, Token, TokenKind};
use std::rc::Rc;

impl Preprocessor<'_> {
    /// Executes a directive; `line` covers the text after `#`.
    pub fn directive(
        &mut self,
        text: &str,
        line: SourceSpan,
        scanner: &mut Scanner<'_>,
        conditions: &mut Vec<Condition>,
    ) {
        let active = conditions.last().is_none_or(|condition| condition.active);
        let mut part = Scanner::part(text, line);
        let word = part.next(self.sink);
        let TokenKind::Name(name) = &word.kind else {
            if active && word.kind != TokenKind::End {
                self.sink.push(Diagnostic::new(word.at, format!("expected a directive, found {}", word.kind)));
            }
            return;
        };
        match &**name {
            "if" | "ifdef" | "ifndef" => {
                let holds = active && self.condition(name, &word, &mut part);
                let braces = scanner.depth;
                conditions.push(Condition { at: word.at, active: holds, taken: holds || !active, last: false, braces });
            }
            "elif" | "else" => {
                let Some(open) = conditions.last().filter(|open| !open.last) else {
                    self.sink.push(Diagnostic::new(word.at, format!("`#{name}` without `#if`")));
                    return;
                };
                let (taken, braces) = (open.taken, open.braces);
                let holds = !taken && (&**name == "else" || self.condition("if", &word, &mut part));
                scanner.depth = braces;
                if let Some(open) = conditions.last_mut() {
                    open.active = holds;
                    open.taken |= holds;
                    open.last = &**name == "else";
                }
            }
            "endif" => {
                if conditions.pop().is_none() {
                    self.sink.push(Diagnostic::new(word.at, "`#endif` without `#if`"));
                }
            }
            _ if !active => {}
            "define" => self.define(part, text[word.at.end as usize..line.end as usize].trim()),
            "undef" => {
                if let TokenKind::Name(name) = part.next(self.sink).kind {
                    self.macros.remove(&name);
                }
            }
            "include" => self.include(text, line, &word),
            "error" => {
                let message = text[word.at.end as usize..line.end as usize].trim();
                self.sink.push(Diagnostic::new(word.at, format!("#error {message}")));
            }
            "pragma" | "line" | "warning" => {}
            _ => self.sink.push(
                Diagnostic::new(word.at, format!("`#{name}` is not supported"))
                    .hint("available: #include, #define, #undef, #if, #ifdef, #ifndef, #elif, #else, #endif, #error"),
            ),
        }
    }

    /// Evaluates `#if`, `#ifdef` or `#ifndef`.
    fn condition(&mut self, kind: &str, word: &Token, part: &mut Scanner<'_>) -> bool {
        if kind == "if" {
            let mut tokens = Vec::new();
            loop {
                let token = part.next(self.sink);
                if token.kind == TokenKind::End {
                    break;
                }
                tokens.push(token);
            }
            return self.holds(tokens, word.at);
        }
        let token = part.next(self.sink);
        let TokenKind::Name(name) = &token.kind else {
            self.sink.push(Diagnostic::new(word.at, format!("expected a name, found {}", token.kind)));
            return false;
        };
        self.macros.contains_key(name) == (kind == "ifdef")
    }

    /// Defines `#define NAME tokens` or `#define NAME(a, b) tokens`. The tokens need not be valid P4, as C may use
    /// them.
    fn define(&mut self, mut part: Scanner<'_>, text: &str) {
        let token = part.next(self.sink);
        let TokenKind::Name(name) = token.kind else {
            self.sink.push(Diagnostic::new(token.at, format!("expected a name to define, found {}", token.kind)));
            return;
        };
        let at = token.at;
        let (mut body, mut parameters, mut unheard) = (Vec::new(), None, Sink::default());
        loop {
            let token = part.next(&mut unheard);
            if token.kind == TokenKind::End {
                break;
            }
            if body.is_empty() && parameters.is_none() && token.joined && token.kind.is("(") {
                let Some(found) = self.parameters(&mut part) else { return };
                parameters = Some(found);
            } else {
                body.push(token);
            }
        }
        self.macros.insert(name, Macro { parameters, body: body.into(), text: text.into(), at });
    }

    fn parameters(&mut self, part: &mut Scanner<'_>) -> Option<Vec<Rc<str>>> {
        let mut parameters = Vec::new();
        loop {
            let token = part.next(self.sink);
            match token.kind {
                TokenKind::Name(name) => parameters.push(name),
                TokenKind::Punct(")") if parameters.is_empty() => return Some(parameters),
                kind => {
                    let message = format!("expected a macro parameter, found {kind}");
                    self.sink.push(Diagnostic::new(token.at, message));
                    return None;
                }
            }
            let token = part.next(self.sink);
            match token.kind {
                TokenKind::Punct(")") => return Some(parameters),
                TokenKind::Punct(",") => {}
                kind => {
                    self.sink.push(Diagnostic::new(token.at, format!("expected `,` or `)`, found {kind}")));
                    return None;
                }
            }
        }
    }

    /// Executes `#include "name"` or `#include <name>`.
    fn include(&mut self, text: &str, line: SourceSpan, word: &Token) {
        let rest = text[word.at.end as usize..line.end as usize].trim();
        let named = [('"', '"', false), ('<', '>', true)].into_iter().find_map(|(open, close, system)| {
            let (name, _) = rest.strip_prefix(open)?.split_once(close)?;
            Some((name, system))
        });
        let Some((name, system)) = named else {
            let wrong = Diagnostic::new(SourceSpan { start: word.at.start, ..line }, "expected a file to include");
            self.sink.push(wrong.hint("write #include \"file.p4\" or #include <core.p4>"));
            return;
        };
        let start = text[..line.end as usize].rfind(name).map_or(line.start, |start| start as u32);
        let at = SourceSpan { file: line.file, start, end: start + name.len() as u32 };
        match self.sources.include(line.file, name, system) {
            Ok(file) => self.file(file),
            Err(why) => {
                let wrong = Diagnostic::new(at, why);
                self.sink.push(wrong.hint("built-in files: <core.p4>, <v1model.p4>, <inet.p4>, <pipeline.p4>"));
            }
        }
    }
}
