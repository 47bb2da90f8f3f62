//! `select`: values to states (P4_16 §13.6).

use super::types::Type;
use super::value::Val;
use super::{Checked, Checker};
use crate::ast::{self, ExprKind};
use crate::diag::{Diagnostic, Reported};
use crate::ir::{Expr, Span, Transition, Value};

/// Cases of one `select`.
const CASES_MAX: usize = 1024;

/// Finds the state of a case.
type To<'x, 'a> = dyn FnMut(&mut Checker<'a>, &ast::Name) -> Checked<Transition> + 'x;

impl<'a> Checker<'a> {
    pub(super) fn select(
        &mut self,
        keys: &[ast::Expr],
        cases: &[(Vec<ast::Expr>, ast::Name)],
        at: Span,
        to: &mut To<'_, 'a>,
    ) -> Checked<Transition> {
        if cases.len() > CASES_MAX {
            return self.fail(Diagnostic::new(at, format!("a `select` of {} cases, at most {CASES_MAX}", cases.len())));
        }
        let looked_at = self.select_keys(keys);
        let mut known = Vec::new();
        for (values, name) in cases {
            let next = to(self, name);
            let Ok((types, _)) = &looked_at else { continue };
            let values = self.select_values(values, types, name.at);
            if let (Ok(values), Ok(next)) = (values, next) {
                known.push((values, next));
            }
        }
        let (_, keys) = looked_at?;
        Ok(Transition::Select { keys, cases: known })
    }

    fn select_keys(&mut self, keys: &[ast::Expr]) -> Checked<(Vec<Type>, Vec<Expr>)> {
        let (mut types, mut exprs) = (Vec::new(), Vec::new());
        for key in keys {
            let before = self.block.len();
            let value = self.expr(key)?;
            self.read_before(&mut exprs, before, key.at)?;
            let value = match value {
                Val::Place(_) | Val::Scalar(..) => value,
                other => {
                    let wrong = format!("expected a value to select by, found {}", other.describe());
                    return self.fail(Diagnostic::new(key.at, wrong));
                }
            };
            let (ty, expr) = self.scalar(&value, key.at)?;
            types.push(ty);
            exprs.push(expr);
        }
        Ok((types, exprs))
    }

    fn select_values(&mut self, values: &[ast::Expr], types: &[Type], at: Span) -> Checked<Vec<Value>> {
        // `default` alone stands for all.
        if let [ast::Expr { kind: ExprKind::Any, .. }] = values {
            return Ok(vec![Value::Any; types.len()]);
        }
        if values.len() != types.len() {
            let wrong = format!("expected {} values, found {}", types.len(), values.len());
            return self.fail(Diagnostic::new(values.first().map_or(at, |value| value.at), wrong));
        }
        let found: Vec<Checked<Value>> =
            values.iter().zip(types).map(|(value, ty)| self.select_value(value, ty)).collect();
        found.into_iter().collect()
    }

    fn select_value(&mut self, value: &ast::Expr, ty: &Type) -> Checked<Value> {
        let Some(scalar) = ty.scalar() else { return Err(Reported) };
        let all = super::num::mask(scalar.width());
        Ok(match &value.kind {
            ExprKind::Any => Value::Any,
            ExprKind::Mask(of, mask) => {
                let (of, mask) = (self.known(of, ty)?, self.known(mask, ty)?);
                Value::Mask(of & mask, mask)
            }
            ExprKind::Range(low, high) => {
                if scalar.signed() {
                    let wrong = Diagnostic::new(value.at, format!("a range of `{ty}`"));
                    return self.fail(wrong.hint("ranges are of `bit`"));
                }
                let (first, last) = (self.known(low, ty)?, self.known(high, ty)?);
                if first > last {
                    let wrong = Diagnostic::new(value.at, format!("an empty range: {first} .. {last}"));
                    return self.fail(wrong.hint("the lowest value comes first"));
                }
                Value::Range(first, last)
            }
            _ => Value::Mask(self.known(value, ty)?, all),
        })
    }
}
