//! Macro expansion: `#define NAME tokens` and `#define NAME(a, b) tokens`. Expanded tokens have the position of the
//! use.

use super::preprocess::Preprocessor;
use crate::diag::Diagnostic;
use crate::ir::SourceSpan;
use crate::lex::{Token, TokenKind};
use std::rc::Rc;

/// Largest nesting depth of expansions.
const MACRO_DEPTH_MAX: usize = 64;
/// Largest number of tokens from all expansions, intermediate ones included.
const MADE_MAX: usize = 1 << 20;

/// Macro definition.
#[derive(Debug, Clone)]
pub(super) struct Macro {
    /// Parameters; `Some` of an empty list for `NAME()`.
    pub parameters: Option<Vec<Rc<str>>>,
    pub body: Rc<[Token]>,
    /// Source line after `#define`.
    pub text: Rc<str>,
    pub at: SourceSpan,
}

impl Preprocessor<'_> {
    /// Expands tokens into the output; all get the position of the first token.
    pub fn expand(&mut self, tokens: Vec<Token>) {
        let mut out = Vec::new();
        self.expand_into(&tokens, &mut Vec::new(), &mut out);
        out.into_iter().for_each(|token| self.put(token));
    }

    /// Expands tokens into a list. `hidden` lists the macros that are being expanded and are not expanded again.
    pub fn expand_into(&mut self, tokens: &[Token], hidden: &mut Vec<Rc<str>>, out: &mut Vec<Token>) {
        let mut at = 0;
        while let Some(token) = tokens.get(at).filter(|_| self.made <= MADE_MAX) {
            at += 1;
            let found = match &token.kind {
                TokenKind::Name(name) if !hidden.contains(name) => self.macros.get_key_value(name),
                _ => None,
            };
            let Some((name, known)) = found else {
                out.push(token.clone());
                continue;
            };
            let (name, known) = (Rc::clone(name), known.clone());
            let mut body = known.body.to_vec();
            if let Some(parameters) = &known.parameters {
                if tokens.get(at).is_none_or(|next| !next.kind.is("(")) {
                    out.push(token.clone());
                    continue;
                }
                let (arguments, end) = arguments(tokens, at + 1);
                at = end;
                let given = if parameters.is_empty() && arguments == [[]] { 0 } else { arguments.len() };
                if given != parameters.len() {
                    let message = format!("macro `{name}` takes {} arguments, found {given}", parameters.len());
                    self.sink.push(Diagnostic::new(token.at, message));
                    continue;
                }
                body = self.substitute(&known, parameters, &arguments, hidden);
            }
            self.made += 1 + body.len();
            if self.made > MADE_MAX || hidden.len() >= MACRO_DEPTH_MAX {
                self.made = MADE_MAX + 1;
                self.sink.push(Diagnostic::new(token.at, "macro expansion is too large"));
                return;
            }
            for piece in &mut body {
                piece.at = token.at;
            }
            hidden.push(name);
            self.expand_into(&body, hidden, out);
            hidden.pop();
        }
    }

    /// Macro body with the expanded arguments in place of the parameters.
    fn substitute(
        &mut self,
        known: &Macro,
        parameters: &[Rc<str>],
        arguments: &[Vec<Token>],
        hidden: &mut Vec<Rc<str>>,
    ) -> Vec<Token> {
        let mut expanded = Vec::new();
        for argument in arguments {
            let mut out = Vec::new();
            // Bounds the recursion through nested arguments.
            if self.nesting < MACRO_DEPTH_MAX {
                self.nesting += 1;
                self.expand_into(argument, hidden, &mut out);
                self.nesting -= 1;
            } else {
                self.made = MADE_MAX + 1;
                let at = argument.first().map_or(known.at, |token| token.at);
                self.sink.push(Diagnostic::new(at, "macro expansion is too large"));
            }
            expanded.push(out);
        }
        let mut body = Vec::new();
        for piece in known.body.iter() {
            let place = match &piece.kind {
                TokenKind::Name(name) => parameters.iter().position(|parameter| parameter == name),
                _ => None,
            };
            match place {
                Some(place) => body.extend_from_slice(&expanded[place]),
                None => body.push(piece.clone()),
            }
            if body.len() > MADE_MAX {
                break;
            }
        }
        body
    }
}

/// Arguments after the `(` at `start`, and the index behind the closing `)`.
fn arguments(tokens: &[Token], start: usize) -> (Vec<Vec<Token>>, usize) {
    let mut arguments = vec![Vec::new()];
    let mut open = 1_usize;
    for (at, token) in tokens.iter().enumerate().skip(start) {
        if token.kind.is("(") {
            open += 1;
        } else if token.kind.is(")") {
            open -= 1;
            if open == 0 {
                return (arguments, at + 1);
            }
        } else if token.kind.is(",") && open == 1 {
            arguments.push(Vec::new());
            continue;
        }
        if let Some(last) = arguments.last_mut() {
            last.push(token.clone());
        }
    }
    (arguments, tokens.len())
}
