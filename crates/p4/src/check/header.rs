//! Methods of headers and header stacks (P4_16 §8.17, §8.18).

use super::types::{Struct, Type};
use super::value::{Place, Val};
use super::{Checked, Checker, Num};
use crate::ast;
use crate::diag::Diagnostic;
use crate::ir::{Expr, ExprKind, HeaderId, SourceSpan, StmtKind, Ty};
use std::rc::Rc;

/// Total width of the fixed-width fields, bits.
pub(super) fn fixed_bits(of: &Struct) -> u32 {
    of.fields.iter().filter_map(|field| field.ty.scalar()).map(|ty| u32::from(ty.width())).sum()
}

impl Checker<'_> {
    pub(super) fn check_header_method(
        &mut self,
        of: &Rc<Struct>,
        header: HeaderId,
        method: &ast::Name,
        args: &[ast::Arg],
        at: SourceSpan,
    ) -> Checked<Val> {
        let usage = format!("{}()", method.text);
        let valid = match &*method.text {
            "isValid" => {
                let [] = self.expect_arguments(args, &usage, at)?;
                return Ok(Val::Scalar(Type::Bool, Expr { ty: Ty::Bool, kind: ExprKind::Valid(header) }));
            }
            "minSizeInBits" => return Ok(Val::Num(Num::from(u128::from(fixed_bits(of))))),
            "minSizeInBytes" => return Ok(Val::Num(Num::from(u128::from(fixed_bits(of) / 8)))),
            "setValid" => true,
            "setInvalid" => false,
            other => {
                let wrong = Diagnostic::new(method.at, format!("a header has no method `{other}`"));
                return self.fail(wrong.hint("available: isValid, setValid, setInvalid"));
            }
        };
        let [] = self.expect_arguments(args, &usage, at)?;
        self.emit(StmtKind::SetValid { header, valid }, at);
        Ok(Val::Void)
    }

    /// Checks `push_front(n)` and `pop_front(n)`.
    pub(super) fn check_stack_method(
        &mut self,
        items: &[Place],
        method: &ast::Name,
        args: &[ast::Arg],
        at: SourceSpan,
    ) -> Checked<Val> {
        let push = match &*method.text {
            "push_front" => true,
            "pop_front" => false,
            other => {
                let wrong = Diagnostic::new(method.at, format!("a header stack has no method `{other}`"));
                return self.fail(wrong.hint("available: push_front, pop_front"));
            }
        };
        let [by] = self.expect_arguments(args, &format!("{}(count)", method.text), at)?;
        let by = self.eval_count(&by.value, "count", items.len() as u32)? as usize;
        let kept = items.len() - by;
        for n in 0..kept {
            let (to, from) = if push { (items.len() - 1 - n, kept - 1 - n) } else { (n, n + by) };
            self.emit_assign(&items[to], Val::Place(items[from].clone()), at)?;
        }
        let emptied = if push { 0..by } else { kept..items.len() };
        for item in &items[emptied] {
            if let Place::Header(_, header, _) = item {
                self.emit(StmtKind::SetValid { header: *header, valid: false }, at);
            }
        }
        Ok(Val::Void)
    }
}
