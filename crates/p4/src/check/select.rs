//! `select` transitions (P4_16 §13.6).

use super::types::Type;
use super::value::Val;
use super::{Checked, Checker};
use crate::ast::{self, ExprKind};
use crate::diag::{Diagnostic, Reported};
use crate::ir::{Expr, Keyset, SourceSpan, Transition};

/// Largest number of cases of one `select`.
const CASES_MAX: usize = 1024;

/// Resolves the target state of a case.
type ResolveState<'x, 'a> = dyn FnMut(&mut Checker<'a>, &ast::Name) -> Checked<Transition> + 'x;

impl<'a> Checker<'a> {
    pub(super) fn check_select(
        &mut self,
        keys: &[ast::Expr],
        cases: &[(Vec<ast::Expr>, ast::Name)],
        at: SourceSpan,
        to: &mut ResolveState<'_, 'a>,
    ) -> Checked<Transition> {
        if cases.len() > CASES_MAX {
            return self
                .fail(Diagnostic::new(at, format!("`select` with {} cases (at most {CASES_MAX})", cases.len())));
        }
        let looked_at = self.check_select_keys(keys);
        let mut known = Vec::new();
        for (values, name) in cases {
            let next = to(self, name);
            let Ok((types, _)) = &looked_at else { continue };
            let values = self.check_select_values(values, types, name.at);
            if let (Ok(values), Ok(next)) = (values, next) {
                known.push((values, next));
            }
        }
        let (_, keys) = looked_at?;
        Ok(Transition::Select { keys, cases: known })
    }

    fn check_select_keys(&mut self, keys: &[ast::Expr]) -> Checked<(Vec<Type>, Vec<Expr>)> {
        let (mut types, mut exprs) = (Vec::new(), Vec::new());
        for key in keys {
            let before = self.block.len();
            let value = self.check_expr(key)?;
            self.save_exprs_before(&mut exprs, before, key.at)?;
            let value = match value {
                Val::Place(_) | Val::Scalar(..) => value,
                other => {
                    let wrong = format!("expected a `select` key, found {}", other.describe());
                    return self.fail(Diagnostic::new(key.at, wrong));
                }
            };
            let (ty, expr) = self.load_scalar(&value, key.at)?;
            types.push(ty);
            exprs.push(expr);
        }
        Ok((types, exprs))
    }

    fn check_select_values(&mut self, values: &[ast::Expr], types: &[Type], at: SourceSpan) -> Checked<Vec<Keyset>> {
        // A sole `default` stands for all keys.
        if let [ast::Expr { kind: ExprKind::Any, .. }] = values {
            return Ok(vec![Keyset::Any; types.len()]);
        }
        if values.len() != types.len() {
            let wrong = format!("expected {} values, found {}", types.len(), values.len());
            return self.fail(Diagnostic::new(values.first().map_or(at, |value| value.at), wrong));
        }
        let found: Vec<Checked<Keyset>> =
            values.iter().zip(types).map(|(value, ty)| self.check_select_value(value, ty)).collect();
        found.into_iter().collect()
    }

    fn check_select_value(&mut self, value: &ast::Expr, ty: &Type) -> Checked<Keyset> {
        let Some(scalar) = ty.scalar() else { return Err(Reported) };
        let all = super::num::mask(scalar.width());
        Ok(match &value.kind {
            ExprKind::Any => Keyset::Any,
            ExprKind::Mask(of, mask) => {
                let (of, mask) = (self.eval_bits(of, ty)?, self.eval_bits(mask, ty)?);
                Keyset::Mask(of & mask, mask)
            }
            ExprKind::Range(low, high) => {
                if scalar.signed() {
                    let wrong = Diagnostic::new(value.at, format!("a range cannot have type `{ty}`"));
                    return self.fail(wrong.hint("the type of a range must be `bit`"));
                }
                let (first, last) = (self.eval_bits(low, ty)?, self.eval_bits(high, ty)?);
                if first > last {
                    let wrong = Diagnostic::new(value.at, format!("empty range {first} .. {last}"));
                    return self.fail(wrong.hint("the lowest value comes first"));
                }
                Keyset::Range(first, last)
            }
            _ => Keyset::Mask(self.eval_bits(value, ty)?, all),
        })
    }
}
