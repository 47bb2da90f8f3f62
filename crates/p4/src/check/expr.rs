//! Expressions.

use super::types::Type;
use super::value::Val;
use super::{Checked, Checker, Item, Num, fold};
use crate::ast::{self, ExprKind, Operator};
use crate::diag::Diagnostic;
use crate::ir::{Binary, Expr, SourceSpan, StmtKind, Ty, Unary};
use crate::lex::Width;

impl<'a> Checker<'a> {
    /// Type-checks an expression; its calls are emitted as statements first.
    pub(super) fn check_expr(&mut self, expr: &ast::Expr) -> Checked<Val> {
        self.run_nested(expr.at, |checker| checker.check_expr_inner(expr))
    }

    fn check_expr_inner(&mut self, expr: &ast::Expr) -> Checked<Val> {
        let at = expr.at;
        match &expr.kind {
            ExprKind::Number(number, width) => self.check_literal(*number, *width, at),
            ExprKind::Bool(value) => Ok(Val::bool(*value)),
            ExprKind::Text(_) => Ok(Val::Text),
            ExprKind::Name(name) => self.resolve_value(name, at),
            ExprKind::Member(of, name) => self.check_member(of, name, at),
            ExprKind::Index(of, index) => self.check_index(of, index, at),
            ExprKind::Slice(of, high, low) => self.check_slice(of, high, low),
            ExprKind::Unary(op, of) => self.check_unary(*op, of, at),
            ExprKind::Binary(Operator::Ir(op @ (Binary::LogicalAnd | Binary::LogicalOr)), left, right) => {
                self.check_logical(*op, left, right, at)
            }
            ExprKind::Binary(op, left, right) => self.check_binary(*op, left, right, at),
            ExprKind::Mux(condition, then, otherwise) => self.check_mux(condition, then, otherwise, at),
            ExprKind::Cast(ty, of) => {
                let ty = self.resolve_type(ty)?;
                let of = self.check_expr(of)?;
                self.check_cast(of, &ty, at)
            }
            ExprKind::List(items) => Ok(Val::List(self.check_in_order(items.iter(), at)?)),
            ExprKind::Record(items) => {
                for (n, (name, _)) in items.iter().enumerate() {
                    if items[..n].iter().any(|(first, _)| first.text == name.text) {
                        return self.fail(Diagnostic::new(name.at, format!("duplicate value for `{}`", name.text)));
                    }
                }
                let values = self.check_in_order(items.iter().map(|(_, item)| item), at)?;
                Ok(Val::Record(items.iter().map(|(name, _)| name.clone()).zip(values).collect()))
            }
            ExprKind::Call { of, types, args } => self.check_call(of, types, args, at),
            ExprKind::Mask(..) | ExprKind::Range(..) => {
                let wrong = Diagnostic::new(at, "a set of values is allowed in `select` and table entries only");
                self.fail(wrong.hint("write `x & mask == value` or `x >= low && x <= high`"))
            }
            ExprKind::Any => self.fail(Diagnostic::new(at, "`_` is not a value")),
        }
    }

    /// Type-checks expressions in order; a side effect of one does not change the values before it.
    fn check_in_order<'x>(&mut self, exprs: impl Iterator<Item = &'x ast::Expr>, at: SourceSpan) -> Checked<Vec<Val>> {
        let mut values: Vec<Val> = Vec::new();
        for expr in exprs {
            let before = self.block.len();
            let value = self.check_expr(expr)?;
            if self.block.len() > before {
                let earlier = std::mem::take(&mut values).into_iter();
                values = earlier.map(|value| self.save_before(value, before, at)).collect::<Checked<_>>()?;
            }
            values.push(value);
        }
        Ok(values)
    }

    /// Type-checks an expression against a scalar type; an `int` constant takes that type.
    pub(super) fn check_expr_as(&mut self, expr: &ast::Expr, ty: &Type) -> Checked<Expr> {
        let value = self.check_expr(expr)?;
        let value = self.coerce(value, ty, expr.at)?;
        Ok(self.load_scalar(&value, expr.at)?.1)
    }

    pub(super) fn check_condition(&mut self, expr: &ast::Expr) -> Checked<Expr> {
        self.check_expr_as(expr, &Type::Bool)
    }

    fn check_literal(&mut self, number: Num, width: Option<Width>, at: SourceSpan) -> Checked<Val> {
        let Some(width) = width else { return Ok(Val::Num(number)) };
        if width.bits == 0 || width.bits > super::types::WIDTH_MAX {
            let wrong = Diagnostic::new(at, format!("invalid width {} (1 to 128)", width.bits));
            return self.fail(wrong.hint("split a wider field, or let the handler read its bytes"));
        }
        let bits = width.bits as u16;
        let ty = if width.signed { Type::Int(bits) } else { Type::Bit(bits) };
        self.coerce(Val::Num(number), &ty, at)
    }

    fn resolve_value(&mut self, name: &str, at: SourceSpan) -> Checked<Val> {
        let what = match self.lookup(name) {
            Some(Item::Const(value)) => return Ok(value),
            Some(Item::Var { place, .. }) => return Ok(Val::Place(place)),
            Some(Item::Invalid) => return Err(crate::diag::Reported),
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
            None => return self.report_unknown(at, name, "value"),
        };
        self.fail(Diagnostic::new(at, format!("expected a value, found {what} `{name}`")))
    }

    fn check_unary(&mut self, op: Unary, of: &ast::Expr, at: SourceSpan) -> Checked<Val> {
        let value = self.check_expr(of)?;
        let right = match (&value, op) {
            (Val::Num(number), Unary::Negate) => return Ok(Val::Num(number.negate())),
            // ~x = -x - 1.
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
                (Unary::Not, Some(Type::Bit(_))) => wrong.hint("`~` inverts bits; to test for zero write `x == 0`"),
                _ => wrong,
            });
        }
        let (ty, expr) = self.load_scalar(&value, of.at)?;
        Ok(Val::Scalar(ty.base().clone(), fold::unary(op, expr)))
    }

    /// Type-checks `&&` and `||`; a right operand with calls is emitted under a condition.
    fn check_logical(&mut self, op: Binary, left: &ast::Expr, right: &ast::Expr, at: SourceSpan) -> Checked<Val> {
        let left = self.check_condition(left)?;
        let (written, right) = self.collect_block(|checker| checker.check_condition(right));
        let right = right?;
        if written.is_empty() {
            return Ok(Val::Scalar(Type::Bool, fold::binary(Ty::Bool, op, left, right)));
        }
        let to = self.new_temporary(Ty::Bool, at)?;
        let result = Expr::slot(Ty::Bool, to);
        self.emit(StmtKind::Assign { to, value: left }, at);
        let condition = if op == Binary::LogicalAnd { result.clone() } else { fold::unary(Unary::Not, result.clone()) };
        let (then, ()) = self.collect_block(|checker| {
            checker.block = written;
            checker.emit(StmtKind::Assign { to, value: right }, at);
        });
        self.emit(StmtKind::If { condition, then, otherwise: Vec::new() }, at);
        Ok(Val::Scalar(Type::Bool, result))
    }

    fn check_mux(
        &mut self,
        condition: &ast::Expr,
        then: &ast::Expr,
        otherwise: &ast::Expr,
        at: SourceSpan,
    ) -> Checked<Val> {
        let condition = self.check_condition(condition)?;
        let (first, a) = self.collect_block(|checker| checker.check_expr(then));
        let (second, b) = self.collect_block(|checker| checker.check_expr(otherwise));
        let (a, b) = self.unify(a?, b?, at)?;
        let ((ty, a), (_, b)) = match (self.load_scalar(&a, then.at), self.load_scalar(&b, otherwise.at)) {
            (Ok(a), Ok(b)) => (a, b),
            _ => return Err(crate::diag::Reported),
        };
        if first.is_empty() && second.is_empty() {
            return Ok(Val::Scalar(ty, fold::mux(condition, a, b)));
        }
        let to = self.new_temporary(a.ty, at)?;
        let result = Expr::slot(a.ty, to);
        let [then, otherwise] = [(first, a), (second, b)].map(|(written, value)| {
            let write = |checker: &mut Self| {
                checker.block = written;
                checker.emit(StmtKind::Assign { to, value }, at);
            };
            self.collect_block(write).0
        });
        self.emit(StmtKind::If { condition, then, otherwise }, at);
        Ok(Val::Scalar(ty, result))
    }
}
