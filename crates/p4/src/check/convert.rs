//! Type conversion: implicit conversions and casts (P4_16 §8.11).

use super::types::Type;
use super::value::Val;
use super::{Checked, Checker, Num, fold};
use crate::diag::{Diagnostic, Reported};
use crate::ir::{Expr, SourceSpan, Ty};

impl Checker<'_> {
    /// Converts a value to a type implicitly.
    pub(super) fn coerce(&mut self, value: Val, to: &Type, at: SourceSpan) -> Checked<Val> {
        if value.ty().as_ref() == Some(to) {
            return Ok(value);
        }
        match (&value, to) {
            (Val::Num(number), Type::Bit(_) | Type::Int(_)) => self.fit_number(*number, to, at),
            (Val::List(_) | Val::Whole(Type::Tuple(_), _), Type::Struct(_) | Type::Header(_) | Type::Tuple(_)) => {
                self.convert_list(value, to, at)
            }
            (Val::Record(_), Type::Struct(_) | Type::Header(_)) => self.convert_record(value, to, at),
            _ => {
                // A serializable enum converts to its underlying type implicitly.
                if let Some(Type::Enum(of)) = value.ty()
                    && of.of.as_ref() == Some(to)
                {
                    let (_, expr) = self.load_scalar(&value, at)?;
                    return Ok(Val::Scalar(to.clone(), expr));
                }
                self.report_mismatch(&value, to, at)
            }
        }
    }

    fn report_mismatch<T>(&mut self, value: &Val, to: &Type, at: SourceSpan) -> Checked<T> {
        let wrong = Diagnostic::new(at, format!("expected `{to}`, found {}", value.describe()));
        let from = value.ty();
        let wrong = match (from.as_ref().map(Type::base), to.base()) {
            (_, Type::Bool) if matches!(value, Val::Num(_)) => wrong.hint("write `true` or `false`"),
            (Some(Type::Bit(_) | Type::Int(_)), Type::Bool) => wrong.hint("compare it: `x != 0`, `x == 1`"),
            (Some(Type::Bool), Type::Bit(width)) if *width > 1 => {
                wrong.hint(format!("add a cast: `(bit<{width}>)(bit<1>)`"))
            }
            (Some(Type::Bit(a)), Type::Int(b)) if a != b => wrong.hint(format!("add a cast: `(int<{b}>)(bit<{b}>)`")),
            (Some(Type::Int(a)), Type::Bit(b)) if a != b => wrong.hint(format!("add a cast: `(bit<{b}>)(int<{b}>)`")),
            (Some(Type::Bit(32)), Type::Float) => {
                wrong.hint("`(float)` reinterprets the bits as IEEE 754; compute with floats in the handler")
            }
            (Some(from), _) if is_castable(from, to) => wrong.hint(format!("add a cast: `({to})`")),
            _ => wrong,
        };
        self.fail(wrong)
    }

    /// Converts an `int` constant to a type with a width.
    fn fit_number(&mut self, number: Num, to: &Type, at: SourceSpan) -> Checked<Val> {
        let ty = to.scalar().ok_or(Reported)?;
        if !number.fits(ty.width(), ty.signed()) {
            let wrong = Diagnostic::new(at, format!("{number} does not fit in `{to}`"));
            return self.fail(wrong.hint(format!("to keep its lowest {} bits, add a cast: `({to})`", ty.width())));
        }
        Ok(Val::Scalar(to.clone(), Expr::constant(ty, number.bits(ty.width()))))
    }

    /// Converts `{ a, b }` to a struct, header or tuple.
    fn convert_list(&mut self, value: Val, to: &Type, at: SourceSpan) -> Checked<Val> {
        let (Val::List(items) | Val::Whole(_, items)) = value else { return Err(Reported) };
        let types: Vec<Type> = match to {
            Type::Struct(of) | Type::Header(of) => of.fields.iter().map(|field| field.ty.clone()).collect(),
            Type::Tuple(types) => types.to_vec(),
            _ => return Err(Reported),
        };
        if types.len() != items.len() {
            let wrong = format!("expected {} values for `{to}`, found {}", types.len(), items.len());
            return self.fail(Diagnostic::new(at, wrong));
        }
        let items = items.into_iter().zip(&types).map(|(item, ty)| self.coerce(item, ty, at));
        let items = items.collect::<Checked<Vec<_>>>()?;
        Ok(Val::Whole(to.clone(), items))
    }

    /// Converts `{ x = a, y = b }` to a struct or header.
    fn convert_record(&mut self, value: Val, to: &Type, at: SourceSpan) -> Checked<Val> {
        let (Val::Record(mut given), Type::Struct(of) | Type::Header(of)) = (value, to) else { return Err(Reported) };
        let mut items = Vec::new();
        for field in &of.fields {
            let Some(place) = given.iter().position(|(name, _)| name.text == field.name) else {
                let wrong = Diagnostic::new(at, format!("missing field `{}` of `{}`", field.name, of.name));
                return self.fail(wrong);
            };
            let (name, item) = given.swap_remove(place);
            items.push(self.coerce(item, &field.ty, name.at)?);
        }
        if let Some((name, _)) = given.first() {
            return self.fail(Diagnostic::new(name.at, format!("`{}` has no field `{}`", of.name, name.text)));
        }
        Ok(Val::Whole(to.clone(), items))
    }

    /// Type-checks the cast `(to) value`.
    pub(super) fn check_cast(&mut self, value: Val, to: &Type, at: SourceSpan) -> Checked<Val> {
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
        // A cast of a constant is a constant: `bit<8> x = (int) 8w3`.
        if *to == Type::Num
            && let (Some(ty), Some(bits)) = (value.ty().and_then(|ty| ty.base().scalar()), value.constant())
        {
            return Ok(Val::Num(Num::of_bits(bits, ty.width(), ty.signed())));
        }
        let from = value.ty();
        match (from, to.scalar()) {
            (Some(from), Some(ty)) if is_castable(&from, to) => {
                let (_, expr) = self.load_scalar(&value, at)?;
                Ok(Val::Scalar(to.clone(), fold::cast(expr, ty)))
            }
            _ => {
                let wrong = Diagnostic::new(at, format!("invalid cast to `{to}` from {}", value.describe()));
                self.fail(match (value.ty().as_ref().map(Type::base), to.base()) {
                    (Some(Type::Bit(_)), Type::Int(width)) => {
                        wrong.hint(format!("cast in steps: `(int<{width}>)(bit<{width}>)`"))
                    }
                    (Some(Type::Int(_)), Type::Bit(width)) => {
                        wrong.hint(format!("cast in steps: `(bit<{width}>)(int<{width}>)`"))
                    }
                    (Some(Type::Bool), Type::Bit(width)) => {
                        wrong.hint(format!("cast in steps: `(bit<{width}>)(bit<1>)`"))
                    }
                    _ => wrong,
                })
            }
        }
    }

    /// Evaluates a compile-time number, of type `int` or of a width.
    pub(super) fn eval_number(&mut self, expr: &crate::ast::Expr) -> Checked<Num> {
        let (written, value) = self.collect_block(|checker| checker.check_expr(expr));
        let value = value?;
        let ty = value.ty().and_then(|ty| ty.base().scalar());
        match (&value, ty, value.constant()) {
            (Val::Num(number), ..) => Ok(*number),
            (_, Some(ty @ (Ty::Bit(_) | Ty::Int(_))), Some(bits)) if written.is_empty() => {
                Ok(Num::of_bits(bits, ty.width(), ty.signed()))
            }
            _ => {
                let found = value.describe();
                let wrong = format!("expected a compile-time number, found {found}");
                self.fail(Diagnostic::new(expr.at, wrong))
            }
        }
    }
}

/// True if a cast between the types is allowed.
fn is_castable(from: &Type, to: &Type) -> bool {
    match (from, to) {
        (Type::Bit(1), Type::Bool) | (Type::Bool, Type::Bit(1)) => true,
        (Type::Bit(32), Type::Float) | (Type::Float, Type::Bit(32)) => true,
        (Type::Bit(_), Type::Bit(_)) | (Type::Int(_), Type::Int(_)) => true,
        (Type::Bit(a), Type::Int(b)) | (Type::Int(a), Type::Bit(b)) => a == b,
        (from, to) if from == to => from.scalar().is_some(),
        (Type::New(from), to) => is_castable(&from.1, to),
        (from, Type::New(to)) => is_castable(from, &to.1),
        (Type::Enum(of), to) => of.of.as_ref().is_some_and(|of| is_castable(of, to)),
        (from, Type::Enum(of)) => of.of.as_ref().is_some_and(|of| is_castable(from, of)),
        _ => false,
    }
}
