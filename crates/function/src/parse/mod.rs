//! Tokens to a tree, by recursive descent: a function for each rule of the grammar.
//!
//! After a mistake, reading goes on behind the next `;` or `}`: one run tells several.

mod control;
mod decl;
mod expr;
mod handler;
mod parser;
mod stmt;
mod types;

use crate::ast::{Annotation, Decl, Name};
use crate::diag::{Diagnostic, Reported, Sink};
use crate::ir::Span;
use crate::lex::{Kind, Token};
use std::collections::HashSet;
use std::rc::Rc;

/// How deep a program is nested: braces, brackets, operators.
pub(crate) const DEPTH_MAX: u16 = 64;

/// Words that are no names (P4_16 §6.3.2; those that may be, like `key`, are not here).
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

/// Names of types that come with the architecture: `register<…>` begins type arguments.
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

/// A whole program; what could not be read is left out, and told.
pub(crate) fn program(tokens: &[Token], sink: &mut Sink) -> Vec<Decl> {
    let types = TYPES.iter().map(|name| Rc::from(*name)).collect();
    Parser { tokens, at: 0, sink, depth: 0, stopped: false, types }.program()
}

struct Parser<'a> {
    /// The last one is the end.
    tokens: &'a [Token],
    at: usize,
    sink: &'a mut Sink,
    depth: u16,
    /// Too deep: nothing more is read, and nothing more told.
    stopped: bool,
    /// What is known to be a type: tells `(a) b` the cast from brackets.
    types: HashSet<Rc<str>>,
}

impl Parser<'_> {
    fn kind(&self) -> &Kind {
        &self.tokens[self.at].kind
    }

    /// The token so far behind this one; the end behind all.
    fn ahead(&self, by: usize) -> &Token {
        &self.tokens[(self.at + by).min(self.tokens.len() - 1)]
    }

    fn here(&self) -> Span {
        self.tokens[self.at].at
    }

    /// From there to the token before this one.
    fn since(&self, start: Span) -> Span {
        let last = self.tokens[self.at.saturating_sub(1)].at;
        if last.file == start.file && last.end > start.start { Span { end: last.end, ..start } } else { start }
    }

    fn is(&self, text: &str) -> bool {
        self.kind().is(text)
    }

    fn step(&mut self) -> Token {
        let token = self.tokens[self.at].clone();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    /// Passes over it, if it comes.
    fn eat(&mut self, text: &str) -> bool {
        let is = self.is(text);
        if is {
            self.step();
        }
        is
    }

    fn fail<T>(&mut self, diagnostic: Diagnostic) -> Parsed<T> {
        if !self.stopped {
            self.sink.push(diagnostic);
        }
        Err(Reported)
    }

    /// Complains of this token.
    fn unexpected<T>(&mut self, expected: &str) -> Parsed<T> {
        let mut wrong = Diagnostic::new(self.here(), format!("expected {expected}, found {}", self.kind()));
        if let Kind::Name(word) = self.kind()
            && KEYWORDS.contains(&&**word)
            && expected.contains("name")
        {
            wrong = wrong.hint(format!("`{word}` is a keyword"));
        }
        self.fail(wrong)
    }

    fn expect(&mut self, text: &str) -> Parsed<Span> {
        if self.is(text) {
            return Ok(self.step().at);
        }
        // What is lacking at a line's end is lacking there, not at the next line's beginning.
        if text == ";" && self.at > 0 && self.tokens[self.at].first {
            let before = self.tokens[self.at - 1].at;
            let at = Span { start: before.end, end: before.end, ..before };
            let message = format!("expected `;`, found {}", self.kind());
            return self.fail(Diagnostic::new(at, message));
        }
        self.unexpected(&format!("`{text}`"))
    }

    fn name(&mut self, what: &str) -> Parsed<Name> {
        match self.kind() {
            Kind::Name(text) if !KEYWORDS.contains(&&**text) => {
                let name = Name { text: Rc::clone(text), at: self.here() };
                self.step();
                Ok(name)
            }
            _ => self.unexpected(what),
        }
    }

    /// Keeps the nesting bounded.
    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth >= DEPTH_MAX {
            return self.too_deep(self.here());
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    fn too_deep<T>(&mut self, at: Span) -> Parsed<T> {
        let wrong = Diagnostic::new(at, format!("nested more than {DEPTH_MAX} deep"));
        let failed = self.fail(wrong.hint("give parts of it names of their own"));
        // Whoever called would find the same again at each token.
        self.stopped = true;
        self.at = self.tokens.len() - 1;
        failed
    }

    /// `item, item, …` up to `end`, that is passed over; a comma may stand before it.
    fn list<T>(&mut self, end: &str, mut item: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        let mut items = Vec::new();
        while !self.is(end) {
            items.push(item(self)?);
            if !self.eat(",") && !self.is(end) {
                return self.unexpected(&format!("`,` or `{end}`"));
            }
        }
        self.step();
        Ok(items)
    }

    /// After a mistake: behind the next `;`, or behind the `}` of a block that began on the way, or before one that
    /// did not.
    fn recover(&mut self) {
        let mut open = 0_usize;
        loop {
            match self.kind() {
                Kind::End => return,
                Kind::Punct("{") => open += 1,
                Kind::Punct("}") if open == 0 => return,
                Kind::Punct("}") => {
                    open -= 1;
                    if open == 0 {
                        self.step();
                        self.eat(";");
                        return;
                    }
                }
                Kind::Punct(";") if open == 0 => {
                    self.step();
                    return;
                }
                _ => {}
            }
            self.step();
        }
    }

    /// Items up to `}`, that is passed over; one that can't be read is left out.
    fn braced<T>(&mut self, mut item: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        let open = self.expect("{")?;
        let mut items = Vec::new();
        while !self.is("}") {
            if *self.kind() == Kind::End {
                let wrong = Diagnostic::new(self.here(), "expected `}`, found the end of the file");
                return self.fail(wrong.also(open, "this `{` is open"));
            }
            let before = self.at;
            match item(self) {
                Ok(item) => items.push(item),
                Err(Reported) => {
                    self.recover();
                    if self.at == before && !self.is("}") {
                        self.step();
                    }
                }
            }
        }
        self.step();
        Ok(items)
    }

    /// `@name("text") @other …` before a declaration.
    fn annotations(&mut self) -> Parsed<Vec<Annotation>> {
        let mut annotations = Vec::new();
        while self.eat("@") {
            let at = self.here();
            let Kind::Name(text) = self.kind().clone() else { return self.unexpected("an annotation's name") };
            self.step();
            if let Some((known, hint)) = meant(&text) {
                let wrong = Diagnostic::new(at, format!("no annotation `@{text}`"));
                return self.fail(wrong.hint(format!("there is `@{known}`: {hint}")));
            }
            let mut string = None;
            if self.is("(") || self.is("[") {
                let mut open = 0_usize;
                loop {
                    match self.kind() {
                        Kind::Punct("(" | "[" | "{") => open += 1,
                        Kind::Punct(")" | "]" | "}") => open -= 1,
                        Kind::Text(text) => string = string.or(Some(Rc::clone(text))),
                        Kind::End => return self.unexpected("the annotation's end"),
                        _ => {}
                    }
                    self.step();
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

/// Annotations that change what a program does, and what they are for.
const ANNOTATIONS: [(&str, &str); 3] = [
    ("flow", "packets that agree in these parameters of a request go to one server"),
    ("mirrored", "servers hold all of a table, or cells of a register that its entries name"),
    ("index", "the parameter of an action that is the index of mirrored registers"),
];

/// The annotation that was probably meant; others say nothing here, as P4_16 has it (§20).
fn meant(name: &str) -> Option<(&'static str, &'static str)> {
    let found = crate::check::closest(name, ANNOTATIONS.iter().map(|(known, _)| *known).collect())?;
    ANNOTATIONS.into_iter().find(|(known, _)| *known == found && found != name)
}
