//! Expressions.

use super::types::Type;
use super::value::Val;
use super::{Checked, Checker, Item, Num, fold};
use crate::ast::{self, ExprKind, Operator};
use crate::diag::Diagnostic;
use crate::ir::{Binary, Expr, Span, StmtKind, Ty, Unary};
use crate::lex::Width;

impl<'a> Checker<'a> {
    /// What an expression is worth. What it calls is written before.
    pub(super) fn expr(&mut self, expr: &ast::Expr) -> Checked<Val> {
        self.nested(expr.at, |checker| checker.expr_within(expr))
    }

    fn expr_within(&mut self, expr: &ast::Expr) -> Checked<Val> {
        let at = expr.at;
        match &expr.kind {
            ExprKind::Number(number, width) => self.literal(*number, *width, at),
            ExprKind::Bool(value) => Ok(Val::bool(*value)),
            ExprKind::Text(_) => Ok(Val::Text),
            ExprKind::Name(name) => self.named(name, at),
            ExprKind::Member(of, name) => self.member(of, name, at),
            ExprKind::Index(of, index) => self.index(of, index, at),
            ExprKind::Slice(of, high, low) => self.slice(of, high, low),
            ExprKind::Unary(op, of) => self.unary(*op, of, at),
            ExprKind::Binary(Operator::Ir(op @ (Binary::LogicalAnd | Binary::LogicalOr)), left, right) => {
                self.logical(*op, left, right, at)
            }
            ExprKind::Binary(op, left, right) => self.binary(*op, left, right, at),
            ExprKind::Mux(condition, then, otherwise) => self.mux(condition, then, otherwise, at),
            ExprKind::Cast(ty, of) => {
                let ty = self.ty(ty)?;
                let of = self.expr(of)?;
                self.cast(of, &ty, at)
            }
            ExprKind::List(items) => Ok(Val::List(self.in_order(items.iter(), at)?)),
            ExprKind::Record(items) => {
                for (n, (name, _)) in items.iter().enumerate() {
                    if items[..n].iter().any(|(first, _)| first.text == name.text) {
                        return self.fail(Diagnostic::new(name.at, format!("a second value for `{}`", name.text)));
                    }
                }
                let values = self.in_order(items.iter().map(|(_, item)| item), at)?;
                Ok(Val::Record(items.iter().map(|(name, _)| name.clone()).zip(values).collect()))
            }
            ExprKind::Call { of, types, args } => self.call(of, types, args, at),
            ExprKind::Mask(..) | ExprKind::Range(..) => {
                let wrong = Diagnostic::new(at, "a set of values outside of `select` and entries");
                self.fail(wrong.hint("write `x & mask == value` or `x >= low && x <= high`"))
            }
            ExprKind::Any => self.fail(Diagnostic::new(at, "`_` is no value here")),
        }
    }

    /// Values of some expressions: what one of them changes, those before it did not see.
    fn in_order<'x>(&mut self, exprs: impl Iterator<Item = &'x ast::Expr>, at: Span) -> Checked<Vec<Val>> {
        let mut values: Vec<Val> = Vec::new();
        for expr in exprs {
            let before = self.block.len();
            let value = self.expr(expr)?;
            if self.block.len() > before {
                let earlier = std::mem::take(&mut values).into_iter();
                values = earlier.map(|value| self.kept_before(value, before, at)).collect::<Checked<_>>()?;
            }
            values.push(value);
        }
        Ok(values)
    }

    /// A value of one slot's type; `int` becomes the type that is wanted.
    pub(super) fn expr_as(&mut self, expr: &ast::Expr, ty: &Type) -> Checked<Expr> {
        let value = self.expr(expr)?;
        let value = self.coerce(value, ty, expr.at)?;
        Ok(self.scalar(&value, expr.at)?.1)
    }

    pub(super) fn condition(&mut self, expr: &ast::Expr) -> Checked<Expr> {
        self.expr_as(expr, &Type::Bool)
    }

    fn literal(&mut self, number: Num, width: Option<Width>, at: Span) -> Checked<Val> {
        let Some(width) = width else { return Ok(Val::Num(number)) };
        if width.bits == 0 || width.bits > super::types::WIDTH_MAX {
            let wrong = Diagnostic::new(at, format!("a width is 1 to 128, not {}", width.bits));
            return self.fail(wrong.hint("wider fields are two fields, or bytes that the handler reads"));
        }
        let bits = width.bits as u16;
        let ty = if width.signed { Type::Int(bits) } else { Type::Bit(bits) };
        self.coerce(Val::Num(number), &ty, at)
    }

    fn named(&mut self, name: &str, at: Span) -> Checked<Val> {
        let what = match self.lookup(name) {
            Some(Item::Const(value)) => return Ok(value),
            Some(Item::Var { place, .. }) => return Ok(Val::Place(place)),
            Some(Item::Wrong) => return Err(crate::diag::Reported),
            Some(Item::Type(_)) => "a type",
            Some(Item::Action(_)) => "an action",
            Some(Item::Table(_)) => "a table",
            Some(Item::Function(_)) => "a function",
            Some(Item::Control(_)) => "a control",
            Some(Item::Parser(_)) => "a parser",
            Some(Item::Instance(_)) => "an instance",
            Some(Item::Register(..)) => "a register",
            Some(Item::Counter(_)) => "a counter",
            Some(Item::Partition(_)) => "a partition",
            Some(Item::PacketIn | Item::PacketOut) => "a packet",
            None => return self.unknown(at, name, "value"),
        };
        self.fail(Diagnostic::new(at, format!("expected a value, found {what}: `{name}`")))
    }

    fn unary(&mut self, op: Unary, of: &ast::Expr, at: Span) -> Checked<Val> {
        let value = self.expr(of)?;
        let right = match (&value, op) {
            (Val::Num(number), Unary::Negate) => return Ok(Val::Num(number.negate())),
            // ~x is -x - 1.
            (Val::Num(number), Unary::Complement) => match number.negate().add(Num::from(1).negate()) {
                Some(number) => return Ok(Val::Num(number)),
                None => false,
            },
            (_, Unary::Not) => value.ty() == Some(Type::Bool),
            _ => value.ty().is_some_and(|ty| ty.base().numeric()),
        };
        if !right {
            let expected = if op == Unary::Not { "bool" } else { "a bit or int value" };
            let wrong = Diagnostic::new(at, format!("expected {expected}, found {}", value.describe()));
            return self.fail(match (op, value.ty()) {
                (Unary::Not, Some(Type::Bit(_))) => wrong.hint("`~` flips bits; `x == 0` asks whether all are 0"),
                _ => wrong,
            });
        }
        let (ty, expr) = self.scalar(&value, of.at)?;
        Ok(Val::Scalar(ty.base().clone(), fold::unary(op, expr)))
    }

    /// `&&`, `||`: if the right one calls something, only where the left one lets it.
    fn logical(&mut self, op: Binary, left: &ast::Expr, right: &ast::Expr, at: Span) -> Checked<Val> {
        let left = self.condition(left)?;
        let (written, right) = self.apart(|checker| checker.condition(right));
        let right = right?;
        if written.is_empty() {
            return Ok(Val::Scalar(Type::Bool, fold::binary(Ty::Bool, op, left, right)));
        }
        let to = self.temporary(Ty::Bool, at)?;
        let result = Expr::slot(Ty::Bool, to);
        self.emit(StmtKind::Assign { to, value: left }, at);
        let condition = if op == Binary::LogicalAnd { result.clone() } else { fold::unary(Unary::Not, result.clone()) };
        let (then, ()) = self.apart(|checker| {
            checker.block = written;
            checker.emit(StmtKind::Assign { to, value: right }, at);
        });
        self.emit(StmtKind::If { condition, then, otherwise: Vec::new() }, at);
        Ok(Val::Scalar(Type::Bool, result))
    }

    fn mux(&mut self, condition: &ast::Expr, then: &ast::Expr, otherwise: &ast::Expr, at: Span) -> Checked<Val> {
        let condition = self.condition(condition)?;
        let (first, a) = self.apart(|checker| checker.expr(then));
        let (second, b) = self.apart(|checker| checker.expr(otherwise));
        let (a, b) = self.alike(a?, b?, at)?;
        let ((ty, a), (_, b)) = match (self.scalar(&a, then.at), self.scalar(&b, otherwise.at)) {
            (Ok(a), Ok(b)) => (a, b),
            _ => return Err(crate::diag::Reported),
        };
        if first.is_empty() && second.is_empty() {
            return Ok(Val::Scalar(ty, fold::mux(condition, a, b)));
        }
        let to = self.temporary(a.ty, at)?;
        let result = Expr::slot(a.ty, to);
        let [then, otherwise] = [(first, a), (second, b)].map(|(written, value)| {
            let write = |checker: &mut Self| {
                checker.block = written;
                checker.emit(StmtKind::Assign { to, value }, at);
            };
            self.apart(write).0
        });
        self.emit(StmtKind::If { condition, then, otherwise }, at);
        Ok(Val::Scalar(ty, result))
    }
}
