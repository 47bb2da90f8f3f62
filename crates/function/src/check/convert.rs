//! One type to another: what happens unasked, and what casts do (P4_16 §8.11).

use super::types::Type;
use super::value::Val;
use super::{Checked, Checker, Num, fold};
use crate::diag::{Diagnostic, Reported};
use crate::ir::{Expr, Span, Ty};

impl Checker<'_> {
    /// The value as one of this type, where that goes without saying.
    pub(super) fn coerce(&mut self, value: Val, to: &Type, at: Span) -> Checked<Val> {
        if value.ty().as_ref() == Some(to) {
            return Ok(value);
        }
        match (&value, to) {
            (Val::Num(number), Type::Bit(_) | Type::Int(_)) => self.sized(*number, to, at),
            (Val::List(_) | Val::Whole(Type::Tuple(_), _), Type::Struct(_) | Type::Header(_) | Type::Tuple(_)) => {
                self.listed(value, to, at)
            }
            (Val::Record(_), Type::Struct(_) | Type::Header(_)) => self.record(value, to, at),
            _ => {
                // A serializable enum is a number of its type wherever one is expected.
                if let Some(Type::Enum(of)) = value.ty()
                    && of.of.as_ref() == Some(to)
                {
                    let (_, expr) = self.scalar(&value, at)?;
                    return Ok(Val::Scalar(to.clone(), expr));
                }
                self.mismatch(&value, to, at)
            }
        }
    }

    fn mismatch<T>(&mut self, value: &Val, to: &Type, at: Span) -> Checked<T> {
        let wrong = Diagnostic::new(at, format!("expected `{to}`, found {}", value.describe()));
        let from = value.ty();
        let wrong = match (from.as_ref().map(Type::base), to.base()) {
            (_, Type::Bool) if matches!(value, Val::Num(_)) => wrong.hint("write `true` or `false`"),
            (Some(Type::Bit(_) | Type::Int(_)), Type::Bool) => wrong.hint("compare it: `x != 0`, `x == 1`"),
            (Some(Type::Bool), Type::Bit(width)) if *width > 1 => {
                wrong.hint(format!("write `(bit<{width}>)(bit<1>)` before it"))
            }
            (Some(Type::Bit(a)), Type::Int(b)) if a != b => {
                wrong.hint(format!("write `(int<{b}>)(bit<{b}>)` before it"))
            }
            (Some(Type::Int(a)), Type::Bit(b)) if a != b => {
                wrong.hint(format!("write `(bit<{b}>)(int<{b}>)` before it"))
            }
            (Some(Type::Bit(32)), Type::Float) => {
                wrong.hint("`(float)` before it takes its bits as IEEE 754; sums are the handler's work")
            }
            (Some(from), _) if castable(from, to) => wrong.hint(format!("write `({to})` before it")),
            _ => wrong,
        };
        self.fail(wrong)
    }

    /// A number of a width.
    fn sized(&mut self, number: Num, to: &Type, at: Span) -> Checked<Val> {
        let ty = to.scalar().ok_or(Reported)?;
        if !number.fits(ty.width(), ty.signed()) {
            let wrong = Diagnostic::new(at, format!("{number} does not fit in `{to}`"));
            return self.fail(wrong.hint(format!("write `({to})` before it to keep its lowest {} bits", ty.width())));
        }
        Ok(Val::Scalar(to.clone(), Expr::constant(ty, number.bits(ty.width()))))
    }

    /// `{ a, b }` as a struct, header or tuple.
    fn listed(&mut self, value: Val, to: &Type, at: Span) -> Checked<Val> {
        let (Val::List(items) | Val::Whole(_, items)) = value else { return Err(Reported) };
        let types: Vec<Type> = match to {
            Type::Struct(of) | Type::Header(of) => of.fields.iter().map(|field| field.ty.clone()).collect(),
            Type::Tuple(types) => types.to_vec(),
            _ => return Err(Reported),
        };
        if types.len() != items.len() {
            let wrong = format!("expected `{to}` with {} values, found a list of {}", types.len(), items.len());
            return self.fail(Diagnostic::new(at, wrong));
        }
        let items = items.into_iter().zip(&types).map(|(item, ty)| self.coerce(item, ty, at));
        let items = items.collect::<Checked<Vec<_>>>()?;
        Ok(Val::Whole(to.clone(), items))
    }

    /// `{ x = a, y = b }` as a struct or header.
    fn record(&mut self, value: Val, to: &Type, at: Span) -> Checked<Val> {
        let (Val::Record(mut given), Type::Struct(of) | Type::Header(of)) = (value, to) else { return Err(Reported) };
        let mut items = Vec::new();
        for field in &of.fields {
            let Some(place) = given.iter().position(|(name, _)| name.text == field.name) else {
                let wrong = Diagnostic::new(at, format!("no value for field `{}` of `{}`", field.name, of.name));
                return self.fail(wrong);
            };
            let (name, item) = given.swap_remove(place);
            items.push(self.coerce(item, &field.ty, name.at)?);
        }
        if let Some((name, _)) = given.first() {
            return self.fail(Diagnostic::new(name.at, format!("`{}` has no further field `{}`", of.name, name.text)));
        }
        Ok(Val::Whole(to.clone(), items))
    }

    /// `(to) value`
    pub(super) fn cast(&mut self, value: Val, to: &Type, at: Span) -> Checked<Val> {
        if value.ty().as_ref() == Some(to) {
            return Ok(value);
        }
        let number = match (&value, to.base()) {
            (Val::Num(number), Type::Bit(_) | Type::Int(_)) => Some(*number),
            (Val::Num(_), Type::Num) => return Ok(value),
            (Val::Num(number), Type::Bool) if *number == Num::from(0) || *number == Num::from(1) => {
                return Ok(Val::bool(*number == Num::from(1)));
            }
            (Val::List(_) | Val::Record(_), _) => return self.coerce(value, to, at),
            _ => None,
        };
        if let (Some(number), Some(ty)) = (number, to.scalar()) {
            return Ok(Val::Scalar(to.clone(), Expr::constant(ty, number.bits(ty.width()))));
        }
        // What is known stays known: bit<8> x = (int) 8w3.
        if *to == Type::Num
            && let (Some(ty), Some(bits)) = (value.ty().and_then(|ty| ty.base().scalar()), value.constant())
        {
            return Ok(Val::Num(Num::of_bits(bits, ty.width(), ty.signed())));
        }
        let from = value.ty();
        match (from, to.scalar()) {
            (Some(from), Some(ty)) if castable(&from, to) => {
                let (_, expr) = self.scalar(&value, at)?;
                Ok(Val::Scalar(to.clone(), fold::cast(expr, ty)))
            }
            _ => {
                let wrong = Diagnostic::new(at, format!("no cast to `{to}` from {}", value.describe()));
                self.fail(match (value.ty().as_ref().map(Type::base), to.base()) {
                    (Some(Type::Bit(_)), Type::Int(width)) => {
                        wrong.hint(format!("one step at a time: `(int<{width}>)(bit<{width}>)`"))
                    }
                    (Some(Type::Int(_)), Type::Bit(width)) => {
                        wrong.hint(format!("one step at a time: `(bit<{width}>)(int<{width}>)`"))
                    }
                    (Some(Type::Bool), Type::Bit(width)) => {
                        wrong.hint(format!("one step at a time: `(bit<{width}>)(bit<1>)`"))
                    }
                    _ => wrong,
                })
            }
        }
    }

    /// A number that is known when compiling, of `int` or of a width.
    pub(super) fn number(&mut self, expr: &crate::ast::Expr) -> Checked<Num> {
        let (written, value) = self.apart(|checker| checker.expr(expr));
        let value = value?;
        let ty = value.ty().and_then(|ty| ty.base().scalar());
        match (&value, ty, value.constant()) {
            (Val::Num(number), ..) => Ok(*number),
            (_, Some(ty @ (Ty::Bit(_) | Ty::Int(_))), Some(bits)) if written.is_empty() => {
                Ok(Num::of_bits(bits, ty.width(), ty.signed()))
            }
            _ => {
                let found = value.describe();
                let wrong = format!("expected a number that is known when compiling, found {found}");
                self.fail(Diagnostic::new(expr.at, wrong))
            }
        }
    }
}

/// Whether a cast goes from one to the other.
fn castable(from: &Type, to: &Type) -> bool {
    match (from, to) {
        (Type::Bit(1), Type::Bool) | (Type::Bool, Type::Bit(1)) => true,
        (Type::Bit(32), Type::Float) | (Type::Float, Type::Bit(32)) => true,
        (Type::Bit(_), Type::Bit(_)) | (Type::Int(_), Type::Int(_)) => true,
        (Type::Bit(a), Type::Int(b)) | (Type::Int(a), Type::Bit(b)) => a == b,
        (from, to) if from == to => from.scalar().is_some(),
        (Type::New(from), to) => castable(&from.1, to),
        (from, Type::New(to)) => castable(from, &to.1),
        (Type::Enum(of), to) => of.of.as_ref().is_some_and(|of| castable(of, to)),
        (from, Type::Enum(of)) => of.of.as_ref().is_some_and(|of| castable(from, of)),
        _ => false,
    }
}
