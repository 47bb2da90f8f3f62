//! Expressions, by precedence (P4_16 §8).

use super::{DEPTH_MAX, KEYWORDS, Parsed, Parser};
use crate::ast::{Arg, Expr, ExprKind, Name, Operator};
use crate::diag::Diagnostic;
use crate::ir::{Binary, Span, Unary};
use crate::lex::Kind;
use std::rc::Rc;

/// Operators, how strongly they bind; all from the left. As in C, but `&`, `^` and `|` bind more than comparisons.
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
    pub(super) fn expr(&mut self) -> Parsed<Expr> {
        self.nested(|parser| {
            let condition = parser.binary(1)?;
            if !parser.eat("?") {
                return Ok(condition);
            }
            let then = parser.expr()?;
            parser.expect(":")?;
            let otherwise = parser.expr()?;
            let (at, depth) = (parser.since(condition.at), condition.depth.max(then.depth).max(otherwise.depth));
            parser.node(ExprKind::Mux(Box::new(condition), Box::new(then), Box::new(otherwise)), at, depth)
        })
    }

    /// What may stand for a key: an expression, `value &&& mask`, `low .. high`, `_`, `default`.
    pub(super) fn keyset(&mut self) -> Parsed<Expr> {
        let start = self.here();
        if self.eat("default") || self.eat("_") {
            return self.node(ExprKind::Any, start, 0);
        }
        let left = self.expr()?;
        let mask = self.eat("&&&");
        if !mask && !self.eat("..") {
            return Ok(left);
        }
        let right = self.expr()?;
        let (at, depth) = (self.since(start), left.depth.max(right.depth));
        let kind = if mask { ExprKind::Mask } else { ExprKind::Range };
        self.node(kind(Box::new(left), Box::new(right)), at, depth)
    }

    /// Expressions in `{ }` or `( )`, or one alone: keys of a case or an entry.
    pub(super) fn keysets(&mut self) -> Parsed<Vec<Expr>> {
        if self.is("(") {
            let before = (self.at, self.depth);
            self.step();
            let keys = self.list(")", Self::keyset)?;
            // `(a + b) * c: state` began with brackets, but is one expression.
            if self.is(":") {
                return Ok(keys);
            }
            (self.at, self.depth) = before;
        }
        Ok(vec![self.keyset()?])
    }

    pub(super) fn node(&mut self, kind: ExprKind, at: Span, below: u16) -> Parsed<Expr> {
        if below >= DEPTH_MAX {
            return self.too_deep(at);
        }
        Ok(Expr { kind, at, depth: below + 1 })
    }

    fn operator(&self) -> Option<(Operator, u8, usize)> {
        let Kind::Punct(punct) = *self.kind() else { return None };
        let next = self.ahead(1);
        let (text, tokens) = if punct == ">" && next.joined && next.kind.is(">") { (">>", 2) } else { (punct, 1) };
        let (_, operator, strength) = OPERATORS.iter().find(|(known, ..)| *known == text)?;
        Some((*operator, *strength, tokens))
    }

    fn binary(&mut self, weakest: u8) -> Parsed<Expr> {
        let mut left = self.unary()?;
        while let Some((operator, strength, tokens)) = self.operator().filter(|(_, strength, _)| *strength >= weakest) {
            for _ in 0..tokens {
                self.step();
            }
            let right = self.nested(|parser| parser.binary(strength + 1))?;
            let (at, depth) = (self.since(left.at), left.depth.max(right.depth));
            left = self.node(ExprKind::Binary(operator, Box::new(left), Box::new(right)), at, depth)?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Parsed<Expr> {
        let start = self.here();
        let operator = match self.kind() {
            Kind::Punct("!") => Some(Unary::Not),
            Kind::Punct("~") => Some(Unary::Complement),
            Kind::Punct("-") => Some(Unary::Negate),
            Kind::Punct("+") => None,
            Kind::Punct("(") if self.begins_cast() => {
                self.step();
                let ty = self.ty()?;
                self.expect(")")?;
                let of = self.nested(Self::unary)?;
                let (at, depth) = (self.since(start), of.depth);
                return self.node(ExprKind::Cast(ty, Box::new(of)), at, depth);
            }
            _ => return self.operand(),
        };
        self.step();
        let of = self.nested(Self::unary)?;
        let (at, depth) = (self.since(start), of.depth);
        match operator {
            Some(operator) => self.node(ExprKind::Unary(operator, Box::new(of)), at, depth),
            None => Ok(of),
        }
    }

    /// `(bit<8>) x`, `(T) x`.
    fn begins_cast(&self) -> bool {
        let Kind::Name(word) = &self.ahead(1).kind else { return false };
        match &**word {
            "bit" | "int" | "bool" | "varbit" | "tuple" | "float" => true,
            "error" => self.ahead(2).kind.is(")"),
            word if !self.types.contains(word) => false,
            _ if self.ahead(2).kind.is("<") => true,
            _ => self.ahead(2).kind.is(")") && !matches!(self.ahead(3).kind, Kind::Punct("." | ")" | ";" | ",")),
        }
    }

    /// A primary and what follows it closely: `.name`, `[7:0]`, `(…)`.
    pub(super) fn operand(&mut self) -> Parsed<Expr> {
        let start = self.here();
        let mut expr = self.primary()?;
        loop {
            let depth = expr.depth;
            if self.eat(".") {
                if matches!((&expr.kind, self.kind()), (ExprKind::Number(..), Kind::Number(..) | Kind::NoNumber(_))) {
                    self.step();
                    let wrong = Diagnostic::new(self.since(start), "a number with a fraction");
                    return self
                        .fail(wrong.hint("an element only carries floats: say its bits, `(float)32w0x3FC00000`"));
                }
                let name = self.member()?;
                let at = self.since(start);
                expr = self.node(ExprKind::Member(Box::new(expr), name), at, depth)?;
            } else if self.eat("[") {
                let high = self.expr()?;
                let low = if self.eat(":") { Some(self.expr()?) } else { None };
                self.expect("]")?;
                let depth = depth.max(high.depth).max(low.as_ref().map_or(0, |low| low.depth));
                let kind = match low {
                    Some(low) => ExprKind::Slice(Box::new(expr), Box::new(high), Box::new(low)),
                    None => ExprKind::Index(Box::new(expr), Box::new(high)),
                };
                let at = self.since(start);
                expr = self.node(kind, at, depth)?;
            } else if self.is("(") || self.begins_type_arguments() {
                let types = if self.is("<") { self.type_arguments()? } else { Vec::new() };
                self.expect("(")?;
                let args = self.args()?;
                let depth = args.iter().fold(depth, |depth, arg| depth.max(arg.value.depth));
                let at = self.since(start);
                expr = self.node(ExprKind::Call { of: Box::new(expr), types, args }, at, depth)?;
            } else {
                return Ok(expr);
            }
        }
    }

    /// Behind `.`: `apply` and the like are names here.
    pub(super) fn member(&mut self) -> Parsed<Name> {
        match self.kind() {
            Kind::Name(text) => {
                let name = Name { text: Rc::clone(text), at: self.here() };
                self.step();
                Ok(name)
            }
            _ => self.unexpected("a name"),
        }
    }

    /// Behind `(`: up to `)`.
    pub(super) fn args(&mut self) -> Parsed<Vec<Arg>> {
        self.list(")", |parser| {
            let named = matches!(parser.kind(), Kind::Name(_)) && parser.ahead(1).kind.is("=");
            let name = if named { Some(parser.name("a parameter's name")?) } else { None };
            if named {
                parser.step();
            }
            let at = parser.here();
            let value = if parser.eat("_") { parser.node(ExprKind::Any, at, 0)? } else { parser.expr()? };
            Ok(Arg { name, value })
        })
    }

    fn primary(&mut self) -> Parsed<Expr> {
        let start = self.here();
        let kind = match self.kind().clone() {
            Kind::Number(value, width) => ExprKind::Number(value, width),
            Kind::Text(text) => ExprKind::Text(text),
            Kind::Name(word) if &*word == "true" => ExprKind::Bool(true),
            Kind::Name(word) if &*word == "false" => ExprKind::Bool(false),
            Kind::Name(word) if &*word == "error" || !KEYWORDS.contains(&&*word) => ExprKind::Name(word),
            Kind::Punct("(") => {
                self.step();
                let mut within = self.expr()?;
                self.expect(")")?;
                within.at = self.since(start);
                return Ok(within);
            }
            Kind::Punct("{") => return self.nested(Self::braces),
            // `.name`: the one at the top of the file.
            Kind::Punct(".") => {
                self.step();
                let name = self.name("a name")?;
                let at = self.since(start);
                return self.node(ExprKind::Name(name.text), at, 0);
            }
            _ => return self.unexpected("an expression"),
        };
        self.step();
        self.node(kind, start, 0)
    }

    /// `{ a, b }` or `{ x = a, y = b }`.
    fn braces(&mut self) -> Parsed<Expr> {
        let start = self.expect("{")?;
        if matches!(self.kind(), Kind::Name(_)) && self.ahead(1).kind.is("=") {
            let fields = self.list("}", |parser| {
                let name = parser.name("a field's name")?;
                parser.expect("=")?;
                Ok((name, parser.expr()?))
            })?;
            let depth = fields.iter().map(|(_, value)| value.depth).max().unwrap_or(0);
            let at = self.since(start);
            return self.node(ExprKind::Record(fields), at, depth);
        }
        let items = self.list("}", Self::expr)?;
        let depth = items.iter().map(|item| item.depth).max().unwrap_or(0);
        let at = self.since(start);
        self.node(ExprKind::List(items), at, depth)
    }

    /// The name of a type, to tell casts from brackets.
    pub(super) fn is_type(&mut self, name: &Name) {
        self.types.insert(Rc::clone(&name.text));
    }
}
