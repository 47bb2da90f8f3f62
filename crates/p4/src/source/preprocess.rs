//! Preprocessor: files to one stream of tokens, with `#include`, `#define` and `#if` (P4_16 §6.2).

use super::expand::Macro;
use super::{Input, Sources};
use crate::diag::{Diagnostic, Sink};
use crate::ir::SourceSpan;
use crate::lex::{Scanner, Token, TokenKind};
use std::collections::HashMap;
use std::rc::Rc;

/// Largest nesting depth of includes.
const INCLUDE_DEPTH_MAX: usize = 16;
/// Largest number of tokens of a program.
const TOKENS_MAX: usize = 1 << 20;

/// Preprocessed program.
pub(crate) struct PreprocessedProgram {
    /// Tokens, the last of which is [`TokenKind::End`].
    pub tokens: Vec<Token>,
    /// Macros that are defined at the end, one per line.
    pub defines: String,
}

/// Preprocesses a program.
pub(crate) fn read(sources: &mut Sources, input: Input, sink: &mut Sink) -> PreprocessedProgram {
    let mut reader =
        Preprocessor { sources, sink, macros: HashMap::new(), out: Vec::new(), depth: 0, made: 0, nesting: 0 };
    match reader.sources.open(input) {
        Ok(file) => {
            reader.defined_outside();
            reader.file(file);
        }
        Err(why) => reader.sink.push(Diagnostic::new(SourceSpan::default(), why)),
    }
    let length = reader.sources.text(0).len() as u32;
    let end = SourceSpan { file: 0, start: length, end: length };
    let mut known: Vec<&Macro> = reader.macros.values().collect();
    known.sort_by_key(|known| known.at);
    let defines = known.iter().map(|known| format!("#define {}\n", known.text)).collect();
    let mut tokens = reader.out;
    tokens.push(Token { kind: TokenKind::End, at: end, joined: false, first: true });
    PreprocessedProgram { tokens, defines }
}

/// Preprocessor state.
pub(super) struct Preprocessor<'a> {
    pub sources: &'a mut Sources,
    pub sink: &'a mut Sink,
    pub macros: HashMap<Rc<str>, Macro>,
    pub out: Vec<Token>,
    /// Nesting depth of includes.
    pub depth: usize,
    /// Number of tokens from expansions so far.
    pub made: usize,
    /// Nesting depth of macro arguments.
    pub nesting: usize,
}

/// Open `#if`.
pub(super) struct Condition {
    /// Position of the directive.
    pub at: SourceSpan,
    /// True if the current branch is compiled.
    pub active: bool,
    /// True if a branch has been taken, or the whole conditional is skipped.
    pub taken: bool,
    /// True after `#else`.
    pub last: bool,
    /// Brace depth at the `#if`.
    pub braces: usize,
}

impl Preprocessor<'_> {
    /// Preprocesses a file and its includes.
    pub fn file(&mut self, file: u16) {
        if self.depth >= INCLUDE_DEPTH_MAX {
            let at = SourceSpan { file, start: 0, end: 0 };
            self.sink.push(
                Diagnostic::new(at, format!("includes are nested more than {INCLUDE_DEPTH_MAX} levels deep"))
                    .hint("add an include guard: #ifndef … #define … #endif"),
            );
            return;
        }
        self.depth += 1;
        let text = self.sources.shared(file);
        let mut scanner = Scanner::new(file, &text);
        let mut conditions: Vec<Condition> = Vec::new();
        let mut unheard = Sink::default();
        while self.out.len() < TOKENS_MAX {
            let active = conditions.last().is_none_or(|condition| condition.active);
            let token = scanner.next(if active { self.sink } else { &mut unheard });
            match token.kind {
                TokenKind::End => break,
                TokenKind::Hash => {
                    let line = scanner.rest_of_line();
                    self.directive(&text, line, &mut scanner, &mut conditions);
                }
                TokenKind::Name(_) if active => self.name(token, &mut scanner),
                _ if active => self.put(token),
                _ => {}
            }
        }
        if self.out.len() >= TOKENS_MAX {
            let at = SourceSpan { file, start: 0, end: 0 };
            self.sink.push(Diagnostic::new(at, format!("more than {TOKENS_MAX} tokens")));
        }
        if let Some(open) = conditions.first() {
            self.sink.push(Diagnostic::new(open.at, "`#if` without `#endif`"));
        }
        self.depth -= 1;
    }

    /// Defines the macros of the command line.
    fn defined_outside(&mut self) {
        let text: String =
            self.sources.defines.iter().map(|(name, value)| format!("#define {name} {value}\n")).collect();
        if !text.is_empty() {
            match self.sources.add("<defined>".to_owned(), None, text) {
                Ok(file) => self.file(file),
                Err(why) => self.sink.push(Diagnostic::new(SourceSpan::default(), why)),
            }
        }
    }

    /// Appends a token to the output.
    pub fn put(&mut self, mut token: Token) {
        if let TokenKind::NoNumber(word) = &token.kind {
            let wrong = Diagnostic::new(token.at, format!("invalid number `{word}`"));
            self.sink.push(wrong.hint("number formats: 10, 0xff, 0b101, 8w255, 4s7; at most 128 bits"));
            token.kind = TokenKind::Number(0.into(), None);
        }
        self.out.push(token);
    }

    /// Appends a name, or its expansion if it is a macro.
    fn name(&mut self, token: Token, scanner: &mut Scanner<'_>) {
        let TokenKind::Name(name) = &token.kind else { return };
        let Some(known) = self.macros.get(name) else {
            self.out.push(token);
            return;
        };
        let mut call = vec![token];
        if known.parameters.is_some() {
            let mut unheard = Sink::default();
            let mut open = 0_usize;
            let mut ahead = scanner.clone();
            loop {
                let token = ahead.next(&mut unheard);
                if open == 0 && !token.kind.is("(") || matches!(token.kind, TokenKind::End | TokenKind::Hash) {
                    break;
                }
                if token.kind.is("(") {
                    open += 1;
                } else if token.kind.is(")") {
                    open -= 1;
                }
                call.push(token);
                if open == 0 || call.len() > TOKENS_MAX {
                    break;
                }
            }
            // A function-like macro without `(` stays a plain name; the scanner still has to follow the skipped tokens.
            for _ in 1..call.len() {
                scanner.next(self.sink);
            }
        }
        self.expand(call);
    }
}
