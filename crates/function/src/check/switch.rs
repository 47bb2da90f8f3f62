//! `switch`: on the action that a table ran, or on a value (P4_16 §12.7).

use super::table::TableItem;
use super::types::Type;
use super::{Checked, Checker, fold};
use crate::ast::{self, Case, ExprKind};
use crate::diag::Diagnostic;
use crate::ir::{Binary, Block, Expr, Span, StmtKind, Ty};
use std::rc::Rc;

/// Bodies of one `switch`.
const CASES_MAX: usize = 64;

impl<'a> Checker<'a> {
    pub(super) fn switch(&mut self, of: &ast::Expr, cases: &[Case], at: Span) -> Checked<()> {
        if let ExprKind::Member(call, name) = &of.kind
            && &*name.text == "action_run"
            && let ExprKind::Call { of: called, args, .. } = &call.kind
            && let Some(table) = self.applied(called)
        {
            let to = self.temporary(Ty::Bit(32), at)?;
            self.apply_with(&table, args, None, Some(to), of.at)?;
            let ran = Expr::slot(Ty::Bit(32), to);
            return self.cases(cases, at, &ran, &mut |checker, label| checker.action_label(&table, label));
        }
        let value = self.expr(of)?;
        let value = self.kept(value, of.at)?;
        let (ty, expr) = self.scalar(&value, of.at)?;
        self.cases(cases, at, &expr, &mut |checker, label| checker.expr_as(label, &ty))
    }

    /// The index of an action in its table.
    fn action_label(&mut self, table: &Rc<TableItem>, label: &ast::Expr) -> Checked<Expr> {
        let ExprKind::Name(name) = &label.kind else {
            return self.fail(Diagnostic::new(label.at, "expected the name of an action"));
        };
        match table.actions.iter().position(|action| action == name) {
            Some(index) => Ok(Expr::constant(Ty::Bit(32), index as u128)),
            None => {
                let wrong = Diagnostic::new(label.at, format!("table `{}` has no action `{name}`", table.name));
                self.fail(wrong.hint(format!("it has {}", table.actions.join(", "))))
            }
        }
    }

    /// Bodies with their conditions, as `if … else if …`.
    fn cases(
        &mut self,
        cases: &[Case],
        at: Span,
        value: &Expr,
        label: &mut dyn FnMut(&mut Self, &ast::Expr) -> Checked<Expr>,
    ) -> Checked<()> {
        if cases.len() > CASES_MAX {
            let wrong = format!("a `switch` of {} cases, at most {CASES_MAX}", cases.len());
            return self.fail(Diagnostic::new(at, wrong).hint("a table with `const entries` has as many as need be"));
        }
        let (mut arms, mut default): (Vec<(Expr, Block, Span)>, Block) = (Vec::new(), Vec::new());
        let (mut condition, mut falls_to_default, mut had_default): (Option<Expr>, bool, bool) = (None, false, false);
        for case in cases {
            match &case.label {
                Some(expr) => {
                    if had_default {
                        self.tell(Diagnostic::new(case.at, "a case behind `default`").hint("`default` is the last"));
                    }
                    let Ok(wanted) = label(self, expr) else { continue };
                    if wanted.ty != value.ty || !matches!(wanted.kind, crate::ir::ExprKind::Const(_)) {
                        self.tell(Diagnostic::new(expr.at, "expected a value that is known when compiling"));
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
            let block = self.block_of(body);
            if falls_to_default {
                // Labels that fall through to it need nothing of their own.
                default = block;
                condition = None;
                falls_to_default = false;
            } else if let Some(condition) = condition.take() {
                arms.push((condition, block, case.at));
            }
        }
        let mut otherwise = default;
        for (condition, then, at) in arms.into_iter().rev() {
            let (block, ()) = self.apart(|checker| checker.emit(StmtKind::If { condition, then, otherwise }, at));
            otherwise = block;
        }
        self.block.append(&mut otherwise);
        Ok(())
    }

    /// `table.apply().hit`, `.miss`
    pub(super) fn table_result(
        &mut self,
        table: &Rc<TableItem>,
        args: &[ast::Arg],
        name: &ast::Name,
        at: Span,
    ) -> Checked<super::value::Val> {
        let hit = match &*name.text {
            "hit" => true,
            "miss" => false,
            "action_run" => {
                let wrong = Diagnostic::new(at, "`action_run` outside of a `switch`");
                return self.fail(wrong.hint(format!("write `switch ({}.apply().action_run) {{ … }}`", table.name)));
            }
            other => {
                let wrong = Diagnostic::new(name.at, format!("`apply` has no `{other}`"));
                return self.fail(wrong.hint("there are hit, miss, action_run"));
            }
        };
        let to = self.temporary(Ty::Bool, at)?;
        self.apply_with(table, args, Some(to), None, at)?;
        let value = Expr::slot(Ty::Bool, to);
        let value = if hit { value } else { fold::unary(crate::ir::Unary::Not, value) };
        Ok(super::value::Val::Scalar(Type::Bool, value))
    }
}
