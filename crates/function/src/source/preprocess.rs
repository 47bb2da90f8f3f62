//! Files to one stream of tokens: `#include`, `#define`, `#if` are followed on the way (P4_16 §6.2).

use super::expand::Macro;
use super::{Input, Sources};
use crate::diag::{Diagnostic, Sink};
use crate::ir::Span;
use crate::lex::{Kind, Scanner, Token};
use std::collections::HashMap;
use std::rc::Rc;

/// How deep files include one another.
const INCLUDE_DEPTH_MAX: usize = 16;
/// All tokens of a program.
const TOKENS_MAX: usize = 1 << 20;

/// A program's text, read.
pub(crate) struct Read {
    /// All tokens; the last one is [`Kind::End`].
    pub tokens: Vec<Token>,
    /// What stands defined at the end, a line each.
    pub defines: String,
}

/// Reads a program.
pub(crate) fn read(sources: &mut Sources, input: Input, sink: &mut Sink) -> Read {
    let mut reader = Reader { sources, sink, macros: HashMap::new(), out: Vec::new(), depth: 0, made: 0, nesting: 0 };
    match reader.sources.open(input) {
        Ok(file) => {
            reader.defined_outside();
            reader.file(file);
        }
        Err(why) => reader.sink.push(Diagnostic::new(Span::default(), why)),
    }
    let length = reader.sources.text(0).len() as u32;
    let end = Span { file: 0, start: length, end: length };
    let mut known: Vec<&Macro> = reader.macros.values().collect();
    known.sort_by_key(|known| known.at);
    let defines = known.iter().map(|known| format!("#define {}\n", known.text)).collect();
    let mut tokens = reader.out;
    tokens.push(Token { kind: Kind::End, at: end, joined: false, first: true });
    Read { tokens, defines }
}

/// Reads files.
pub(super) struct Reader<'a> {
    pub sources: &'a mut Sources,
    pub sink: &'a mut Sink,
    pub macros: HashMap<Rc<str>, Macro>,
    pub out: Vec<Token>,
    /// Files that are open.
    pub depth: usize,
    /// Tokens that macros have made so far.
    pub made: usize,
    /// Arguments of macros being worked on, each in the one before.
    pub nesting: usize,
}

/// An `#if` that is open.
pub(super) struct Condition {
    /// Its place.
    pub at: Span,
    /// Whether what stands here is read.
    pub active: bool,
    /// Whether a branch has been taken, or none may be.
    pub taken: bool,
    /// Whether `#else` has come.
    pub last: bool,
    /// Braces open where it began.
    pub braces: usize,
}

impl Reader<'_> {
    /// Reads a file and what it includes.
    pub fn file(&mut self, file: u16) {
        if self.depth >= INCLUDE_DEPTH_MAX {
            let at = Span { file, start: 0, end: 0 };
            self.sink.push(
                Diagnostic::new(at, format!("files include one another more than {INCLUDE_DEPTH_MAX} deep"))
                    .hint("guard a file with #ifndef … #define … #endif"),
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
                Kind::End => break,
                Kind::Hash => {
                    let line = scanner.rest_of_line();
                    self.directive(&text, line, &mut scanner, &mut conditions);
                }
                Kind::Name(_) if active => self.name(token, &mut scanner),
                _ if active => self.put(token),
                _ => {}
            }
        }
        if self.out.len() >= TOKENS_MAX {
            let at = Span { file, start: 0, end: 0 };
            self.sink.push(Diagnostic::new(at, format!("more than {TOKENS_MAX} tokens")));
        }
        if let Some(open) = conditions.first() {
            self.sink.push(Diagnostic::new(open.at, "an `#if` without its `#endif`"));
        }
        self.depth -= 1;
    }

    /// What is defined before the first line: names from the command line.
    fn defined_outside(&mut self) {
        let text: String =
            self.sources.defines.iter().map(|(name, value)| format!("#define {name} {value}\n")).collect();
        if !text.is_empty() {
            match self.sources.add("<defined>".to_owned(), None, text) {
                Ok(file) => self.file(file),
                Err(why) => self.sink.push(Diagnostic::new(Span::default(), why)),
            }
        }
    }

    /// A token for the parser.
    pub fn put(&mut self, mut token: Token) {
        if let Kind::NoNumber(word) = &token.kind {
            let wrong = Diagnostic::new(token.at, format!("`{word}` is no number"));
            self.sink.push(wrong.hint("numbers look like 10, 0xff, 0b101, 8w255, 4s7, and have 128 bits at most"));
            token.kind = Kind::Number(0.into(), None);
        }
        self.out.push(token);
    }

    /// A name: itself, or what a macro makes of it.
    fn name(&mut self, token: Token, scanner: &mut Scanner<'_>) {
        let Kind::Name(name) = &token.kind else { return };
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
                if open == 0 && !token.kind.is("(") || matches!(token.kind, Kind::End | Kind::Hash) {
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
            // Not called: the name itself. Braces and lines within the arguments are the scanner's to follow.
            for _ in 1..call.len() {
                scanner.next(self.sink);
            }
        }
        self.expand(call);
    }
}
