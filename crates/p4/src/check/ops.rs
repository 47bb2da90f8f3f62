//! Binary operators (P4_16 §8.5 to §8.10).

use super::types::Type;
use super::value::{Place, Val};
use super::{Checked, Checker, Num, fold};
use crate::ast::{self, Operator};
use crate::diag::Diagnostic;
use crate::ir::{Binary, Expr, ExprKind, SourceSpan, StmtKind, Ty};

/// Largest number of fields in one comparison.
const COMPARED_MAX: usize = 64;

impl Checker<'_> {
    pub(super) fn check_binary(
        &mut self,
        op: Operator,
        left: &ast::Expr,
        right: &ast::Expr,
        at: SourceSpan,
    ) -> Checked<Val> {
        let a = self.check_expr(left)?;
        let before = self.block.len();
        let b = self.check_expr(right)?;
        // The left operand is evaluated before the side effects of the right one.
        let a = if self.block.len() > before { self.save_before(a, before, left.at)? } else { a };
        if let (Val::Num(a), Val::Num(b)) = (&a, &b) {
            return self.eval_binary(op, *a, *b, at);
        }
        let Operator::Ir(op) = op else {
            let wrong = Diagnostic::new(at, "`/` and `%` are allowed for compile-time numbers only");
            return self.fail(wrong.hint("for a power of two, shift or mask; otherwise divide in the handler"));
        };
        match op {
            Binary::Shl | Binary::Shr => self.check_shift(op, a, b, (left.at, right.at)),
            Binary::Concat => {
                let (a, b) = (self.load_scalar(&a, left.at)?, self.load_scalar(&b, right.at)?);
                let width = a.1.ty.width() + b.1.ty.width();
                if !(a.0.base().numeric() && b.0.base().numeric() && u32::from(width) <= super::types::WIDTH_MAX) {
                    let wrong = format!("the result of `++` exceeds 128 bits: `{}` and `{}`", a.0, b.0);
                    return self.fail(Diagnostic::new(at, wrong));
                }
                let signed = matches!(a.0.base(), Type::Int(_));
                let joined = fold::concat(a.1, b.1);
                Ok(match signed {
                    true => Val::Scalar(Type::Int(width), fold::cast(joined, Ty::Int(width))),
                    false => Val::Scalar(Type::Bit(width), joined),
                })
            }
            Binary::Eq | Binary::Ne => self.check_equality(op, a, b, at),
            Binary::Lt | Binary::Le | Binary::Gt | Binary::Ge => {
                let (_, a, b) = self.unify_numbers(op, a, b, at)?;
                Ok(Val::Scalar(Type::Bool, fold::binary(Ty::Bool, op, a, b)))
            }
            _ => {
                let (ty, a, b) = self.unify_numbers(op, a, b, at)?;
                Ok(Val::Scalar(ty, fold::binary(a.ty, op, a, b)))
            }
        }
    }

    /// Saves a value as of statement `before`.
    pub(super) fn save_before(&mut self, value: Val, before: usize, at: SourceSpan) -> Checked<Val> {
        let after = self.block.split_off(before);
        let kept = self.save_value(value, at);
        self.block.extend(after);
        kept
    }

    /// Saves expressions as of statement `before`; no change if nothing was emitted since.
    pub(super) fn save_exprs_before(&mut self, exprs: &mut [Expr], before: usize, at: SourceSpan) -> Checked<()> {
        if self.block.len() == before {
            return Ok(());
        }
        let after = self.block.split_off(before);
        for expr in exprs.iter_mut().filter(|expr| !matches!(expr.kind, ExprKind::Const(_))) {
            let to = self.new_temporary(expr.ty, at)?;
            let value = std::mem::replace(expr, Expr::slot(expr.ty, to));
            self.emit(StmtKind::Assign { to, value }, at);
        }
        self.block.extend(after);
        Ok(())
    }

    /// Converts both operands to one type: an `int` constant takes the other's type.
    pub(super) fn unify(&mut self, a: Val, b: Val, at: SourceSpan) -> Checked<(Val, Val)> {
        let types = (a.ty(), b.ty());
        match types {
            (Some(Type::Num), Some(to)) if to != Type::Num => {
                let a = self.coerce(a, to.base(), at)?;
                Ok((a, b))
            }
            (Some(to), Some(Type::Num)) if to != Type::Num => {
                let b = self.coerce(b, to.base(), at)?;
                Ok((a, b))
            }
            (Some(Type::Enum(of)), Some(to)) if of.of.as_ref() == Some(&to) => Ok((self.coerce(a, &to, at)?, b)),
            (Some(to), Some(Type::Enum(of))) if of.of.as_ref() == Some(&to) => Ok((a, self.coerce(b, &to, at)?)),
            (Some(to @ (Type::Struct(_) | Type::Header(_))), _) => Ok((a, self.coerce(b, &to, at)?)),
            (_, Some(to @ (Type::Struct(_) | Type::Header(_)))) => Ok((self.coerce(a, &to, at)?, b)),
            (Some(x), Some(y)) if x == y || are_tuples_of_same_length(&x, &y) => Ok((a, b)),
            _ => {
                let (x, y) = (a.describe(), b.describe());
                let wrong = Diagnostic::new(at, format!("mismatched operand types: {x} and {y}"));
                self.fail(match (a.ty(), b.ty()) {
                    (Some(Type::Bit(_)), Some(wider @ Type::Bit(_))) => wrong.hint(format!("add a cast: `({wider})`")),
                    _ => wrong,
                })
            }
        }
    }

    /// Type-checks both operands as numbers of one type.
    fn unify_numbers(&mut self, op: Binary, a: Val, b: Val, at: SourceSpan) -> Checked<(Type, Expr, Expr)> {
        let (a, b) = self.unify(a, b, at)?;
        let ty = a.ty().map(|ty| ty.base().clone());
        let Some(ty) = ty.filter(Type::numeric) else {
            let wrong = Diagnostic::new(at, format!("expected bit or int values, found {}", a.describe()));
            return self.fail(match a.ty() {
                Some(Type::Float) => wrong.hint("an element cannot compute with floats: do it in the handler"),
                Some(Type::Bool) if matches!(op, Binary::And | Binary::Or) => wrong.hint("write `&&` or `||`"),
                _ => wrong,
            });
        };
        let (a, b) = (self.load_scalar(&a, at)?.1, self.load_scalar(&b, at)?.1);
        Ok((ty, a, b))
    }

    fn check_shift(&mut self, op: Binary, a: Val, b: Val, (left, right): (SourceSpan, SourceSpan)) -> Checked<Val> {
        let (ty, a) = self.load_scalar(&a, left)?;
        let by = match b {
            Val::Num(number) => match number.to_u128() {
                Some(number) => Expr::constant(Ty::Bit(8), number.min(255)),
                None => return self.fail(Diagnostic::new(right, format!("invalid shift amount {number}"))),
            },
            _ => {
                let (by, expr) = self.load_scalar(&b, right)?;
                if !matches!(by.base(), Type::Bit(_)) {
                    let wrong = Diagnostic::new(right, format!("a shift amount cannot have type `{by}`"));
                    return self.fail(wrong.hint("use a `bit`"));
                }
                expr
            }
        };
        if !ty.base().numeric() {
            return self.fail(Diagnostic::new(left, format!("expected a bit or int value, found `{ty}`")));
        }
        let value = fold::binary(a.ty, op, a, by);
        Ok(Val::Scalar(ty.base().clone(), value))
    }

    /// Type-checks `==` and `!=`, of scalars and of whole structs, tuples and headers.
    fn check_equality(&mut self, op: Binary, a: Val, b: Val, at: SourceSpan) -> Checked<Val> {
        let (a, b) = self.unify(a, b, at)?;
        let mut slots = Vec::new();
        if let Val::Place(place) = &a {
            place.slots(&mut slots);
        }
        if slots.len() > COMPARED_MAX {
            let wrong = format!("comparison of {} fields (at most {COMPARED_MAX})", slots.len());
            return self.fail(Diagnostic::new(at, wrong).hint("compare the fields in groups"));
        }
        let same = self.compare_values(&a, &b, at)?;
        let result = match (op, same) {
            (Binary::Ne, Expr { kind: ExprKind::Binary(Binary::Eq, a, b), .. }) => {
                Expr::binary(Ty::Bool, Binary::Ne, *a, *b)
            }
            (Binary::Ne, same) => fold::unary(crate::ir::Unary::Not, same),
            (_, same) => same,
        };
        Ok(Val::Scalar(Type::Bool, result))
    }

    fn compare_values(&mut self, a: &Val, b: &Val, at: SourceSpan) -> Checked<Expr> {
        let parts = match a {
            Val::Place(Place::Struct(_, items) | Place::Header(_, _, items) | Place::Stack(_, items)) => items.len(),
            Val::Whole(_, items) | Val::List(items) => items.len(),
            _ => {
                let (a, b) = (self.load_scalar(a, at)?.1, self.load_scalar(b, at)?.1);
                return Ok(fold::binary(Ty::Bool, Binary::Eq, a, b));
            }
        };
        let mut all = Expr::constant(Ty::Bool, 1);
        for n in 0..parts {
            let (Some(a), Some(b)) = (Self::part(a, n), Self::part(b, n)) else {
                return self.fail(Diagnostic::new(at, "these values cannot be compared"));
            };
            let (a, b) = self.unify(a, b, at)?;
            let same = self.compare_values(&a, &b, at)?;
            all = fold::binary(Ty::Bool, Binary::LogicalAnd, all, same);
        }
        let [a, b] = [a, b].map(|value| match value {
            Val::Place(Place::Header(_, header, _)) => Some(Expr { ty: Ty::Bool, kind: ExprKind::Valid(*header) }),
            Val::Whole(Type::Header(_), _) => Some(Expr::constant(Ty::Bool, 1)),
            _ => None,
        });
        let (Some(a), Some(b)) = (a, b) else { return Ok(all) };
        // Headers are equal if both are invalid, or both valid with equal fields (§8.17).
        let valid = fold::binary(Ty::Bool, Binary::Eq, a.clone(), b);
        let neither = fold::unary(crate::ir::Unary::Not, a);
        let same = fold::binary(Ty::Bool, Binary::LogicalOr, neither, all);
        Ok(fold::binary(Ty::Bool, Binary::LogicalAnd, valid, same))
    }

    /// Evaluates an operator on two `int` constants.
    fn eval_binary(&mut self, op: Operator, a: Num, b: Num, at: SourceSpan) -> Checked<Val> {
        let Operator::Ir(ir) = op else {
            let result = if op == Operator::Div { a.div(b) } else { a.rem(b) };
            return match result {
                Some(result) => Ok(Val::Num(result)),
                None => self.fail(Diagnostic::new(at, format!("cannot divide {a} by {b}: both must be positive"))),
            };
        };
        let order = a.cmp(&b);
        let result = match ir {
            Binary::Eq => return Ok(Val::bool(order.is_eq())),
            Binary::Ne => return Ok(Val::bool(order.is_ne())),
            Binary::Lt => return Ok(Val::bool(order.is_lt())),
            Binary::Le => return Ok(Val::bool(order.is_le())),
            Binary::Gt => return Ok(Val::bool(order.is_gt())),
            Binary::Ge => return Ok(Val::bool(order.is_ge())),
            Binary::Add => a.add(b),
            Binary::Sub => a.add(b.negate()),
            Binary::Mul => a.mul(b),
            Binary::Shl => a.shl(b),
            Binary::Shr => a.shr(b),
            Binary::And => a.bitwise(b, |a, b| a & b, |a, b| a & b),
            Binary::Or => a.bitwise(b, |a, b| a | b, |a, b| a | b),
            Binary::Xor => a.bitwise(b, |a, b| a ^ b, |a, b| a ^ b),
            Binary::AddSaturating | Binary::SubSaturating | Binary::Concat => {
                let wrong = Diagnostic::new(at, "this operator needs operands with a width");
                return self.fail(wrong.hint(format!("add widths to the numbers: 8w{a}")));
            }
            Binary::LogicalAnd | Binary::LogicalOr => None,
        };
        match result {
            Some(result) => Ok(Val::Num(result)),
            None => self.fail(Diagnostic::new(at, "the result has more than 128 bits")),
        }
    }
}

/// True for two tuples of the same length, which are compared item by item.
fn are_tuples_of_same_length(a: &Type, b: &Type) -> bool {
    matches!((a, b), (Type::Tuple(a), Type::Tuple(b)) if a.len() == b.len())
}
