//! Conditions of `#if`: integers, `defined(NAME)` and the operators of C; undefined names are 0.

use super::preprocess::Preprocessor;
use crate::diag::Diagnostic;
use crate::ir::SourceSpan;
use crate::lex::{Token, TokenKind};

/// Largest nesting depth of parentheses.
const DEPTH_MAX: usize = 32;
/// Binary operators, weakest precedence first.
const LEVELS: [&[&str]; 5] = [&["||"], &["&&"], &["==", "!="], &["<", "<=", ">", ">="], &["+", "-"]];

impl Preprocessor<'_> {
    /// Evaluates a condition; `at` is the position for a diagnostic if the condition is empty.
    pub fn holds(&mut self, tokens: Vec<Token>, at: SourceSpan) -> bool {
        let mut known = Vec::new();
        let mut rest = tokens.as_slice();
        while let [token, after @ ..] = rest {
            rest = after;
            let named = match (token.kind.is("defined"), after) {
                (true, [open, Token { kind: TokenKind::Name(name), .. }, close, after @ ..])
                    if open.kind.is("(") && close.kind.is(")") =>
                {
                    Some((name, after))
                }
                (true, [Token { kind: TokenKind::Name(name), .. }, after @ ..]) => Some((name, after)),
                _ => None,
            };
            if let Some((name, after)) = named {
                let defined = u128::from(self.macros.contains_key(name));
                known.push(Token { kind: TokenKind::Number(defined.into(), None), ..token.clone() });
                rest = after;
            } else {
                known.push(token.clone());
            }
        }
        let mut tokens = Vec::new();
        self.expand_into(&known, &mut Vec::new(), &mut tokens);
        let mut reading = ConditionParser { tokens: &tokens, at: 0 };
        match reading.level(0, 0).filter(|_| reading.at == tokens.len()) {
            Some(value) => value != 0,
            None => {
                let found = tokens.get(reading.at).map_or("nothing".to_owned(), |token| token.kind.to_string());
                let at = tokens.get(reading.at).map_or(at, |token| token.at);
                self.sink.push(Diagnostic::new(at, format!("expected an integer condition, found {found}")));
                false
            }
        }
    }
}

struct ConditionParser<'a> {
    tokens: &'a [Token],
    at: usize,
}

impl ConditionParser<'_> {
    fn level(&mut self, level: usize, depth: usize) -> Option<i128> {
        let Some(operators) = LEVELS.get(level) else { return self.operand(depth) };
        let mut left = self.level(level + 1, depth)?;
        while let Some(operator) =
            self.tokens.get(self.at).and_then(|token| operators.iter().find(|operator| token.kind.is(operator)))
        {
            self.at += 1;
            let right = self.level(level + 1, depth)?;
            left = match *operator {
                "||" => i128::from(left != 0 || right != 0),
                "&&" => i128::from(left != 0 && right != 0),
                "==" => i128::from(left == right),
                "!=" => i128::from(left != right),
                "<" => i128::from(left < right),
                "<=" => i128::from(left <= right),
                ">" => i128::from(left > right),
                ">=" => i128::from(left >= right),
                "+" => left.wrapping_add(right),
                _ => left.wrapping_sub(right),
            };
        }
        Some(left)
    }

    fn operand(&mut self, depth: usize) -> Option<i128> {
        let token = self.tokens.get(self.at).filter(|_| depth < DEPTH_MAX)?;
        self.at += 1;
        match &token.kind {
            TokenKind::Number(number, _) => number.to_i128(),
            TokenKind::Name(_) => Some(0),
            TokenKind::Punct("!") => Some(i128::from(self.operand(depth + 1)? == 0)),
            TokenKind::Punct("-") => Some(self.operand(depth + 1)?.wrapping_neg()),
            TokenKind::Punct("(") => {
                let value = self.level(0, depth + 1)?;
                let close = self.tokens.get(self.at)?;
                self.at += 1;
                close.kind.is(")").then_some(value)
            }
            _ => None,
        }
    }
}
