//! `switch` statements, on a table's action or on a value (P4_16 §12.7).

use super::table::TableItem;
use super::types::Type;
use super::{Checked, Checker, fold};
use crate::ast::{self, Case, ExprKind};
use crate::diag::Diagnostic;
use crate::ir::{Binary, Block, Expr, SourceSpan, StmtKind, Ty};
use std::rc::Rc;

/// Largest number of cases with a body in one `switch`.
const CASES_MAX: usize = 64;

impl<'a> Checker<'a> {
    pub(super) fn check_switch(&mut self, of: &ast::Expr, cases: &[Case], at: SourceSpan) -> Checked<()> {
        if let ExprKind::Member(call, name) = &of.kind
            && &*name.text == "action_run"
            && let ExprKind::Call { of: called, args, .. } = &call.kind
            && let Some(table) = self.applied_table(called)
        {
            let to = self.new_temporary(Ty::Bit(32), at)?;
            self.emit_apply_with(&table, args, None, Some(to), of.at)?;
            let ran = Expr::slot(Ty::Bit(32), to);
            return self
                .lower_cases(cases, at, &ran, &mut |checker, label| checker.resolve_action_label(&table, label));
        }
        let value = self.check_expr(of)?;
        let value = self.save_value(value, of.at)?;
        let (ty, expr) = self.load_scalar(&value, of.at)?;
        self.lower_cases(cases, at, &expr, &mut |checker, label| checker.check_expr_as(label, &ty))
    }

    /// Index of an action within its table.
    fn resolve_action_label(&mut self, table: &Rc<TableItem>, label: &ast::Expr) -> Checked<Expr> {
        let ExprKind::Name(name) = &label.kind else {
            return self.fail(Diagnostic::new(label.at, "expected an action name"));
        };
        match table.actions.iter().position(|action| action == name) {
            Some(index) => Ok(Expr::constant(Ty::Bit(32), index as u128)),
            None => {
                let wrong = Diagnostic::new(label.at, format!("table `{}` has no action `{name}`", table.name));
                self.fail(wrong.hint(format!("available: {}", table.actions.join(", "))))
            }
        }
    }

    /// Lowers the cases to `if … else if …`.
    fn lower_cases(
        &mut self,
        cases: &[Case],
        at: SourceSpan,
        value: &Expr,
        label: &mut dyn FnMut(&mut Self, &ast::Expr) -> Checked<Expr>,
    ) -> Checked<()> {
        if cases.len() > CASES_MAX {
            let wrong = format!("`switch` with {} cases (at most {CASES_MAX})", cases.len());
            return self.fail(Diagnostic::new(at, wrong).hint("use a table with `const entries` for more"));
        }
        let (mut arms, mut default): (Vec<(Expr, Block, SourceSpan)>, Block) = (Vec::new(), Vec::new());
        let (mut condition, mut falls_to_default, mut had_default): (Option<Expr>, bool, bool) = (None, false, false);
        for case in cases {
            match &case.label {
                Some(expr) => {
                    if had_default {
                        self.report(
                            Diagnostic::new(case.at, "case after `default`").hint("`default` must be the last case"),
                        );
                    }
                    let Ok(wanted) = label(self, expr) else { continue };
                    if wanted.ty != value.ty || !matches!(wanted.kind, crate::ir::ExprKind::Const(_)) {
                        self.report(Diagnostic::new(expr.at, "expected a compile-time constant"));
                        continue;
                    }
                    let this = fold::binary(Ty::Bool, Binary::Eq, value.clone(), wanted);
                    condition = Some(match condition.take() {
                        Some(others) => fold::binary(Ty::Bool, Binary::LogicalOr, others, this),
                        None => this,
                    });
                }
                None => {
                    falls_to_default = true;
                    had_default = true;
                }
            }
            let Some(body) = &case.body else { continue };
            let block = self.check_block(body);
            if falls_to_default {
                // Labels that fall through to `default` need no condition.
                default = block;
                condition = None;
                falls_to_default = false;
            } else if let Some(condition) = condition.take() {
                arms.push((condition, block, case.at));
            }
        }
        let mut otherwise = default;
        for (condition, then, at) in arms.into_iter().rev() {
            let (block, ()) =
                self.collect_block(|checker| checker.emit(StmtKind::If { condition, then, otherwise }, at));
            otherwise = block;
        }
        self.block.append(&mut otherwise);
        Ok(())
    }

    /// Checks `table.apply().hit` and `.miss`.
    pub(super) fn check_table_result(
        &mut self,
        table: &Rc<TableItem>,
        args: &[ast::Arg],
        name: &ast::Name,
        at: SourceSpan,
    ) -> Checked<super::value::Val> {
        let hit = match &*name.text {
            "hit" => true,
            "miss" => false,
            "action_run" => {
                let wrong = Diagnostic::new(at, "`action_run` is allowed in `switch` only");
                return self.fail(wrong.hint(format!("write `switch ({}.apply().action_run) {{ … }}`", table.name)));
            }
            other => {
                let wrong = Diagnostic::new(name.at, format!("the result of `apply` has no field `{other}`"));
                return self.fail(wrong.hint("available: hit, miss, action_run"));
            }
        };
        let to = self.new_temporary(Ty::Bool, at)?;
        self.emit_apply_with(table, args, Some(to), None, at)?;
        let value = Expr::slot(Ty::Bool, to);
        let value = if hit { value } else { fold::unary(crate::ir::Unary::Not, value) };
        Ok(super::value::Val::Scalar(Type::Bool, value))
    }
}
