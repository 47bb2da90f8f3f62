//! Expressions, by operator precedence (P4_16 §8).

use super::{DEPTH_MAX, KEYWORDS, Parsed, Parser};
use crate::ast::{Arg, Expr, ExprKind, Name, Operator};
use crate::diag::Diagnostic;
use crate::ir::{Binary, SourceSpan, Unary};
use crate::lex::TokenKind;
use std::rc::Rc;

/// Binary operators with their precedence, all left-associative. As in C, but `&`, `^` and `|` bind tighter than
/// comparisons.
const OPERATORS: [(&str, Operator, u8); 21] = [
    ("||", Operator::Ir(Binary::LogicalOr), 1),
    ("&&", Operator::Ir(Binary::LogicalAnd), 2),
    ("==", Operator::Ir(Binary::Eq), 3),
    ("!=", Operator::Ir(Binary::Ne), 3),
    ("<", Operator::Ir(Binary::Lt), 4),
    ("<=", Operator::Ir(Binary::Le), 4),
    (">", Operator::Ir(Binary::Gt), 4),
    (">=", Operator::Ir(Binary::Ge), 4),
    ("|", Operator::Ir(Binary::Or), 5),
    ("^", Operator::Ir(Binary::Xor), 6),
    ("&", Operator::Ir(Binary::And), 7),
    ("<<", Operator::Ir(Binary::Shl), 8),
    ("++", Operator::Ir(Binary::Concat), 9),
    ("+", Operator::Ir(Binary::Add), 9),
    ("-", Operator::Ir(Binary::Sub), 9),
    ("|+|", Operator::Ir(Binary::AddSaturating), 9),
    ("|-|", Operator::Ir(Binary::SubSaturating), 9),
    ("*", Operator::Ir(Binary::Mul), 10),
    ("/", Operator::Div, 10),
    ("%", Operator::Mod, 10),
    (">>", Operator::Ir(Binary::Shr), 8),
];

impl Parser<'_> {
    pub(super) fn parse_expr(&mut self) -> Parsed<Expr> {
        self.run_nested(|parser| {
            let condition = parser.parse_binary(1)?;
            if !parser.eat("?") {
                return Ok(condition);
            }
            let then = parser.parse_expr()?;
            parser.expect(":")?;
            let otherwise = parser.parse_expr()?;
            let (at, depth) = (parser.span_since(condition.at), condition.depth.max(then.depth).max(otherwise.depth));
            parser.make_expr(ExprKind::Mux(Box::new(condition), Box::new(then), Box::new(otherwise)), at, depth)
        })
    }

    /// Parses a keyset: an expression, `value &&& mask`, `low .. high`, `_` or `default`.
    pub(super) fn parse_keyset(&mut self) -> Parsed<Expr> {
        let start = self.current_span();
        if self.eat("default") || self.eat("_") {
            return self.make_expr(ExprKind::Any, start, 0);
        }
        let left = self.parse_expr()?;
        let mask = self.eat("&&&");
        if !mask && !self.eat("..") {
            return Ok(left);
        }
        let right = self.parse_expr()?;
        let (at, depth) = (self.span_since(start), left.depth.max(right.depth));
        let kind = if mask { ExprKind::Mask } else { ExprKind::Range };
        self.make_expr(kind(Box::new(left), Box::new(right)), at, depth)
    }

    /// Parses the keysets of a case or an entry: a list in `{ }` or `( )`, or a single one.
    pub(super) fn parse_keysets(&mut self) -> Parsed<Vec<Expr>> {
        if self.is("(") {
            let before = (self.at, self.depth);
            self.advance();
            let keys = self.parse_list(")", Self::parse_keyset)?;
            // In `(a + b) * c: state` the parentheses belong to an expression.
            if self.is(":") {
                return Ok(keys);
            }
            (self.at, self.depth) = before;
        }
        Ok(vec![self.parse_keyset()?])
    }

    pub(super) fn make_expr(&mut self, kind: ExprKind, at: SourceSpan, below: u16) -> Parsed<Expr> {
        if below >= DEPTH_MAX {
            return self.report_too_deep(at);
        }
        Ok(Expr { kind, at, depth: below + 1 })
    }

    fn peek_operator(&self) -> Option<(Operator, u8, usize)> {
        let TokenKind::Punct(punct) = *self.kind() else { return None };
        let next = self.peek(1);
        let (text, tokens) = if punct == ">" && next.joined && next.kind.is(">") { (">>", 2) } else { (punct, 1) };
        let (_, operator, strength) = OPERATORS.iter().find(|(known, ..)| *known == text)?;
        Some((*operator, *strength, tokens))
    }

    fn parse_binary(&mut self, weakest: u8) -> Parsed<Expr> {
        let mut left = self.parse_unary()?;
        while let Some((operator, strength, tokens)) =
            self.peek_operator().filter(|(_, strength, _)| *strength >= weakest)
        {
            for _ in 0..tokens {
                self.advance();
            }
            let right = self.run_nested(|parser| parser.parse_binary(strength + 1))?;
            let (at, depth) = (self.span_since(left.at), left.depth.max(right.depth));
            left = self.make_expr(ExprKind::Binary(operator, Box::new(left), Box::new(right)), at, depth)?;
        }
        Ok(left)
    }

    fn parse_unary(&mut self) -> Parsed<Expr> {
        let start = self.current_span();
        let operator = match self.kind() {
            TokenKind::Punct("!") => Some(Unary::Not),
            TokenKind::Punct("~") => Some(Unary::Complement),
            TokenKind::Punct("-") => Some(Unary::Negate),
            TokenKind::Punct("+") => None,
            TokenKind::Punct("(") if self.begins_cast() => {
                self.advance();
                let ty = self.parse_type()?;
                self.expect(")")?;
                let of = self.run_nested(Self::parse_unary)?;
                let (at, depth) = (self.span_since(start), of.depth);
                return self.make_expr(ExprKind::Cast(ty, Box::new(of)), at, depth);
            }
            _ => return self.parse_operand(),
        };
        self.advance();
        let of = self.run_nested(Self::parse_unary)?;
        let (at, depth) = (self.span_since(start), of.depth);
        match operator {
            Some(operator) => self.make_expr(ExprKind::Unary(operator, Box::new(of)), at, depth),
            None => Ok(of),
        }
    }

    /// True if a cast follows: `(bit<8>) x` or `(T) x`.
    fn begins_cast(&self) -> bool {
        let TokenKind::Name(word) = &self.peek(1).kind else { return false };
        match &**word {
            "bit" | "int" | "bool" | "varbit" | "tuple" | "float" => true,
            "error" => self.peek(2).kind.is(")"),
            word if !self.types.contains(word) => false,
            _ if self.peek(2).kind.is("<") => true,
            _ => self.peek(2).kind.is(")") && !matches!(self.peek(3).kind, TokenKind::Punct("." | ")" | ";" | ",")),
        }
    }

    /// Parses a primary expression with its suffixes `.name`, `[7:0]` and `(…)`.
    pub(super) fn parse_operand(&mut self) -> Parsed<Expr> {
        let start = self.current_span();
        let mut expr = self.parse_primary()?;
        loop {
            let depth = expr.depth;
            if self.eat(".") {
                if matches!(
                    (&expr.kind, self.kind()),
                    (ExprKind::Number(..), TokenKind::Number(..) | TokenKind::NoNumber(_))
                ) {
                    self.advance();
                    let wrong = Diagnostic::new(self.span_since(start), "floating-point literals are not supported");
                    return self.fail(wrong.hint("write the bits of the float: `(float)32w0x3FC00000`"));
                }
                let name = self.parse_member_name()?;
                let at = self.span_since(start);
                expr = self.make_expr(ExprKind::Member(Box::new(expr), name), at, depth)?;
            } else if self.eat("[") {
                let high = self.parse_expr()?;
                let low = if self.eat(":") { Some(self.parse_expr()?) } else { None };
                self.expect("]")?;
                let depth = depth.max(high.depth).max(low.as_ref().map_or(0, |low| low.depth));
                let kind = match low {
                    Some(low) => ExprKind::Slice(Box::new(expr), Box::new(high), Box::new(low)),
                    None => ExprKind::Index(Box::new(expr), Box::new(high)),
                };
                let at = self.span_since(start);
                expr = self.make_expr(kind, at, depth)?;
            } else if self.is("(") || self.begins_type_arguments() {
                let types = if self.is("<") { self.parse_type_arguments()? } else { Vec::new() };
                self.expect("(")?;
                let args = self.parse_args()?;
                let depth = args.iter().fold(depth, |depth, arg| depth.max(arg.value.depth));
                let at = self.span_since(start);
                expr = self.make_expr(ExprKind::Call { of: Box::new(expr), types, args }, at, depth)?;
            } else {
                return Ok(expr);
            }
        }
    }

    /// Parses a member name after `.`; keywords such as `apply` are allowed.
    pub(super) fn parse_member_name(&mut self) -> Parsed<Name> {
        match self.kind() {
            TokenKind::Name(text) => {
                let name = Name { text: Rc::clone(text), at: self.current_span() };
                self.advance();
                Ok(name)
            }
            _ => self.report_unexpected("a name"),
        }
    }

    /// Parses arguments after `(`, up to and including `)`.
    pub(super) fn parse_args(&mut self) -> Parsed<Vec<Arg>> {
        self.parse_list(")", |parser| {
            let named = matches!(parser.kind(), TokenKind::Name(_)) && parser.peek(1).kind.is("=");
            let name = if named { Some(parser.parse_name("a parameter name")?) } else { None };
            if named {
                parser.advance();
            }
            let at = parser.current_span();
            let value = if parser.eat("_") { parser.make_expr(ExprKind::Any, at, 0)? } else { parser.parse_expr()? };
            Ok(Arg { name, value })
        })
    }

    fn parse_primary(&mut self) -> Parsed<Expr> {
        let start = self.current_span();
        let kind = match self.kind().clone() {
            TokenKind::Number(value, width) => ExprKind::Number(value, width),
            TokenKind::Text(text) => ExprKind::Text(text),
            TokenKind::Name(word) if &*word == "true" => ExprKind::Bool(true),
            TokenKind::Name(word) if &*word == "false" => ExprKind::Bool(false),
            TokenKind::Name(word) if &*word == "error" || !KEYWORDS.contains(&&*word) => ExprKind::Name(word),
            TokenKind::Punct("(") => {
                self.advance();
                let mut within = self.parse_expr()?;
                self.expect(")")?;
                within.at = self.span_since(start);
                return Ok(within);
            }
            TokenKind::Punct("{") => return self.run_nested(Self::parse_braces),
            // `.name` refers to the top level.
            TokenKind::Punct(".") => {
                self.advance();
                let name = self.parse_name("a name")?;
                let at = self.span_since(start);
                return self.make_expr(ExprKind::Name(name.text), at, 0);
            }
            _ => return self.report_unexpected("an expression"),
        };
        self.advance();
        self.make_expr(kind, start, 0)
    }

    /// Parses `{ a, b }` or `{ x = a, y = b }`.
    fn parse_braces(&mut self) -> Parsed<Expr> {
        let start = self.expect("{")?;
        if matches!(self.kind(), TokenKind::Name(_)) && self.peek(1).kind.is("=") {
            let fields = self.parse_list("}", |parser| {
                let name = parser.parse_name("a field name")?;
                parser.expect("=")?;
                Ok((name, parser.parse_expr()?))
            })?;
            let depth = fields.iter().map(|(_, value)| value.depth).max().unwrap_or(0);
            let at = self.span_since(start);
            return self.make_expr(ExprKind::Record(fields), at, depth);
        }
        let items = self.parse_list("}", Self::parse_expr)?;
        let depth = items.iter().map(|item| item.depth).max().unwrap_or(0);
        let at = self.span_since(start);
        self.make_expr(ExprKind::List(items), at, depth)
    }

    /// Registers a type name, to distinguish casts from parentheses.
    pub(super) fn add_type(&mut self, name: &Name) {
        self.types.insert(Rc::clone(&name.text));
    }
}
